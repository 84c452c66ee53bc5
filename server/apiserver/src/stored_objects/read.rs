//! Records, values and events in the served version.

use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{Event, EventKind};

use super::ObjectReader;
use crate::custom_resources::object::{self, ReadOutcome};
use plinth_api::ApiError;
use plinth_registry::{CustomVersion, ResourceType};
use plinth_storage::{Fetched, Header, Store};

/// Whether the stored value is what the resource serves.
pub fn is_current(resource: &ResourceType, header: &Header<'_>) -> bool {
    resource.custom.as_ref().is_none_or(|custom| object::is_current(custom, header))
}

/// Converts a record to the served version.
///
/// # Errors
/// 500 when it cannot be decoded or converted.
pub async fn record(
    reader: &ObjectReader,
    resource: &ResourceType,
    record: Fetched,
) -> Result<Fetched, ApiError> {
    let value = value(reader, resource, record.value.clone()).await?;
    Ok(record.with_value(value))
}

/// Converts a decrypted value to the served version.
///
/// # Errors
/// 500 when it cannot be decoded or converted.
pub async fn value(reader: &ObjectReader, resource: &ResourceType, value: Bytes) -> Result<Bytes, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(value) };
    Ok(values(reader, custom, vec![value]).await?.into_iter().next().unwrap_or_default())
}

/// Converts many records with one call of the webhook.
///
/// # Errors
/// 500 when one cannot be decoded or converted.
pub async fn records(
    reader: &ObjectReader,
    resource: &ResourceType,
    records: Vec<Fetched>,
) -> Result<Vec<Fetched>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(records) };
    let served = values(reader, custom, records.iter().map(|r| r.value.clone()).collect()).await?;
    Ok(records.into_iter().zip(served).map(|(record, value)| record.with_value(value)).collect())
}

pub(super) async fn values(
    reader: &ObjectReader,
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
        let converted = object::convert(&reader.converter, custom, custom.version(), trees).await?;
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

/// An event with its values in the served version.
pub(crate) struct ServedEvent {
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
    pub(crate) fn without_webhook(
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
    reader: Arc<ObjectReader>,
    resource: Arc<ResourceType>,
    events: Vec<Arc<Event>>,
) -> Result<Vec<ServedEvent>, ApiError> {
    let Some(custom) = &resource.custom else { return Ok(Vec::new()) };
    let mut plain = Vec::new();
    for event in &events {
        for value in values_of(event).into_iter().flatten() {
            plain.push(Bytes::from(reader.store().open(&event.key, value)?.into_owned()));
        }
    }
    let mut served = values(&reader, custom, plain).await?.into_iter();
    let changes = events.into_iter().map(|event| {
        let [previous, current] = values_of(&event).map(|value| value.and_then(|_| served.next()));
        ServedEvent { event, previous, current }
    });
    Ok(changes.collect())
}
