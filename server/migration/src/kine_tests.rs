//! Databases of kine that are written row by row.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{params, Connection};

use crate::kine;
use crate::source::{Source as _, SourceEntry, SourceError};
use crate::spool::Spool;

/// kine's table.
const SCHEMA: &str = "CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER, created INTEGER, \
    deleted INTEGER, create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB); \
    CREATE INDEX kine_name_index ON kine (name); \
    CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision);";

/// A new database, with a write-ahead log as k3s has it, or without one.
fn database(path: &Path, has_log: bool) -> Connection {
    let connection = Connection::open(path).unwrap();
    if has_log {
        connection.execute_batch("PRAGMA journal_mode = WAL").unwrap();
    }
    connection.execute_batch(SCHEMA).unwrap();
    connection
}

/// Appends a row: of a value, or a deletion.
fn append(connection: &Connection, name: &str, value: Option<&[u8]>, lease: i64) -> i64 {
    let statement =
        "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) \
        VALUES (?1, 0, ?2, 0, (SELECT ifnull(max(id), 0) FROM kine), ?3, ?4)";
    connection.execute(statement, params![name, value.is_none(), lease, value]).unwrap();
    connection.last_insert_rowid()
}

fn fill(connection: &Connection) {
    append(connection, "compact_rev_key", Some(b""), 0);
    append(connection, "/registry/health", Some(br#"{"health":"true"}"#), 0);
    append(connection, "/registry/configmaps/ns/b", Some(b"old"), 0);
    append(connection, "/registry/configmaps/ns/gone", Some(b"gone"), 0);
    append(connection, "/registry/events/ns/e", Some(b"event"), 3600);
    append(connection, "gap-6", None, 0);
    append(connection, "/registry/configmaps/ns/gone", None, 0);
    append(connection, "/registry/configmaps/ns/b", Some(&[0xff; 9000]), 0);
    append(connection, "/registry/configmaps/ns/a", Some(b""), 0);
    append(connection, "/bootstrap/x", Some(b"elsewhere"), 0);
    append(connection, "1", Some(b"a number, to SQLite"), 0);
}

/// What [`fill`] has below `/registry/`.
fn expected() -> Vec<SourceEntry> {
    let entry = |key: &str, value: &[u8], ttl| SourceEntry {
        key: format!("/registry/{key}").into_bytes(),
        value: value.to_vec(),
        ttl,
    };
    vec![
        entry("configmaps/ns/a", b"", None),
        entry("configmaps/ns/b", &[0xff; 9000], None),
        entry("events/ns/e", b"event", Some(Duration::from_secs(3600))),
        entry("health", br#"{"health":"true"}"#, None),
    ]
}

fn read(path: &Path) -> Result<Spool, SourceError> {
    let own = tempfile::tempdir().unwrap();
    let out = own.path().join("spool");
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&out).unwrap();
    let scratch = own.path().join("scratch");
    let spool = kine::spool(path, &scratch, "/registry/", (file, &out), &mut |_| {});
    assert!(!scratch.exists() || spool.is_err(), "the copy is removed");
    spool
}

fn entries(spool: &Spool) -> Vec<SourceEntry> {
    let mut found = Vec::new();
    spool
        .visit::<SourceError>(b"", &mut |entry| {
            found.push(entry);
            Ok(())
        })
        .unwrap();
    found
}

/// The files of a directory, with what is in them.
fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = paths.map(|path| (path.clone(), fs::read(path).unwrap())).collect();
    files.sort();
    files
}

/// The error of a database that `change` has made of a good one.
fn refused(change: impl FnOnce(&Path)) -> String {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let connection = database(&path, false);
    fill(&connection);
    drop(connection);
    change(&path);
    let text = read(&path).unwrap_err().to_string();
    text.strip_prefix(&format!("{}: ", path.display())).expect("the file is named").to_owned()
}

fn sql(path: &Path, statements: &str) {
    Connection::open(path).unwrap().execute_batch(statements).unwrap();
}

#[test]
fn the_newest_row_of_a_key_counts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a name?with#marks%20.db");
    let connection = database(&path, false);
    fill(&connection);
    let last = append(&connection, "/registry/configmaps/ns/late", Some(b"x"), 0);
    connection.execute("DELETE FROM kine WHERE id = ?1", [last]).unwrap();
    drop(connection);
    let spool = read(&path).unwrap();
    assert_eq!(entries(&spool), expected());
    assert_eq!(spool.revision(), last as u64, "also of a row that is not there any more");
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert_eq!(entries(&read(&link).unwrap()), expected());
}

#[test]
fn nothing_is_written_to_the_source_in_whichever_state_it_was_left() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    fs::create_dir(&live).unwrap();
    let connection = database(&live.join("state.db"), true);
    connection.execute_batch("PRAGMA wal_autocheckpoint = 0; PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    fill(&connection);
    // As after a kill: with and without the shared memory, and with a log that ends in the middle of a frame.
    for (name, suffixes, cut) in [
        ("killed", &["", "-wal", "-shm"][..], 0),
        ("copied", &["", "-wal"], 0),
        ("torn", &["", "-wal"], 1),
        ("torn-shared", &["", "-wal", "-shm"], 1),
        ("empty-log", &[""], 0),
    ] {
        let left = dir.path().join(name);
        fs::create_dir(&left).unwrap();
        for suffix in suffixes {
            let file = format!("state.db{suffix}");
            fs::copy(live.join(&file), left.join(&file)).unwrap();
        }
        if cut > 0 {
            let log = OpenOptions::new().write(true).open(left.join("state.db-wal")).unwrap();
            log.set_len(log.metadata().unwrap().len() - cut).unwrap();
        }
        if name == "empty-log" {
            File::create(left.join("state.db-wal")).unwrap();
        }
        let before = files(&left);
        let read = read(&left.join("state.db"));
        match name {
            // All rows are only in the log.
            "empty-log" => assert_eq!(read.unwrap().len(), 0, "{name}"),
            "killed" | "copied" => {
                let spool = read.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!((entries(&spool), spool.revision()), (expected(), 11), "{name}");
            }
            // The last row was not committed whole.
            _ => assert_eq!(read.unwrap_or_else(|error| panic!("{name}: {error}")).revision(), 10, "{name}"),
        }
        assert_eq!(files(&left), before, "{name}");
    }
    // Closed as it should be: the log is gone, and is not created again.
    drop(connection);
    let before = files(&live);
    assert_eq!(before.len(), 1);
    assert_eq!(entries(&read(&live.join("state.db")).unwrap()), expected());
    assert_eq!(files(&live), before);
}

#[test]
fn what_is_not_committed_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let connection = database(&path, true);
    fill(&connection);
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    append(&connection, "/registry/configmaps/ns/late", Some(b"x"), 0);
    assert_eq!(entries(&read(&path).unwrap()), expected());
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(read(&path).unwrap().len(), expected().len() as u64 + 1);
}

#[test]
fn other_files_are_refused() {
    let write = |bytes: &'static [u8]| move |path: &Path| fs::write(path, bytes).unwrap();
    assert_eq!(refused(write(b"")), "it is not a database of SQLite");
    assert_eq!(refused(write(&[7; 8192])), "it is not a database of SQLite");
    assert_eq!(refused(write(b"SQLite format 3\0")), "it is not a database of SQLite");
    let cut = refused(|path| {
        let length = fs::metadata(path).unwrap().len();
        OpenOptions::new().write(true).open(path).unwrap().set_len(length / 2).unwrap();
    });
    assert!(cut.starts_with("the database is damaged"), "{cut}");
    let missing = "it has no table kine: it is not the database of k3s or kine";
    assert_eq!(refused(|path| sql(path, "ALTER TABLE kine RENAME TO other")), missing);
    let view = "ALTER TABLE kine RENAME TO other; CREATE VIEW kine AS SELECT * FROM other";
    assert_eq!(refused(|path| sql(path, view)), missing);
    let column = refused(|path| sql(path, "ALTER TABLE kine DROP COLUMN lease"));
    assert!(column.contains("no such column: lease"), "{column}");
    let directory = refused(|path| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    });
    assert!(directory.starts_with("it is not a file"), "{directory}");
}

#[test]
fn nothing_that_the_file_defines_is_computed() {
    const FOREVER: &str =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let generated = "it has generated columns, which the database of k3s or kine has not";
    for change in [
        "ALTER TABLE kine ADD COLUMN more TEXT AS (name || '/more')",
        "CREATE TABLE other (a, b NOT NULL AS (a || a)); INSERT INTO other VALUES (1)",
    ] {
        assert_eq!(refused(|path| sql(path, change)), generated, "{change}");
    }
    let no_key = "the id of its table kine is not the key, as it is in that of k3s or kine";
    let without = "ALTER TABLE kine RENAME TO old; CREATE TABLE kine AS SELECT * FROM old";
    assert_eq!(refused(|path| sql(path, without)), no_key);

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let connection = database(&path, false);
    fill(&connection);
    // A condition that all rows are against, and a view in the place of SQLite's own table.
    let change = format!(
        "PRAGMA writable_schema = ON; \
         UPDATE sqlite_schema SET sql = replace(sql, 'name INTEGER', 'name INTEGER CHECK (name = 7)') \
         WHERE name = 'kine'; \
         UPDATE sqlite_schema SET type = 'view', rootpage = 0, \
         sql = 'CREATE VIEW sqlite_sequence(name, seq) AS SELECT ''kine'', ({FOREVER})' \
         WHERE name = 'sqlite_sequence'",
    );
    connection.execute_batch(&change).unwrap();
    drop(connection);
    let spool = read(&path).unwrap();
    assert_eq!((entries(&spool), spool.revision()), (expected(), 11));
}

#[test]
fn a_damaged_row_is_named() {
    for (column, value, expected) in [
        ("name", "x'00'", "row 9 of the table kine, : its name is no text"),
        ("name", "NULL", "row 9 of the table kine, : its name is no text"),
        ("deleted", "NULL", "/registry/configmaps/ns/a: it is neither a deletion nor a value"),
        ("deleted", "2", "/registry/configmaps/ns/a: it is neither a deletion nor a value"),
        ("value", "7", "/registry/configmaps/ns/a: its value is no bytes"),
        ("lease", "-1", "/registry/configmaps/ns/a: its lease is no time to live"),
        ("lease", "'soon'", "/registry/configmaps/ns/a: its lease is no time to live"),
        ("id", "-9", "row -9 of the table kine, /registry/configmaps/ns/a: its id is no revision"),
    ] {
        let text = refused(|path| sql(path, &format!("UPDATE kine SET {column} = {value} WHERE id = 9")));
        assert!(text.ends_with(expected), "{column} = {value}: {text}");
    }
}

#[test]
fn any_damaged_byte_is_noticed_or_harmless() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state.db");
    let connection = database(&path, false);
    fill(&connection);
    drop(connection);
    let whole = fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(&path, bytes).unwrap();
        // SQLite has no checksums: a flipped bit of a value is found by who decodes it.
        match read(&path) {
            Ok(_) => {}
            Err(SourceError::File { .. } | SourceError::Row { .. }) => refused += 1,
            Err(error) => panic!("{at}: {error}"),
        }
    }
    assert!(refused > 10, "{refused} were refused");
}
