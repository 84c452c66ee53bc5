//! Load generators and benchmarks: what `plinth bench` runs, and the plots of its figures.
//!
//! | module | subject |
//! |---|---|
//! | [`api`] | workloads against a server's API, over TLS, as clients see it |
//! | [`etcd`] | workloads against etcd or `plinth etcd`, over gRPC |
//! | [`journal`] | the journal of replicas alone, in etcd or Kafka |
//! | [`engine`] | the storage engine in this process, beside the limits of the machine |
//! | [`plot`] | figures of report files as SVG |
//!
//! A run is repeatable: object names, sizes and contents follow from a seed, the server it
//! starts is empty, and the report says on what machine and with which settings it was made.
//!
//! ```
//! // The bodies that a workload sends depend on nothing but their number and the seed.
//! use plinth_benches::api::objects;
//! assert_eq!(objects::config_map("cm-1", 1024, 7), objects::config_map("cm-1", 1024, 7));
//! ```

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic: output")]

pub mod api;
pub mod engine;
pub mod etcd;
pub mod journal;
mod output;
pub mod plot;

/// A benchmark that could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Of the API or its plots.
    #[error(transparent)]
    Api(#[from] api::Error),
    /// Of the engine.
    #[error(transparent)]
    Engine(#[from] engine::Error),
    /// Of a server of etcd's API.
    #[error(transparent)]
    Etcd(#[from] etcd::Error),
    /// Of a journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
}

/// `plinth bench`: which benchmark.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  plinth bench api create get --duration 5\n  plinth bench engine --only writes,reads\n  plinth bench plot api.json --to docs/plots"
)]
pub struct Options {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The benchmarks, and what is made of their reports.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Measure the API of a server
    Api(Box<api::Options>),
    /// Measure the storage engine beside RocksDB and the disk
    Engine(engine::Options),
    /// Measure etcd, or plinth etcd
    Etcd(etcd::Options),
    /// Measure the journal of replicas, without replicas
    Journal(journal::Options),
    /// Draw report files as SVG
    Plot(plot::Options),
}

/// Runs the chosen benchmark to its end. `connect` connects to a journal.
pub fn run(options: Options, connect: &journal::Connect<'_>) -> Result<(), Error> {
    match options.command {
        Command::Api(options) => Ok(api::run(*options)?),
        Command::Engine(options) => Ok(engine::run(&options).map(drop)?),
        Command::Etcd(options) => Ok(etcd::run(&options).map(drop)?),
        Command::Journal(options) => Ok(journal::run(&options, connect).map(drop)?),
        Command::Plot(options) => Ok(plot::run(options)?),
    }
}
