//! `plinth status`: what a running server is doing, from its probes and metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::output;
use super::serve::default_data_dir;
use crate::bootstrap::ADMIN_KUBECONFIG;
use crate::client::{ClientError, ServerClient};

const METRICS_PATH: &str = "/metrics";
const READY_PATH: &str = "/readyz?verbose";
/// Resources that are listed by number of objects, watches and requests.
const LISTED: usize = 8;
/// Seconds after which a request is slow: a bucket's bound.
const SLOW: f64 = 1.0;
/// Longest page of a server that is read.
const MAX_PAGE: u64 = 64 << 20;
/// A metric that every server of plinth has.
const REVISION: &str = "plinth_engine_current_revision";

/// Options of `plinth status`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  plinth status\n  plinth status --kubeconfig ./data/admin.kubeconfig")]
pub struct StatusOptions {
    /// Kubeconfig for a running server; by default the file that KUBECONFIG names, or admin.kubeconfig in the
    /// default data directory
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Seconds over which rates are measured
    #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub interval: u64,
}

/// The samples of a page of metrics: value by name and labels.
#[derive(Default)]
struct Samples(BTreeMap<(String, String), f64>);

impl Samples {
    /// Reads the text format; lines that are no samples are skipped.
    fn parse(text: &str) -> Samples {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            Some(((name.to_owned(), labels.trim_end_matches('}').to_owned()), value.parse().ok()?))
        });
        Samples(samples.collect())
    }

    /// The series of a metric.
    fn series<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let of_metric = self.0.iter().filter(move |((metric, _), _)| metric == name);
        of_metric.map(|((_, labels), value)| (labels.as_str(), *value))
    }

    fn sum(&self, name: &str) -> f64 {
        self.series(name).map(|(_, value)| value).sum()
    }

    /// Sums of the series by the value of a label, largest first, without zeros.
    fn by(&self, name: &str, label: &str) -> Vec<(String, f64)> {
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (labels, value) in self.series(name) {
            *sums.entry(label_value(labels, label).unwrap_or_default().to_owned()).or_default() += value;
        }
        let mut sums: Vec<_> = sums.into_iter().filter(|(_, value)| *value > 0.0).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums
    }
}

/// Requests that took longer than [`SLOW`] by resource, most first. Watches and connections last as long as
/// clients want.
fn slow_requests(samples: &Samples) -> Vec<(String, f64)> {
    let mut slow: BTreeMap<String, f64> = BTreeMap::new();
    for (labels, below) in samples.series("apiserver_request_duration_seconds_bucket") {
        let label = |name| label_value(labels, name).unwrap_or_default();
        // All of them, less those that were fast enough.
        let sign = match label("le").parse::<f64>() {
            Ok(f64::INFINITY) => 1.0,
            Ok(SLOW) => -1.0,
            _ => continue,
        };
        if !matches!(label("verb"), "WATCH" | "CONNECT") {
            *slow.entry(label("resource").to_owned()).or_default() += sign * below;
        }
    }
    let mut slow: Vec<_> = slow.into_iter().filter(|(_, count)| *count > 0.0).collect();
    slow.sort_by(|a, b| b.1.total_cmp(&a.1));
    slow
}

/// The value of a label in `a="x",b="y"`. Those that are looked for have no quotes in their values.
fn label_value<'a>(labels: &'a str, label: &str) -> Option<&'a str> {
    let mut pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs.find(|(name, _)| *name == label).map(|(_, value)| value.trim_end_matches('"'))
}

/// Prints the page.
///
/// # Errors
/// When the server cannot be reached, or refuses the metrics.
pub(super) fn status(options: &StatusOptions) -> Result<(), ClientError> {
    let kubeconfig = options.kubeconfig.clone().unwrap_or_else(default_kubeconfig);
    let server = ServerClient::of_kubeconfig(&kubeconfig)?;
    let fetch = |path| {
        let text = server.get_whole(path, MAX_PAGE)?;
        Ok::<_, ClientError>(String::from_utf8_lossy(&text).into_owned())
    };
    let health = match fetch(READY_PATH) {
        Ok(_) => "ready".to_owned(),
        Err(ClientError::Refused(status, text)) => format!("not ready: {status}: {text}"),
        Err(error) => return Err(error),
    };
    let before = Samples::parse(&fetch(METRICS_PATH)?);
    if before.series(REVISION).next().is_none() {
        return Err(ClientError::OtherServer(server.url().to_owned()));
    }
    let start = Instant::now();
    #[allow(clippy::disallowed_methods)] // a command of its own, without async code
    std::thread::sleep(Duration::from_secs(options.interval));
    let after = Samples::parse(&fetch(METRICS_PATH)?);
    let page = page(&health, &before, &after, start.elapsed());
    output::write(&page).map_err(ClientError::Output)
}

/// The kubeconfig of who names none: of the files in `KUBECONFIG` the first one, else what a server without
/// `--data-dir` has written.
fn default_kubeconfig() -> PathBuf {
    let named = std::env::var_os("KUBECONFIG");
    let first = named.and_then(|files| std::env::split_paths(&files).find(|file| file.as_os_str() != ""));
    first.unwrap_or_else(|| default_data_dir().join(ADMIN_KUBECONFIG))
}

fn page(health: &str, before: &Samples, after: &Samples, elapsed: Duration) -> String {
    let rate = |name: &str| (after.sum(name) - before.sum(name)).max(0.0) / elapsed.as_secs_f64();
    let count = |name: &str| after.sum(name);
    let mut page = String::new();
    let mut line = |name: &str, text: String| {
        let _ = writeln!(page, "{name:<12}{text}");
    };
    line("health", health.to_owned());
    line(
        "revision",
        format!("{} (history since {})", count(REVISION), count("plinth_engine_compacted_revision")),
    );
    line(
        "rates",
        format!(
            "{:.0} requests/s, {:.0} commits/s, {:.0} watch events/s",
            rate("apiserver_request_total"),
            rate("plinth_engine_commits_total"),
            rate("apiserver_watch_events_total"),
        ),
    );
    line(
        "under way",
        format!(
            "{} requests, {} transactions to commit",
            count("apiserver_current_inflight_requests"),
            count("plinth_engine_commit_queue_transactions")
        ),
    );
    line("commit", latency(after, "plinth_engine_commit_duration_seconds"));
    line("request", latency(after, "apiserver_request_duration_seconds"));
    line(
        "memory",
        format!(
            "{} block cache, {} memtables, {} recent events",
            size(count("plinth_engine_block_cache_bytes")),
            size(count("plinth_engine_column_family_memtable_bytes")),
            size(count("plinth_engine_event_ring_bytes"))
        ),
    );
    let families = after.by("plinth_engine_column_family_file_bytes", "family");
    line("files", list(&families, size));
    line("objects", list(&after.by("apiserver_storage_objects", "resource"), |n| n.to_string()));
    line("watches", list(&after.by("apiserver_longrunning_requests", "resource"), |n| n.to_string()));
    line("requests", list(&after.by("apiserver_request_total", "resource"), |n| n.to_string()));
    line("slow", format!("{} took over {SLOW} s", list(&slow_requests(after), |n| n.to_string())));
    page
}

/// The largest values with their names, and the sum.
fn list(values: &[(String, f64)], show: impl Fn(f64) -> String) -> String {
    // The sum of nothing is -0.
    let total = values.iter().map(|(_, value)| value).sum::<f64>() + 0.0;
    let named = values.iter().filter(|(name, _)| !name.is_empty()).take(LISTED);
    let parts: Vec<_> = named.map(|(name, value)| format!("{name} {}", show(*value))).collect();
    match parts.is_empty() {
        true => show(total),
        false => format!("{} ({})", show(total), parts.join(", ")),
    }
}

/// Bounds below which half and 99% of all observations are, since the start.
fn latency(samples: &Samples, name: &str) -> String {
    let mut buckets: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for (labels, observations) in samples.series(&format!("{name}_bucket")) {
        let bound = label_value(labels, "le").and_then(|le| le.parse::<f64>().ok());
        if let Some(bound) = bound {
            // Positive numbers are ordered as their bits are.
            buckets.entry(bound.to_bits()).or_insert((bound, 0.0)).1 += observations;
        }
    }
    let total = buckets.values().next_back().map_or(0.0, |(_, all)| *all);
    if total == 0.0 {
        return "none since the start".to_owned();
    }
    let bound = |share: f64| {
        let (bound, _) = buckets.values().find(|(_, below)| *below >= total * share).unwrap_or(&(0.0, 0.0));
        match bound.is_finite() {
            true => format!("{} ms", bound * 1e3),
            false => "the largest bucket".to_owned(),
        }
    };
    format!("half within {}, 99% within {} (of {total} since the start)", bound(0.5), bound(0.99))
}

fn size(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value} B"),
        _ => format!("{value:.1} {}", UNITS[unit]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str =
        "# HELP plinth_engine_current_revision Newest.\nplinth_engine_current_revision 90\n\
        plinth_engine_compacted_revision 12\nplinth_engine_commits_total 50\n\
        apiserver_request_total{verb=\"get\",resource=\"pods\",code=\"200\"} 7\n\
        apiserver_request_total{verb=\"list\",resource=\"pods\",code=\"200\"} 1\n\
        apiserver_request_total{verb=\"get\",resource=\"\",code=\"200\"} 2\n\
        plinth_engine_column_family_file_bytes{family=\"log\"} 2048\n\
        apiserver_storage_objects{resource=\"pods\"} 4\n\
        apiserver_storage_objects{resource=\"deployments.apps\"} 9\n\
        apiserver_request_duration_seconds_bucket{verb=\"LIST\",resource=\"pods\",le=\"1\"} 5\n\
        apiserver_request_duration_seconds_bucket{verb=\"LIST\",resource=\"pods\",le=\"60\"} 7\n\
        apiserver_request_duration_seconds_bucket{verb=\"LIST\",resource=\"pods\",le=\"+Inf\"} 8\n\
        apiserver_request_duration_seconds_bucket{verb=\"WATCH\",resource=\"pods\",le=\"1\"} 0\n\
        apiserver_request_duration_seconds_bucket{verb=\"WATCH\",resource=\"pods\",le=\"+Inf\"} 8\n\
        plinth_engine_commit_duration_seconds_bucket{le=\"0.001\"} 60\n\
        plinth_engine_commit_duration_seconds_bucket{le=\"0.002\"} 100\n\
        plinth_engine_commit_duration_seconds_bucket{le=\"+Inf\"} 100\n";

    #[test]
    fn a_page_shows_sums_and_rates() {
        let before = Samples::parse(&METRICS.replace("commits_total 50", "commits_total 10"));
        let page = page("ready", &before, &Samples::parse(METRICS), Duration::from_secs(2));
        let line =
            |name: &str| page.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).unwrap_or("");
        assert_eq!(line("revision"), "90 (history since 12)");
        assert_eq!(line("rates"), "0 requests/s, 20 commits/s, 0 watch events/s");
        assert_eq!(line("commit "), "half within 1 ms, 99% within 2 ms (of 100 since the start)");
        assert_eq!(line("objects"), "13 (deployments.apps 9, pods 4)");
        assert_eq!(line("slow"), "3 (pods 3) took over 1 s");
        assert_eq!(line("files"), "2.0 KiB (log 2.0 KiB)");
        assert_eq!(line("requests"), "10 (pods 8)");
        assert_eq!(line("watches"), "0");
    }
}
