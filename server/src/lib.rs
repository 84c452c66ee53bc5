//! The Kubernetes API served from a plinth engine: the library behind the `plinth` program.
//!
//! A request flows one way; [`pipeline`] reads top to bottom:
//!
//! | step | module |
//! |---|---|
//! | connection, TLS, HTTP/1.1 and HTTP/2 | [`http`] |
//! | group, version, resource, verb | [`plinth_api::request_info`], [`plinth_api::query`] |
//! | who asks | [`authn`] |
//! | whether there is room for it now | [`flow_control`] |
//! | whether they may | [`authz`] |
//! | what is filled in and refused around an object | [`admission`] |
//! | what is recorded of it | [`audit`] |
//! | the verb | [`handlers`], with [`ownership`], [`plinth_kinds`], [`selection`], [`conversion`] |
//! | calls to services elsewhere | [`outward`] |
//! | keys of the curve that ring does not have | [`p521`] |
//! | objects over the engine | [`storage`], [`encryption`] |
//! | what goes out | [`representation`], [`plinth_api::api_error`] |
//!
//! [`registry`] says what is served, [`endpoints`] and [`discovery`] answer the paths that are no resource,
//! [`bootstrap`] makes what a first start needs, [`controllers`] keep promises that outlast a request, [`cli`]
//! is the command line.
//!
//! # In a program of your own
//!
//! ```
//! use plinth_server::cli::{runtime, start, ServeOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let data_dir = dir.path().join("data");
//! let data_dir = data_dir.to_str().ok_or("not UTF-8")?;
//! let options = ServeOptions::from_arguments(["--data-dir", data_dir, "--secure-port", "0"])?;
//! runtime()?.block_on(async {
//!     let running = start(options).await?;
//!     assert!(running.address().ip().is_loopback());
//!     // Whatever speaks to Kubernetes finds its way by this file.
//!     assert!(running.kubeconfig().is_file());
//!     running.stop().await
//! })?;
//! # Ok(())
//! # }
//! ```

pub mod admission;
pub mod allocation;
pub mod api_services;
pub mod audit;
pub mod authn;
pub mod authz;
pub mod bootstrap;
pub mod cli;
pub mod context;
pub mod controllers;
pub mod custom_resources;
pub mod discovery;
pub mod endpoints;
pub mod faults;
pub mod flags;
pub mod flow_control;
#[doc(hidden)]
pub mod fuzzing;
pub mod handlers;
pub mod heavy;
pub mod http;
pub mod latency;
pub mod listener;
pub mod metrics;
pub mod outward;
pub mod ownership;
mod permissions;
pub mod pipeline;
pub mod private_files;
pub mod published;
pub mod recovery;
pub mod registry;
pub mod reload;
pub mod representation;
pub mod selection;
pub mod service_ranges;
pub mod storage;
