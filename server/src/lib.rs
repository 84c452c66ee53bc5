//! The Kubernetes API served from a plinth engine: the library of the `plinth` program.
//!
//! The request path is `plinth_apiserver`. This crate assembles it, and adds the parts of the program:
//!
//! | subject | module |
//! |---|---|
//! | command line | [`cli`] |
//! | data directory, identity, credentials | [`bootstrap`] |
//! | where backups and checkpoints are kept | [`archives`] |
//! | admission plugins | [`admission`] |
//! | controllers | [`controllers`], each run by the loop in `reconciler` |
//! | a server among others that share a journal | [`replica`]; which of them there are: [`members`] |
//! | the client of commands that ask a server | `client` |
//! | files that are complete before they have their name | `unfinished_file` |
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
//!     // Any Kubernetes client can use this file.
//!     assert!(running.kubeconfig().is_file());
//!     running.stop().await
//! })?;
//! # Ok(())
//! # }
//! ```

#![cfg_attr(test, allow(clippy::too_many_lines, reason = "tables of tests"))]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: cli::output"))]

pub mod admission;
pub mod archives;
pub mod bootstrap;
pub mod cli;
mod client;
pub mod controllers;
#[doc(hidden)]
pub mod fuzzing;
pub mod members;
mod reconciler;
pub mod replica;
mod unfinished_file;
