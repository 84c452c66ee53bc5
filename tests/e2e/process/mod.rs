//! The process: flags, start and stop, the files that it creates, the tour of the README,
//! and the commands about replicas.

mod built_in_apis;
mod configuration;
mod etcd;
mod families;
mod flags;
mod gated_kinds;
mod history;
mod messages;
mod outputs;
mod pod_certificates;
mod pod_groups;
mod private_files;
mod readme;
mod replica_failures;
mod replicas;
mod replication_document;
mod service_manager;
mod start_and_stop;
