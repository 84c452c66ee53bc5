//! What a run ends in: a table on standard output and a JSON file that plots are drawn from.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::client::Protocol;
use super::process::Usage;
use super::{Error, Options};
use crate::output;

/// A run: machine, options and results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the measured server.
    pub label: String,
    /// Version of this program.
    pub version: String,
    /// Seconds since 1970 at the start.
    pub started: u64,
    /// The machine, which generator and server share.
    pub machine: Machine,
    /// `http1` or `http2`.
    pub protocol: String,
    /// Connections that the clients shared.
    pub connections: usize,
    /// Threads of the generator.
    pub generator_threads: usize,
    /// Objects that reading workloads found.
    pub objects: usize,
    /// Bytes of data in each ConfigMap.
    pub size: usize,
    /// Seed of all contents.
    pub seed: u64,
    /// One entry for each workload, or case of it.
    pub results: Vec<Measurement>,
}

/// The machine: what figures depend on and no option changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Processors that this process may use.
    pub cpus: usize,
    /// Memory, in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
}

/// One measured workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// Name of the workload, as on the command line.
    pub workload: String,
    /// Concurrent clients; watchers where there are some.
    pub clients: usize,
    /// Seconds measured.
    pub seconds: f64,
    /// Requests answered with success, or events delivered.
    pub operations: u64,
    /// Requests refused, or events that had not arrived at the end.
    pub errors: u64,
    /// Operations per second.
    pub rate: f64,
    /// How long operations took; none where nothing was timed.
    pub latency_ms: Option<Quantiles>,
    /// How long the first byte of an answer's body took; none where that was not looked at.
    #[serde(default)]
    pub first_byte_ms: Option<Quantiles>,
    /// Bytes of bodies received.
    pub bytes_received: u64,
    /// Bytes of bodies sent.
    pub bytes_sent: u64,
    /// User and system time of the server in the measured time.
    pub server_cpu_seconds: f64,
    /// Memory of the server at the end.
    pub server_rss_mib: f64,
    /// The most memory that the server held.
    pub server_peak_rss_mib: f64,
    /// What that is above its memory before the measured time.
    #[serde(default)]
    pub server_growth_mib: f64,
}

impl Measurement {
    /// Of operations that took so many microseconds each, one after the other.
    pub(crate) fn of(workload: String, times: Vec<u32>, used: Usage) -> Measurement {
        let seconds = times.iter().map(|&micros| f64::from(micros) / 1e6).sum();
        Measurement {
            workload,
            clients: 0,
            seconds,
            operations: times.len() as u64,
            errors: 0,
            rate: 0.0,
            latency_ms: Quantiles::of(times),
            first_byte_ms: None,
            bytes_received: 0,
            bytes_sent: 0,
            server_cpu_seconds: used.cpu_seconds,
            server_rss_mib: used.rss_mib,
            server_peak_rss_mib: used.peak_rss_mib,
            server_growth_mib: used.growth_mib,
        }
    }

    /// CPU milliseconds of the server for each operation.
    pub fn cpu_ms_per_operation(&self) -> f64 {
        if self.operations == 0 {
            return 0.0;
        }
        self.server_cpu_seconds * 1e3 / self.operations as f64
    }
}

/// Latencies in milliseconds: exact percentiles (nearest rank).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of all took at most this long.
    pub p50: f64,
    /// 90% took at most this long.
    pub p90: f64,
    /// 99% took at most this long.
    pub p99: f64,
    /// The longest request.
    pub max: f64,
}

impl Quantiles {
    /// Quantiles of microseconds; none of none.
    pub fn of(mut micros: Vec<u32>) -> Option<Quantiles> {
        micros.sort_unstable();
        let at = |per_mille: usize| {
            let rank = (micros.len() * per_mille).div_ceil(1000).max(1);
            micros.get(rank - 1).map(|&m| f64::from(m) / 1e3)
        };
        Some(Quantiles { p50: at(500)?, p90: at(900)?, p99: at(990)?, max: at(1000)? })
    }
}

impl Report {
    /// A report without results yet.
    pub fn new(options: &Options) -> Report {
        Report {
            label: options.label.clone(),
            version: env!("CARGO_PKG_VERSION").to_string(),
            started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            machine: Machine::this(),
            protocol: match options.protocol {
                Protocol::Http1 => "http1".into(),
                Protocol::Http2 => "http2".into(),
            },
            connections: options.connections,
            generator_threads: options.threads,
            objects: options.objects,
            size: options.size,
            seed: options.seed,
            results: Vec::new(),
        }
    }

    /// Reads a report file.
    pub fn read(path: &Path) -> Result<Report, Error> {
        let text = fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
        serde_json::from_slice(&text).map_err(|source| Error::Report { path: path.to_path_buf(), source })
    }

    /// Writes the report file.
    pub fn write(&self, path: &Path) -> Result<(), Error> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|source| Error::Report { path: path.to_path_buf(), source })?;
        text.push(b'\n');
        fs::write(path, text).map_err(Error::io(format!("writing {}", path.display())))
    }
}

impl Machine {
    /// The machine that this process runs on.
    pub(crate) fn this() -> Machine {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key));
            line.and_then(|line| line.split_once(':'))
                .map_or(String::new(), |(_, value)| value.trim().to_string())
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        Machine {
            processor: field(&read("/proc/cpuinfo"), "model name"),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: memory.split(' ').next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
        }
    }
}

/// Prints the machine, and the names of the columns.
pub fn print_header(report: &Report) {
    let machine = &report.machine;
    output::line(format_args!(
        "{} on {} x {}, {} MiB, Linux {}; {}, {} connections, generator on the same machine\n",
        report.label,
        machine.cpus,
        machine.processor,
        machine.memory_mib,
        machine.kernel,
        report.protocol,
        report.connections
    ));
    print_columns();
}

/// Prints the names of the columns.
pub(crate) fn print_columns() {
    output::line(format_args!(
        "{:<15} {:>7} {:>10} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7} {:>9} {:>8} {:>8} {:>8} {:>7}",
        "workload",
        "clients",
        "rate/s",
        "p50 ms",
        "p90 ms",
        "p99 ms",
        "max ms",
        "first ms",
        "MB/s",
        "CPU ms/op",
        "RSS MiB",
        "peak MiB",
        "+MiB",
        "errors"
    ));
}

/// Prints one row.
pub fn print_row(row: &Measurement) {
    let [p50, p90, p99, max] = match row.latency_ms {
        Some(q) => [q.p50, q.p90, q.p99, q.max].map(|ms| format!("{ms:.2}")),
        None => [const { String::new() }; 4],
    };
    output::line(format_args!(
        "{:<15} {:>7} {:>10.1} {:>8} {:>8} {:>8} {:>8} {:>8} {:>7.1} {:>9.3} {:>8.1} {:>8.1} {:>8.1} {:>7}",
        row.workload,
        row.clients,
        row.rate,
        p50,
        p90,
        p99,
        max,
        row.first_byte_ms.map_or(String::new(), |q| format!("{:.2}", q.p50)),
        (row.bytes_received + row.bytes_sent) as f64 / 1e6 / row.seconds.max(1e-9),
        row.cpu_ms_per_operation(),
        row.server_rss_mib,
        row.server_peak_rss_mib,
        row.server_growth_mib,
        row.errors
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact() {
        let q = Quantiles::of((1..=1000).rev().map(|n| n * 1000).collect()).unwrap();
        assert_eq!((q.p50, q.p90, q.p99, q.max), (500.0, 900.0, 990.0, 1000.0));
        assert_eq!(Quantiles::of(vec![7000]).unwrap().p50, 7.0);
        assert_eq!(Quantiles::of(Vec::new()), None);
    }
}
