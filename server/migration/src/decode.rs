//! [`Decoder`]: a value of kube-apiserver in etcd as the stored form of an object.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_apiserver::custom_resources::object::adopt;
use plinth_codec::convert::{self, Format};
use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::Value;
use plinth_registry::{
    object_key, take_schemas, Definition, DefinitionNames, Registry, ResourceType, StorageForm,
    DEFINITION_RESOURCE as DEFINITIONS,
};
use plinth_storage::{encode_object, Encryption, Stored};

use crate::earlier;
use crate::keys::{is_segment, Located, UpstreamKeys};
use crate::refusal::{Refusal, MAX_VALUE};
use crate::report::digest;
use crate::source::SourceEntry;

/// An object in its stored form.
#[derive(Clone, Debug)]
pub struct Object {
    /// Its key in the store.
    pub key: Vec<u8>,
    /// Header and body, not encrypted.
    pub value: Bytes,
    /// `Kind.group`.
    pub kind: String,
    /// See [`crate::report`].
    pub digest: [u8; 32],
    /// The time after which it is deleted.
    pub ttl: Option<Duration>,
}

/// What a value is.
#[derive(Debug)]
pub enum Decoded {
    /// An object of a kind that is served, with its type and resourceVersion.
    Object(Box<Object>),
    /// Something that kube-apiserver keeps for itself.
    Internal,
}

/// Decodes the values of one etcd. Custom resources need their definitions: [`Decoder::define`].
pub struct Decoder {
    registry: Registry,
    keys: UpstreamKeys,
    definitions: HashMap<String, Arc<Definition>>,
    encryption: Arc<Encryption>,
    /// With a slash at the end.
    prefix: String,
}

impl Decoder {
    /// A decoder of the keys below `prefix`.
    pub fn new(prefix: &str, encryption: Arc<Encryption>) -> Decoder {
        let registry = Registry::builtin();
        let keys = UpstreamKeys::new(&registry);
        let prefix = format!("{}/", prefix.trim_end_matches('/'));
        Decoder { registry, keys, definitions: HashMap::new(), encryption, prefix }
    }

    /// What all keys begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// What the keys of definitions begin with.
    pub fn definitions_prefix(&self) -> String {
        format!("{}{}/{}/", self.prefix, DEFINITIONS.0, DEFINITIONS.2)
    }

    /// The built-in resources.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Encryption of both sides.
    pub fn encryption(&self) -> &Arc<Encryption> {
        &self.encryption
    }

    /// Takes a definition into account, replacing an earlier one of its name. One that cannot be decoded is
    /// ignored: it is refused itself.
    pub fn define(&mut self, entry: &SourceEntry) {
        let Some(path) = self.path(&entry.key) else { return };
        let Located::Builtin { resource, name, .. } = self.keys.locate(path) else { return };
        let key = own_key(resource, "", name);
        if let Ok(tree) = self.builtin_tree(resource, &key, entry, Form::AsConfigured) {
            self.define_tree(tree);
        }
    }

    /// The same for a definition that is decoded.
    pub(crate) fn define_tree(&mut self, mut tree: Value) {
        let accepted = DefinitionNames::of(tree.at(&["status", "acceptedNames"]));
        let names = match accepted.is_complete() {
            true => accepted,
            false => DefinitionNames::of(tree.at(&["spec", "names"])),
        };
        let schemas = take_schemas(&mut tree);
        let definition = Definition::new(&tree, &schemas, names);
        let plural = tree.str_at(&["spec", "names", "plural"]).unwrap_or_default();
        self.definitions.insert(format!("{}/{plural}", definition.group), Arc::new(definition));
    }

    /// What the keys of the objects of a definition begin with, by the definition's own key in etcd.
    pub(crate) fn custom_prefix(&self, key: &[u8]) -> Option<Vec<u8>> {
        let name = self.path(key)?.rsplit('/').next()?;
        let (plural, group) = name.split_once('.')?;
        let definition = self.definition(group, plural)?;
        Some(plinth_registry::custom_prefix(group, plural, definition.namespaced).into_bytes())
    }

    /// The definition of a custom resource.
    pub(crate) fn definition(&self, group: &str, plural: &str) -> Option<&Arc<Definition>> {
        self.definitions.get(&format!("{group}/{plural}"))
    }

    /// The key here of a key in etcd; none where it is no object's.
    pub(crate) fn own_key(&self, key: &[u8]) -> Option<Vec<u8>> {
        match self.keys.locate(self.path(key)?) {
            Located::Builtin { resource, namespace, name } => Some(own_key(resource, namespace, name)),
            Located::Custom { group, plural, rest } => {
                let definition = self.definition(group, plural)?;
                let (namespace, name) = split(definition, rest)?;
                Some(object_key(
                    &plinth_registry::custom_prefix(group, plural, definition.namespaced),
                    namespace,
                    name,
                ))
            }
            Located::Internal | Located::Unknown => None,
        }
    }

    fn path<'k>(&self, key: &'k [u8]) -> Option<&'k str> {
        std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)
    }

    /// Decodes a value.
    ///
    /// # Errors
    /// [`Refusal`] when the object cannot be imported.
    pub fn decode(&self, entry: &SourceEntry) -> Result<Decoded, Refusal> {
        self.decode_as(entry, Form::AsConfigured)
    }

    /// As [`Decoder::decode`], of a value that is not encrypted, whatever the configuration is.
    pub(crate) fn decode_plain(&self, entry: &SourceEntry) -> Result<Decoded, Refusal> {
        self.decode_as(entry, Form::Plain)
    }

    fn decode_as(&self, entry: &SourceEntry, form: Form) -> Result<Decoded, Refusal> {
        let path = self.path(&entry.key).ok_or(Refusal::UnknownKey)?;
        let (kind, key, value) = match self.keys.locate(path) {
            Located::Internal => return Ok(Decoded::Internal),
            Located::Unknown => return Err(Refusal::UnknownKey),
            Located::Builtin { resource, namespace, name } => {
                let key = own_key(resource, namespace, name);
                let tree = self.builtin_tree(resource, &key, entry, form)?;
                check_name(&tree, namespace, name)?;
                let value = encode_object(resource, tree).map_err(|e| Refusal::Decode(e.to_string()))?;
                (label(&resource.row.kind, resource.group()), key, value)
            }
            Located::Custom { group, plural, rest } => self.custom(group, plural, rest, entry, form)?,
        };
        if value.len() > MAX_VALUE {
            return Err(Refusal::TooLarge(value.len()));
        }
        let stored = Stored::parse(&value).map_err(|error| Refusal::Decode(error.to_string()))?;
        let digest = digest(path, stored.version(), stored.body());
        Ok(Decoded::Object(Box::new(Object { key, digest, kind, ttl: entry.ttl, value })))
    }

    /// The tree of an object of a built-in kind in its storage version, with defaults: kube-apiserver fills
    /// in those when it reads. In canonical form, whichever way it was stored.
    fn builtin_tree(
        &self,
        resource: &ResourceType,
        key: &[u8],
        entry: &SourceEntry,
        encryption: Form,
    ) -> Result<Value, Refusal> {
        let object = self.read(key, entry, encryption)?;
        let Some(form) = &resource.storage else { return Err(Refusal::UnknownKey) };
        let tree = self.in_storage_version(resource, form, object)?;
        let decoded = json::conform(tree, resource.schema, form.root, &DecodeOptions::default());
        decoded.map(|decoded| decoded.value).map_err(|error| Refusal::Decode(error.to_string()))
    }

    fn in_storage_version(
        &self,
        resource: &ResourceType,
        form: &StorageForm,
        object: convert::Object,
    ) -> Result<Value, Refusal> {
        let gvk = object.gvk.ok_or_else(|| Refusal::Decode("it names no apiVersion and kind".to_owned()))?;
        if gvk.kind != resource.row.kind {
            return Err(Refusal::Kind(label(&gvk.kind, &gvk.group)));
        }
        let mut tree = object.tree;
        if gvk.group != form.group || gvk.version != form.version {
            // Another served version of the same objects, or one that is not served.
            let served = self.registry.get(&gvk.group, &gvk.version, resource.plural());
            let has_same_objects = |served: &&Arc<ResourceType>| {
                served.storage.as_ref().is_some_and(|s| s.prefix == form.prefix)
            };
            tree = match served.filter(has_same_objects) {
                Some(served) => {
                    served.strategy.default(&mut tree);
                    plinth_registry::convert_to_storage(tree, served, form)
                        .map_err(|error| Refusal::Decode(error.to_string()))?
                }
                None => earlier::convert(tree, gvk.api_version().as_ref(), resource, form)?,
            };
        }
        resource.strategy.default(&mut tree);
        Ok(tree)
    }

    fn custom(
        &self,
        group: &str,
        plural: &str,
        rest: &str,
        entry: &SourceEntry,
        form: Form,
    ) -> Result<(String, Vec<u8>, Bytes), Refusal> {
        let undefined = || Refusal::Undefined(format!("{plural}.{group}"));
        let definition = self.definition(group, plural).ok_or_else(undefined)?;
        let (namespace, name) = split(definition, rest).ok_or(Refusal::UnknownKey)?;
        let key = object_key(
            &plinth_registry::custom_prefix(group, plural, definition.namespaced),
            namespace,
            name,
        );
        let object = self.read(&key, entry, form)?;
        let gvk = object.gvk.ok_or_else(|| Refusal::Decode("it names no apiVersion and kind".to_owned()))?;
        if gvk.group != definition.group || gvk.kind != definition.names.kind {
            return Err(Refusal::Kind(label(&gvk.kind, &gvk.group)));
        }
        let version = definition.position(&gvk.version).and_then(|at| definition.versions.get(at));
        let version = version.ok_or_else(|| Refusal::Version {
            version: gvk.version.to_string(),
            error: format!("the CustomResourceDefinition {} does not have it", definition.name),
        })?;
        check_name(&object.tree, namespace, name)?;
        let value =
            adopt(definition, version, object.tree).map_err(|error| Refusal::Decode(error.to_string()))?;
        Ok((label(&gvk.kind, group), key, value))
    }

    fn open<'e>(&self, key: &[u8], entry: &'e SourceEntry) -> Result<Cow<'e, [u8]>, Refusal> {
        let value = self.encryption.open_upstream(key, &entry.key, &entry.value);
        value.map_err(|error| match entry.value.strip_prefix(b"k8s:enc:") {
            Some(rest) if !self.encryption.is_configured() => {
                let provider = rest.split(|byte| *byte == b':').next().unwrap_or_default();
                Refusal::Encrypted(String::from_utf8_lossy(provider).into_owned())
            }
            _ => Refusal::Encryption(error),
        })
    }

    fn read(&self, key: &[u8], entry: &SourceEntry, form: Form) -> Result<convert::Object, Refusal> {
        let value = match form {
            Form::Plain => Cow::Borrowed(entry.value.as_slice()),
            Form::AsConfigured => self.open(key, entry)?,
        };
        if convert::detect(&value) == Format::Yaml {
            return Err(Refusal::Decode("it is neither protobuf nor JSON nor CBOR".to_owned()));
        }
        convert::read(&value).map_err(|error| Refusal::Decode(error.to_string()))
    }
}

/// Whether a value is encrypted.
#[derive(Clone, Copy)]
enum Form {
    /// As the configuration has it.
    AsConfigured,
    Plain,
}

fn own_key(resource: &ResourceType, namespace: &str, name: &str) -> Vec<u8> {
    let prefix = resource.storage.as_ref().map_or("", |form| form.prefix.as_str());
    object_key(prefix, namespace, name)
}

fn split<'k>(definition: &Definition, rest: &'k str) -> Option<(&'k str, &'k str)> {
    let (namespace, name) = match definition.namespaced {
        true => rest.split_once('/')?,
        false => ("", rest),
    };
    (is_segment(name) && (is_segment(namespace) || !definition.namespaced)).then_some((namespace, name))
}

fn check_name(tree: &Value, namespace: &str, name: &str) -> Result<(), Refusal> {
    let text = |field| tree.str_at(&["metadata", field]).unwrap_or_default();
    match (text("namespace"), text("name")) {
        found if found == (namespace, name) => Ok(()),
        (namespace, name) => Err(Refusal::Name(format!("{namespace}/{name}"))),
    }
}

/// `Deployment.apps`, `Pod`.
pub(crate) fn label(kind: &str, group: &str) -> String {
    match group.is_empty() {
        true => kind.to_owned(),
        false => format!("{kind}.{group}"),
    }
}
