//! The storage engine alone: a notebook whose pages are keys.
//!
//! Shows transactions with a condition (compare-and-swap), reads at an earlier revision, and a change feed
//! that starts in the past. The engine holds bytes and knows nothing of Kubernetes.
//!
//! ```sh
//! cargo run --release -p plinth-engine --example notebook -- /tmp/notebook
//! ```

use std::time::Duration;

use plinth_engine::{At, Condition, Engine, EventKind, Feed, KeyRange, Options, Subscribe, Transaction};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("argument: a directory for the data")?;
    // One process at a time has the directory open. History is readable for the retention of the options.
    let engine = Engine::open(Options::new(directory).history_retention(Some(Duration::from_secs(300))))?;
    let before = engine.current_revision();

    // A transaction is atomic and takes one revision. `wait` blocks until it is durable; the returned
    // proposal is a future as well. Transactions that are under way at the same time share one disk sync.
    let written =
        engine.transact(Transaction::new().put("page/1", "buy apples").put("page/2", "call Ada")).wait()?;
    println!("two pages at revision {}", written.revision);

    // Compare-and-swap: the transaction is refused if somebody has changed the page since it was read.
    let page = engine.get(b"page/1", At::Latest)?.ok_or("no page 1")?;
    let unchanged = || Condition::ModRevision { key: page.key.clone(), revision: page.mod_revision };
    engine.transact(Transaction::new().require(unchanged()).put("page/1", "buy pears")).wait()?;
    let second_attempt = engine.transact(Transaction::new().require(unchanged()).delete("page/1")).wait();
    println!("a write that expects the old version: {}", second_attempt.expect_err("a stale condition"));

    // The newest state and the state of a revision, by key and as a range in the order of keys.
    let latest = engine.get(b"page/1", At::Latest)?.ok_or("no page 1")?;
    let then = engine.get(b"page/1", At::Exact(written.revision))?.ok_or("no page 1")?;
    println!("page 1 was {:?} and is {:?}", text(&then.value), text(&latest.value));
    let mut pages = engine.snapshot(At::Exact(written.revision))?.range(&KeyRange::prefix("page/"));
    while let Some(entry) = pages.next()? {
        println!("  {} = {}", text(entry.key), text(entry.value));
    }

    // A change feed delivers every change of a key range after a revision, in order, exactly once: first
    // those that happened already, then those to come. It is pulled, so a slow subscriber costs the engine
    // nothing.
    let mut changes = engine.subscribe(Subscribe::new(KeyRange::prefix("page/")).after(before))?;
    while let Some(feed) = changes.try_next()? {
        let Feed::Events(events) = feed else { continue };
        for event in events.iter() {
            match &event.kind {
                EventKind::Put { value, version, .. } => println!(
                    "revision {}: {} = {} (version {version})",
                    event.revision,
                    text(&event.key),
                    text(value),
                ),
                _ => println!("revision {}: {} deleted", event.revision, text(&event.key)),
            }
        }
    }
    engine.close()?;
    Ok(())
}

fn text(bytes: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
