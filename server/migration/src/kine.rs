//! [`spool`]: the database of kine on SQLite, which is where k3s without etcd keeps its objects.
//!
//! The table `kine` is a log. A row is a revision of a key: `id` is the revision, `name` the key, `deleted`
//! one for a deletion, `lease` the time to live in seconds, `value` the value; the other columns are about
//! what was there before. The newest row of a name counts. Two kinds of rows are no keys: `compact_rev_key`,
//! and `gap-N` for a revision that was not used. When a row was written is not known, so a key with a time to
//! live has all of it again, as after a start of kine. Facts of kine's `pkg/drivers/sqlite` and
//! `pkg/logstructured`.
//!
//! The table is read once, in one read transaction, into a [`Spool`]: a k3s that runs goes on meanwhile, and
//! is left alone afterwards. Nothing is written to the source, nor beside it (`Access`). Indexes are not
//! used: one that is damaged would hide rows.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use percent_encoding::{percent_encode, AsciiSet, NON_ALPHANUMERIC};
use plinth_engine::Progress;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{ffi, Connection, OpenFlags, OptionalExtension as _, Row};

use crate::source::{SourceEntry, SourceError};
use crate::spool::{Spool, SpoolWriter};

/// What every database of SQLite begins with, and the length of the part of its header that is looked at.
const MAGIC: &[u8] = b"SQLite format 3\0";
const HEADER: usize = 20;
/// What both numbers of the file format are in a database with a write-ahead log.
const WITH_LOG: u8 = 2;
/// Bytes of a value that is taken out of the database; kine takes requests of a few MiB.
const MAX_VALUE: i32 = 64 << 20;
/// How long a lock of the database is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Rows between two reports of progress.
const STEP: u64 = 256;
/// Names of files beside the database.
const LOG: &str = "-wal";
const SHARED_MEMORY: &str = "-shm";
/// What a path in a URI may have as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'.').remove(b'-').remove(b'_');

/// How a database is opened so that neither it nor what is beside it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// With SQLite's locks: others may read and write meanwhile. A write-ahead log is read through the shared
    /// memory of its program, or without it where no program has it open.
    Shared,
    /// Without locks: there is no write-ahead log, and SQLite would create one. A program that opens the
    /// database creates it, too, and is noticed by that.
    Immutable,
    /// As a copy: a write-ahead log that was left without its shared memory is only read by who may create
    /// that.
    Copied,
}

/// Reads the keys below a prefix into a file, which must be open to read and write. `scratch` is the path of
/// a directory that may be created for a copy of the database, and is removed.
///
/// # Errors
/// When the source is no database of kine, is damaged, or is changed while nothing locks it; when a file
/// cannot be written.
pub fn spool(
    source: &Path,
    scratch: &Path,
    prefix: &str,
    (file, path): (File, &Path),
    progress: &mut dyn FnMut(Progress),
) -> Result<Spool, SourceError> {
    let database = Database::open(source, scratch)?;
    let spool = database.read(prefix, SpoolWriter::new(file, path), progress)?;
    database.close()?;
    Ok(spool)
}

/// An open database.
struct Database {
    /// As it was named.
    name: String,
    /// Where it is.
    path: PathBuf,
    access: Access,
    connection: Connection,
    /// As it was when it was opened.
    stamp: Stamp,
    scratch: PathBuf,
}

/// What differs when a file was changed.
#[derive(Debug, PartialEq, Eq)]
struct Stamp(Vec<(u64, u64, i64, i64)>);

impl Stamp {
    /// Of the database and its write-ahead log.
    fn of(path: &Path) -> io::Result<Stamp> {
        let row = |found: Metadata| (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        let files = [Some(fs::metadata(path)?), existing(&beside(path, LOG))?];
        Ok(Stamp(files.into_iter().flatten().map(row).collect()))
    }
}

impl Database {
    fn open(source: &Path, scratch: &Path) -> Result<Database, SourceError> {
        let name = source.display().to_string();
        let io = |source| SourceError::Io { path: name.clone(), source };
        // SQLite names the files beside a database after the file that a link leads to.
        let path = fs::canonicalize(source).map_err(io)?;
        let access = access(&name, &path)?;
        let stamp = Stamp::of(&path).map_err(io)?;
        let connected = match access {
            Access::Shared => {
                connect(&uri(&path, "mode=ro&readonly_shm=1"), OpenFlags::SQLITE_OPEN_READ_ONLY)
            }
            Access::Immutable => {
                connect(&uri(&path, "mode=ro&immutable=1"), OpenFlags::SQLITE_OPEN_READ_ONLY)
            }
            Access::Copied => {
                let copy = copy(&path, scratch).map_err(io)?;
                if Stamp::of(&path).map_err(io)? != stamp {
                    return Err(changed(&name));
                }
                connect(&uri(&copy, "mode=rw"), OpenFlags::SQLITE_OPEN_READ_WRITE)
            }
        };
        let connection = connected.map_err(|error| failed(&name, error))?;
        Ok(Database { name, path, access, connection, stamp, scratch: scratch.to_owned() })
    }

    fn read(
        &self,
        prefix: &str,
        mut out: SpoolWriter,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Spool, SourceError> {
        let failed = |error| failed(&self.name, error);
        // Everything below is of one state of the database. It is not changed, so how the transaction ends
        // does not matter.
        let transaction = self.connection.unchecked_transaction().map_err(failed)?;
        self.check()?;
        let (keys, newest) = self.newest_rows(prefix, progress)?;
        let mut statement =
            transaction.prepare("SELECT lease, value FROM kine NOT INDEXED WHERE id = ?1").map_err(failed)?;
        let total = keys.len() as u64;
        for ((key, id), done) in keys.into_iter().zip(0..) {
            let damaged = |reason: String| self.damaged(id, &key, reason);
            let row = statement
                .query_row([id], |row| Ok(content(row)))
                .map_err(|error| damaged(error.to_string()))?;
            let (value, ttl) = row.map_err(|reason| damaged(reason.to_owned()))?;
            out.push(&SourceEntry { key, value, ttl })?;
            if u64::is_multiple_of(done, STEP) {
                progress(Progress { done, total });
            }
        }
        let newest = newest.max(self.last_assigned().map_err(failed)?);
        out.finish(u64::try_from(newest).unwrap_or(0))
    }

    /// Refuses what is no database of kine, and one whose structure is damaged.
    fn check(&self) -> Result<(), SourceError> {
        let failed = |error| failed(&self.name, error);
        if !self.has_table("kine").map_err(failed)? {
            return Err(self.refused("it has no table kine: it is not the database of k3s or kine"));
        }
        // Reading such a column computes it, and the file decides for how long.
        let computed: i64 = self
            .connection
            .query_row(
                "SELECT count(*) FROM pragma_table_list AS tables, pragma_table_xinfo(tables.name) AS columns \
                 WHERE tables.schema = 'main' AND tables.type = 'table' AND columns.hidden <> 0",
                [],
                |row| row.get(0),
            )
            .map_err(failed)?;
        if computed > 0 {
            return Err(self.refused("it has generated columns, which the database of k3s or kine has not"));
        }
        // Rows are looked for by their id, and come in its order, without an index.
        let is_key: bool = self
            .connection
            .query_row(
                "SELECT count(*) = 1 AND max(name = 'id' AND type = 'INTEGER') \
                 FROM pragma_table_info('kine') WHERE pk > 0",
                [],
                |row| row.get(0),
            )
            .map_err(failed)?;
        if !is_key {
            return Err(
                self.refused("the id of its table kine is not the key, as it is in that of k3s or kine")
            );
        }
        let first: String =
            self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
        match first.as_str() {
            "ok" => Ok(()),
            damage => {
                let damage = damage.lines().last().unwrap_or(damage).to_owned();
                Err(self.refused(&format!("the database is damaged: {damage}")))
            }
        }
    }

    /// Whether there is a table of this name that is no view, and no module computes.
    fn has_table(&self, name: &str) -> rusqlite::Result<bool> {
        self.connection.query_row(
            "SELECT count(*) FROM pragma_table_list(?1) WHERE schema = 'main' AND type = 'table'",
            [name],
            |row| row.get::<_, i64>(0).map(|count| count > 0),
        )
    }

    /// The ids of the newest rows of the keys that are there, and the greatest id of all.
    fn newest_rows(
        &self,
        prefix: &str,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<(BTreeMap<Vec<u8>, i64>, i64), SourceError> {
        let failed = |error| failed(&self.name, error);
        let number = |sql| self.connection.query_row(sql, [], |row| row.get::<_, Option<i64>>(0));
        let first = number("SELECT min(id) FROM kine").map_err(failed)?.unwrap_or(0);
        let last = number("SELECT max(id) FROM kine").map_err(failed)?.unwrap_or(0);
        let mut statement = self
            .connection
            .prepare("SELECT id, name, deleted FROM kine NOT INDEXED ORDER BY id")
            .map_err(failed)?;
        let mut rows = statement.query([]).map_err(failed)?;
        let mut keys = BTreeMap::new();
        let (mut newest, mut read) = (0, 0u64);
        while let Some(row) = rows.next().map_err(failed)? {
            let ValueRef::Integer(id) = row.get_ref(0).map_err(failed)? else {
                return Err(self.refused("a row of its table kine has no number as id"));
            };
            let name = match row.get_ref(1).map_err(failed)? {
                ValueRef::Text(name) => name,
                // The column was declared as a number once, and what reads as one is stored as one then: it
                // does not begin with a slash.
                ValueRef::Integer(_) | ValueRef::Real(_) => b"",
                ValueRef::Null | ValueRef::Blob(_) => {
                    return Err(self.damaged(id, b"", "its name is no text".to_owned()));
                }
            };
            if id <= newest {
                return Err(self.damaged(id, name, "its id is no revision".to_owned()));
            }
            newest = id;
            if name.starts_with(prefix.as_bytes()) {
                match row.get_ref(2).map_err(failed)? {
                    ValueRef::Integer(0) => drop(keys.insert(name.to_vec(), id)),
                    ValueRef::Integer(1) => drop(keys.remove(name)),
                    _ => {
                        let reason = "it is neither a deletion nor a value".to_owned();
                        return Err(self.damaged(id, name, reason));
                    }
                }
            }
            read += 1;
            if read.is_multiple_of(STEP) {
                progress(Progress { done: id.abs_diff(first), total: last.abs_diff(first) });
            }
        }
        Ok((keys, newest))
    }

    /// The greatest id that was ever given to a row: the newest ones may have been deleted.
    fn last_assigned(&self) -> rusqlite::Result<i64> {
        if !self.has_table("sqlite_sequence")? {
            return Ok(0);
        }
        let assigned = self
            .connection
            .query_row("SELECT max(seq) FROM sqlite_sequence WHERE name = 'kine'", [], |row| {
                Ok(row.get_ref(0)?.as_i64().unwrap_or(0))
            })
            .optional()?;
        Ok(assigned.unwrap_or(0))
    }

    /// Closes the database, and notices whether one without locks was changed.
    fn close(self) -> Result<(), SourceError> {
        let io = |source| SourceError::Io { path: self.name.clone(), source };
        drop(self.connection);
        match self.access {
            Access::Shared => Ok(()),
            Access::Immutable if Stamp::of(&self.path).map_err(io)? != self.stamp => Err(changed(&self.name)),
            Access::Immutable => Ok(()),
            Access::Copied => fs::remove_dir_all(&self.scratch)
                .map_err(|source| SourceError::Io { path: self.scratch.display().to_string(), source }),
        }
    }

    fn refused(&self, reason: &str) -> SourceError {
        SourceError::File { path: self.name.clone(), reason: reason.to_owned() }
    }

    fn damaged(&self, id: i64, key: &[u8], reason: String) -> SourceError {
        SourceError::Row { path: self.name.clone(), id, key: key.escape_ascii().to_string(), reason }
    }
}

/// Value and time to live of a row, or what is wrong with it.
fn content(row: &Row<'_>) -> Result<(Vec<u8>, Option<Duration>), &'static str> {
    let ttl = match row.get_ref(0) {
        Ok(ValueRef::Integer(0) | ValueRef::Null) => None,
        Ok(ValueRef::Integer(seconds)) => match u64::try_from(seconds) {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => return Err("its lease is no time to live"),
        },
        _ => return Err("its lease is no time to live"),
    };
    match row.get_ref(1) {
        Ok(ValueRef::Blob(value) | ValueRef::Text(value)) => Ok((value.to_vec(), ttl)),
        Ok(ValueRef::Null) => Ok((Vec::new(), ttl)),
        _ => Err("its value is no bytes"),
    }
}

fn connect(uri: &str, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(PATIENCE)?;
    // What the file itself defines (views, triggers, expressions) is not to do anything.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE)?;
    // Checks each page as it is read, sorts nothing into files of other directories, and does not evaluate
    // the file's own conditions when it is checked.
    connection.execute_batch(
        "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA ignore_check_constraints = ON",
    )?;
    Ok(connection)
}

/// Looks at a file before SQLite has it open: closing a file ends the locks that this process has on it.
fn access(name: &str, path: &Path) -> Result<Access, SourceError> {
    let io = |source| SourceError::Io { path: name.to_owned(), source };
    let refused = |reason: &str| SourceError::File { path: name.to_owned(), reason: reason.to_owned() };
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(refused("it is not a file; k3s has its database in server/db/state.db"));
    }
    let mut header = Vec::with_capacity(HEADER);
    File::open(path).and_then(|file| file.take(HEADER as u64).read_to_end(&mut header)).map_err(io)?;
    if header.len() < HEADER || !header.starts_with(MAGIC) {
        return Err(refused("it is not a database of SQLite"));
    }
    let log = existing(&beside(path, LOG)).map_err(io)?.map_or(0, |found| found.len());
    let is_shared = existing(&beside(path, SHARED_MEMORY)).map_err(io)?.is_some();
    let has_log = existing(&beside(path, LOG)).map_err(io)?.is_some();
    Ok(match (has_log, is_shared) {
        (true, true) => Access::Shared,
        (true, false) if log > 0 => Access::Copied,
        _ if header.get(18..) == Some(&[WITH_LOG, WITH_LOG]) => Access::Immutable,
        _ => Access::Shared,
    })
}

fn existing(path: &Path) -> io::Result<Option<Metadata>> {
    match fs::metadata(path) {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a file beside a database.
fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Copies a database and its write-ahead log into a new directory; returns the path of the copy.
fn copy(path: &Path, scratch: &Path) -> io::Result<PathBuf> {
    fs::DirBuilder::new().mode(0o700).create(scratch)?;
    let copied = scratch.join("state.db");
    for suffix in ["", LOG] {
        let mut from = File::open(beside(path, suffix))?;
        let to = beside(&copied, suffix);
        let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
        io::copy(&mut from, &mut to)?;
    }
    Ok(copied)
}

fn uri(path: &Path, parameters: &str) -> String {
    format!("file:{}?{parameters}", percent_encode(path.as_os_str().as_bytes(), PATH))
}

fn changed(name: &str) -> SourceError {
    let reason = "it was changed while it was read: a program has opened it. Import again".to_owned();
    SourceError::File { path: name.to_owned(), reason }
}

/// An error of SQLite in words that say what to do.
fn failed(name: &str, error: rusqlite::Error) -> SourceError {
    let reason = match error.sqlite_error().map(|error| (error.extended_code, error.extended_code & 0xff)) {
        Some((ffi::SQLITE_READONLY_ROLLBACK, _)) => {
            "its program was killed while it wrote, and the journal beside it has to be rolled back: start and \
             stop k3s once"
                .to_owned()
        }
        Some((_, ffi::SQLITE_BUSY)) => "its program has locked it: stop k3s, or import again".to_owned(),
        Some((_, ffi::SQLITE_CORRUPT)) => format!("the database is damaged: {error}"),
        _ => error.to_string(),
    };
    SourceError::File { path: name.to_owned(), reason }
}
