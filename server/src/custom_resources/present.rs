//! Stored objects as a resource serves them. For built-in kinds that is what is stored; custom resources may have been
//! stored under another schema or in another version.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{Event, EventKind, Range, Revision};

use super::object::{self, Reading};
use super::CustomVersion;
use crate::registry::ResourceType;
use crate::server::Server;
use crate::status::ApiError;
use crate::storage::stored::Head;
use crate::storage::{Fetched, Store};

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
pub async fn one(server: &Server, resource: &ResourceType, record: Fetched) -> Result<Fetched, ApiError> {
    let value = value(server, resource, record.value.clone()).await?;
    Ok(record.with_value(value))
}

/// A value in plain text as the resource serves it.
///
/// # Errors
/// 500 when it cannot be read or converted.
pub async fn value(server: &Server, resource: &ResourceType, value: Bytes) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value) };
    Ok(values(server, custom, vec![value]).await?.into_iter().next().unwrap_or_default())
}

/// Many records, so that a webhook is asked once.
///
/// # Errors
/// 500 when one cannot be read or converted.
pub async fn all(
    server: &Server,
    resource: &ResourceType,
    records: Vec<Fetched>,
) -> Result<Vec<Fetched>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(records) };
    let made = values(server, custom, records.iter().map(|r| r.value.clone()).collect()).await?;
    Ok(records.into_iter().zip(made).map(|(record, value)| record.with_value(value)).collect())
}

async fn values(server: &Server, custom: &CustomVersion, values: Vec<Bytes>) -> Result<Vec<Bytes>, ApiError> {
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
        let converted = object::convert(server, custom, custom.version(), trees).await?;
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

/// Calls `each` with key, value and revision of the selected objects that a walk passes, as the resource serves them,
/// until it says `false`. Gives the number of objects that it passed, selected or not; `None` when it was stopped. What
/// is not selected is not decrypted. Blocks: a webhook is asked for `BATCH` objects at a time.
///
/// # Errors
/// 500 when a value cannot be read or converted.
pub fn for_each(
    server: &Server,
    resource: &ResourceType,
    entries: &mut Range,
    selects: &dyn Fn(&[u8], &Head<'_>) -> bool,
    mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
) -> Result<Option<u64>, ApiError> {
    let custom = resource.custom.as_deref();
    if let Some(custom) = custom.filter(|custom| !custom.converts_by_name()) {
        return for_each_converted(server, custom, entries, selects, each);
    }
    let mut seen = 0;
    while let Some(entry) = entries.next()? {
        seen += 1;
        let head = Head::parse(entry.value).map_err(ApiError::internal)?;
        let current = custom.is_none_or(|custom| object::is_current(custom, &head));
        if current && !selects(entry.key, &head) {
            continue;
        }
        let mut value = server.store.open(entry.key, entry.value)?;
        if let Some(custom) = custom.filter(|_| !current) {
            if let Reading::Made(made) = object::read(custom, &value)? {
                value = Cow::Owned(made.into());
            }
            if !selects(entry.key, &Head::parse(&value).map_err(ApiError::internal)?) {
                continue;
            }
        }
        if !each(entry.key, &value, entry.mod_revision)? {
            return Ok(None);
        }
    }
    Ok(Some(seen))
}

fn for_each_converted(
    server: &Server,
    custom: &CustomVersion,
    entries: &mut Range,
    selects: &dyn Fn(&[u8], &Head<'_>) -> bool,
    mut each: impl FnMut(&[u8], &[u8], Revision) -> Result<bool, ApiError>,
) -> Result<Option<u64>, ApiError> {
    let mut seen = 0;
    let handle = tokio::runtime::Handle::try_current().map_err(ApiError::internal)?;
    loop {
        let mut batch = Vec::new();
        while batch.len() < BATCH {
            let Some(entry) = entries.next()? else { break };
            batch.push(server.store.fetched(entry.to_record())?);
        }
        if batch.is_empty() {
            return Ok(Some(seen));
        }
        seen += batch.len() as u64;
        let made =
            handle.block_on(values(server, custom, batch.iter().map(|r| r.value.clone()).collect()))?;
        for (record, value) in batch.iter().zip(made) {
            let head = Head::parse(&value).map_err(ApiError::internal)?;
            if selects(&record.key, &head) && !each(&record.key, &value, record.mod_revision)? {
                return Ok(None);
            }
        }
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
    server: Arc<Server>,
    resource: Arc<ResourceType>,
    events: Vec<Arc<Event>>,
) -> Result<Vec<Change>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(Vec::new()) };
    let mut plain = Vec::new();
    for event in &events {
        for value in values_of(event).into_iter().flatten() {
            plain.push(Bytes::from(server.store.open(&event.key, value)?.into_owned()));
        }
    }
    let mut made = values(&server, custom, plain).await?.into_iter();
    let changes = events.into_iter().map(|event| {
        let [previous, current] = values_of(&event).map(|value| value.and_then(|_| made.next()));
        Change { event, previous, current }
    });
    Ok(changes.collect())
}
