//! What a start refuses without removing anything: each file of a data directory missing, unreadable, or of
//! another type.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use common::{assert_sound, copy_dir, dump, scratch};
use plinth_engine::{
    restore, verify, At, Continuation, Engine, Error, KeyRange, Options, Revision, Subscribe, Transaction,
};

/// A closed store with some commits.
fn populated() -> tempfile::TempDir {
    let dir = scratch();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    for n in 0..20u8 {
        engine.transact(Transaction::new().put(vec![n], vec![n; 100])).wait().unwrap();
    }
    engine.close().unwrap();
    dir
}

/// Every file and link below a directory, with its content.
fn files(dir: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.insert(path.clone(), None);
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), fs::read(&path).ok());
        }
    }
    found
}

/// Asserts that `dir` is refused in every way of opening it, with a message that contains `text`, and stays
/// unchanged.
#[track_caller]
fn assert_refused(dir: &Path, text: &str) {
    let before = files(dir);
    for create in [true, false] {
        let Err(error) = Engine::open(Options::new(dir).create(create)) else {
            panic!("opened although {text}")
        };
        assert!(error.to_string().contains(text), "{error} does not say {text}");
    }
    assert!(verify(dir, |_| {}, |_| {}).is_err());
    assert!(restore(&mut &b""[..], dir, Continuation::Same, |_| {}).is_err());
    let mut after = files(dir);
    // The lock is all that a refused start may create.
    after.remove(&dir.join("LOCK"));
    let mut before = before;
    before.remove(&dir.join("LOCK"));
    assert_eq!(after, before);
}

#[test]
fn a_store_without_its_marker_is_refused_and_kept() {
    let dir = populated();
    fs::remove_file(dir.path().join("PLINTH")).unwrap();
    assert_refused(dir.path(), "PLINTH");
    fs::write(dir.path().join("PLINTH"), "plinth-engine format 1\n").unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest).len(), 20);
}

/// Reading metadata fails with an error that is not "not found", as with EACCES and EIO.
#[test]
fn a_failed_look_is_not_absence() {
    for name in ["PLINTH", "db"] {
        let dir = populated();
        fs::rename(dir.path().join(name), dir.path().join("aside")).unwrap();
        symlink(name, dir.path().join(name)).unwrap();
        assert_refused(dir.path(), name);
        fs::remove_file(dir.path().join(name)).unwrap();
        fs::rename(dir.path().join("aside"), dir.path().join(name)).unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        assert_eq!(dump(&engine, &KeyRange::all(), At::Latest).len(), 20);
    }
}

#[test]
fn a_marker_of_a_restore_beside_a_complete_store_harms_nobody() {
    let dir = populated();
    fs::write(dir.path().join("RESTORING"), "").unwrap();
    assert!(matches!(
        restore(&mut &b""[..], dir.path(), Continuation::Same, |_| {}),
        Err(Error::Incomplete { .. })
    ));
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest).len(), 20);
    drop(engine);
    // Version 0.1 left it without the marker of completeness while it restored.
    fs::remove_file(dir.path().join("PLINTH")).unwrap();
    assert_refused(dir.path(), "did not finish");
}

#[test]
fn a_lost_or_replaced_database_is_refused() {
    let dir = populated();
    fs::remove_dir_all(dir.path().join("db")).unwrap();
    assert_refused(dir.path(), "db");
    fs::write(dir.path().join("db"), "").unwrap();
    assert_refused(dir.path(), "db");
    let dir = populated();
    fs::remove_file(dir.path().join("PLINTH")).unwrap();
    fs::create_dir(dir.path().join("PLINTH")).unwrap();
    assert_refused(dir.path(), "PLINTH");
}

#[test]
fn a_damaged_marker_is_refused() {
    for text in ["", "plinth-engine for", "plinth-engine format 1", "\0\0\0\0"] {
        let dir = populated();
        fs::write(dir.path().join("PLINTH"), text).unwrap();
        assert_refused(dir.path(), "PLINTH");
    }
}

#[test]
fn links_to_the_parts_of_a_store_are_followed() {
    let dir = populated();
    let elsewhere = scratch();
    copy_dir(&dir.path().join("db"), &elsewhere.path().join("db"));
    fs::remove_dir_all(dir.path().join("db")).unwrap();
    symlink(elsewhere.path().join("db"), dir.path().join("db")).unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest).len(), 20);
}

#[test]
fn a_restore_that_failed_leaves_a_directory_that_is_refused() {
    let from = populated();
    let engine = Engine::open(Options::new(from.path())).unwrap();
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    for cut in [0, 4, 8, 20, archive.len() / 2, archive.len() - 1] {
        for name in ["absent", "empty"] {
            let parent = scratch();
            let dir = parent.path().join(name);
            if name == "empty" {
                fs::create_dir(&dir).unwrap();
            }
            assert!(restore(&mut &archive[..cut], &dir, Continuation::Same, |_| {}).is_err());
            for create in [true, false] {
                let opened = Engine::open(Options::new(&dir).create(create));
                assert!(matches!(opened, Err(Error::UnfinishedRestore { .. })), "cut at {cut}");
            }
            assert!(matches!(verify(&dir, |_| {}, |_| {}), Err(Error::UnfinishedRestore { .. })));
            // Again, with the whole archive.
            restore(&mut archive.as_slice(), &dir, Continuation::Same, |_| {}).unwrap();
            let restored = Engine::open(Options::new(&dir)).unwrap();
            assert_eq!(
                dump(&restored, &KeyRange::all(), At::Latest),
                dump(&engine, &KeyRange::all(), At::Latest)
            );
        }
    }
}

#[test]
fn an_unfinished_creation_starts_over() {
    let dir = scratch();
    fs::create_dir(dir.path().join("db.creating")).unwrap();
    fs::write(dir.path().join("db.creating/CURRENT"), "MANIFEST-0").unwrap();
    let engine = Engine::open(Options::new(dir.path())).unwrap();
    engine.transact(Transaction::new().put("a", "1")).wait().unwrap();
    drop(engine);
    let mut names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["LOCK", "PLINTH", "WATERMARK", "db"]);
}

/// A directory that version 0.1 left behind when it was killed: no watermark, and a MANIFEST that does not
/// track logs.
#[test]
fn a_store_of_the_version_before_opens_with_all_that_it_holds() {
    let old = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/killed_0_1");
    let dir = scratch();
    copy_dir(&old, dir.path());
    let engine = Engine::open(Options::new(dir.path()).create(false)).unwrap();
    let head = engine.current_revision();
    assert_eq!(head.get(), 94);
    assert_eq!(engine.dropped(), []);
    assert!(dir.path().join("WATERMARK").is_file());
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(Revision::ZERO)).unwrap();
    let seen: Vec<u64> = common::drain(&mut feed, head).iter().map(|(revision, _)| *revision).collect();
    assert!(seen.is_sorted() && seen.last() == Some(&head.get()), "{seen:?}");
    let there = dump(&engine, &KeyRange::all(), At::Latest);
    assert_eq!(there.keys().filter(|key| String::from_utf8_lossy(key).contains("/old-")).count(), 29);
    drop((feed, engine));
    verify(dir.path(), |_| {}, |finding| panic!("{finding}")).unwrap();
    assert_eq!(Engine::open(Options::new(dir.path())).unwrap().current_revision(), head);
    // Without its only log there is nothing in it, which is not an empty store.
    let dir = scratch();
    copy_dir(&old, dir.path());
    fs::remove_file(dir.path().join("db/000004.log")).unwrap();
    let refused = Engine::open(Options::new(dir.path())).map(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("files of it are missing"), "{refused}");
}

/// The old store has assigned revisions after the backup: no client that holds one of them misses the
/// differences of the restored store.
#[test]
fn a_restored_store_goes_on_beyond_what_the_old_one_gave_out() {
    let from = populated();
    let engine = Engine::open(Options::new(from.path())).unwrap();
    let mut archive = Vec::new();
    let archived = engine.backup(&mut archive, |_| {}).unwrap();
    let before = dump(&engine, &KeyRange::all(), At::Latest);
    let after = engine.transact(Transaction::new().put("after", "the backup")).wait().unwrap().revision;
    let to = scratch();
    let restored = restore(&mut archive.as_slice(), to.path(), Continuation::Beyond, |_| {}).unwrap();
    assert!(restored.revision > after && restored.entries == archived.entries);
    assert_sound(to.path());
    let engine = Engine::open(Options::new(to.path())).unwrap();
    assert_eq!(engine.current_revision(), restored.revision);
    assert_eq!(dump(&engine, &KeyRange::all(), At::Latest), before);
    for held in [Revision::ZERO, archived.revision, after] {
        let feed = engine.subscribe(Subscribe::new(KeyRange::all()).after(held));
        assert!(matches!(feed, Err(Error::Compacted { .. })), "after {held}");
        let read = engine.snapshot(At::Exact(held.next())).map(|_| ());
        assert!(matches!(read, Err(Error::Compacted { .. })), "at {held}");
    }
    let mut feed = engine.subscribe(Subscribe::new(KeyRange::all())).unwrap();
    let next = engine.transact(Transaction::new().put("after", "the restore")).wait().unwrap().revision;
    assert_eq!(next, restored.revision.next());
    assert_eq!(common::drain(&mut feed, next).len(), 1);
    engine.compact(next).unwrap();
    drop(feed);
    engine.close().unwrap();
    drop(engine);
    assert_sound(to.path());
}
