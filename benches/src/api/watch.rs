//! Few writers, many watchers: how many events arrive, and how long after they were sent.
//!
//! The writer puts the time at which it sends into the object, so that each watcher computes the
//! delay from the event alone. Clocks do not matter: all of them are in this process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Method;
use http_body_util::BodyExt;
use memchr::memmem;
use tokio::task::JoinSet;

use super::client::{Call, Connection, Endpoint, Protocol, JSON};
use super::drive::{micros, ticks, usage_between, Target};
use super::kubeconfig;
use super::process;
use super::report::{Measurement, Quantiles};
use super::workloads::{resource_version, NAMESPACE};
use super::{objects, seconds, Error, Options};
use crate::output;

/// Watches that share a connection (HTTP/2); below what servers allow.
const PER_CONNECTION: usize = 100;
/// How long the last events may take to arrive after the last write.
const DRAIN: Duration = Duration::from_secs(2);

/// The object of one writer.
fn written(writer: usize) -> String {
    format!("watched-{writer}")
}

/// Runs the workload: `rate` writes per second of each writer (0: as fast as they are answered) seen by
/// `watchers` watchers. Latencies are from the sending of a write to its arrival at a watcher.
pub async fn measure(
    workload: &str,
    endpoint: Endpoint,
    options: &Options,
    watchers: usize,
    writers: usize,
    rate: f64,
    pids: &[u32],
) -> Result<Measurement, Error> {
    let target = Target::new(endpoint.clone(), options, 1).await?;
    target.namespace(NAMESPACE).await?;
    let config_maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    let (mut connections, mut version) = (Vec::new(), String::new());
    for writer in 0..writers.max(1) {
        let mut connection = target.connection(0).await?;
        let created = objects::stamped_config_map(&written(writer), options.size, options.seed, 0);
        let created = connection.must(&Call::new(Method::POST, &*config_maps).body(JSON, created)).await?;
        version = resource_version(&created.body).unwrap_or("0").to_string();
        connections.push(connection);
    }
    process::forget_peak(pids);
    let before = process::usage(pids);

    let clock = Instant::now();
    let run = Arc::new(Shared { clock, open: AtomicUsize::new(0), stop: AtomicBool::new(false) });
    let path = format!("{config_maps}?watch=1&resourceVersion={version}");
    let from = Instant::now() + seconds(options.warm_up) + Duration::from_millis(watchers as u64);
    let until = from + seconds(options.duration);
    let mut running = JoinSet::new();
    let watched = match &options.watch_kubeconfig {
        Some(kubeconfig) => kubeconfig::endpoint(kubeconfig)?,
        None => endpoint,
    };
    for connection in watching(&watched, options, watchers).await? {
        running.spawn(watch(connection, path.clone(), run.clone(), from, until));
    }
    while run.open.load(Ordering::Acquire) < watchers {
        if let Some(ended) = running.try_join_next() {
            ended.map_err(lost)??;
            return Err(Error::Server("a watch ended before the first write".into()));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    let writing = connections.into_iter().enumerate().map(|(writer, connection)| {
        let (config_maps, name, run) = (config_maps.clone(), written(writer), run.clone());
        let work = Work { config_maps, name, rate, run, from, until };
        tokio::spawn(write(connection, work, options.clone()))
    });
    let writing: Vec<_> = writing.collect();
    let used = usage_between(pids, before, from, until).await;
    let (mut writes, mut last) = (0, None);
    for writer in writing {
        let (counted, connection) = writer.await.map_err(lost)??;
        writes += counted;
        last.get_or_insert(connection);
    }
    run.stop.store(true, Ordering::Release);
    if let Some(mut connection) = last {
        connection.must(&put(&config_maps, &written(0), options, u64::MAX)).await?;
    }
    let (delays, bytes_received) = arrivals(running).await?;
    let missing = (writes * watchers as u64).saturating_sub(delays.len() as u64);
    if missing > 0 {
        output::error_line(format_args!(
            "{workload}: {missing} of {} deliveries had not arrived at the end",
            writes * watchers as u64
        ));
    }
    output::line(format_args!("{workload}: {:.0} writes per second", writes as f64 / options.duration));
    let operations = delays.len() as u64;
    Ok(Measurement {
        workload: workload.to_string(),
        clients: watchers,
        seconds: options.duration,
        operations,
        errors: missing,
        rate: operations as f64 / options.duration,
        latency_ms: Quantiles::of(delays),
        first_byte_ms: None,
        bytes_received,
        bytes_sent: writes * options.size as u64,
        server_cpu_seconds: used.cpu_seconds,
        server_rss_mib: used.rss_mib,
        server_peak_rss_mib: used.peak_rss_mib,
        server_growth_mib: used.growth_mib,
    })
}

/// The delays that watchers have seen and the bytes that they got, of those that end soon after the last
/// write.
async fn arrivals(mut watchers: JoinSet<Result<Seen, Error>>) -> Result<(Vec<u32>, u64), Error> {
    let deadline = Instant::now() + DRAIN;
    let (mut delays, mut bytes) = (Vec::new(), 0);
    while let Ok(Some(done)) = tokio::time::timeout_at(deadline.into(), watchers.join_next()).await {
        let seen = done.map_err(lost)??;
        delays.extend(seen.micros);
        bytes += seen.bytes;
    }
    Ok((delays, bytes))
}

/// A connection, or a share of one, for each watcher.
async fn watching(endpoint: &Endpoint, options: &Options, watchers: usize) -> Result<Vec<Connection>, Error> {
    let mut connections = Vec::with_capacity(watchers);
    let mut shared: Option<Connection> = None;
    for watcher in 0..watchers {
        if watcher % PER_CONNECTION == 0 || options.protocol == Protocol::Http1 {
            shared = Some(endpoint.connect(options.protocol).await?);
        }
        connections.extend(match options.protocol {
            Protocol::Http1 => shared.take(),
            Protocol::Http2 => shared.as_ref().and_then(Connection::share),
        });
    }
    Ok(connections)
}

/// Watches to which nothing happens: what each keeps of the server's memory, its share of a connection
/// included.
pub async fn idle(
    workload: &str,
    endpoint: Endpoint,
    options: &Options,
    watchers: usize,
    pids: &[u32],
) -> Result<Measurement, Error> {
    let target = Target::new(endpoint.clone(), options, 1).await?;
    target.namespace(NAMESPACE).await?;
    process::forget_peak(pids);
    let before = process::usage(pids);
    let path = format!("/api/v1/namespaces/{NAMESPACE}/configmaps?watch=1&resourceVersion=1");
    let mut open = Vec::with_capacity(watchers);
    for mut connection in watching(&endpoint, options, watchers).await? {
        let response = connection.open(&Call::get(&*path)).await?;
        if !response.status().is_success() {
            return Err(Error::Server(format!("watch answered {}", response.status())));
        }
        open.push((connection, response));
    }
    let from = Instant::now();
    let until = from + seconds(options.duration);
    let used = usage_between(pids, before, from, until).await;
    output::line(format_args!(
        "{workload}: {:.1} KiB for each watch",
        used.growth_mib * 1024.0 / watchers.max(1) as f64
    ));
    let measured = Measurement::of(workload.to_string(), Vec::new(), used);
    Ok(Measurement { clients: open.len(), seconds: options.duration, ..measured })
}

struct Shared {
    clock: Instant,
    /// Watches that the server has answered.
    open: AtomicUsize,
    /// Set when the last write was made.
    stop: AtomicBool,
}

fn lost(error: tokio::task::JoinError) -> Error {
    Error::Server(format!("a client ended: {error}"))
}

/// What one writer does.
struct Work {
    config_maps: String,
    name: String,
    /// Writes per second; 0 is as fast as they are answered.
    rate: f64,
    run: Arc<Shared>,
    from: Instant,
    until: Instant,
}

fn put(config_maps: &str, name: &str, options: &Options, stamp: u64) -> Call {
    let body = objects::stamped_config_map(name, options.size, options.seed, stamp);
    Call::new(Method::PUT, format!("{config_maps}/{name}")).body(JSON, body)
}

/// Returns the number of writes sent between the two moments.
async fn write(mut connection: Connection, work: Work, options: Options) -> Result<(u64, Connection), Error> {
    let mut ticks = ticks(Some(work.rate));
    let mut counted = 0;
    loop {
        if let Some(ticks) = &mut ticks {
            ticks.tick().await;
        }
        let now = Instant::now();
        if now >= work.until {
            return Ok((counted, connection));
        }
        let stamp = now.duration_since(work.run.clock).as_nanos() as u64;
        connection.must(&put(&work.config_maps, &work.name, &options, stamp)).await?;
        counted += u64::from(now >= work.from);
    }
}

struct Seen {
    micros: Vec<u32>,
    bytes: u64,
}

/// Reads events until the one stamped with the end of time; keeps the delays of those sent
/// between the two moments.
async fn watch(
    mut connection: Connection,
    path: String,
    run: Arc<Shared>,
    from: Instant,
    until: Instant,
) -> Result<Seen, Error> {
    let call = Call::get(path);
    let (parts, mut body) = connection.open(&call).await?.into_parts();
    if !parts.status.is_success() {
        return Err(Error::Server(format!("watch answered {}", parts.status)));
    }
    run.open.fetch_add(1, Ordering::AcqRel);
    let key = format!(r#""{}":""#, objects::STAMP);
    let finder = memmem::Finder::new(key.as_bytes());
    let mut seen = Seen { micros: Vec::new(), bytes: 0 };
    // The beginning of an event whose end is in the next frame.
    let mut rest: Vec<u8> = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let Some(data) = frame.data_ref() else { continue };
        seen.bytes += data.len() as u64;
        let mut data = &data[..];
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (line, after) = data.split_at(end);
            data = after.get(1..).unwrap_or_default();
            let line = if rest.is_empty() {
                line
            } else {
                rest.extend_from_slice(line);
                &rest
            };
            let stamp = stamp(line, &finder, key.len());
            rest.clear();
            match stamp {
                None => return Err(Error::Server("an event without a stamp: the watch was cut off".into())),
                Some(u64::MAX) => return Ok(seen),
                Some(nanos) => {
                    let sent = run.clock + Duration::from_nanos(nanos);
                    if sent >= from && sent < until {
                        seen.micros.push(micros(sent.elapsed()));
                    }
                }
            }
        }
        rest.extend_from_slice(data);
    }
    if run.stop.load(Ordering::Acquire) {
        return Ok(seen);
    }
    Err(Error::Server("a watch ended before the last write".into()))
}

/// The 20 digits that follow the key.
fn stamp(line: &[u8], finder: &memmem::Finder<'_>, key: usize) -> Option<u64> {
    let at = finder.find(line)? + key;
    std::str::from_utf8(line.get(at..at + 20)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found_in_events() {
        let event = objects::stamped_config_map("w", 100, 1, 12_345);
        let key = format!(r#""{}":""#, objects::STAMP);
        assert_eq!(stamp(&event, &memmem::Finder::new(key.as_bytes()), key.len()), Some(12_345));
        let last = objects::stamped_config_map("w", 100, 1, u64::MAX);
        assert_eq!(stamp(&last, &memmem::Finder::new(key.as_bytes()), key.len()), Some(u64::MAX));
    }
}
