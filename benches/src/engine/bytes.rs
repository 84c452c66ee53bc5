//! Bytes that a synced write costs, and where they go.
//!
//! | figure | what |
//! |---|---|
//! | log records | what is handed to the system for the write-ahead log, filled pages included |
//! | flushes, merges | tables that RocksDB writes from its write buffers, and from other tables |
//! | pages | what the process has dirtied, in whole pages (`write_bytes` of `/proc/self/io`) |
//! | disk | sectors written by the device below the directory, for whatever process, journal of the file system included |

use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use plinth_engine::{At, Condition, Engine, Transaction};

use super::report::Report;
use super::writes::{drive, Load};
use super::{Error, Options};
use crate::api::objects::Rng;

/// Objects that updates are spread over.
const OBJECTS: u64 = 10_000;
/// What the server keeps of history.
const RETENTION: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Update,
}

/// The key of an object: in the order in which names are given to pods, which is none.
fn key(n: u64) -> Vec<u8> {
    let id = Rng::new(n).next_u64();
    format!("core/configmaps/namespace-{:03}/object-{id:016x}", id % 100).into_bytes()
}

/// An object of about the size of a value: metadata as the server stores it, the rest hexadecimal text that
/// does not compress.
fn object(options: &Options, n: u64, version: u64) -> Bytes {
    let id = Rng::new(n).next_u64();
    let mut out = String::with_capacity(options.value_size + 16);
    let _ = write!(
        out,
        concat!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"object-{id:016x}","#,
            r#""namespace":"namespace-{ns:03}","uid":"{a:08x}-{b:04x}-4000-8000-{id:012x}","#,
            r#""creationTimestamp":"2026-01-01T00:00:00Z","labels":{{"app":"app-{ns}","tier":"backend"}},"#,
            r#""managedFields":[{{"manager":"kubectl-client-side-apply","operation":"Update","apiVersion":"v1","#,
            r#""time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{{"f:data":{{".":{{}},"#,
            r#""f:payload":{{}}}},"f:metadata":{{"f:labels":{{".":{{}},"f:app":{{}},"f:tier":{{}}}}}}}}}}]}},"#,
            r#""data":{{"payload":""#
        ),
        id = id,
        ns = id % 100,
        a = id >> 32,
        b = id & 0xffff,
    );
    let rest = options.value_size.saturating_sub(out.len() + 3);
    Rng::new(n ^ (version << 40)).text(&mut out, rest);
    out.push_str(r#""}}"#);
    out.into()
}

/// Makes `count` writes with `writers` at a time, and closes the engine.
fn load(engine: &Engine, options: &Options, writers: usize, kind: Kind, count: u64) -> Result<Load, Error> {
    let close = || Ok(engine.close()?);
    let (store, options) = (engine.clone(), options.clone());
    drive(engine, writers, close, move |n| {
        (n < count).then(|| transaction(&store, &options, kind, n)).transpose()
    })
}

fn transaction(engine: &Engine, options: &Options, kind: Kind, n: u64) -> Result<Transaction, Error> {
    let new = Transaction::new();
    if kind == Kind::Create {
        let key = Bytes::from(key(n));
        return Ok(new.require(Condition::Absent(key.clone())).put(key, object(options, n, 0)));
    }
    let object_number = n % OBJECTS.min(options.writes);
    let key = Bytes::from(key(object_number));
    let value = object(options, object_number, 1 + n);
    Ok(match engine.get(&key, At::Latest)? {
        Some(record) => {
            let revision = record.mod_revision;
            new.require(Condition::ModRevision { key: key.clone(), revision })
                .put(key, value)
                .having_read(record)
        }
        None => new.put(key, value),
    })
}

/// Bytes that the device of a directory has written, for whatever process.
fn device_bytes(dir: &Path) -> Option<f64> {
    const SECTOR: f64 = 512.0;
    let device = std::fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
    Some(stat.split_ascii_whitespace().nth(6)?.parse::<f64>().ok()? * SECTOR)
}

/// Bytes that the device writes for each synced record of a file, without any store: what a log costs below
/// it.
fn file_bytes(options: &Options, fills: bool, over_zeros: bool) -> Result<Option<f64>, Error> {
    const RECORDS: u64 = 1000;
    const PAGE: u64 = 4096;
    let dir = options.scratch()?;
    let file = File::create(dir.path().join("log"))?;
    let record = options.value(0);
    if over_zeros {
        file.write_all_at(&vec![0; record.len() * 4 * RECORDS as usize], 0)?;
    }
    file.sync_all()?;
    let (before, mut at) = (device_bytes(dir.path()), 0);
    for _ in 0..RECORDS {
        file.write_all_at(&record, at)?;
        at += record.len() as u64;
        let left = PAGE - at % PAGE;
        if fills && left < record.len() as u64 {
            file.write_all_at(&vec![0xa5; left as usize], at)?;
            at += left;
        }
        file.sync_data()?;
    }
    let written = before.zip(device_bytes(dir.path())).map(|(before, after)| after - before);
    Ok(written.map(|written| written / RECORDS as f64))
}

pub(super) fn run(options: &Options, report: &mut Report) -> Result<(), Error> {
    for (name, fills, over_zeros) in [
        ("a value appended to a file and synced", false, false),
        ("the same, pages filled", true, false),
        ("the same, over zeros, so that the length stays", false, true),
        ("the same, over zeros, pages filled", true, true),
    ] {
        if let Some(bytes) = file_bytes(options, fills, over_zeros)? {
            report.add("bytes", format!("disk: {name}"), (bytes, "B"), None, None);
        }
    }
    for writers in [1, 64] {
        for (name, kind) in [("create", Kind::Create), ("update", Kind::Update)] {
            let dir = options.scratch()?;
            let path = dir.path().join("engine");
            let open = || Engine::open(plinth_engine::Options::new(&path).history_retention(Some(RETENTION)));
            let engine = open()?;
            if kind == Kind::Update {
                let engine = engine.clone();
                load(&engine, options, 64, Kind::Create, OBJECTS.min(options.writes))?;
            }
            drop(engine);
            let engine = open()?;
            let device = device_bytes(dir.path());
            let load = load(&engine, options, writers, kind, options.writes)?;
            let device = device.zip(device_bytes(dir.path())).map(|(before, after)| after - before);
            let stats = engine.stats();
            let count = options.writes as f64;
            let mut add = |what: &str, value: f64, unit: &str| {
                let writers = if writers == 1 { "1 writer".to_owned() } else { format!("{writers} writers") };
                report.add("bytes", format!("{name}, {writers}: {what}"), (value, unit), None, None);
            };
            add("rate", load.rate, "1/s");
            add("p50", load.quantile(0.5), "us");
            add("p99", load.quantile(0.99), "us");
            add("log records", stats.written_bytes as f64 / count, "B");
            add("flushes", stats.flushed_bytes as f64 / count, "B");
            add("merges", stats.merged_bytes as f64 / count, "B");
            let tables = (stats.flushed_bytes + stats.merged_bytes) as f64 / count;
            add("pages of the log and the watermark", load.disk_bytes - tables, "B");
            add("pages in all", load.disk_bytes, "B");
            if let Some(device) = device {
                add("disk, by all processes", device / count, "B");
            }
        }
    }
    Ok(())
}
