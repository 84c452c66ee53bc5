//! What was removed takes no space after a defragmentation.

use bytes::Bytes;
use plinth_engine::{Engine, Options, Transaction};

/// Values of this size do not compress.
fn value(seed: u32) -> Bytes {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as u8
    };
    (0..256 << 10).map(|_| next()).collect::<Vec<u8>>().into()
}

fn file_bytes(engine: &Engine) -> u64 {
    engine.stats().families.iter().map(|family| family.file_bytes).sum()
}

#[test]
fn what_was_removed_takes_no_space_after_a_defragmentation() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    let put = |n: u32, version: u32| {
        let key = format!("key-{n}");
        engine.transact(Transaction::new().put(key, value(n * 100 + version))).wait().unwrap()
    };
    for version in 0..4 {
        for n in 0..32 {
            put(n, version);
        }
    }
    // Few large versions: what reclaims space by itself counts them.
    engine.compact(engine.current_revision()).unwrap();
    engine.wait_compacted().unwrap();
    engine.defragment().unwrap();
    let live = 32 * (256 << 10);
    let kept = file_bytes(&engine);
    assert!(kept > live / 2 && kept < live * 3 / 2, "{kept} bytes of files for {live} bytes of values");
    engine.close().unwrap();
}
