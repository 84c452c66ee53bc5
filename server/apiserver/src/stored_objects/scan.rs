//! The walk over stored objects: those of a range, or of some keys.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, Entry, KeyRange, Range, Record, Revision, Snapshot};

use super::read::values;
use super::ObjectReader;
use crate::custom_resources::object::{self, ReadOutcome};
use plinth_api::{ApiError, Reason};
use plinth_http::TooManyRemoteWaits;
use plinth_registry::{CustomVersion, ResourceType};
use plinth_storage::{Fetched, Header, IndexBuilder};

/// Objects per call of a conversion webhook.
const BATCH: usize = 500;
/// Bytes of them: a batch ends with the object that exceeds it.
const BATCH_BYTES: usize = 8 << 20;

/// A scan over the objects of a range at one revision, in the served version. It can be stopped after any
/// object, suspended, and resumed on another thread. Blocks: the webhook is called for `BATCH` objects at a
/// time.
pub(crate) struct Scan {
    reader: Arc<ObjectReader>,
    resource: Arc<ResourceType>,
    revision: Revision,
    source: ScanSource,
    /// Converted objects that have not been visited yet.
    converted: VecDeque<(Fetched, Bytes)>,
    /// Objects scanned so far, selected or not.
    scanned: u64,
    /// Collects the header index of the scanned objects, if it is wanted.
    filling: Option<IndexBuilder>,
}

/// Selects objects by key and header; `None` selects all.
pub(crate) type Filter<'s> = Option<&'s dyn Fn(&[u8], &Header<'_>) -> bool>;

/// The objects of a scan.
enum ScanSource {
    /// A whole range.
    Range {
        range: KeyRange,
        cursor: Box<Range>,
    },
    /// The objects of some keys.
    Keys {
        keys: std::vec::IntoIter<Bytes>,
        snapshot: Snapshot,
        record: Option<Record>,
    },
    /// Holds no snapshot; the rest of the range, or of the keys.
    SuspendedRange(KeyRange),
    SuspendedKeys(std::vec::IntoIter<Bytes>),
}

impl ScanSource {
    /// The next object; `None` at the end and while suspended.
    fn next(&mut self) -> Result<Option<Entry<'_>>, plinth_engine::Error> {
        match self {
            ScanSource::Range { cursor, .. } => cursor.next(),
            ScanSource::Keys { keys, snapshot, record } => {
                *record = None;
                for key in keys {
                    *record = snapshot.get(&key)?;
                    if record.is_some() {
                        break;
                    }
                }
                Ok(record.as_ref().map(|record| Entry {
                    key: &record.key,
                    value: &record.value,
                    create_revision: record.create_revision,
                    mod_revision: record.mod_revision,
                    version: record.version,
                    expires_at_ms: record.expires_at_ms,
                }))
            }
            ScanSource::SuspendedRange(_) | ScanSource::SuspendedKeys(_) => Ok(None),
        }
    }
}

impl Scan {
    /// Scans all objects of a range.
    pub(crate) fn over(
        reader: Arc<ObjectReader>,
        resource: Arc<ResourceType>,
        snapshot: &Snapshot,
        range: KeyRange,
    ) -> Scan {
        let cursor = Box::new(snapshot.range(&range));
        Scan::new(reader, resource, snapshot.revision(), ScanSource::Range { range, cursor })
    }

    /// Reads the objects of these keys, as far as they exist.
    pub(crate) fn over_keys(
        reader: Arc<ObjectReader>,
        resource: Arc<ResourceType>,
        snapshot: Snapshot,
        keys: Vec<Bytes>,
    ) -> Scan {
        let revision = snapshot.revision();
        let source = ScanSource::Keys { keys: keys.into_iter(), snapshot, record: None };
        Scan::new(reader, resource, revision, source)
    }

    fn new(
        reader: Arc<ObjectReader>,
        resource: Arc<ResourceType>,
        revision: Revision,
        source: ScanSource,
    ) -> Scan {
        Scan { reader, resource, revision, source, converted: VecDeque::new(), scanned: 0, filling: None }
    }

    /// Adds the headers of all scanned objects to the header index.
    pub(crate) fn fill(&mut self, filling: Option<IndexBuilder>) {
        self.filling = filling;
    }

    /// The revision that is read.
    pub(crate) fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether only some keys are read.
    pub(crate) fn is_by_keys(&self) -> bool {
        matches!(self.source, ScanSource::Keys { .. } | ScanSource::SuspendedKeys(_))
    }

    /// Objects scanned so far, selected or not.
    pub(crate) fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Calls `each` with key, value and revision of the selected objects until it returns `false` or the scan
    /// is complete; returns whether it is complete. The next call continues after the last object. Objects
    /// that are not selected are not decrypted.
    ///
    /// # Errors
    /// 500 when a value cannot be decoded or converted; 410 when the revision has been compacted while the
    /// scan was suspended.
    pub(crate) fn for_each(
        &mut self,
        filter: Filter<'_>,
        mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
    ) -> Result<bool, ApiError> {
        self.resume()?;
        let custom = self.resource.custom.clone();
        if let Some(custom) = custom.as_deref().filter(|custom| !custom.converts_by_name()) {
            return self.for_each_converted(custom, filter, each);
        }
        let custom = custom.as_deref();
        while let Some(entry) = self.source.next()? {
            self.scanned += 1;
            if let Some(filling) = &mut self.filling {
                filling.add(entry.key, entry.value).map_err(ApiError::internal)?;
            }
            let mut current = true;
            if filter.is_some() || custom.is_some() {
                let header = Header::parse(entry.value).map_err(ApiError::internal)?;
                current = custom.is_none_or(|custom| object::is_current(custom, &header));
                if current && filter.is_some_and(|filter| !filter(entry.key, &header)) {
                    continue;
                }
            }
            let mut value = self.reader.store().open(entry.key, entry.value)?;
            if let Some(custom) = custom.filter(|_| !current) {
                if let ReadOutcome::Converted(served) = object::read(custom, &value)? {
                    value = Cow::Owned(served.into());
                }
                let header = Header::parse(&value).map_err(ApiError::internal)?;
                if filter.is_some_and(|filter| !filter(entry.key, &header)) {
                    continue;
                }
            }
            if !each(entry.key, &value, entry.mod_revision)? {
                return Ok(false);
            }
        }
        if let Some(filling) = self.filling.take() {
            self.reader.header_index.insert(filling);
        }
        Ok(true)
    }

    fn for_each_converted(
        &mut self,
        custom: &CustomVersion,
        filter: Filter<'_>,
        mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
    ) -> Result<bool, ApiError> {
        let handle = tokio::runtime::Handle::try_current().map_err(ApiError::internal)?;
        loop {
            while let Some((record, value)) = self.converted.pop_front() {
                let header = Header::parse(&value).map_err(ApiError::internal)?;
                let selected = filter.is_none_or(|filter| filter(&record.key, &header));
                if selected && !each(&record.key, &value, record.mod_revision)? {
                    return Ok(false);
                }
            }
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while batch.len() < BATCH && bytes < BATCH_BYTES {
                let Some(entry) = self.source.next()? else { break };
                bytes += entry.value.len();
                batch.push(self.reader.store().fetched(entry.to_record())?);
            }
            if batch.is_empty() {
                return Ok(true);
            }
            self.scanned += batch.len() as u64;
            let plain = batch.iter().map(|r| r.value.clone()).collect();
            let waits = &self.reader.converter.remote_waits;
            let result = waits.block_on(|| handle.block_on(values(&self.reader, custom, plain)));
            let crowded = |e: TooManyRemoteWaits| {
                ApiError::new(503, Reason::ServiceUnavailable, e.to_string()).retry_after(1)
            };
            let served = result.map_err(crowded)??;
            self.converted.extend(batch.into_iter().zip(served));
        }
    }

    /// Releases the snapshot and everything that can be read again. The scan can be resumed while its
    /// revision is retained.
    pub(crate) fn suspend(&mut self) {
        let undone = self.converted.front().map(|(record, _)| record.key.clone());
        self.scanned -= self.converted.len() as u64;
        self.converted.clear();
        self.filling = None;
        match &mut self.source {
            ScanSource::Range { range, cursor } => {
                let from = |key: Bytes| match range.end() {
                    Some(end) => KeyRange::between(key, end.clone()),
                    None => KeyRange::from(key),
                };
                let passed = cursor.last_key().map(|key| range.after(key));
                let rest = undone.map(from).or(passed).unwrap_or_else(|| range.clone());
                self.source = ScanSource::SuspendedRange(rest);
            }
            ScanSource::Keys { keys, .. } => {
                let keys = std::mem::take(keys);
                self.source = ScanSource::SuspendedKeys(keys);
            }
            ScanSource::SuspendedRange(_) | ScanSource::SuspendedKeys(_) => {}
        }
    }

    fn resume(&mut self) -> Result<(), ApiError> {
        let again = |revision| self.reader.store().engine().snapshot(At::Exact(revision));
        match &mut self.source {
            ScanSource::Range { .. } | ScanSource::Keys { .. } => {}
            ScanSource::SuspendedRange(range) => {
                let (range, cursor) = (range.clone(), Box::new(again(self.revision)?.range(range)));
                self.source = ScanSource::Range { range, cursor };
            }
            ScanSource::SuspendedKeys(keys) => {
                let snapshot = again(self.revision)?;
                self.source = ScanSource::Keys { keys: std::mem::take(keys), snapshot, record: None };
            }
        }
        Ok(())
    }
}
