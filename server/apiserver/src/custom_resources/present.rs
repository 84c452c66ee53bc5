//! Stored objects as a resource serves them. For built-in kinds that is what is stored; custom resources may have been
//! stored under another schema or in another version.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, Entry, Event, EventKind, KeyRange, Range, Record, Revision, Snapshot};

use super::object::{self, Reading};
use super::Presenter;
use plinth_api::api_error::{ApiError, Reason};
use plinth_http::pull::TooManyRemoteWaits;
use plinth_registry::custom::CustomVersion;
use plinth_registry::ResourceType;
use plinth_storage::heads::Filling;
use plinth_storage::stored::Head;
use plinth_storage::{Fetched, Store};

/// Objects that a webhook is asked to convert at once.
const BATCH: usize = 500;

/// Whether what is stored is what the resource serves.
pub fn is_current(resource: &ResourceType, head: &Head<'_>) -> bool {
    resource.custom.as_ref().is_none_or(|custom| object::is_current(custom, head))
}

/// A record as the resource serves it.
///
/// # Errors
/// 500 when it cannot be read or converted.
pub async fn one(
    presenter: &Presenter,
    resource: &ResourceType,
    record: Fetched,
) -> Result<Fetched, ApiError> {
    let value = value(presenter, resource, record.value.clone()).await?;
    Ok(record.with_value(value))
}

/// A value in plain text as the resource serves it.
///
/// # Errors
/// 500 when it cannot be read or converted.
pub async fn value(presenter: &Presenter, resource: &ResourceType, value: Bytes) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value) };
    Ok(values(presenter, custom, vec![value]).await?.into_iter().next().unwrap_or_default())
}

/// Many records, so that a webhook is asked once.
///
/// # Errors
/// 500 when one cannot be read or converted.
pub async fn all(
    presenter: &Presenter,
    resource: &ResourceType,
    records: Vec<Fetched>,
) -> Result<Vec<Fetched>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(records) };
    let made = values(presenter, custom, records.iter().map(|r| r.value.clone()).collect()).await?;
    Ok(records.into_iter().zip(made).map(|(record, value)| record.with_value(value)).collect())
}

async fn values(
    presenter: &Presenter,
    custom: &CustomVersion,
    values: Vec<Bytes>,
) -> Result<Vec<Bytes>, ApiError> {
    let (mut places, mut trees) = (Vec::new(), Vec::new());
    let mut made = Vec::with_capacity(values.len());
    for value in values {
        match object::read(custom, &value)? {
            Reading::AsStored => made.push(value),
            Reading::Made(new) => made.push(new),
            Reading::Remote(tree) => {
                places.push(made.len());
                trees.push(tree);
                made.push(value);
            }
        }
    }
    if !trees.is_empty() {
        let converted = object::convert(presenter, custom, custom.version(), trees).await?;
        for (place, tree) in places.into_iter().zip(converted) {
            if let Some(value) = made.get_mut(place) {
                *value = object::finish(custom, tree)?;
            }
        }
    }
    Ok(made)
}

/// A value as it lies in the engine, as the resource serves it. Encrypted ones that need no change stay so. What only a
/// webhook can convert has been converted before.
///
/// # Errors
/// 500 when it cannot be read.
pub fn now(store: &Store, resource: &ResourceType, key: &[u8], value: &Bytes) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value.clone()) };
    if object::is_current(custom, &Head::parse(value).map_err(ApiError::internal)?) {
        return Ok(value.clone());
    }
    match object::read(custom, &store.open(key, value)?)? {
        Reading::AsStored | Reading::Remote(_) => Ok(value.clone()),
        Reading::Made(made) => Ok(made),
    }
}

/// A walk over the objects of a range at one revision, as the resource serves them. It can be stopped after any object, put
/// aside, and gone on with by another thread. Blocks: a webhook is asked for `BATCH` objects at a time.
pub struct Walk {
    presenter: Arc<Presenter>,
    resource: Arc<ResourceType>,
    revision: Revision,
    source: Source,
    /// Objects that a webhook has converted and that were not looked at yet.
    converted: VecDeque<(Fetched, Bytes)>,
    /// Objects passed so far, selected or not.
    seen: u64,
    /// Takes in what the walk passes, where that is wanted.
    filling: Option<Filling>,
}

/// Which objects of a walk are meant, by key and head; none for all.
pub type Selects<'s> = Option<&'s dyn Fn(&[u8], &Head<'_>) -> bool>;

/// Where a walk takes its objects from.
enum Source {
    /// All of a range.
    Range {
        range: KeyRange,
        cursor: Box<Range>,
    },
    /// A few of it, which were found otherwise.
    Picked {
        keys: std::vec::IntoIter<Bytes>,
        snapshot: Snapshot,
        record: Option<Record>,
    },
    /// Nothing is held; the walk goes on with this range or these keys.
    RestingRange(KeyRange),
    RestingPicked(std::vec::IntoIter<Bytes>),
}

impl Source {
    /// The next object; none at the end, and none while the source rests.
    fn next(&mut self) -> Result<Option<Entry<'_>>, plinth_engine::Error> {
        match self {
            Source::Range { cursor, .. } => cursor.next(),
            Source::Picked { keys, snapshot, record } => {
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
            Source::RestingRange(_) | Source::RestingPicked(_) => Ok(None),
        }
    }
}

impl Walk {
    /// Over all objects of a range.
    pub fn over(
        presenter: Arc<Presenter>,
        resource: Arc<ResourceType>,
        snapshot: &Snapshot,
        range: KeyRange,
    ) -> Walk {
        let cursor = Box::new(snapshot.range(&range));
        Walk::new(presenter, resource, snapshot.revision(), Source::Range { range, cursor })
    }

    /// Over the objects with these keys, as far as they are there.
    pub fn over_keys(
        presenter: Arc<Presenter>,
        resource: Arc<ResourceType>,
        snapshot: Snapshot,
        keys: Vec<Bytes>,
    ) -> Walk {
        let revision = snapshot.revision();
        let source = Source::Picked { keys: keys.into_iter(), snapshot, record: None };
        Walk::new(presenter, resource, revision, source)
    }

    fn new(
        presenter: Arc<Presenter>,
        resource: Arc<ResourceType>,
        revision: Revision,
        source: Source,
    ) -> Walk {
        Walk { presenter, resource, revision, source, converted: VecDeque::new(), seen: 0, filling: None }
    }

    /// Has the heads of all objects that the walk passes taken in.
    pub fn fill(&mut self, filling: Option<Filling>) {
        self.filling = filling;
    }

    /// The revision whose state is shown.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Whether it looks at some objects alone.
    pub fn is_picked(&self) -> bool {
        matches!(self.source, Source::Picked { .. } | Source::RestingPicked(_))
    }

    /// How many objects the walk has passed, selected or not.
    pub fn seen(&self) -> u64 {
        self.seen
    }

    /// Calls `each` with key, value and revision of the selected objects, or of all, until it says `false` or the end is
    /// reached; true at the end. Another call goes on behind the last object. What is not selected is not decrypted.
    ///
    /// # Errors
    /// 500 when a value cannot be read or converted; 410 when the walk has rested for so long that its revision is gone.
    pub fn for_each(
        &mut self,
        selects: Selects<'_>,
        mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
    ) -> Result<bool, ApiError> {
        self.wake_up()?;
        let custom = self.resource.custom.clone();
        if let Some(custom) = custom.as_deref().filter(|custom| !custom.converts_by_name()) {
            return self.for_each_converted(custom, selects, each);
        }
        let custom = custom.as_deref();
        while let Some(entry) = self.source.next()? {
            self.seen += 1;
            if let Some(filling) = &mut self.filling {
                filling.add(entry.key, entry.value).map_err(ApiError::internal)?;
            }
            let mut current = true;
            if selects.is_some() || custom.is_some() {
                let head = Head::parse(entry.value).map_err(ApiError::internal)?;
                current = custom.is_none_or(|custom| object::is_current(custom, &head));
                if current && selects.is_some_and(|selects| !selects(entry.key, &head)) {
                    continue;
                }
            }
            let mut value = self.presenter.store.open(entry.key, entry.value)?;
            if let Some(custom) = custom.filter(|_| !current) {
                if let Reading::Made(made) = object::read(custom, &value)? {
                    value = Cow::Owned(made.into());
                }
                let head = Head::parse(&value).map_err(ApiError::internal)?;
                if selects.is_some_and(|selects| !selects(entry.key, &head)) {
                    continue;
                }
            }
            if !each(entry.key, &value, entry.mod_revision)? {
                return Ok(false);
            }
        }
        if let Some(filling) = self.filling.take() {
            self.presenter.heads.keep(filling);
        }
        Ok(true)
    }

    fn for_each_converted(
        &mut self,
        custom: &CustomVersion,
        selects: Selects<'_>,
        mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
    ) -> Result<bool, ApiError> {
        let handle = tokio::runtime::Handle::try_current().map_err(ApiError::internal)?;
        loop {
            while let Some((record, value)) = self.converted.pop_front() {
                let head = Head::parse(&value).map_err(ApiError::internal)?;
                let selected = selects.is_none_or(|selects| selects(&record.key, &head));
                if selected && !each(&record.key, &value, record.mod_revision)? {
                    return Ok(false);
                }
            }
            let mut batch = Vec::new();
            while batch.len() < BATCH {
                let Some(entry) = self.source.next()? else { break };
                batch.push(self.presenter.store.fetched(entry.to_record())?);
            }
            if batch.is_empty() {
                return Ok(true);
            }
            self.seen += batch.len() as u64;
            let plain = batch.iter().map(|r| r.value.clone()).collect();
            let asked = self
                .presenter
                .remote_waits
                .block_on(|| handle.block_on(values(&self.presenter, custom, plain)));
            let crowded = |e: TooManyRemoteWaits| {
                ApiError::new(503, Reason::ServiceUnavailable, e.to_string()).retry_after(1)
            };
            let made = asked.map_err(crowded)??;
            self.converted.extend(batch.into_iter().zip(made));
        }
    }

    /// Releases the snapshot and everything that can be read again. The walk goes on as long as its revision is retained.
    pub fn release(&mut self) {
        let undone = self.converted.front().map(|(record, _)| record.key.clone());
        self.seen -= self.converted.len() as u64;
        self.converted.clear();
        self.filling = None;
        match &mut self.source {
            Source::Range { range, cursor } => {
                let from = |key: Bytes| match range.end() {
                    Some(end) => KeyRange::between(key, end.clone()),
                    None => KeyRange::from(key),
                };
                let passed = cursor.last_key().map(|key| range.after(key));
                let rest = undone.map(from).or(passed).unwrap_or_else(|| range.clone());
                self.source = Source::RestingRange(rest);
            }
            Source::Picked { keys, .. } => {
                let keys = std::mem::take(keys);
                self.source = Source::RestingPicked(keys);
            }
            Source::RestingRange(_) | Source::RestingPicked(_) => {}
        }
    }

    fn wake_up(&mut self) -> Result<(), ApiError> {
        let again = |revision| self.presenter.store.engine().snapshot(At::Exact(revision));
        match &mut self.source {
            Source::Range { .. } | Source::Picked { .. } => {}
            Source::RestingRange(range) => {
                let (range, cursor) = (range.clone(), Box::new(again(self.revision)?.range(range)));
                self.source = Source::Range { range, cursor };
            }
            Source::RestingPicked(keys) => {
                let snapshot = again(self.revision)?;
                self.source = Source::Picked { keys: std::mem::take(keys), snapshot, record: None };
            }
        }
        Ok(())
    }
}

/// An event with its values as the resource serves them.
pub struct Change {
    /// The event.
    pub event: Arc<Event>,
    /// What was there before.
    pub previous: Option<Bytes>,
    /// What is there now.
    pub current: Option<Bytes>,
}

fn values_of(event: &Event) -> [Option<&Bytes>; 2] {
    let current = match &event.kind {
        EventKind::Put { value, .. } => Some(value),
        EventKind::Delete => None,
    };
    [event.previous.as_ref().map(|record| &record.value), current]
}

impl Change {
    /// Without asking a webhook.
    ///
    /// # Errors
    /// 500 when a value cannot be read.
    pub fn now(store: &Store, resource: &ResourceType, event: &Arc<Event>) -> Result<Change, ApiError> {
        let present = |value: Option<&Bytes>| value.map(|v| now(store, resource, &event.key, v)).transpose();
        let [previous, current] = values_of(event).map(present);
        Ok(Change { event: event.clone(), previous: previous?, current: current? })
    }
}

/// Whether some of these events can only be shown by a webhook.
///
/// # Errors
/// 500 when a value cannot be read.
pub fn asks_webhook<'e>(
    resource: &ResourceType,
    events: impl Iterator<Item = &'e Arc<Event>>,
) -> Result<bool, ApiError> {
    let Some(custom) = resource.custom.as_ref().filter(|custom| !custom.converts_by_name()) else {
        return Ok(false);
    };
    for value in events.flat_map(|event| values_of(event)).flatten() {
        if !object::is_current(custom, &Head::parse(value).map_err(ApiError::internal)?) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Events with their values as the resource serves them, converted by its webhook.
///
/// # Errors
/// 500 when a value cannot be read or converted.
pub async fn changes(
    presenter: Arc<Presenter>,
    resource: Arc<ResourceType>,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Change>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(Vec::new()) };
    let mut plain = Vec::new();
    for event in &events {
        for value in values_of(event).into_iter().flatten() {
            plain.push(Bytes::from(presenter.store.open(&event.key, value)?.into_owned()));
        }
    }
    let mut made = values(&presenter, custom, plain).await?.into_iter();
    let changes = events.into_iter().map(|event| {
        let [previous, current] = values_of(&event).map(|value| value.and_then(|_| made.next()));
        Change { event, previous, current }
    });
    Ok(changes.collect())
}
