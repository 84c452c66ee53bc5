//! Puts a repaired database in place of the old one, which is moved aside.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::directory::{self, DATABASE, REPAIRED, WATERMARK};
use crate::error::{Error, Result};

/// Gives the finished database in `part` its name and puts it in place; returns where the old one is.
pub(super) fn replace_database(dir: &Path, part: &Path) -> Result<PathBuf> {
    let finished = dir.join(REPAIRED);
    let placed = directory::rename(part, &finished).and_then(|()| take_place(dir));
    if placed.is_err() && directory::has_entry(&dir.join(DATABASE)).unwrap_or(false) {
        // The next repair starts over, and removes what is left of this one.
        let _ = directory::remove_unfinished(&finished);
    }
    placed
}

/// Replaces the database by `db.repaired`. The old one is moved to a directory of its own, which is returned.
/// If killed at any point, it can be called again.
pub(super) fn take_place(dir: &Path) -> Result<PathBuf> {
    let aside = match directory::kind(&dir.join(DATABASE))? {
        Some(_) => new_aside(dir)?,
        // A killed repair has moved it already.
        None => newest_aside(dir)?.map_or_else(|| new_aside(dir), Ok)?,
    };
    directory::create(&aside)?;
    // The watermark belongs to the old database.
    for name in [DATABASE, WATERMARK] {
        let from = dir.join(name);
        if directory::kind(&from)?.is_some() {
            directory::make_link_absolute(&from)?;
            directory::rename(&from, &aside.join(name))?;
            directory::sync(dir)?;
        }
    }
    directory::write_marker(dir)?;
    directory::rename(&dir.join(REPAIRED), &dir.join(DATABASE))?;
    Ok(aside)
}

/// Prefix of the directories to which old databases are moved.
const ASIDE: &str = "repair-";

/// A directory name that no repair has used.
fn new_aside(dir: &Path) -> Result<PathBuf> {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let mut aside = dir.join(format!("{ASIDE}{seconds}"));
    for number in 1u32.. {
        let is_taken = |name| directory::has_entry(&aside.join(name));
        if !is_taken(DATABASE)? && !is_taken(WATERMARK)? {
            break;
        }
        // Two repairs within a second.
        aside = dir.join(format!("{ASIDE}{seconds}-{number}"));
    }
    Ok(aside)
}

/// The directory to which a database was moved most recently.
fn newest_aside(dir: &Path) -> Result<Option<PathBuf>> {
    let io = |e| Error::io(format!("reading {}", dir.display()), e);
    let mut newest = None;
    for entry in fs::read_dir(dir).map_err(io)? {
        let path = entry.map_err(io)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix(ASIDE));
        let Some(name) = name else { continue };
        let (seconds, number) = name.split_once('-').unwrap_or((name, "0"));
        let (Ok(seconds), Ok(number)) = (seconds.parse::<u64>(), number.parse::<u32>()) else { continue };
        if directory::has_entry(&path.join(DATABASE))? {
            newest = newest.max(Some((seconds, number, path)));
        }
    }
    Ok(newest.map(|(_, _, path)| path))
}
