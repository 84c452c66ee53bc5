//! `metadata.managedFields`, decoded and encoded.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::fields_v1::{self, FieldsV1Error};
use super::set::Set;
use crate::error::is_printable;
use crate::value::{Map, Value};

/// Update entries beyond this many are merged into one of manager [`ANCIENT`], oldest first.
pub(crate) const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager of merged old Update entries.
pub(crate) const ANCIENT: &str = "ancient-changes";

/// The operation of an entry. `Apply` sorts first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ManagedFieldsOperationType {
    /// By server-side apply: the fields are an intent, fields that are omitted next time are released.
    Apply,
    /// By any other verb.
    Update,
}

impl ManagedFieldsOperationType {
    fn text(self) -> &'static str {
        match self {
            ManagedFieldsOperationType::Apply => "Apply",
            ManagedFieldsOperationType::Update => "Update",
        }
    }
}

/// One manager's fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Name of the manager.
    pub manager: SmolStr,
    /// How the fields were set.
    pub operation: ManagedFieldsOperationType,
    /// The version of the paths, like `apps/v1`.
    pub api_version: SmolStr,
    /// The subresource that was written; empty for the object itself.
    pub subresource: SmolStr,
    /// When the entry last changed: RFC 3339 in UTC, whole seconds, so that text order is time order. `None`
    /// for an applier that has never changed a value.
    pub time: Option<SmolStr>,
    /// The fields that the manager owns.
    pub fields: Fields,
}

/// One manager's fields, decoded lazily: most writes leave most entries unchanged.
#[derive(Clone, Debug)]
pub enum Fields {
    /// As FieldsV1, in the form that this module writes.
    Encoded(Value),
    /// As a set.
    Set(Set),
}

impl Fields {
    /// The set of fields.
    pub fn set(&self) -> Cow<'_, Set> {
        match self {
            // Checked when it was read, or written by this module.
            Fields::Encoded(tree) => Cow::Owned(fields_v1::decode(tree).unwrap_or_default()),
            Fields::Set(set) => Cow::Borrowed(set),
        }
    }

    /// Whether one of the paths is among them. Linear in the length of the text, about a nanosecond per byte.
    pub(super) fn has_any_of(&self, paths: &Set) -> bool {
        match self {
            Fields::Encoded(fields) => fields_v1::has_any_of(fields, paths),
            Fields::Set(set) => !set.intersection(paths).is_empty(),
        }
    }

    /// Whether all of the paths are among them. Same cost.
    pub(super) fn has_all_of(&self, paths: &Set) -> bool {
        match self {
            Fields::Encoded(fields) => fields_v1::has_all_of(fields, paths),
            Fields::Set(set) => paths.is_subset(set),
        }
    }

    /// Whether the fields equal a set.
    pub(super) fn is(&self, set: &Set) -> bool {
        match self {
            Fields::Encoded(fields) => fields_v1::is(fields, set),
            Fields::Set(own) => own == set,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match self {
            Fields::Encoded(fields) => fields_v1::is_empty(fields),
            Fields::Set(set) => set.is_empty(),
        }
    }

    fn encode(self) -> Value {
        match self {
            Fields::Encoded(tree) => tree,
            Fields::Set(set) => fields_v1::encode(&set),
        }
    }
}

impl PartialEq for Fields {
    fn eq(&self, other: &Fields) -> bool {
        self.set() == other.set()
    }
}

impl Entry {
    /// Whether two entries belong to one manager: the version is compared for updates only, so that an
    /// applier may change it.
    pub(crate) fn is_same_manager(&self, other: &Entry) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == ManagedFieldsOperationType::Apply || self.api_version == other.api_version)
    }

    /// The order of entries in an object.
    fn sort_key(&self) -> impl Ord + '_ {
        (self.operation, &self.time, &self.manager, &self.api_version, &self.subresource)
    }
}

/// Why `managedFields` was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManagedFieldsError {
    /// Not a list of objects.
    #[error("managedFields must be a list of objects")]
    NotAList,
    /// Neither Apply nor Update.
    #[error("operation must be `Apply` or `Update`")]
    Operation,
    /// An entry without a version.
    #[error("apiVersion must not be empty")]
    ApiVersion,
    /// No type of fields.
    #[error("missing fieldsType in managed fields entry {0}")]
    NoFieldsType(usize),
    /// A type of fields other than FieldsV1.
    #[error("invalid fieldsType {1:?} in managed fields entry {0}")]
    FieldsType(usize, SmolStr),
    /// The fields cannot be read.
    #[error("error decoding set: {0}")]
    Fields(#[from] FieldsV1Error),
}

/// The fields of all managers of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagedFields {
    /// One entry per manager, in no order of meaning.
    pub entries: Vec<Entry>,
}

impl ManagedFields {
    /// Reads `managedFields` as a client sent it; absent or `null` is no manager. A later entry of a manager
    /// replaces an earlier one.
    pub fn decode(list: Option<&Value>) -> Result<ManagedFields, ManagedFieldsError> {
        let list = match list {
            None | Some(Value::Null) => return Ok(ManagedFields::default()),
            Some(list) => list,
        };
        let mut managed = ManagedFields::stored(list)?;
        for entry in &mut managed.entries {
            if let Fields::Encoded(tree) = &entry.fields {
                entry.fields = Fields::Set(fields_v1::decode(tree)?);
            }
        }
        Ok(managed)
    }

    /// Reads `managedFields` as this module wrote it, without validating the fields.
    pub(super) fn stored(list: &Value) -> Result<ManagedFields, ManagedFieldsError> {
        let list = list.as_array().ok_or(ManagedFieldsError::NotAList)?;
        let mut managed = ManagedFields { entries: Vec::with_capacity(list.len() + 1) };
        for (i, item) in list.iter().enumerate() {
            let map = item.as_object().ok_or(ManagedFieldsError::NotAList)?;
            managed.entries.push(entry(i, map)?);
        }
        managed.drop_replaced();
        Ok(managed)
    }

    /// Of several entries of one manager the last one is kept. A client may send many: `O(n log n)`.
    fn drop_replaced(&mut self) {
        fn identity(e: &Entry) -> (&SmolStr, ManagedFieldsOperationType, &SmolStr, &str) {
            let version =
                if e.operation == ManagedFieldsOperationType::Update { e.api_version.as_str() } else { "" };
            (&e.manager, e.operation, &e.subresource, version)
        }
        if self.entries.len() < 2 {
            return;
        }
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_by(|&a, &b| identity(&self.entries[a]).cmp(&identity(&self.entries[b])));
        let mut replaced = vec![false; order.len()];
        for pair in order.windows(2) {
            replaced[pair[0]] = self.entries[pair[0]].is_same_manager(&self.entries[pair[1]]);
        }
        let mut replaced = replaced.into_iter();
        self.entries.retain(|_| !replaced.next().unwrap_or_default());
    }

    /// Writes `managedFields`, sorted. `None` when there are no owners.
    pub fn encode(mut self) -> Option<Value> {
        if self.entries.is_empty() {
            return None;
        }
        self.entries.sort_by(|a, b| a.sort_key().cmp(&b.sort_key()));
        Some(Value::Array(self.entries.into_iter().map(encode_entry).collect()))
    }

    /// Merges the oldest Update entries of each version until no more than [`MAX_UPDATE_MANAGERS`] are
    /// left, or nothing is left to merge.
    pub(super) fn cap_updates(&mut self) {
        let is_update = |e: &Entry| e.operation == ManagedFieldsOperationType::Update;
        let mut left = self.entries.iter().filter(|e| is_update(e)).count();
        if left <= MAX_UPDATE_MANAGERS {
            return;
        }
        let (mut updates, applies): (Vec<Entry>, Vec<Entry>) = self.entries.drain(..).partition(is_update);
        // An entry that was merged before stays the one that others are merged into.
        let is_bucket = |e: &Entry| e.manager == ANCIENT && e.subresource.is_empty();
        updates.sort_by(|a, b| is_bucket(b).cmp(&is_bucket(a)).then_with(|| a.sort_key().cmp(&b.sort_key())));
        // By version: the bucket to merge into. The first entry of a version becomes the bucket once there is
        // a second one.
        let mut buckets: Vec<Entry> = Vec::new();
        let mut kept: Vec<Entry> = Vec::new();
        for entry in updates {
            let bucket = buckets.iter_mut().find(|b| b.api_version == entry.api_version);
            match bucket {
                _ if left <= MAX_UPDATE_MANAGERS => kept.push(entry),
                None => buckets.push(entry),
                Some(bucket) => {
                    bucket.manager = ANCIENT.into();
                    bucket.subresource = SmolStr::default();
                    bucket.fields = Fields::Set(bucket.fields.set().union(&entry.fields.set()));
                    // The more recent of the two.
                    bucket.time = entry.time;
                    left -= 1;
                }
            }
        }
        self.entries = applies;
        self.entries.extend(buckets);
        self.entries.extend(kept);
    }
}

fn entry(i: usize, map: &Map) -> Result<Entry, ManagedFieldsError> {
    let text = |key: &str| match map.get(key) {
        Some(Value::String(s)) => s.clone(),
        _ => SmolStr::default(),
    };
    let operation = match text("operation").as_str() {
        "Apply" => ManagedFieldsOperationType::Apply,
        "Update" => ManagedFieldsOperationType::Update,
        _ => return Err(ManagedFieldsError::Operation),
    };
    let api_version = text("apiVersion");
    if api_version.is_empty() {
        return Err(ManagedFieldsError::ApiVersion);
    }
    match text("fieldsType") {
        v1 if v1 == "FieldsV1" => {}
        none if none.is_empty() => return Err(ManagedFieldsError::NoFieldsType(i)),
        other => return Err(ManagedFieldsError::FieldsType(i, other)),
    }
    Ok(Entry {
        manager: text("manager"),
        operation,
        api_version,
        subresource: text("subresource"),
        time: Some(text("time")).filter(|t| !t.is_empty()),
        fields: Fields::Encoded(map.get("fieldsV1").cloned().unwrap_or_else(Value::object)),
    })
}

fn encode_entry(entry: Entry) -> Value {
    let text = |s: SmolStr| (!s.is_empty()).then_some(Value::String(s));
    let members = [
        ("apiVersion", text(entry.api_version)),
        ("fieldsType", Some(Value::String(SmolStr::new_static("FieldsV1")))),
        ("fieldsV1", Some(entry.fields.encode())),
        ("manager", text(entry.manager)),
        ("operation", Some(Value::String(SmolStr::new_static(entry.operation.text())))),
        ("subresource", text(entry.subresource)),
        ("time", entry.time.and_then(text)),
    ];
    let members = members.into_iter().filter_map(|(k, v)| Some((SmolStr::new_static(k), v?)));
    Value::Object(Map::from_sorted(members.collect()))
}

/// Whether a client requests a reset of ownership: an empty list, or a list of one empty entry.
pub(super) fn is_reset(list: Option<&Value>) -> bool {
    match list.and_then(Value::as_array) {
        Some([]) => true,
        Some([Value::Object(entry)]) => entry.values().all(|v| match v {
            Value::Null => true,
            Value::String(s) => s.is_empty(),
            _ => false,
        }),
        _ => false,
    }
}

/// Maximum length of a manager's name in bytes.
pub(crate) const MAX_MANAGER_LEN: usize = 128;

/// The manager of a request: its `fieldManager`, else the user agent up to the first `/`, printable
/// characters only, cut at `MAX_MANAGER_LEN` bytes.
pub fn manager_or_user_agent(field_manager: &str, user_agent: &str) -> String {
    if !field_manager.is_empty() {
        return field_manager.into();
    }
    let name = user_agent.split('/').next().unwrap_or_default();
    let mut out = String::new();
    for c in name.chars().filter(|&c| is_printable(c)) {
        if out.len() + c.len_utf8() > MAX_MANAGER_LEN {
            break;
        }
        out.push(c);
    }
    out
}
