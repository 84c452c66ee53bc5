//! Writes the objects of a store to a file that `etcdutl snapshot restore` takes.
//!
//! The file is what [`crate::snapshot`] reads. An object keeps its revisions and its number of changes:
//! clients of a kube-apiserver on the restored etcd go on with the resourceVersions that they have. etcd
//! counts everything up to the newest revision of the store as compacted.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write as _};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::{json, protobuf};
use plinth_engine::{At, Engine, KeyRange, Progress, Revision, Snapshot as EngineSnapshot};
use plinth_etcd_wire::kv::KeyValue;
use plinth_registry::{
    is_custom_key, key_without_start, prefix_range, resource_prefix, DEFINITION_RESOURCE as DEFINITIONS,
};
use plinth_storage::{decode_served_object, EncryptionError, Stored};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::decode::{Decoded, Decoder};
use crate::import::{kind_of, tally, ImportError};
use crate::keys;
use crate::report::{Report, Tally};
use crate::snapshot::Snapshot;
use crate::source::{Source as _, SourceEntry, SourceError};
use plinth_bolt::BoltWriter;
use plinth_etcd_wire::lease::Lease;

/// Groups whose objects kube-apiserver stores as JSON.
const JSON_GROUPS: [&str; 2] = ["apiextensions.k8s.io", "apiregistration.k8s.io"];
/// Ids of the leases in the file are this and the seconds of their time to live.
const LEASE: i64 = 1 << 40;
/// Objects between two reports of progress.
const STEP: u64 = 256;

/// A failed export.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each error names its fields")]
pub enum ExportError {
    /// The store failed.
    #[error(transparent)]
    Engine(#[from] plinth_engine::Error),
    /// The file cannot be written.
    #[error("{path}: {source}")]
    File { path: String, source: io::Error },
    /// A value cannot be decrypted or encrypted.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// An object cannot be encoded.
    #[error("{key}: {reason}")]
    Object {
        /// Its key in etcd.
        key: String,
        reason: String,
    },
    /// Objects cannot be exported.
    #[error("{0} objects cannot be exported, see above; nothing was written. With --skip-unknown the rest is exported")]
    Refused(u64),
    /// The file does not have what the store has.
    #[error("the file does not read back as the objects of the store: {0}")]
    Different(String),
}

/// An object to export: its revision, its key here, and its key in etcd below the prefix.
struct Place {
    revision: Revision,
    own: Vec<u8>,
    path: String,
}

/// Writes the snapshot file and reads it back. `file` is new and empty.
///
/// # Errors
/// See [`ExportError`]; the file is not complete then.
pub fn export(
    engine: &Engine,
    decoder: &mut Decoder,
    (file, path): (File, &Path),
    skips_unknown: bool,
    refused: &mut dyn FnMut(&str, &str),
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, ExportError> {
    let snapshot = engine.snapshot(At::Latest)?;
    define(&snapshot, decoder)?;
    let mut left_out = 0;
    let places = places(&snapshot, decoder, &mut |path, reason| {
        left_out += 1;
        refused(path, reason);
    })?;
    if left_out > 0 && !skips_unknown {
        return Err(ExportError::Refused(left_out));
    }
    let io = |source| ExportError::File { path: path.display().to_string(), source };
    let mut export =
        Export { snapshot: &snapshot, decoder, tally: Tally::default(), leases: BTreeMap::new() };
    let mut bolt = BoltWriter::new(BufWriter::with_capacity(1 << 20, file)).map_err(io)?;
    let mut bucket = bolt.bucket(b"key");
    let (mut last, total) = ((Revision::ZERO, 0), places.len() as u64);
    for (done, place) in places.iter().enumerate() {
        // Objects of one transaction have one revision and differ in their sub revision.
        let sub = if place.revision == last.0 { last.1 + 1 } else { 0 };
        last = (place.revision, sub);
        let Some(record) = export.record(place)? else { continue };
        bucket.put(revision_key(place.revision.get(), sub), record).map_err(io)?;
        if (done as u64).is_multiple_of(STEP) {
            progress(Progress { done: done as u64, total });
        }
    }
    bucket.finish().map_err(io)?;
    let mut bucket = bolt.bucket(b"lease");
    for (id, ttl) in &export.leases {
        let lease = Lease { id: *id, ttl: *ttl, remaining_ttl: 0 };
        bucket.put(id.to_be_bytes().to_vec(), lease.encode_to_vec()).map_err(io)?;
    }
    bucket.finish().map_err(io)?;
    let mut bucket = bolt.bucket(b"meta");
    for name in ["finishedCompactRev", "scheduledCompactRev"] {
        bucket.put(name.into(), revision_key(snapshot.revision().get(), 0)).map_err(io)?;
    }
    bucket.finish().map_err(io)?;
    let file =
        bolt.finish().and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error)).map_err(io)?;
    append_hash(file, path).map_err(io)?;
    verify(path, decoder, export.tally, snapshot.revision().get())
}

/// Takes all definitions of the store into account.
fn define(snapshot: &EngineSnapshot, decoder: &mut Decoder) -> Result<(), ExportError> {
    let Some(resource) = decoder.registry().get(DEFINITIONS.0, DEFINITIONS.1, DEFINITIONS.2).cloned() else {
        return Ok(());
    };
    let mut entries = snapshot.range(&prefix_range(resource_prefix(DEFINITIONS.0, DEFINITIONS.2).as_bytes()));
    while let Some(entry) = entries.next()? {
        let value = decoder.encryption().open(entry.key, entry.value)?;
        let refused =
            |reason: String| ExportError::Object { key: entry.key.escape_ascii().to_string(), reason };
        let stored = Stored::parse(&value).map_err(|error| refused(error.to_string()))?;
        let tree = decode_served_object(&resource, &stored, entry.mod_revision);
        decoder.define_tree(tree.map_err(|error| refused(error.to_string()))?);
    }
    Ok(())
}

/// The objects of the store in the order of their revisions. `refused` gets those whose definitions are gone.
fn places(
    snapshot: &EngineSnapshot,
    decoder: &Decoder,
    refused: &mut dyn FnMut(&str, &str),
) -> Result<Vec<Place>, ExportError> {
    let mut places = Vec::new();
    let mut entries = snapshot.range(&KeyRange::all());
    while let Some(entry) = entries.next()? {
        let Some(path) = keys::upstream(decoder.registry(), entry.key) else { continue };
        match kind_of(decoder, entry.key) {
            Some(_) => places.push(Place { revision: entry.mod_revision, own: entry.key.to_vec(), path }),
            None => refused(&path, "its CustomResourceDefinition is gone"),
        }
    }
    places.sort_unstable_by(|a, b| (a.revision, &a.own).cmp(&(b.revision, &b.own)));
    Ok(places)
}

struct Export<'e> {
    snapshot: &'e EngineSnapshot,
    decoder: &'e Decoder,
    tally: Tally,
    /// Seconds by id.
    leases: BTreeMap<i64, i64>,
}

impl Export<'_> {
    /// The value of an object in the bucket `key`; none when it has expired meanwhile.
    fn record(&mut self, place: &Place) -> Result<Option<Vec<u8>>, ExportError> {
        let Some(record) = self.snapshot.get(&place.own)? else { return Ok(None) };
        let upstream = format!("{}{}", self.decoder.prefix(), place.path);
        let refused = |reason: String| ExportError::Object { key: upstream.clone(), reason };
        let value = self.decoder.encryption().open(&place.own, &record.value)?;
        let stored = Stored::parse(&value).map_err(|error| refused(error.to_string()))?;
        let (gvk, id) = self.kind(&place.own, &stored).map_err(refused)?;
        let json = with_type(&gvk.api_version(), &gvk.kind, stored.body());
        self.note(&upstream, &json)?;
        let plain = match id.filter(|_| !JSON_GROUPS.contains(&gvk.group.as_str())) {
            None => json,
            Some(id) => {
                let mut out = Vec::with_capacity(stored.body().len() + 64);
                protobuf::transcode_json(stored.body(), &gvk, schema::builtin(), id, &mut out)
                    .map_err(|error| refused(error.to_string()))?;
                out
            }
        };
        let value = self.decoder.encryption().seal_upstream(&place.own, upstream.as_bytes(), plain)?;
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let lease = record.expires_at_ms.map_or(0, |deadline| self.lease(deadline));
        let record = KeyValue {
            key: upstream.into(),
            create_revision: number(record.create_revision.get()),
            mod_revision: number(record.mod_revision.get()),
            version: number(record.version),
            value: value.into(),
            lease,
        };
        Ok(Some(record.encode_to_vec()))
    }

    /// The lease of what is deleted at a time, in milliseconds since 1970.
    fn lease(&mut self, deadline: u64) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let left = u128::from(deadline).saturating_sub(now).div_ceil(1000).max(1);
        let seconds = i64::try_from(left).unwrap_or(LEASE - 1).min(LEASE - 1);
        self.leases.insert(LEASE + seconds, seconds);
        LEASE + seconds
    }

    /// Counts an object as an import of its JSON would: then it need not be what protobuf makes of it.
    fn note(&mut self, upstream: &str, json: &[u8]) -> Result<(), ExportError> {
        let entry = SourceEntry { key: upstream.into(), value: json.to_vec(), ttl: None };
        let refused = |reason: String| ExportError::Object { key: upstream.to_owned(), reason };
        match self.decoder.decode_plain(&entry) {
            Ok(Decoded::Object(object)) => {
                self.tally.add(&object.kind, object.digest);
                Ok(())
            }
            Ok(Decoded::Internal) => Err(refused("its key is not an object's".to_owned())),
            Err(refusal) => Err(refused(refusal.to_string())),
        }
    }

    /// The kind of an object in its stored version, and the type of a built-in kind.
    fn kind(&self, own: &[u8], stored: &Stored<'_>) -> Result<(GVK, Option<TypeId>), String> {
        let registry = self.decoder.registry();
        let Some(resource) = registry.of_key(own).filter(|_| !is_custom_key(own)) else {
            let mut parts = std::str::from_utf8(key_without_start(own)).unwrap_or_default().splitn(3, '/');
            let (group, plural) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let definition = self.decoder.definition(group, plural).ok_or("its definition is gone")?;
            let kind = definition.names.kind.clone();
            return Ok((GVK::new(group, stored.version(), kind), None));
        };
        let form = resource.storage.as_ref().ok_or("it is not stored")?;
        let kind = resource.row.kind.clone();
        Ok((GVK::new(form.group.clone(), form.version.clone(), kind), Some(form.root)))
    }
}

/// JSON with type metadata, ending with a line break as upstream's.
fn with_type(api_version: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 96);
    out.extend_from_slice(b"{\"apiVersion\":");
    json::write_string(api_version, &mut out);
    out.extend_from_slice(b",\"kind\":");
    json::write_string(kind, &mut out);
    out.push(b',');
    out.extend_from_slice(body.get(1..).unwrap_or_default());
    out.push(b'\n');
    out
}

fn revision_key(main: u64, sub: u64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
}

/// Appends the SHA-256 of the file to it, and syncs it. The writer is at its end.
fn append_hash(mut file: File, path: &Path) -> io::Result<()> {
    let mut written = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match written.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    file.write_all(&hash.finalize())?;
    file.sync_all()
}

/// Reads the file back and compares it with what was written.
fn verify(path: &Path, decoder: &Decoder, mut written: Tally, revision: u64) -> Result<Report, ExportError> {
    let different = |error: &dyn std::fmt::Display| ExportError::Different(error.to_string());
    let snapshot = Snapshot::open(path, true).map_err(|error| different(&error))?;
    let mut read = Decoder::new(decoder.prefix(), decoder.encryption().clone());
    let mut definitions = Vec::new();
    let prefix = read.definitions_prefix();
    snapshot
        .visit::<SourceError>(prefix.as_bytes(), &mut |entry| {
            definitions.push(entry);
            Ok(())
        })
        .map_err(|error| different(&error))?;
    definitions.iter().for_each(|entry| read.define(entry));
    written.sort();
    let mut changed = None;
    let found = tally(&snapshot, &read, &mut |entry, object| {
        if changed.is_none() && !written.has(&object.digest) {
            changed = Some(entry.key.escape_ascii().to_string());
        }
        Ok::<(), ImportError>(())
    });
    let found = found.map_err(|error| different(&error))?.finish(revision);
    let written = written.finish(revision);
    match (found == written, changed) {
        (true, _) => Ok(written),
        (false, Some(key)) => Err(ExportError::Different(format!("{key} differs"))),
        (false, None) => Err(ExportError::Different(format!(
            "{} objects were written, {} are read",
            written.objects(),
            found.objects()
        ))),
    }
}
