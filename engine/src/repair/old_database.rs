//! The database that is repaired, opened through views: it is not changed.

use std::path::{Path, PathBuf};

use rocksdb::DB;

use super::replay::{self, SoundLogs};
use crate::directory::{self, DATABASE, REPAIRING};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::recovery::TornManifest;
use crate::store;
use crate::view::{Logs, View};

/// Directory, within a repair's view, of a second view from which RocksDB removes damaged tables.
const SOUND: &str = "sound";

/// The database that is repaired. Its views are removed when it is dropped.
pub(super) struct OldDatabase {
    // Closed before its view is removed.
    tables: Tables,
    view: View,
    dir: PathBuf,
    logs: SoundLogs,
}

/// What of it can be read.
enum Tables {
    /// All tables can be opened.
    Whole(DB),
    /// They cannot, for this reason.
    Sound(SoundTables, Error),
}

/// The sound tables of a database, in a view of their own.
pub(super) struct SoundTables {
    db: DB,
    _view: View,
}

impl AsRef<DB> for SoundTables {
    fn as_ref(&self) -> &DB {
        &self.db
    }
}

impl OldDatabase {
    /// Opens the database of `dir` with the sound parts of its logs; `manifest` is the torn end of its
    /// MANIFEST, or why that cannot be read.
    ///
    /// # Errors
    /// When the directory cannot be read or a view of it cannot be written. Damage is no error.
    pub(super) fn open(
        dir: &Path,
        manifest: Result<Option<TornManifest>>,
        logs: SoundLogs,
        note: &mut impl FnMut(String),
    ) -> Result<OldDatabase> {
        let (torn, lost) = match manifest {
            Ok(torn) => (torn, None),
            Err(error) => (None, Some(error)),
        };
        let path = dir.join(REPAIRING);
        directory::remove_unfinished(&path)?;
        let view = View::at(path, &dir.join(DATABASE), &Logs::Cut(&logs.logs), torn.as_ref())?;
        let memory = Options::new(dir).memory;
        let tables = match lost.map_or_else(|| store::open_untracked(view.path(), &memory), Err) {
            Ok(whole) => Tables::Whole(whole),
            Err(error @ Error::Incomplete { .. }) => {
                note(format!("{error}: the tables are read without it"));
                Tables::Sound(sound_tables(dir, &view, &logs)?, error)
            }
            Err(error @ Error::Rocks { .. }) if !error.is_failure_to_write() => {
                note(format!("{error}: what is damaged is left out"));
                Tables::Sound(sound_tables(dir, &view, &logs)?, error)
            }
            Err(error) => return Err(error),
        };
        Ok(OldDatabase { tables, view, dir: dir.to_owned(), logs })
    }

    /// The tables that can be opened, with the logs.
    pub(super) fn db(&self) -> &DB {
        match &self.tables {
            Tables::Whole(db) => db,
            Tables::Sound(tables, _) => &tables.db,
        }
    }

    /// Why not all tables can be opened, if so.
    pub(super) fn unreadable(&self) -> Option<&Error> {
        match &self.tables {
            Tables::Whole(_) => None,
            Tables::Sound(_, error) => Some(error),
        }
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens those of the tables in which nothing is damaged.
    ///
    /// # Errors
    /// When a view of them cannot be written or a log cannot be read.
    pub(super) fn open_sound_tables(&self) -> Result<SoundTables> {
        sound_tables(&self.dir, &self.view, &self.logs)
    }
}

fn sound_tables(dir: &Path, view: &View, logs: &SoundLogs) -> Result<SoundTables> {
    let view = View::at(view.path().join(SOUND), &dir.join(DATABASE), &Logs::Cut(&[]), None)?;
    let db = store::open_sound_tables(view.path(), &Options::new(dir).memory)?;
    replay::replay(&db, logs)?;
    Ok(SoundTables { db, _view: view })
}
