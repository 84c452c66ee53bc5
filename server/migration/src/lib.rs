//! Moves the objects of a cluster from etcd into a new store, and out again.
//!
//! A *source* has the keys and values of an etcd at one revision: [`snapshot`] reads the file of `etcdctl
//! snapshot save`, [`live`] a running etcd into a [`spool`], and [`kine`] the database of k3s likewise. An
//! [`import`] decodes each value as kube-apiserver wrote it, lists what cannot be imported, and writes the
//! rest to a new store. An [`export`] writes a snapshot file from a store.
//!
//! | module | subject |
//! |---|---|
//! | [`snapshot`], [`spool`], [`live`], [`kine`] | sources |
//! | [`keys`] | where kube-apiserver keeps which object |
//! | [`decode`], `earlier` | values of kube-apiserver as stored objects; versions that are not served any more |
//! | [`import`], [`follow`], [`export`] | the moves |
//! | [`refusal`] | why an object cannot be imported |
//! | [`report`] | what was moved: numbers by kind, and a hash |
//!
//! Where kube-apiserver keeps an object, below `--etcd-prefix`:
//!
//! ```
//! use plinth_migration::keys::{Located, UpstreamKeys};
//! use plinth_registry::Registry;
//!
//! let keys = UpstreamKeys::new(&Registry::builtin());
//! let Located::Builtin { resource, namespace, name } = keys.locate("services/specs/default/web") else {
//!     panic!("not a key of a built-in kind");
//! };
//! assert_eq!((resource.plural(), namespace, name), ("services", "default", "web"));
//! assert!(matches!(keys.locate("masterleases/10.0.0.1"), Located::Internal));
//! ```

pub mod decode;
mod earlier;
pub mod export;
pub mod follow;
pub mod import;
pub mod keys;
pub mod kine;
pub mod live;
pub mod refusal;
pub mod report;
pub mod snapshot;
pub mod source;
pub mod spool;

#[cfg(test)]
mod kine_tests;
#[cfg(test)]
mod tests;
