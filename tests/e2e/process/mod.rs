//! The process: flags, start and stop, the files that it creates, and the tour of the README.

mod configuration;
mod flags;
mod private_files;
mod readme;
mod replicas;
mod service_manager;
mod start_and_stop;
