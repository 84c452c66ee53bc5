//! YAML 1.1 as upstream reads and writes it (goyaml v2 behind sigs.k8s.io/yaml).
//!
//! Reading: unquoted `yes`, `on`, `0644` and `1e3` are not strings; dates are; keys that are numbers or
//! booleans become strings; `<<` merges maps; aliases are expanded, within bounds. One document only:
//! upstream reads the first of several and silently drops the rest, this reader refuses such a body. Writing:
//! keys sorted, strings quoted only where necessary.
//!
//! ```
//! use plinth_codec::{tree, yaml};
//! let (tree, _) = yaml::to_value(b"mode: 0644\nenabled: yes\nversion: '1.0'\n").unwrap();
//! assert_eq!(tree, tree!({ "mode": 420i64, "enabled": true, "version": "1.0" }));
//! let mut out = Vec::new();
//! yaml::write(&tree, &mut out);
//! assert_eq!(out, b"enabled: true\nmode: 420\nversion: \"1.0\"\n");
//! ```

mod nodes;
mod reader;
mod resolve;
mod writer;

pub use reader::to_value;
pub use writer::{write, write_element};

#[cfg(test)]
mod tests;
