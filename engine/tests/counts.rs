//! Numbers of keys: equal to what a scan finds, at every revision, whatever was written, deleted, compacted
//! or counted before.

mod common;

use common::scratch;
use plinth_engine::{At, Engine, Error, KeyCounts, KeyRange, Options, Revision, Snapshot, Transaction};
use proptest::prelude::*;

const KEYS: u64 = 2000;

fn key(number: u64) -> String {
    format!("{}/{:05}", ["a", "b", "c"][(number % 3) as usize], number % KEYS)
}

fn fill(engine: &Engine, numbers: impl IntoIterator<Item = u64>) -> Revision {
    let put = |t: Transaction, n| t.put(key(n), "value");
    engine.transact(numbers.into_iter().fold(Transaction::new(), put)).wait().unwrap().revision
}

#[track_caller]
fn assert_count(counts: &KeyCounts, snapshot: &Snapshot, range: &KeyRange) -> u64 {
    let expected = snapshot.count(range).unwrap();
    assert_eq!(counts.count(snapshot, range).unwrap(), expected, "{range:?} at {}", snapshot.revision());
    expected
}

#[derive(Debug, Clone)]
enum Step {
    /// Puts and deletions from a key on, in one transaction: so many, with gaps of so many keys.
    Change {
        from: u64,
        many: u64,
        gap: u64,
        is_put: bool,
    },
    /// Counts from a key to another, some revisions ago.
    Count {
        from: u64,
        to: u64,
        back: u64,
    },
    Prefix {
        prefix: usize,
        back: u64,
    },
    All,
    Pages {
        limit: u64,
    },
    Compact {
        back: u64,
    },
    Advance,
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let number = 0..KEYS * 3;
    prop_oneof![
        4 => (number.clone(), prop_oneof![1u64..4, 1u64..700], 1u64..5, any::<bool>())
            .prop_map(|(from, many, gap, is_put)| Step::Change { from, many, gap, is_put }),
        4 => (number.clone(), number, prop_oneof![Just(0u64), 0u64..9])
            .prop_map(|(from, to, back)| Step::Count { from, to, back }),
        2 => (0usize..4, prop_oneof![Just(0u64), 0u64..9]).prop_map(|(prefix, back)| Step::Prefix { prefix, back }),
        1 => Just(Step::All),
        1 => (50u64..500).prop_map(|limit| Step::Pages { limit }),
        1 => (0u64..9).prop_map(|back| Step::Compact { back }),
        1 => Just(Step::Advance),
        1 => Just(Step::Forget),
    ]
}

/// A snapshot of the revision so many ago, if it can be read.
fn snapshot(engine: &Engine, back: u64) -> Option<Snapshot> {
    let revision = Revision::new(engine.current_revision().get().saturating_sub(back));
    match engine.snapshot(At::Exact(revision)) {
        Ok(snapshot) => Some(snapshot),
        Err(Error::Compacted { .. }) => None,
        Err(error) => panic!("{error}"),
    }
}

fn change(from: u64, many: u64, gap: u64, is_put: bool) -> Transaction {
    let mut keys: Vec<String> = (0..many).map(|n| key(from + n * gap)).collect();
    keys.sort();
    keys.dedup();
    keys.into_iter().fold(Transaction::new(), |t, key| match is_put {
        true => t.put(key, "value"),
        false => t.delete(key),
    })
}

/// Reads a range in pages, each with the number of what is left.
fn read_in_pages(counts: &KeyCounts, snapshot: &Snapshot, limit: u64) {
    let mut range = KeyRange::all();
    loop {
        let mut page = snapshot.range(&range);
        let mut seen = 0;
        while seen < limit && page.next().unwrap().is_some() {
            seen += 1;
        }
        let Some(last) = page.last_key().filter(|_| seen == limit) else { return };
        range = range.after(last);
        assert_count(counts, snapshot, &range);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 200, ..ProptestConfig::with_cases(48) })]

    #[test]
    fn a_count_is_what_a_scan_finds(steps in prop::collection::vec(step(), 1..40)) {
        let dir = scratch();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let mut counts = KeyCounts::new(&engine);
        fill(&engine, 0..KEYS);
        for step in steps {
            match step {
                Step::Change { from, many, gap, is_put } => {
                    engine.transact(change(from, many, gap, is_put)).wait().unwrap();
                }
                Step::Count { from, to, back } => {
                    let Some(snapshot) = snapshot(&engine, back) else { continue };
                    assert_count(&counts, &snapshot, &KeyRange::between(key(from), key(to)));
                }
                Step::Prefix { prefix, back } => {
                    let Some(snapshot) = snapshot(&engine, back) else { continue };
                    assert_count(&counts, &snapshot, &KeyRange::prefix(["a/", "b/", "b/00", "c/01"][prefix]));
                }
                Step::All => {
                    let snapshot = engine.snapshot(At::Latest).unwrap();
                    assert_count(&counts, &snapshot, &KeyRange::all());
                    assert_count(&counts, &snapshot, &KeyRange::from("b/"));
                }
                Step::Pages { limit } => read_in_pages(&counts, &engine.snapshot(At::Latest).unwrap(), limit),
                Step::Compact { back } => {
                    let revision = Revision::new(engine.current_revision().get().saturating_sub(back));
                    if revision > engine.compacted_revision() {
                        engine.compact(revision).unwrap();
                        engine.wait_compacted().unwrap();
                    }
                }
                Step::Advance => counts.advance(),
                Step::Forget => counts = KeyCounts::new(&engine),
            }
        }
    }
}

/// What was counted is not read again, and follows what is written.
#[test]
fn a_count_is_kept_and_follows_the_feed() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    fill(&engine, 0..KEYS);
    let counts = KeyCounts::new(&engine);
    let first = engine.snapshot(At::Latest).unwrap();
    let all = assert_count(&counts, &first, &KeyRange::all());
    assert_eq!(all, KEYS);
    for n in 0..200 {
        engine.transact(Transaction::new().put(format!("b/new-{n}"), "v").delete(key(n))).wait().unwrap();
        engine.transact(Transaction::new().put(key(n + 500), "other value")).wait().unwrap();
        let snapshot = engine.snapshot(At::Latest).unwrap();
        assert_count(&counts, &snapshot, &KeyRange::prefix("b/"));
        assert_eq!(assert_count(&counts, &snapshot, &KeyRange::all()), KEYS);
        assert_eq!(counts.position(), snapshot.revision());
    }
    assert_count(&counts, &first, &KeyRange::prefix("b/"));
    // Everything is deleted, and there again.
    for is_put in [false, true] {
        engine.transact(change(0, KEYS, 1, is_put)).wait().unwrap();
        assert_count(&counts, &engine.snapshot(At::Latest).unwrap(), &KeyRange::all());
        assert_count(&counts, &first, &KeyRange::all());
    }
}

/// A reader that was away for longer than what is in memory counts what is there.
#[test]
fn a_feed_that_was_left_behind_is_no_harm() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path()).event_ring_bytes(4 << 10)).unwrap();
    fill(&engine, 0..KEYS);
    let counts = KeyCounts::new(&engine);
    assert_count(&counts, &engine.snapshot(At::Latest).unwrap(), &KeyRange::all());
    for n in 0..500 {
        engine
            .transact(Transaction::new().delete(key(n)).put(format!("d/{n}"), vec![7; 1000]))
            .wait()
            .unwrap();
    }
    let snapshot = engine.snapshot(At::Latest).unwrap();
    common::eventually("the feed has caught up", || {
        assert_count(&counts, &snapshot, &KeyRange::all());
        assert_count(&counts, &snapshot, &KeyRange::prefix("a/"));
        counts.position() == snapshot.revision()
    });
    // It was compacted away meanwhile: the feed ends, and another one begins.
    for n in 500..1000 {
        engine
            .transact(Transaction::new().delete(key(n)).put(format!("d/{n}"), vec![7; 1000]))
            .wait()
            .unwrap();
    }
    engine.compact(engine.current_revision()).unwrap();
    engine.wait_compacted().unwrap();
    let snapshot = engine.snapshot(At::Latest).unwrap();
    common::eventually("another feed", || {
        assert_count(&counts, &snapshot, &KeyRange::all());
        counts.advance();
        counts.position() == snapshot.revision()
    });
    assert_count(&counts, &snapshot, &KeyRange::from("b"));
}

/// Counts beside writers: each is that of its snapshot.
#[test]
fn counts_beside_writers_are_those_of_their_snapshots() {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    fill(&engine, 0..KEYS);
    let counts = KeyCounts::new(&engine);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let engine = &engine;
            scope.spawn(move || {
                for n in 0..300 {
                    let transaction = change(n * 7 + writer, 1 + n % 5, 3, (n + writer) % 2 == 0);
                    engine.transact(transaction).wait().unwrap();
                }
            });
        }
        for reader in 0..2 {
            let (engine, counts) = (&engine, &counts);
            scope.spawn(move || {
                for n in 0..150 {
                    let snapshot = engine.snapshot(At::Latest).unwrap();
                    let range = match reader {
                        0 => KeyRange::between(key(n * 11), "c/09999"),
                        _ => KeyRange::prefix("b/"),
                    };
                    assert_count(counts, &snapshot, &range);
                }
            });
        }
    });
    assert_count(&counts, &engine.snapshot(At::Latest).unwrap(), &KeyRange::all());
}
