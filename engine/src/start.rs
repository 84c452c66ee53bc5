//! The checks of a start: that the store holds everything durable.

use std::sync::Arc;

use rocksdb::{ReadOptions, WriteBatch};

use crate::clock::{SystemClock, Timeline};
use crate::error::{Error, Result};
use crate::health::Warning;
use crate::layout::{self, meta, FORMAT_VERSION, MARKED_FORMAT_VERSION};
use crate::log::decode_entry;
use crate::options::Options;
use crate::revision::Revision;
use crate::store::{Family, Store};
use crate::store_mark;
use crate::watermark::{self, Watermark};

/// The state of a store that passed the checks of a start.
pub(crate) struct Start {
    pub floor: Revision,
    /// See [`meta::RESERVED`].
    pub reserved: Revision,
    pub latest: Revision,
    pub time: Arc<Timeline>,
    pub watermark: Watermark,
}

/// Checks that the store holds everything durable and that it is of the application that opens it, then
/// flushes and writes the watermark.
pub(crate) fn check_and_mark(store: &Arc<Store>, options: &Options) -> Result<Start> {
    let (mut floor, mut reserved) = (store.revision(meta::FLOOR)?, store.revision(meta::RESERVED)?);
    // The floor is taken into account: compaction may have removed every log entry.
    let (logged, logged_ms) = last_logged(store)?;
    let mut latest = logged.max(floor).max(reserved);
    let unmarked = check_mark(store, options, latest)?;
    let newest_ms = logged_ms.max(store.number(meta::TIME)?.unwrap_or(0));
    let clock = options.clock.clone().unwrap_or_else(|| Arc::new(SystemClock::start()));
    let time = Arc::new(Timeline::start(clock, newest_ms));
    watermark::check(&options.dir, latest)?;
    let is_marked = store.number(meta::MARKED)?.is_some();
    if is_marked && watermark::read(&options.dir)?.is_none() {
        options.warn.warn(&Warning::WatermarkLost { latest });
    }
    // All checks have passed: from here on the start writes.
    store.flush()?;
    if let Some(above) = options.continues_above.filter(|_| !latest.is_set()) {
        (floor, reserved, latest) = (above, above, above);
        let mut batch = WriteBatch::default();
        for name in [meta::FLOOR, meta::SWEPT, meta::RESERVED] {
            store.put_number(&mut batch, name, above.get());
        }
        store.write(batch, true)?;
    }
    let watermark = Watermark::start(&options.dir, latest, store.background_work())?;
    if !is_marked {
        let mut batch = WriteBatch::default();
        store.put_number(&mut batch, meta::MARKED, 1);
        store.write(batch, false)?;
    }
    write_mark(store, options, unmarked)?;
    store.take_reserve(options.reserve);
    Ok(Start { floor, reserved, latest, time, watermark })
}

/// Writes the mark of a new store, and the format of marked ones, which a restore or a repair may have reset.
fn write_mark(store: &Store, options: &Options, unmarked: Option<u64>) -> Result<()> {
    if options.mark.is_none_or(|mark| mark == 0)
        || (unmarked.is_none() && store.number(meta::FORMAT)? != Some(u64::from(FORMAT_VERSION)))
    {
        return Ok(());
    }
    let mut batch = WriteBatch::default();
    store.put_number(&mut batch, meta::FORMAT, MARKED_FORMAT_VERSION.into());
    if let Some(mark) = unmarked {
        store.put_number(&mut batch, meta::MARK, mark);
    }
    store.write(batch, true)
}

/// Refuses a store that another application marked as its own. Returns the mark that a new store is to get.
pub(crate) fn check_mark(store: &Store, options: &Options, latest: Revision) -> Result<Option<u64>> {
    let Some(expected) = options.mark else { return Ok(None) };
    let found = store.number(meta::MARK)?.unwrap_or(0);
    match found == expected {
        true => Ok(None),
        false if found == 0 && !latest.is_set() => Ok(Some(expected)),
        false => Err(Error::Mark {
            dir: options.dir.clone(),
            found: store_mark::decode_mark(found),
            expected: store_mark::decode_mark(expected),
        }),
    }
}

/// The newest revision of a store: the floor and reserved revisions are taken into account.
pub(crate) fn newest_revision(store: &Arc<Store>) -> Result<Revision> {
    let (floor, reserved) = (store.revision(meta::FLOOR)?, store.revision(meta::RESERVED)?);
    Ok(last_logged(store)?.0.max(floor).max(reserved))
}

/// The newest revision in the log, and its time in milliseconds since 1970.
fn last_logged(store: &Arc<Store>) -> Result<(Revision, u64)> {
    let mut cursor = store.cursor(Family::Log, ReadOptions::default());
    cursor.seek_to_last();
    let Some((key, value)) = cursor.item() else {
        cursor.status()?;
        return Ok((Revision::ZERO, 0));
    };
    let revision = layout::parse_log_key(key).filter(|revision| revision.is_plausible());
    let revision = revision.ok_or_else(|| Error::Corrupt {
        key: bytes::Bytes::copy_from_slice(key),
        revision: Revision::ZERO,
        reason: "not a log key",
    })?;
    // Damage is reported when the entry is read; a start needs only its time.
    Ok((revision, decode_entry(key, value).map_or(0, |entry| entry.time_ms)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;

    #[test]
    fn a_new_store_continues_above_another_one() {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options::new(dir.path()).continue_above(Revision::new(1000));
        let engine = Engine::open(options()).unwrap();
        assert_eq!((engine.current_revision().get(), engine.compacted_revision().get()), (1000, 1000));
        let old = engine.subscribe(crate::Subscribe::new(crate::KeyRange::all()).after(Revision::new(999)));
        assert!(matches!(old, Err(Error::Compacted { .. })));
        engine.close().unwrap();
        drop(engine);
        // Nothing was written, and a start continues where the last one did.
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let put = crate::Transaction::new().put("key", "value");
        assert_eq!(engine.transact(put).wait().unwrap().revision.get(), 1001);
        engine.close().unwrap();
        drop(engine);
        let engine = Engine::open(options().continue_above(Revision::new(5000))).unwrap();
        assert_eq!(engine.current_revision().get(), 1001, "it has revisions of its own");
        engine.close().unwrap();
        drop(engine);
        assert_eq!(crate::verify(dir.path(), |_| {}, |finding| panic!("{finding}")).unwrap().findings, 0);
    }

    #[test]
    fn a_program_that_knows_no_marks_refuses_the_format_of_a_marked_store() {
        for (mark, format) in [("", FORMAT_VERSION), ("etcd", MARKED_FORMAT_VERSION)] {
            let dir = tempfile::tempdir().unwrap();
            let options = Options::new(dir.path()).mark(mark);
            Engine::open(options.clone()).unwrap().close().unwrap();
            assert_eq!(
                Store::open(&options).unwrap().number(meta::FORMAT).unwrap(),
                Some(format.into()),
                "{mark:?}"
            );
            Engine::open(options).unwrap().close().unwrap();
        }
    }
}
