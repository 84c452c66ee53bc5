//! `plinth import snapshot --for-etcd`: a data directory of `plinth etcd`, with the revisions of the source.

use plinth_codec::hex;
use plinth_engine::Progress;
use plinth_etcd::{Restore, RestoreError, Restored};
use plinth_migration::snapshot::Snapshot;
use plinth_migration::source::Source as _;

use super::error::ImportCommandError;
use super::options::SnapshotOptions;
use super::target::NewDataDir;
use crate::cli::output;
use crate::cli::store::Bar;

/// Makes the directory, and prints what it has.
pub(super) fn run(options: &SnapshotOptions) -> Result<(), ImportCommandError> {
    let target = NewDataDir::new(&options.target.data_dir)?;
    let snapshot = Snapshot::open(&options.file, !options.skip_hash_check)?;
    let restored = restore(&snapshot, &target)?;
    target.finish()?;
    output::line(format_args!(
        "{} keys, {} leases, {} users",
        restored.keys, restored.leases, restored.users
    ));
    output::line(format_args!("revision {}\nhash {}", restored.revision, hex::lower(&restored.hash)));
    output::line(format_args!("{}: made, for plinth etcd", options.target.data_dir.display()));
    Ok(())
}

fn restore(snapshot: &Snapshot, target: &NewDataDir) -> Result<Restored, ImportCommandError> {
    let mut restore = Restore::begin(&target.store())?;
    for lease in snapshot.leases() {
        restore.lease(lease.id, lease.ttl)?;
    }
    users(snapshot, &mut restore)?;
    let bar = Bar::new();
    let (mut done, total) = (0, snapshot.len());
    snapshot.records::<ImportCommandError>(&mut |record| {
        restore.key(&record)?;
        done += 1;
        bar.show(Progress { done, total });
        Ok(())
    })?;
    let revision = i64::try_from(snapshot.revision()).unwrap_or(i64::MAX);
    Ok(restore.finish(revision)?)
}

/// Takes users and roles over (etcd's `server/storage/schema/auth.go`).
fn users(snapshot: &Snapshot, restore: &mut Restore) -> Result<(), ImportCommandError> {
    let (mut enabled, mut revision) = (false, 0);
    snapshot.bucket("auth", &mut |key, value| match key {
        b"authEnabled" => enabled = value == [1],
        b"authRevision" => revision = value.first_chunk().map_or(0, |bytes| u64::from_be_bytes(*bytes)),
        _ => {}
    })?;
    let (mut users, mut roles) = (Vec::new(), Vec::new());
    snapshot.bucket("authUsers", &mut |_, value| users.push(value.to_vec()))?;
    snapshot.bucket("authRoles", &mut |_, value| roles.push(value.to_vec()))?;
    Ok(restore.users(enabled, revision, &users, &roles)?)
}

impl From<RestoreError> for ImportCommandError {
    fn from(error: RestoreError) -> ImportCommandError {
        match error {
            RestoreError::Engine(error) => ImportCommandError::Engine(error),
            error => ImportCommandError::Restore(error),
        }
    }
}
