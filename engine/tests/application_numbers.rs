//! Numbers of the application, and the mark of a store.

use plinth_engine::{restore, At, Condition, Continuation, Engine, Error, Options, Revision, Transaction};

fn open(dir: &std::path::Path) -> Engine {
    Engine::open(Options::new(dir).mark("notes")).unwrap()
}

#[test]
fn numbers_take_no_revision_and_outlive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let only_numbers = Transaction::new().set_number("a.1", 1).set_number("a.2", 2).set_number("b", 3);
    assert_eq!(engine.transact(only_numbers).wait().unwrap().revision, Revision::ZERO);
    let both = Transaction::new().put("key", "value").set_number("a.3", 4).remove_number("a.1");
    assert_eq!(engine.transact(both).wait().unwrap().revision, Revision::new(1));
    engine.close().unwrap();
    drop(engine);

    let engine = open(dir.path());
    let found = engine.numbers(b"a.", b"", 10).unwrap();
    assert_eq!(found, [("a.2".into(), 2), ("a.3".into(), 4)]);
    assert_eq!(engine.numbers(b"a.", b"a.3", 10).unwrap(), [("a.3".into(), 4)]);
    assert_eq!(engine.numbers(b"", b"", 2).unwrap().len(), 2);
    assert_eq!(engine.current_revision(), Revision::new(1));
}

#[test]
fn a_condition_that_fails_changes_no_number() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let refused = Transaction::new().require(Condition::Exists("key".into())).set_number("n", 1);
    assert!(matches!(engine.transact(refused).wait(), Err(Error::Conflict { .. })));
    assert!(engine.numbers(b"", b"", 10).unwrap().is_empty());
}

#[test]
fn numbers_and_the_mark_are_part_of_archives() {
    let (dir, restored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = open(dir.path());
    engine.transact(Transaction::new().put("key", "value").set_number("n", 7)).wait().unwrap();
    let mut archive = Vec::new();
    engine.backup(&mut archive, |_| {}).unwrap();
    restore(&mut archive.as_slice(), restored.path(), Continuation::Beyond, |_| {}).unwrap();
    assert!(matches!(Engine::open(Options::new(restored.path())), Err(Error::Mark { .. })));
    let engine = open(restored.path());
    assert_eq!(engine.numbers(b"", b"", 10).unwrap(), [("n".into(), 7)]);
    assert_eq!(engine.get(b"key", At::Latest).unwrap().unwrap().value, "value");
}

#[test]
fn a_store_is_opened_with_its_mark_only() {
    let (marked, unmarked) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    drop(open(marked.path()));
    let refused = Engine::open(Options::new(marked.path())).err().unwrap();
    assert!(refused
        .to_string()
        .contains("is a store of \"notes\", and was opened as a store without a mark"));
    assert!(Engine::open(Options::new(marked.path()).mark("other")).is_err());
    Engine::open(Options::new(marked.path()).any_mark()).unwrap().close().unwrap();

    // A store with data gets no mark later.
    let engine = Engine::open(Options::new(unmarked.path())).unwrap();
    engine.transact(Transaction::new().put("key", "value")).wait().unwrap();
    engine.close().unwrap();
    drop(engine);
    assert!(matches!(
        Engine::open(Options::new(unmarked.path()).mark("notes")),
        Err(Error::Mark { found, .. }) if found.is_empty()
    ));
}
