//! A journal alone, without replicas: what one in etcd or Kafka takes and delivers on this machine. Writes of
//! replicas are compared with it.
//!
//! | row | what is done |
//! |---|---|
//! | `append` | each of `--appenders` threads appends records, one after the other, all over one connection |
//! | `delivery` | the same records arrive at a reader with a connection of its own; from the start of their append |
//!
//! With `--readers 3` two more read all of it, as each of three replicas does.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Journal, Reader};

use crate::api::process::{self, Usage};
use crate::api::report::{print_columns, print_row, Measurement, Quantiles};

/// Bytes of the time at which a record was appended, its first ones.
const STAMP: usize = 8;
/// A reader that gets no record for so long has all that it will get.
const QUIET: Duration = Duration::from_secs(2);
/// How often a reader that gets nothing looks at the time.
const POLL: Duration = Duration::from_millis(100);

/// Connects to the journal that the options name. Each call makes a connection of its own.
pub type Connect<'c> =
    dyn Fn(&Options) -> Result<Arc<dyn Journal>, Box<dyn std::error::Error + Send + Sync>> + 'c;

/// What can end a benchmark early.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum Error {
    /// The journal cannot be connected to.
    #[error("{0}")]
    Connect(Box<dyn std::error::Error + Send + Sync>),
    /// The journal failed.
    #[error("{0}")]
    Journal(#[from] plinth_journal::Error),
    /// No thread could be started.
    #[error("starting an appender: {0}")]
    Thread(#[from] std::io::Error),
    /// A thread ended early.
    #[error("an appender has ended")]
    Ended,
}

/// `plinth bench journal`: measures a journal, which must be empty or of an earlier run.
#[derive(Debug, Clone, clap::Args)]
#[command(
    after_help = "Examples:\n  plinth bench journal --journal $(scripts/journal etcd start ./journal) --appenders 1,64"
)]
pub struct Options {
    /// The journal, which is written to; empty, or of an earlier run
    #[arg(long, value_name = "URL")]
    pub journal: String,
    /// File with TLS and credentials for the journal, YAML or JSON
    #[arg(long, value_name = "FILE")]
    pub journal_config: Option<PathBuf>,
    /// Numbers of appenders, one run for each
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64])]
    pub appenders: Vec<usize>,
    /// Readers with connections of their own, as each replica is one; one of them is measured
    #[arg(long, default_value_t = 1)]
    pub readers: usize,
    /// Bytes of a record
    #[arg(long, default_value_t = 1024)]
    pub size: usize,
    /// Seconds for each figure
    #[arg(long, default_value_t = 5.0)]
    pub duration: f64,
    /// Process whose CPU and memory are the journal's; repeat it for each member
    #[arg(long = "member-pid", value_name = "PID")]
    pub member_pids: Vec<u32>,
}

/// Measures, and prints two rows for each number of appenders. Blocks until it is done.
///
/// # Errors
/// See [`Error`].
pub fn run(options: &Options, connect: &Connect<'_>) -> Result<Vec<Measurement>, Error> {
    print_columns();
    let mut rows = Vec::new();
    for &appenders in &options.appenders {
        for row in measure(options, connect, appenders.max(1))? {
            print_row(&row);
            rows.push(row);
        }
    }
    Ok(rows)
}

fn measure(options: &Options, connect: &Connect<'_>, appenders: usize) -> Result<[Measurement; 2], Error> {
    let journal = connect(options).map_err(Error::Connect)?;
    let readers = connect(options).map_err(Error::Connect)?;
    let beginning = readers.end()?.next();
    let reader = readers.read(beginning)?;
    let mut others = Vec::new();
    for _ in 1..options.readers {
        let journal = connect(options).map_err(Error::Connect)?;
        others.push((journal.read(beginning)?, journal));
    }
    let run = Run {
        clock: Instant::now(),
        is_over: AtomicBool::new(false),
        appending: AtomicUsize::new(appenders),
        appended: AtomicU64::new(0),
        size: options.size.max(STAMP),
        duration: Duration::try_from_secs_f64(options.duration).unwrap_or(Duration::ZERO),
    };
    process::forget_peak(&options.member_pids);
    let before = process::usage(&options.member_pids);
    let (appends, arrivals) = std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(appenders);
        for _ in 0..appenders {
            let started = std::thread::Builder::new().spawn_scoped(scope, || run.append(&*journal));
            // The others end, whom the scope waits for.
            started
                .map(|thread| threads.push(thread))
                .inspect_err(|_| run.is_over.store(true, Ordering::Release))?;
        }
        for (reader, _connection) in &mut others {
            let started = std::thread::Builder::new().spawn_scoped(scope, || run.follow(&mut **reader));
            started.inspect_err(|_| run.is_over.store(true, Ordering::Release))?;
        }
        let arrivals = run.read(reader);
        // Whoever waits for the end of a run sees it whatever has happened to the reader.
        run.is_over.store(true, Ordering::Release);
        let mut appends = Vec::new();
        for thread in threads {
            appends.extend(thread.join().map_err(|_| Error::Ended)??);
        }
        Ok::<_, Error>((appends, arrivals?))
    })?;
    let after = process::usage(&options.member_pids);
    let used = Usage { cpu_seconds: after.cpu_seconds - before.cpu_seconds, ..after };
    let (appended, arrived) = (appends.len() as u64, arrivals.len() as u64);
    let row = |name: &str, times: Vec<u32>| {
        let operations = times.len() as u64;
        Measurement {
            clients: appenders,
            seconds: options.duration,
            rate: operations as f64 / options.duration.max(1e-9),
            latency_ms: Quantiles::of(times),
            bytes_sent: operations * run.size as u64,
            operations,
            ..Measurement::of(name.to_owned(), Vec::new(), used)
        }
    };
    let delivered = Measurement { errors: appended.saturating_sub(arrived), ..row("delivery", arrivals) };
    Ok([row("append", appends), delivered])
}

/// What the threads of a run share.
struct Run {
    clock: Instant,
    /// Set when nothing is appended any more.
    is_over: AtomicBool,
    /// Appenders that have not ended.
    appending: AtomicUsize,
    /// Records that were appended so far.
    appended: AtomicU64,
    size: usize,
    duration: Duration,
}

impl Run {
    fn micros(&self, since: Duration) -> u32 {
        u32::try_from(self.clock.elapsed().saturating_sub(since).as_micros()).unwrap_or(u32::MAX)
    }

    fn append(&self, journal: &dyn Journal) -> plinth_journal::Result<Vec<u32>> {
        let appended = self.append_until_over(journal);
        self.appending.fetch_sub(1, Ordering::AcqRel);
        appended
    }

    /// Appends until the run is over; how long each took, in microseconds.
    fn append_until_over(&self, journal: &dyn Journal) -> plinth_journal::Result<Vec<u32>> {
        let mut took = Vec::new();
        while !self.is_over.load(Ordering::Acquire) {
            let started = self.clock.elapsed();
            let mut record = vec![b'x'; self.size];
            let stamp = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX).to_be_bytes();
            record.iter_mut().zip(stamp).for_each(|(byte, stamp)| *byte = stamp);
            journal.append(Bytes::from(record))?;
            took.push(self.micros(started));
            self.appended.fetch_add(1, Ordering::AcqRel);
        }
        Ok(took)
    }

    /// Reads until the run is over.
    fn follow(&self, reader: &mut dyn Reader) {
        while !self.is_over.load(Ordering::Acquire) {
            // Whoever is measured reports a journal that fails.
            if reader.next(POLL).is_err() {
                return;
            }
        }
    }

    /// Reads for the duration, ends the run, and reads on until all has arrived; how long after its append
    /// began each record did.
    fn read(&self, mut reader: Box<dyn Reader>) -> plinth_journal::Result<Vec<u32>> {
        let mut took = Vec::new();
        let mut quiet = Instant::now();
        loop {
            if let Some(entry) = reader.next(POLL)? {
                quiet = Instant::now();
                if let Some(stamp) = entry.bytes.first_chunk::<STAMP>() {
                    took.push(self.micros(Duration::from_nanos(u64::from_be_bytes(*stamp))));
                }
            }
            if self.clock.elapsed() < self.duration {
                continue;
            }
            self.is_over.store(true, Ordering::Release);
            let has_all = self.appending.load(Ordering::Acquire) == 0
                && took.len() as u64 >= self.appended.load(Ordering::Acquire);
            if has_all || quiet.elapsed() > QUIET {
                return Ok(took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use plinth_journal::simulated::SimulatedJournal;

    #[test]
    fn each_record_is_appended_and_arrives() {
        let journal = SimulatedJournal::new(1);
        let options = Options {
            journal: String::new(),
            journal_config: None,
            appenders: vec![3],
            readers: 2,
            size: 100,
            duration: 0.1,
            member_pids: Vec::new(),
        };
        let rows = run(&options, &|_| Ok(Arc::new(journal.client(1)))).unwrap();
        let [append, delivery] = &rows[..] else { panic!("{} rows", rows.len()) };
        assert!(append.operations > 0 && append.clients == 3);
        assert_eq!((delivery.operations, delivery.errors), (append.operations, 0));
        assert!(delivery.latency_ms.is_some());
    }
}
