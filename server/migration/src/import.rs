//! Writes what a source has to a new store.
//!
//! A first pass over the source decodes everything and writes nothing: it reports what cannot be imported.
//! The second one writes. Then the store is read and compared with what was decoded. Each object gets a
//! revision of its own, above those of the source; history begins behind the last one, so that a client that
//! holds an older resourceVersion has to list again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_api::ApiError;
use plinth_engine::{At, Engine, KeyRange, Progress, Proposal, Revision, Transaction};
use plinth_registry::{is_custom_key, key_without_start};
use plinth_storage::{migrate_layout, DamagedValue, Encryption, EncryptionError, Stored};

use crate::decode::{label, Decoded, Decoder, Object};
use crate::keys;
use crate::live::LiveError;
use crate::refusal::Refusal;
use crate::report::{digest, Report, Tally};
use crate::source::{Source, SourceEntry, SourceError};

/// Transactions that are committed at a time.
const IN_FLIGHT: usize = 1024;
/// Revisions that are left out behind those of the source: after a snapshot was taken its etcd has gone on.
pub const REVISION_GAP: u64 = 1 << 24;
/// Objects between two reports of progress.
const STEP: u64 = 256;

/// A failed import.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each error names its fields")]
pub enum ImportError {
    /// The source cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// etcd cannot be read.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] plinth_engine::Error),
    /// An object cannot be encrypted or decrypted.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// An object of the store cannot be read.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// Objects cannot be imported.
    #[error("{0} keys cannot be imported, see above; nothing was written. With --skip-unknown the rest is imported")]
    Refused(u64),
    /// An object that was changed while etcd was followed cannot be imported.
    #[error("{key}: {refusal}. With --skip-unknown such objects are left out")]
    RefusedChange { key: String, refusal: Refusal },
    /// There is nothing to import.
    #[error("the source has no keys below {0}; give the kube-apiserver's --etcd-prefix as --prefix")]
    Empty(String),
    /// The store does not have what the source has.
    #[error("the new store does not have the objects of the source: {0}")]
    Different(String),
    /// etcd changes while it is compared with the store.
    #[error("etcd still changes, at revision {0} now: stop every kube-apiserver before the switch-over")]
    Changing(u64),
    /// The source's revisions leave no room.
    #[error("the source is at revision {0}, which leaves no room for more")]
    Revision(u64),
}

/// What a first pass has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// Objects that can be imported.
    pub objects: u64,
    /// Keys that cannot.
    pub refused: u64,
    /// Keys that kube-apiserver keeps for itself.
    pub internal: u64,
}

/// Reports progress of a pass.
struct Steps<'p> {
    progress: &'p mut dyn FnMut(Progress),
    done: u64,
    total: u64,
}

impl Steps<'_> {
    fn next(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(STEP) {
            (self.progress)(Progress { done: self.done, total: self.total });
        }
    }
}

/// Decodes everything and writes nothing. `refused` gets each key that cannot be imported.
///
/// # Errors
/// When the source cannot be read or has no keys below the prefix.
pub fn check(
    source: &impl Source,
    decoder: &mut Decoder,
    refused: &mut dyn FnMut(&[u8], &Refusal),
    progress: &mut dyn FnMut(Progress),
) -> Result<Checked, ImportError> {
    let mut definitions = Vec::new();
    source.visit::<SourceError>(decoder.definitions_prefix().as_bytes(), &mut |entry| {
        definitions.push(entry);
        Ok(())
    })?;
    definitions.iter().for_each(|entry| decoder.define(entry));
    let mut checked = Checked::default();
    let mut steps = Steps { progress, done: 0, total: source.len() };
    source.visit::<ImportError>(decoder.prefix().as_bytes(), &mut |entry| {
        match decoder.decode(&entry) {
            Ok(Decoded::Object(_)) => checked.objects += 1,
            Ok(Decoded::Internal) => checked.internal += 1,
            Err(refusal) => {
                checked.refused += 1;
                refused(&entry.key, &refusal);
            }
        }
        steps.next();
        Ok(())
    })?;
    match checked == Checked::default() {
        true => Err(ImportError::Empty(decoder.prefix().to_owned())),
        false => Ok(checked),
    }
}

/// The revision above which a store continues after a source of this revision.
///
/// # Errors
/// When there is none.
pub fn continue_above(revision: u64) -> Result<Revision, ImportError> {
    let above = revision.checked_add(REVISION_GAP).filter(|above| *above <= 1 << 62);
    above.map(Revision::new).ok_or(ImportError::Revision(revision))
}

/// Writes everything that can be decoded to an empty store, and returns what the store must have then.
///
/// # Errors
/// When the source cannot be read or the store fails.
pub(crate) fn write(
    source: &impl Source,
    decoder: &Decoder,
    writer: &mut Writer<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Tally, ImportError> {
    migrate_layout(writer.engine, decoder.registry())?;
    let mut tally = Tally::default();
    let mut steps = Steps { progress, done: 0, total: source.len() };
    source.visit::<ImportError>(decoder.prefix().as_bytes(), &mut |entry| {
        if let Ok(Decoded::Object(object)) = decoder.decode(&entry) {
            tally.add(&object.kind, object.digest);
            writer.put(*object)?;
        }
        steps.next();
        Ok(())
    })?;
    writer.finish()?;
    Ok(tally)
}

/// Imports a source that was checked into an empty store, and verifies it.
///
/// # Errors
/// When the source cannot be read, the store fails, or has not what the source has.
pub fn import(
    source: &impl Source,
    decoder: &Decoder,
    engine: &Engine,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ImportError> {
    let mut writer = Writer::new(engine, decoder);
    let expected = write(source, decoder, &mut writer, progress)?;
    finish(engine, decoder, expected)
}

/// Compares the store with what it must have, and lets its history begin here.
pub(crate) fn finish(engine: &Engine, decoder: &Decoder, mut expected: Tally) -> Result<Report, ImportError> {
    expected.sort();
    let found = stored(engine, decoder, &expected)?;
    let expected = expected.finish(found.revision);
    if expected != found {
        let (expected, found) = (expected.objects(), found.objects());
        return Err(ImportError::Different(format!("{expected} were decoded, {found} are stored")));
    }
    engine.compact(Revision::new(found.revision))?;
    Ok(found)
}

/// What a store has, each of it as expected.
fn stored(engine: &Engine, decoder: &Decoder, expected: &Tally) -> Result<Report, ImportError> {
    let snapshot = engine.snapshot(At::Latest)?;
    let mut entries = snapshot.range(&KeyRange::all());
    let mut tally = Tally::default();
    while let Some(entry) = entries.next()? {
        let Some(path) = keys::upstream(decoder.registry(), entry.key) else { continue };
        let value = decoder.encryption().open(entry.key, entry.value)?;
        let object = Stored::parse(&value).map_err(|error| damaged(&path, error))?;
        let digest = digest(&path, object.version(), object.body());
        if !expected.has(&digest) {
            return Err(ImportError::Different(format!("{path} differs")));
        }
        tally.add(&kind_of(decoder, entry.key).unwrap_or_default(), digest);
    }
    Ok(tally.finish(snapshot.revision().get()))
}

fn damaged(path: &str, error: DamagedValue) -> ImportError {
    ImportError::Different(format!("{path}: {error}"))
}

/// `Kind.group` of an object of the store.
pub(crate) fn kind_of(decoder: &Decoder, own: &[u8]) -> Option<String> {
    if !is_custom_key(own) {
        let resource = decoder.registry().of_key(own)?;
        return Some(label(&resource.row.kind, resource.group()));
    }
    let mut parts = std::str::from_utf8(key_without_start(own)).ok()?.splitn(3, '/');
    let (group, plural) = (parts.next()?, parts.next()?);
    Some(label(&decoder.definition(group, plural)?.names.kind, group))
}

/// Writes objects, many at a time.
pub(crate) struct Writer<'e> {
    engine: &'e Engine,
    encryption: Arc<Encryption>,
    pending: VecDeque<Proposal>,
}

impl<'e> Writer<'e> {
    pub(crate) fn new(engine: &'e Engine, decoder: &Decoder) -> Writer<'e> {
        Writer { engine, encryption: decoder.encryption().clone(), pending: VecDeque::new() }
    }

    pub(crate) fn put(&mut self, object: Object) -> Result<(), ImportError> {
        let value: Bytes = self.encryption.seal(&object.key, object.value)?;
        let transaction = match object.ttl {
            Some(ttl) => Transaction::new().put_expiring(object.key, value, ttl.max(Duration::from_secs(1))),
            None => Transaction::new().put(object.key, value),
        };
        self.submit(transaction)
    }

    pub(crate) fn delete(&mut self, key: Vec<u8>) -> Result<(), ImportError> {
        self.submit(Transaction::new().delete(key))
    }

    fn submit(&mut self, transaction: Transaction) -> Result<(), ImportError> {
        if self.pending.len() >= IN_FLIGHT {
            if let Some(oldest) = self.pending.pop_front() {
                oldest.wait()?;
            }
        }
        self.pending.push_back(self.engine.transact(transaction));
        Ok(())
    }

    /// Waits for everything that was submitted.
    pub(crate) fn finish(&mut self) -> Result<(), ImportError> {
        while let Some(oldest) = self.pending.pop_front() {
            oldest.wait()?;
        }
        Ok(())
    }
}

/// What a source has that can be imported.
pub(crate) fn tally(
    source: &impl Source,
    decoder: &Decoder,
    again: &mut dyn FnMut(SourceEntry, Object) -> Result<(), ImportError>,
) -> Result<Tally, ImportError> {
    let mut tally = Tally::default();
    source.visit::<ImportError>(decoder.prefix().as_bytes(), &mut |entry| {
        if let Ok(Decoded::Object(object)) = decoder.decode(&entry) {
            tally.add(&object.kind, object.digest);
            again(entry, *object)?;
        }
        Ok(())
    })?;
    Ok(tally)
}
