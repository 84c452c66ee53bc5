//! `plinth repair`: the way out for a data directory that a start refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use plinth_engine::{Error, RepairReport};

use super::store::{Bar, StoreError};
use crate::bootstrap::files::{create_durably, sync_parent};
use crate::bootstrap::pki::Pki;
use crate::bootstrap::{DataDir, DataDirError, Stage};

/// Options of `plinth repair`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth repair --data-dir ./data          (says what it would drop, and changes nothing)\n  plinth repair --data-dir ./data --yes\n\nFor a data directory of a stopped server that plinth serve refuses or in which plinth verify finds damage. Write-ahead logs are\ndropped from the first place on where they are damaged or do not follow each other, and blocks of tables and records whose checksums do not\nmatch; the newest sound version of each object stays. The store continues at a resourceVersion above all that were given out, so that\nwatches end with 410 and clients list again. Certificates and keys that are lost are made again at the next start: then every\ncredential that was issued with them ends. What was there before is kept in DATA_DIR/store/repair-TIME and DATA_DIR/pki/repair-TIME.\n\nA backup that is not older than the damage is the better way."
)]
pub struct RepairOptions {
    /// Data directory of a server that is stopped
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Do it; without this nothing is changed
    #[arg(long)]
    pub yes: bool,
}

/// Repairs a data directory.
///
/// # Errors
/// [`StoreError::RepairNeeded`] when there is something to repair and `--yes` is not given; see [`StoreError`].
pub fn repair(options: RepairOptions) -> Result<(), StoreError> {
    let (mut dir, marker) = DataDir::for_repair(&options.data_dir)?;
    let mut needed = false;
    if let Some(problem) = marker {
        println!("{problem}");
        needed = true;
    }
    let bar = Bar::new();
    let repaired = plinth_engine::repair(
        dir.store(),
        options.yes,
        |progress| bar.show(progress),
        |note| bar.print(&note),
    )
    .map_err(failed)?;
    drop(bar);
    if repaired.needed {
        needed = true;
        report(&repaired);
    }
    if options.yes && needed {
        let stage = dir.stage();
        dir.enter(stage)?;
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let aside = dir.path().join("pki").join(format!("repair-{seconds}"));
    needed |= repair_keys(&mut dir, &aside, options.yes)?;
    needed |= repair_continue_key(&dir, &aside, options.yes)?;
    match (needed, options.yes) {
        (false, _) => println!("{}: nothing to repair", options.data_dir.display()),
        (true, true) => println!("{}: repaired", options.data_dir.display()),
        (true, false) => return Err(StoreError::RepairNeeded(options.data_dir)),
    }
    Ok(())
}

/// The error of a repair: where it says that files are damaged or missing, to repair is no way out; where the system failed, to repair
/// again is.
fn failed(error: Error) -> StoreError {
    match error {
        error if error.is_system_failure() => StoreError::RepairFailed(error),
        Error::Incomplete { .. }
        | Error::Corrupt { .. }
        | Error::Rocks { .. }
        | Error::LostCommits { .. } => StoreError::BeyondRepair(error),
        error => error.into(),
    }
}

/// Runs of missing revisions that are named.
const MOST_RUNS: usize = 20;

fn report(repaired: &RepairReport) {
    let RepairReport { log_bytes, missing, kept, reverted, lost, uncertain, gaps, revision, .. } = repaired;
    if repaired.continued {
        println!("what the repair that did not finish had made takes the place of the database");
        if let Some(path) = &repaired.kept_in {
            println!("what was there before is kept in {}", path.display());
        }
        return;
    }
    println!("write-ahead logs: {log_bytes} bytes dropped");
    if let Some((first, last)) = repaired.log_revisions {
        println!(
            "revisions {first} to {last} can be read in them, and are not in the repaired store as a whole"
        );
    }
    // Of what was in damaged tables alone, or in revisions that are missing, nothing tells how much it was.
    let at_least = if *gaps > 0 || !missing.is_empty() { "at least " } else { "" };
    println!("objects: {kept} stay, of which {reverted} in an older version; {at_least}{lost} are lost");
    if !missing.is_empty() {
        let runs: Vec<String> = missing
            .iter()
            .take(MOST_RUNS)
            .map(|(first, last)| match first == last {
                true => first.to_string(),
                false => format!("{first} to {last}"),
            })
            .collect();
        let more = match missing.len().saturating_sub(MOST_RUNS) {
            0 => String::new(),
            more => format!(" and {more} more runs"),
        };
        println!(
            "revisions {}{more}, at least, were written and are missing: objects created in them are lost, those updated or deleted in \
             them stay as they were before, and none of these figures counts them",
            runs.join(", ")
        );
    }
    if *gaps > 0 {
        println!(
            "tables are damaged: {gaps} ranges of keys cannot be read as a whole (see above). {uncertain} of the objects that stay may \
             have had newer versions in them, or may have been deleted; objects of which nothing else is left are lost, too, and are in \
             none of these figures"
        );
    }
    println!("history: dropped; the store continues at revision {revision}");
    if let Some(path) = &repaired.kept_in {
        println!("what was there before is kept in {}", path.display());
    }
}

/// Moves certificates and keys to `aside` that are damaged, so that the next start makes new ones; answers whether there were any.
fn repair_keys(dir: &mut DataDir, aside: &Path, apply: bool) -> Result<bool, StoreError> {
    let pki = Pki::at(dir.path());
    let mut found = false;
    // The authority, the key of service accounts, and the certificates of server and administrator: each may have to go.
    for _ in 0..4 {
        let Some(error) = pki.verify(dir.stage()).into_iter().next() else { break };
        let Some(files) = pki.resting_on(&error) else { return Err(error.into()) };
        println!("{}", error.to_string().lines().next().unwrap_or_default());
        println!("these are made again at the next start, and what was issued with them ends:");
        for file in &files {
            println!("  {}", file.display());
        }
        found = true;
        if !apply {
            break;
        }
        for file in files {
            move_aside(&file, aside)?;
        }
        if !pki.is_leaf(&error) {
            dir.enter(Stage::Keys)?;
        }
    }
    Ok(found)
}

/// Moves a damaged key of continue tokens to `aside`, so that the next start makes a new one; answers whether it is damaged.
fn repair_continue_key(dir: &DataDir, aside: &Path, apply: bool) -> Result<bool, StoreError> {
    let Err(error) = dir.continue_key() else { return Ok(false) };
    let DataDirError::Incomplete { path, .. } = &error else { return Err(error.into()) };
    println!("{}", error.to_string().lines().next().unwrap_or_default());
    println!("it is made again at the next start; lists that are under way start over");
    if apply {
        move_aside(path, aside)?;
    }
    Ok(true)
}

fn move_aside(file: &Path, aside: &Path) -> Result<(), StoreError> {
    let failed = |source| StoreError::File { path: file.to_owned(), source };
    if fs::symlink_metadata(file).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        return Ok(());
    }
    create_durably(aside).map_err(failed)?;
    let to = aside.join(file.file_name().unwrap_or_default());
    fs::rename(file, &to).map_err(failed)?;
    sync_parent(file).and_then(|()| sync_parent(&to)).map_err(failed)
}
