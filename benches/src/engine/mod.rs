//! Benchmarks of the storage engine in this process, beside the limits of the machine.
//!
//! | module | subject |
//! |---|---|
//! | [`limits`] | what disk and memory do without any store |
//! | [`plain`] | RocksDB without our layer, doing the same |
//! | [`writes`] | synced transactions with many writers |
//! | [`bytes`] | bytes that a synced write costs, and where they go |
//! | [`reads`] | point reads and ranges, latest and old, one version and many |
//! | [`feeds`] | delivery to many subscribers, and what idle ones cost |
//! | [`compaction`] | write latency while history is compacted |
//! | [`memory`] | memory, start and speed by number of keys |
//! | [`report`] | the table and the file that a run ends in |
//!
//! Each figure alternates with its baseline in the same run, because others may use the machine:
//! the ratio is what counts. `plinth bench engine` runs it.

use std::path::PathBuf;
use std::time::Duration;

pub mod bytes;
pub mod compaction;
pub mod feeds;
pub mod limits;
pub mod memory;
pub mod plain;
pub mod reads;
pub mod report;
pub mod writes;

use report::Report;

/// What can end a benchmark early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// No workload has this name.
    #[error("unknown workload {name:?}; there are: {}", WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>().join(", "))]
    UnknownWorkload {
        /// The requested name.
        name: String,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] plinth_engine::Error),
    /// Plain RocksDB failed.
    #[error("plain RocksDB: {0}")]
    Rocks(#[from] rocksdb::Error),
    /// The operating system failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The report could not be made.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A plot could not be drawn.
    #[error("drawing {}: {reason}", path.display())]
    Plot {
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// `plinth bench engine`: measures the storage engine.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = "Example:\n  plinth bench engine --only writes,reads --output engine.json")]
pub struct Options {
    /// Directory for the data, on the disk to measure; default: the system's temporary directory.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Workloads to run, separated by commas; default: all.
    #[arg(long, value_delimiter = ',')]
    pub only: Vec<String>,
    /// Seconds for each figure that is taken over time.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Bytes of a value.
    #[arg(long, default_value_t = 1024)]
    pub value_size: usize,
    /// Writes of each kind whose bytes are counted.
    #[arg(long, default_value_t = 50_000)]
    pub writes: u64,
    /// Numbers of keys for the workloads that grow.
    #[arg(long, value_delimiter = ',', default_values_t = [10_000, 100_000, 1_000_000])]
    pub keys: Vec<u64>,
    /// Superseded versions that the compaction workload compacts.
    #[arg(long, default_value_t = 1_000_000)]
    pub superseded: u64,
    /// File for the figures, as JSON.
    #[arg(long)]
    pub output: Option<PathBuf>,
    /// Directory for the plots.
    #[arg(long)]
    pub plots: Option<PathBuf>,
}

impl Options {
    /// The time for each figure.
    pub fn time(&self) -> Duration {
        Duration::from_secs_f64(self.seconds.clamp(0.05, 600.0))
    }

    /// A directory for one workload's data, removed when dropped.
    pub fn scratch(&self) -> Result<tempfile::TempDir, Error> {
        Ok(match &self.dir {
            Some(dir) => tempfile::tempdir_in(dir)?,
            None => tempfile::tempdir()?,
        })
    }

    /// Value number `n`: bytes that do not compress, as different as the numbers.
    pub fn value(&self, n: u64) -> Vec<u8> {
        let mut state = n ^ 0x5851_f42d_4c95_7f2d;
        let mut value = Vec::with_capacity(self.value_size + 8);
        while value.len() < self.value_size {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            value.extend_from_slice(&(state ^ (state >> 29)).to_le_bytes());
        }
        value.truncate(self.value_size);
        value
    }
}

/// Key number `n`, in the order of the numbers.
pub fn key(n: u64) -> Vec<u8> {
    format!("registry/things/default/thing-{n:012}").into_bytes()
}

/// A group of figures.
pub struct Workload {
    /// Its name for `--only`.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    run: fn(&Options, &mut Report) -> Result<(), Error>,
}

/// All workloads, in the order in which they run.
pub const WORKLOADS: &[Workload] = &[
    Workload { name: "idle", about: "memory of idle subscribers", run: feeds::idle },
    Workload { name: "memory", about: "memory, start and speed by number of keys", run: memory::run },
    Workload { name: "limits", about: "fdatasync rate and memory copy speed", run: limits::run },
    Workload { name: "writes", about: "synced transactions with 1 to 1,000 writers", run: writes::run },
    Workload {
        name: "bytes",
        about: "bytes that a synced write costs, with 1 and 64 writers",
        run: bytes::run,
    },
    Workload { name: "reads", about: "point reads and ranges", run: reads::run },
    Workload { name: "feeds", about: "event delivery and idle subscribers", run: feeds::run },
    Workload { name: "compaction", about: "write latency during compaction", run: compaction::run },
];

/// Runs the chosen workloads, prints a table and writes the requested files.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &Options) -> Result<Report, Error> {
    for name in &options.only {
        if !WORKLOADS.iter().any(|workload| workload.name == name) {
            return Err(Error::UnknownWorkload { name: name.clone() });
        }
    }
    let mut report = Report::new(options);
    for workload in WORKLOADS {
        if options.only.is_empty() || options.only.iter().any(|name| name == workload.name) {
            report.section(workload);
            (workload.run)(options, &mut report)?;
        }
    }
    if let Some(path) = &options.output {
        report.write(path)?;
    }
    if let Some(dir) = &options.plots {
        report.plot(dir)?;
    }
    Ok(report)
}
