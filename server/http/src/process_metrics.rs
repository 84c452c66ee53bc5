//! Metrics of the process, written when they are scraped: Prometheus' names, as every client library has
//! them.

use std::io::Write;

/// Values of the process, as far as the system reports them.
#[derive(Debug, Default, PartialEq)]
struct ProcessStats {
    cpu_seconds: f64,
    start_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    open_files: u64,
    max_files: Option<u64>,
}

/// Appends the metrics of the process in Prometheus' text format.
pub fn write_process_metrics(out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    if let Some(stats) = read() {
        let mut metric = |name: &str, kind: &str, help: &str, value: f64| {
            let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}");
        };
        metric(
            "process_cpu_seconds_total",
            "counter",
            "User and system CPU time in seconds.",
            stats.cpu_seconds,
        );
        metric(
            "process_start_time_seconds",
            "gauge",
            "Start of the process in seconds since 1970.",
            stats.start_seconds,
        );
        metric(
            "process_virtual_memory_bytes",
            "gauge",
            "Virtual memory in bytes.",
            stats.virtual_bytes as f64,
        );
        metric(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory in bytes.",
            stats.resident_bytes as f64,
        );
        metric("process_open_fds", "gauge", "Open file descriptors.", stats.open_files as f64);
        if let Some(max) = stats.max_files {
            metric("process_max_fds", "gauge", "Limit of open file descriptors.", max as f64);
        }
    }
}

/// Seconds since 1970 at which the process started.
pub fn process_start_seconds() -> Option<f64> {
    read().map(|stats| stats.start_seconds)
}

fn read() -> Option<ProcessStats> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let booted = std::fs::read_to_string("/proc/stat").ok()?;
    let open_files = std::fs::read_dir("/proc/self/fd").map_or(0, |files| files.count() as u64);
    let max_files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let page = rustix::param::page_size() as u64;
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let stats = parse(&stat, &booted, page, ticks)?;
    Some(ProcessStats { open_files, max_files, ..stats })
}

/// Of `/proc/self/stat` and `/proc/stat` (proc(5)).
fn parse(stat: &str, booted: &str, page: u64, ticks: f64) -> Option<ProcessStats> {
    // The name in parentheses may contain anything; the third field comes first after it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime "))?;
    let booted: f64 = booted.trim().parse().ok()?;
    Some(ProcessStats {
        cpu_seconds: (field(14)? + field(15)?) as f64 / ticks,
        start_seconds: booted + field(22)? as f64 / ticks,
        virtual_bytes: field(23)?,
        resident_bytes: field(24)?.checked_mul(page)?,
        ..ProcessStats::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_parsed() {
        let stat = "42 (a) b (c)) S 1 42 42 0 -1 4194560 900 0 0 0 150 50 0 0 20 0 9 0 1234 1000000 250 \
                    18446744073709551615 1 1";
        let stats = parse(stat, "cpu 1 2\nbtime 1700000000\n", 4096, 100.0).unwrap();
        assert_eq!(stats.cpu_seconds, 2.0);
        assert_eq!(stats.start_seconds, 1_700_000_012.34);
        assert_eq!((stats.virtual_bytes, stats.resident_bytes), (1_000_000, 250 * 4096));
        for bad in ["", "42 (a) S", "42 a S 1 2 3"] {
            assert_eq!(parse(bad, "btime 1\n", 4096, 100.0), None, "{bad:?}");
        }
    }
}
