//! Reads stored objects in the served version. For built-in kinds that is the stored form; custom resources
//! may have been stored under another schema or in another version.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, Entry, Event, EventKind, KeyRange, Range, Record, Revision, Snapshot};

use super::object::{self, ReadOutcome};
use super::Converter;
use plinth_api::api_error::{ApiError, Reason};
use plinth_http::pull::TooManyRemoteWaits;
use plinth_registry::custom::CustomVersion;
use plinth_registry::ResourceType;
use plinth_storage::header_index::IndexBuilder;
use plinth_storage::stored::Header;
use plinth_storage::{Fetched, Store};

/// Objects per call of a conversion webhook.
const BATCH: usize = 500;

/// Whether the stored value is what the resource serves.
pub fn is_current(resource: &ResourceType, head: &Header<'_>) -> bool {
    resource.custom.as_ref().is_none_or(|custom| object::is_current(custom, head))
}

/// Converts a record to the served version.
///
/// # Errors
/// 500 when it cannot be decoded or converted.
pub async fn record(
    converter: &Converter,
    resource: &ResourceType,
    record: Fetched,
) -> Result<Fetched, ApiError> {
    let value = value(converter, resource, record.value.clone()).await?;
    Ok(record.with_value(value))
}

/// Converts a decrypted value to the served version.
///
/// # Errors
/// 500 when it cannot be decoded or converted.
pub async fn value(converter: &Converter, resource: &ResourceType, value: Bytes) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value) };
    Ok(values(converter, custom, vec![value]).await?.into_iter().next().unwrap_or_default())
}

/// Converts many records with one call of the webhook.
///
/// # Errors
/// 500 when one cannot be decoded or converted.
pub async fn records(
    converter: &Converter,
    resource: &ResourceType,
    records: Vec<Fetched>,
) -> Result<Vec<Fetched>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(records) };
    let served = values(converter, custom, records.iter().map(|r| r.value.clone()).collect()).await?;
    Ok(records.into_iter().zip(served).map(|(record, value)| record.with_value(value)).collect())
}

async fn values(
    converter: &Converter,
    custom: &CustomVersion,
    values: Vec<Bytes>,
) -> Result<Vec<Bytes>, ApiError> {
    let (mut positions, mut trees) = (Vec::new(), Vec::new());
    let mut served = Vec::with_capacity(values.len());
    for value in values {
        match object::read(custom, &value)? {
            ReadOutcome::AsStored => served.push(value),
            ReadOutcome::Converted(new) => served.push(new),
            ReadOutcome::NeedsWebhook(tree) => {
                positions.push(served.len());
                trees.push(tree);
                served.push(value);
            }
        }
    }
    if !trees.is_empty() {
        let converted = object::convert(converter, custom, custom.version(), trees).await?;
        for (position, tree) in positions.into_iter().zip(converted) {
            if let Some(value) = served.get_mut(position) {
                *value = object::finish(custom, tree)?;
            }
        }
    }
    Ok(served)
}

/// Converts a stored value to the served version. Encrypted ones that need no conversion stay encrypted, and
/// those that need the webhook are returned as they are: the caller has converted them before.
///
/// # Errors
/// 500 when it cannot be decoded.
pub(crate) fn without_webhook(
    store: &Store,
    resource: &ResourceType,
    key: &[u8],
    value: &Bytes,
) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value.clone()) };
    if object::is_current(custom, &Header::parse(value).map_err(ApiError::internal)?) {
        return Ok(value.clone());
    }
    match object::read(custom, &store.open(key, value)?)? {
        ReadOutcome::AsStored | ReadOutcome::NeedsWebhook(_) => Ok(value.clone()),
        ReadOutcome::Converted(served) => Ok(served),
    }
}

/// A scan over the objects of a range at one revision, in the served version. It can be stopped after any
/// object, suspended, and resumed on another thread. Blocks: the webhook is called for `BATCH` objects at a
/// time.
pub(crate) struct Scan {
    converter: Arc<Converter>,
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
pub type Filter<'s> = Option<&'s dyn Fn(&[u8], &Header<'_>) -> bool>;

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
    pub fn over(
        converter: Arc<Converter>,
        resource: Arc<ResourceType>,
        snapshot: &Snapshot,
        range: KeyRange,
    ) -> Scan {
        let cursor = Box::new(snapshot.range(&range));
        Scan::new(converter, resource, snapshot.revision(), ScanSource::Range { range, cursor })
    }

    /// Reads the objects of these keys, as far as they exist.
    pub fn over_keys(
        converter: Arc<Converter>,
        resource: Arc<ResourceType>,
        snapshot: Snapshot,
        keys: Vec<Bytes>,
    ) -> Scan {
        let revision = snapshot.revision();
        let source = ScanSource::Keys { keys: keys.into_iter(), snapshot, record: None };
        Scan::new(converter, resource, revision, source)
    }

    fn new(
        converter: Arc<Converter>,
        resource: Arc<ResourceType>,
        revision: Revision,
        source: ScanSource,
    ) -> Scan {
        Scan { converter, resource, revision, source, converted: VecDeque::new(), scanned: 0, filling: None }
    }

    /// Adds the headers of all scanned objects to the header index.
    pub fn fill(&mut self, filling: Option<IndexBuilder>) {
        self.filling = filling;
    }

    /// The revision that is read.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether only some keys are read.
    pub fn is_by_keys(&self) -> bool {
        matches!(self.source, ScanSource::Keys { .. } | ScanSource::SuspendedKeys(_))
    }

    /// Objects scanned so far, selected or not.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Calls `each` with key, value and revision of the selected objects until it returns `false` or the scan
    /// is complete; returns whether it is complete. The next call continues after the last object. Objects
    /// that are not selected are not decrypted.
    ///
    /// # Errors
    /// 500 when a value cannot be decoded or converted; 410 when the revision has been compacted while the
    /// scan was suspended.
    pub fn for_each(
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
                let head = Header::parse(entry.value).map_err(ApiError::internal)?;
                current = custom.is_none_or(|custom| object::is_current(custom, &head));
                if current && filter.is_some_and(|filter| !filter(entry.key, &head)) {
                    continue;
                }
            }
            let mut value = self.converter.store.open(entry.key, entry.value)?;
            if let Some(custom) = custom.filter(|_| !current) {
                if let ReadOutcome::Converted(served) = object::read(custom, &value)? {
                    value = Cow::Owned(served.into());
                }
                let head = Header::parse(&value).map_err(ApiError::internal)?;
                if filter.is_some_and(|filter| !filter(entry.key, &head)) {
                    continue;
                }
            }
            if !each(entry.key, &value, entry.mod_revision)? {
                return Ok(false);
            }
        }
        if let Some(filling) = self.filling.take() {
            self.converter.header_index.insert(filling);
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
                let head = Header::parse(&value).map_err(ApiError::internal)?;
                let selected = filter.is_none_or(|filter| filter(&record.key, &head));
                if selected && !each(&record.key, &value, record.mod_revision)? {
                    return Ok(false);
                }
            }
            let mut batch = Vec::new();
            while batch.len() < BATCH {
                let Some(entry) = self.source.next()? else { break };
                batch.push(self.converter.store.fetched(entry.to_record())?);
            }
            if batch.is_empty() {
                return Ok(true);
            }
            self.scanned += batch.len() as u64;
            let plain = batch.iter().map(|r| r.value.clone()).collect();
            let result = self
                .converter
                .remote_waits
                .block_on(|| handle.block_on(values(&self.converter, custom, plain)));
            let crowded = |e: TooManyRemoteWaits| {
                ApiError::new(503, Reason::ServiceUnavailable, e.to_string()).retry_after(1)
            };
            let served = result.map_err(crowded)??;
            self.converted.extend(batch.into_iter().zip(served));
        }
    }

    /// Releases the snapshot and everything that can be read again. The scan can be resumed while its
    /// revision is retained.
    pub fn suspend(&mut self) {
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
        let again = |revision| self.converter.store.engine().snapshot(At::Exact(revision));
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

/// An event with its values in the served version.
pub(crate) struct ServedEvent {
    /// The event.
    pub event: Arc<Event>,
    /// The value before it.
    pub previous: Option<Bytes>,
    /// The value after it.
    pub current: Option<Bytes>,
}

fn values_of(event: &Event) -> [Option<&Bytes>; 2] {
    let current = match &event.kind {
        EventKind::Put { value, .. } => Some(value),
        EventKind::Delete => None,
    };
    [event.previous.as_ref().map(|record| &record.value), current]
}

impl ServedEvent {
    /// Converts the values without the webhook.
    ///
    /// # Errors
    /// 500 when a value cannot be decoded.
    pub fn without_webhook(
        store: &Store,
        resource: &ResourceType,
        event: &Arc<Event>,
    ) -> Result<ServedEvent, ApiError> {
        let served = |value: Option<&Bytes>| {
            value.map(|v| without_webhook(store, resource, &event.key, v)).transpose()
        };
        let [previous, current] = values_of(event).map(served);
        Ok(ServedEvent { event: event.clone(), previous: previous?, current: current? })
    }
}

/// Whether converting some of these events needs the webhook.
///
/// # Errors
/// 500 when a value cannot be decoded.
pub(crate) fn needs_webhook<'e>(
    resource: &ResourceType,
    events: impl Iterator<Item = &'e Arc<Event>>,
) -> Result<bool, ApiError> {
    let Some(custom) = resource.custom.as_ref().filter(|custom| !custom.converts_by_name()) else {
        return Ok(false);
    };
    for value in events.flat_map(|event| values_of(event)).flatten() {
        if !object::is_current(custom, &Header::parse(value).map_err(ApiError::internal)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Converts the values of events to the served version with the webhook.
///
/// # Errors
/// 500 when a value cannot be decoded or converted.
pub(crate) async fn convert_events(
    converter: Arc<Converter>,
    resource: Arc<ResourceType>,
    events: Vec<Arc<Event>>,
) -> Result<Vec<ServedEvent>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(Vec::new()) };
    let mut plain = Vec::new();
    for event in &events {
        for value in values_of(event).into_iter().flatten() {
            plain.push(Bytes::from(converter.store.open(&event.key, value)?.into_owned()));
        }
    }
    let mut served = values(&converter, custom, plain).await?.into_iter();
    let changes = events.into_iter().map(|event| {
        let [previous, current] = values_of(&event).map(|value| value.and_then(|_| served.next()));
        ServedEvent { event, previous, current }
    });
    Ok(changes.collect())
}
