//! The machine's clock jumps: nothing expires early, retention goes on, deadlines do not inherit the future.

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{assert_sound, eventually, is_there, scratch, Clocks};
use plinth_engine::{Clock, Engine, Options, Transaction};

const SECOND: u64 = 1;
const HOUR: u64 = 3600;
const YEAR: u64 = 365 * 24 * HOUR;
/// Some time in 2026.
const NOW: u64 = 56 * YEAR;

fn open(dir: &std::path::Path, clocks: &Arc<Clocks>) -> Engine {
    let options = Options::new(dir)
        .clock(Arc::clone(clocks) as Arc<dyn Clock>)
        .history_retention(Some(Duration::from_secs(300)))
        .compaction_interval(Duration::from_millis(5));
    Engine::open(options).unwrap()
}

fn put(engine: &Engine, key: &str, ttl: u64) {
    let transaction = Transaction::new().put_expiring(key.to_owned(), "value", Duration::from_secs(ttl));
    engine.transact(transaction).wait().unwrap();
}

/// Makes the engine expire what is due, and waits until a key with a TTL of a second is gone.
fn expire(engine: &Engine, clocks: &Clocks) {
    put(engine, "second", SECOND);
    clocks.pass(2 * SECOND);
    // Sets a deadline, which wakes the thread.
    put(engine, "wake", SECOND);
    eventually("what is due expires", || !is_there(engine, "second"));
}

#[test]
fn a_jump_forward_expires_nothing_early() {
    let dir = scratch();
    let clocks = Clocks::at(NOW);
    let engine = open(dir.path(), &clocks);
    put(&engine, "hour", HOUR);
    clocks.set(NOW + YEAR);
    expire(&engine, &clocks);
    assert!(is_there(&engine, "hour"), "an hour has not passed");
    clocks.pass(HOUR);
    expire(&engine, &clocks);
    eventually("an hour has passed", || !is_there(&engine, "hour"));
    drop(engine);
    assert_sound(dir.path());
}

#[test]
fn deadlines_do_not_inherit_a_future_that_was_taken_back() {
    let dir = scratch();
    let clocks = Clocks::at(NOW + YEAR);
    let engine = open(dir.path(), &clocks);
    put(&engine, "hour", HOUR);
    clocks.set(NOW);
    clocks.pass(2 * HOUR);
    expire(&engine, &clocks);
    eventually("an hour has passed", || !is_there(&engine, "hour"));
    // The same across a restart.
    put(&engine, "hour", HOUR);
    engine.close().unwrap();
    drop(engine);
    let engine = open(dir.path(), &clocks);
    clocks.pass(2 * HOUR);
    expire(&engine, &clocks);
    eventually("an hour has passed", || !is_there(&engine, "hour"));
}

#[test]
fn retention_goes_on_after_a_jump_forward_and_back() {
    let dir = scratch();
    let clocks = Clocks::at(NOW);
    let engine = open(dir.path(), &clocks);
    let write =
        |value: &'static str| engine.transact(Transaction::new().put("key", value)).wait().unwrap().revision;
    write("before");
    clocks.set(NOW + YEAR);
    clocks.pass(2 * SECOND);
    write("in the future");
    clocks.set(NOW);
    let last = write("after");
    clocks.pass(2 * HOUR);
    eventually("history is let go", || engine.compacted_revision() >= last);
    engine.wait_compacted().unwrap();
    engine.close().unwrap();
    drop(engine);

    // The log is empty now; its newest time is known nonetheless.
    let engine = open(dir.path(), &clocks);
    let last = engine.transact(Transaction::new().put("key", "later")).wait().unwrap().revision;
    clocks.pass(2 * HOUR);
    eventually("history is let go", || engine.compacted_revision() >= last);
    drop(engine);
    assert_sound(dir.path());
}
