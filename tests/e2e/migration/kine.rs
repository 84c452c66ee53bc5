//! The database of k3s on SQLite as a source.

use std::fs;
use std::path::Path;

use http::Method;
use plinth_migration::snapshot::Snapshot;
use plinth_migration::source::{Source as _, SourceEntry, SourceError};
use plinth_tests::requests::call;
use plinth_tests::server::client_of;
use rusqlite::{params, Connection};

use super::{assert_same, filled, hash, must, objects, run, start_with_keys_of, Paths};

/// kine's table and the indexes that it has by now.
const SCHEMA: &str = "PRAGMA journal_mode = WAL;
CREATE TABLE kine (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT, created INTEGER, deleted INTEGER,
    create_revision INTEGER, prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB);
CREATE INDEX kine_name_index ON kine (name);
CREATE INDEX kine_name_id_index ON kine (name, id);
CREATE INDEX kine_id_deleted_index ON kine (id, deleted);
CREATE INDEX kine_prev_revision_index ON kine (prev_revision);
CREATE UNIQUE INDEX kine_name_prev_revision_uindex ON kine (name, prev_revision);";

/// The revision that kine continues at.
const START: i64 = 5_000_000;

/// Appends a row as kine does: a value, or a deletion.
fn append(kine: &Connection, name: &str, value: Option<&[u8]>, lease: i64) -> i64 {
    let statement =
        "INSERT INTO kine (name, created, deleted, create_revision, prev_revision, lease, value) VALUES
        (?1, 0, ?2, 0, (SELECT ifnull(max(id), 0) FROM kine WHERE name = ?1), ?3, ?4)";
    kine.execute(statement, params![name, value.is_none(), lease, value]).expect("a row");
    kine.last_insert_rowid()
}

/// A database with what a snapshot has, and a history.
pub(super) fn database(path: &str, snapshot: &str) -> Connection {
    let kine = Connection::open(path).expect("a database");
    kine.execute_batch(SCHEMA).expect("the schema");
    kine.execute_batch("BEGIN").expect("a transaction");
    append(&kine, "compact_rev_key", Some(b""), 0);
    append(&kine, "/registry/health", Some(br#"{"health":"true"}"#), 0);
    kine.execute(
        "INSERT INTO kine (id, name, created, deleted) VALUES (?1, ?2, 0, 1)",
        params![START, format!("gap-{START}")],
    )
    .expect("a gap");
    let snapshot = Snapshot::open(Path::new(snapshot), true).expect("a snapshot");
    let collect = &mut |entry: SourceEntry| {
        let name = String::from_utf8(entry.key).expect("text");
        append(&kine, &name, Some(b"an earlier value"), 0);
        append(&kine, &name, Some(&entry.value), entry.ttl.map_or(0, |ttl| ttl.as_secs() as i64));
        append(&kine, &format!("{name}-gone"), Some(&entry.value), 0);
        append(&kine, &format!("{name}-gone"), None, 0);
        Ok::<(), SourceError>(())
    };
    snapshot.visit(b"", collect).expect("all keys");
    kine.execute_batch("COMMIT").expect("committed");
    kine
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_moves_in_from_k3s_while_that_runs() {
    let (server, before, _) = filled(&[]).await;
    let (paths, data) = (Paths::new(), server.data());
    let (file, state) = (paths.at("snapshot.db"), paths.at("state.db"));
    let out = must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &file]);
    let kine = database(&state, &file);
    let newest: i64 = kine.query_row("SELECT max(id) FROM kine", [], |row| row.get(0)).expect("a revision");
    // Its last changes are in the write-ahead log alone, as while k3s runs.
    assert!(fs::metadata(format!("{state}-wal")).expect("the log").len() > 0);
    let url = format!("sqlite://{state}?_journal=WAL");
    let into = must(&["import", "kine", &url, "--data-dir", &paths.at("data")]);
    assert_eq!(hash(&out), hash(&into));
    must(&["verify", "--data-dir", &paths.at("data")]);
    append(&kine, "/registry/unused", Some(b"it goes on"), 0);
    drop(kine);

    let moved = start_with_keys_of(&server, paths.0.path(), &[]).await;
    let client = client_of(&moved.kubeconfig()).await;
    let (after, now) = objects(&client).await;
    assert!(now > u64::try_from(newest).expect("a revision"), "{now} continues above {newest}");
    assert_same(&before, &after);
    let path = format!("/api/v1/configmaps?watch=1&resourceVersion={newest}");
    let (code, answer) = call(&client, Method::GET, &path, None).await;
    assert!(code == 410 || answer["object"]["code"] == 410, "{code} {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_state_of_a_database_is_read_while_it_is_written() {
    let paths = Paths::new();
    let state = paths.at("state.db");
    let kine = Connection::open(&state).expect("a database");
    kine.execute_batch(SCHEMA).expect("the schema");
    let map = |name: &str, value: u32| {
        format!(
            r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}","namespace":"ns"}},"data":{{"k":"{value}"}}}}"#
        )
    };
    // Both are changed in one transaction: whoever sees one state sees them equal.
    let round = |number: u32| {
        kine.execute_batch("BEGIN IMMEDIATE").expect("a transaction");
        for name in ["a", "z"] {
            append(&kine, &format!("/registry/configmaps/ns/{name}"), Some(map(name, number).as_bytes()), 0);
        }
        append(
            &kine,
            &format!("/registry/configmaps/ns/m-{number}"),
            Some(map(&format!("m-{number}"), 0).as_bytes()),
            0,
        );
        kine.execute_batch("COMMIT").expect("committed");
    };
    (0..100).for_each(round);
    for attempt in 0..4u32 {
        let data = paths.at(&format!("data-{attempt}"));
        let (import, target) = (state.clone(), data.clone());
        let import = std::thread::spawn(move || must(&["import", "kine", &import, "--data-dir", &target]));
        let mut number = 100 + attempt * 100_000;
        while !import.is_finished() {
            round(number);
            number += 1;
        }
        let text = import.join().expect("imported");
        let snapshot = paths.at(&format!("{attempt}.db"));
        assert_eq!(hash(&text), hash(&must(&["export", "etcd-snapshot", "--data-dir", &data, &snapshot])));
        let snapshot = Snapshot::open(Path::new(&snapshot), true).expect("a snapshot");
        let mut values = Vec::new();
        for name in ["a", "z"] {
            let read = &mut |entry: SourceEntry| {
                let value = String::from_utf8_lossy(&entry.value).into_owned();
                values.push(
                    value
                        .chars()
                        .rev()
                        .skip_while(|c| !c.is_ascii_digit())
                        .take_while(char::is_ascii_digit)
                        .collect::<String>(),
                );
                Ok::<(), SourceError>(())
            };
            snapshot.visit(format!("/registry/configmaps/ns/{name}").as_bytes(), read).expect("the key");
        }
        assert!(values.len() == 2 && values[0] == values[1], "{attempt}: {values:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn encrypted_values_of_k3s_need_their_configuration() {
    let paths = Paths::new();
    // As `k3s server --secrets-encryption` configures it.
    let text = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [secrets]\n  providers:\n  - aescbc: \
                {keys: [{name: aescbckey, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}\n  - identity: {}\n";
    fs::write(paths.at("encryption.yaml"), text).expect("configuration");
    let argument = format!("--encryption-provider-config={}", paths.at("encryption.yaml"));
    let (server, before, _) = filled(&[&argument]).await;
    let (file, state, data) = (paths.at("snapshot.db"), paths.at("state.db"), server.data());
    let out =
        must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &file, &argument]);
    drop(database(&state, &file));
    let (done, text) = run(&["import", "kine", &state, "--data-dir", &paths.at("data")]);
    assert!(!done && text.contains("the value is encrypted (aescbc)"), "{text}");
    assert!(text.contains("/registry/secrets/moved/"), "{text}");
    assert!(!paths.exists("data") && !paths.exists("data.importing"));
    let into = must(&["import", "kine", &state, "--data-dir", &paths.at("data"), &argument]);
    assert_eq!(hash(&out), hash(&into));
    let moved = start_with_keys_of(&server, paths.0.path(), &[&argument]).await;
    assert_same(&before, &objects(&client_of(&moved.kubeconfig()).await).await.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_database_leaves_no_directory() {
    let (server, _, _) = filled(&[]).await;
    let (paths, data) = (Paths::new(), server.data());
    let (file, state, broken) = (paths.at("snapshot.db"), paths.at("state.db"), paths.at("broken.db"));
    must(&["export", "etcd-snapshot", "--data-dir", data.to_str().expect("text"), &file]);
    drop(database(&state, &file));
    let whole = fs::read(&state).expect("the file");
    let import = |arguments: &[&str]| {
        let data = paths.at("data");
        let (done, text) = run(&[&["import", "kine", &broken, "--data-dir", &data][..], arguments].concat());
        assert!(!paths.exists("data.importing"), "{text}");
        assert_eq!(paths.exists("data"), done, "{text}");
        if done {
            fs::remove_dir_all(&data).expect("remove");
        }
        (done, text)
    };
    for (length, expected) in [
        (0, "it is not a database of SQLite"),
        (15, "it is not a database of SQLite"),
        (1000, "the database is damaged"),
        (whole.len() - 4096, "the database is damaged"),
    ] {
        fs::write(&broken, &whole[..length]).expect("write");
        let (done, text) = import(&[]);
        assert!(!done && text.contains(expected) && text.contains(&broken), "{length}: {text}");
    }
    let change = |statements: &str| {
        fs::write(&broken, &whole).expect("write");
        Connection::open(&broken).and_then(|kine| kine.execute_batch(statements)).expect("changed");
    };
    change("DROP TABLE kine");
    assert!(import(&[]).1.contains("it has no table kine"));
    let newest =
        "(SELECT max(id) FROM kine WHERE name LIKE '/registry/services/specs/moved/%' AND name NOT LIKE '%-gone')";
    change(&format!("UPDATE kine SET lease = 'x' WHERE id = {newest}"));
    let (done, text) = import(&["--skip-unknown"]);
    assert!(
        !done && text.contains("/registry/services/specs/moved/") && text.contains("its lease"),
        "{text}"
    );
    // A value that is no object is listed with the others, and left out if asked to.
    change(&format!("UPDATE kine SET value = x'6b387300ffff' WHERE id = {newest}"));
    let (done, text) = import(&[]);
    assert!(
        !done && text.contains("/registry/services/specs/moved/") && text.contains("cannot be decoded"),
        "{text}"
    );
    assert!(text.contains("1 keys cannot be imported"), "{text}");
    assert!(import(&["--skip-unknown"]).0);
    let (done, text) =
        run(&["import", "kine", "mysql://root@tcp(127.0.0.1)/", "--data-dir", &paths.at("data")]);
    assert!(!done && text.contains("only SQLite"), "{text}");
}
