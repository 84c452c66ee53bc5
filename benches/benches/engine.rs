//! The storage engine's single operations: one synced transaction, point reads, ranges and a count, at the
//! latest and at an old revision. Loads with many writers and subscribers, and the same beside plain RocksDB:
//! `plinth bench engine`.
//!
//! `cargo bench -p plinth-benches --bench engine`; figures in `docs/benchmarks.md`.

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use plinth_benches::engine::{key, reads, Options};
use plinth_engine::{At, Engine, KeyRange, Transaction};

/// Keys in the store; half of them have a second version.
const KEYS: u64 = 10_000;
const VALUE: usize = 1024;

fn options() -> Options {
    Options {
        dir: None,
        only: Vec::new(),
        seconds: 1.0,
        value_size: VALUE,
        writes: KEYS,
        keys: vec![KEYS],
        superseded: 0,
        output: None,
        plots: None,
    }
}

fn engine(c: &mut Criterion) {
    let options = options();
    let dir = options.scratch().unwrap();
    let engine = Engine::open(plinth_engine::Options::new(dir.path().join("engine"))).unwrap();
    reads::fill(&engine, &options, KEYS, 1).unwrap();
    let old = At::Exact(engine.current_revision());
    reads::fill(&engine, &options, KEYS / 2, 1).unwrap();
    let all = KeyRange::prefix("registry/things/");

    let mut group = c.benchmark_group("get");
    for (name, at, n) in [
        ("latest", At::Latest, 7),
        ("old revision, unchanged since", old, KEYS - 7),
        ("old revision, changed since", old, 7),
    ] {
        let key = key(n);
        group.bench_function(name, |b| b.iter(|| engine.get(black_box(&key), at).unwrap().unwrap()));
    }
    group.finish();

    let mut group = c.benchmark_group("range of 10,000 keys");
    group.throughput(Throughput::Bytes(KEYS * VALUE as u64));
    for (name, at) in [("latest", At::Latest), ("old revision, half changed", old)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut range = engine.snapshot(at).unwrap().range(&all);
                let mut bytes = 0;
                while let Some(entry) = range.next().unwrap() {
                    bytes += entry.value.len();
                }
                assert_eq!(bytes as u64, KEYS * VALUE as u64);
            });
        });
    }
    group.finish();

    let value = bytes::Bytes::from(options.value(1));
    let mut next = KEYS;
    c.bench_function("synced put of 1 KiB, one writer", |b| {
        b.iter(|| {
            next += 1;
            engine.transact(Transaction::new().put(key(next), value.clone())).wait().unwrap()
        });
    });
}

criterion_group!(benches, engine);
criterion_main!(benches);
