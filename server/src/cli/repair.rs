//! `plinth repair`: repairs a data directory that the server refuses to start with.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use plinth_engine::{Error, RepairReport};

use super::output;
use super::store::{Bar, StoreError};
use crate::bootstrap::files::{create_durably, sync_parent};
use crate::bootstrap::pki::Pki;
use crate::bootstrap::{DataDir, DataDirError, Stage};

/// Options of `plinth repair`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth repair --data-dir ./data          (prints what would be dropped, changes nothing)\n  plinth repair --data-dir ./data --yes\n\nRepairs the data directory of a stopped server that plinth serve refuses to start with, or in which plinth verify finds damage.\nWrite-ahead logs are dropped from the first damaged or missing record on, and so are blocks and records of tables whose checksums\ndo not match; the newest intact version of each object is kept. The store continues at a resourceVersion above all former ones, so\nthat watches end with 410 and clients list again. Lost certificates and keys are recreated at the next start, which invalidates\nevery credential that was issued with them. The original files are kept in DATA_DIR/store/repair-TIME and DATA_DIR/pki/repair-TIME.\n\nPrefer a backup that is not older than the damage."
)]
pub struct RepairOptions {
    /// Data directory of a stopped server
    #[arg(long, value_name = "DIR")]
    pub data_dir: PathBuf,
    /// Apply the repair; without this nothing is changed
    #[arg(long)]
    pub yes: bool,
}

/// Repairs a data directory.
///
/// # Errors
/// [`StoreError::RepairNeeded`] when a repair is needed and `--yes` is not given; see [`StoreError`].
pub(super) fn repair(options: RepairOptions) -> Result<(), StoreError> {
    let (mut dir, marker) = DataDir::for_repair(&options.data_dir)?;
    let mut needed = false;
    if let Some(problem) = marker {
        output::line(format_args!("{problem}"));
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
        (false, _) => output::line(format_args!("{}: nothing to repair", options.data_dir.display())),
        (true, true) => output::line(format_args!("{}: repaired", options.data_dir.display())),
        (true, false) => return Err(StoreError::RepairNeeded(options.data_dir)),
    }
    Ok(())
}

/// The error of a failed repair, with the right advice: for damaged or missing files another repair does not
/// help; after an error of the system it does.
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

/// Maximum number of listed runs of missing revisions.
const MOST_RUNS: usize = 20;

fn report(repaired: &RepairReport) {
    let RepairReport { log_bytes, missing, kept, reverted, lost, uncertain, gaps, revision, .. } = repaired;
    if repaired.continued {
        output::line(format_args!("the result of an unfinished repair replaces the database"));
        if let Some(path) = &repaired.kept_in {
            output::line(format_args!("the original state is kept in {}", path.display()));
        }
        return;
    }
    output::line(format_args!("write-ahead logs: {log_bytes} bytes dropped"));
    if let Some((first, last)) = repaired.log_revisions {
        output::line(format_args!(
            "revisions {first} to {last} can be read in them, and are incomplete in the repaired store"
        ));
    }
    // The number of objects in damaged tables and missing revisions is unknown.
    let at_least = if *gaps > 0 || !missing.is_empty() { "at least " } else { "" };
    output::line(format_args!(
        "objects: {kept} kept, {reverted} of them in an older version; {at_least}{lost} lost"
    ));
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
        output::line(format_args!(
            "revisions {}{more}, at least, were written and are missing: objects created in them are lost, those updated or deleted in \
             them are in their former state, and the numbers above do not include either",
            runs.join(", ")
        ));
    }
    if *gaps > 0 {
        output::line(format_args!(
            "tables are damaged: {gaps} ranges of keys cannot be read as a whole (see above). {uncertain} of the \
             objects that are kept may have had newer versions in them, or may have been deleted; objects \
             that existed only there are lost, and the numbers above do not include them"
        ));
    }
    output::line(format_args!("history: dropped; the store continues at revision {revision}"));
    if let Some(path) = &repaired.kept_in {
        output::line(format_args!("the original state is kept in {}", path.display()));
    }
}

/// Moves damaged certificates and keys to `aside`, so that the next start creates new ones; returns whether
/// there were any.
fn repair_keys(dir: &mut DataDir, aside: &Path, apply: bool) -> Result<bool, StoreError> {
    let pki = Pki::at(dir.path());
    let mut found = false;
    // The authority, the key of service accounts, and the certificates of server and administrator: each may
    // be damaged.
    for _ in 0..4 {
        let Some(error) = pki.verify(dir.stage()).into_iter().next() else { break };
        let Some(files) = pki.dependents_of(&error) else { return Err(error.into()) };
        output::line(format_args!("{}", error.to_string().lines().next().unwrap_or_default()));
        output::line(format_args!(
            "these are recreated at the next start, which invalidates all credentials issued with them:"
        ));
        for file in &files {
            output::line(format_args!("  {}", file.display()));
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

/// Moves a damaged key of continue tokens to `aside`, so that the next start creates a new one; returns
/// whether it is damaged.
fn repair_continue_key(dir: &DataDir, aside: &Path, apply: bool) -> Result<bool, StoreError> {
    let Err(error) = dir.continue_key() else { return Ok(false) };
    let DataDirError::Incomplete { path, .. } = &error else { return Err(error.into()) };
    output::line(format_args!("{}", error.to_string().lines().next().unwrap_or_default()));
    output::line(format_args!("it is recreated at the next start; clients start lists in progress over"));
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
