//! The schema of one version: kept compressed, compiled on first use.
//!
//! A cluster has hundreds of definitions and uses few at a time. A schema that was never used takes a tenth
//! of its JSON; compiling one takes about a millisecond per 100 KiB.

use std::io::{Read, Write};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::Compression;
use plinth_codec::schema::{Schema, TypeId, GVK};
use plinth_codec::{hex, json, Value};
use plinth_structural::StructuralSchema;
use sha2::{Digest, Sha256};
use smol_str::SmolStr;

use plinth_api::ApiError;

/// `openAPIV3Schema` of a version as JSON, deflated. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SchemaText {
    /// `None` when the definition has none.
    deflated: Option<Bytes>,
    stamp: SmolStr,
}

/// The schema of a version. It is compiled once, on first use.
#[derive(Debug)]
pub struct VersionSchema {
    text: SchemaText,
    kind: GVK,
    compiled: OnceLock<Option<Arc<Compiled>>>,
}

/// A compiled schema, for validation of objects and for server-side apply.
#[derive(Debug)]
pub struct Compiled {
    /// Pruning, defaults and validation.
    pub structural: StructuralSchema,
    /// The types, for managed fields.
    pub types: Schema,
    /// The type of the object in them.
    pub root: TypeId,
}

impl SchemaText {
    /// Compresses `openAPIV3Schema`. `selectable` are the paths whose values are part of the header of stored
    /// objects.
    pub fn new<'a>(
        schema: Option<&Value>,
        selectable: impl Iterator<Item = &'a str>,
        preserves_unknown: bool,
    ) -> SchemaText {
        let mut json = Vec::new();
        if let Some(schema) = schema {
            json::write_untyped(schema, &mut json);
        }
        let mut hash = Sha256::new();
        hash.update(&json);
        hash.update([u8::from(preserves_unknown)]);
        for path in selectable {
            hash.update(path.as_bytes());
            hash.update([0]);
        }
        let digest = hash.finalize();
        let stamp = hex::lower(&digest[..8]);
        SchemaText { deflated: schema.is_some().then(|| deflated(&json)), stamp: stamp.into() }
    }
}

impl VersionSchema {
    /// The schema of objects of a kind.
    pub fn new(kind: GVK, text: SchemaText) -> VersionSchema {
        VersionSchema { text, kind, compiled: OnceLock::new() }
    }

    /// Identifies the schema: objects stored with this stamp are served without further checks.
    pub fn stamp(&self) -> &str {
        &self.text.stamp
    }

    /// `openAPIV3Schema` as the definition has it.
    pub fn source(&self) -> Option<Value> {
        let mut text = Vec::new();
        // Data that was compressed by this process can be decompressed.
        DeflateDecoder::new(self.text.deflated.as_deref()?).read_to_end(&mut text).ok()?;
        json::parse(&text).ok()
    }

    /// The compiled schema; `None` when the definition has none.
    ///
    /// # Errors
    /// 500 when it cannot be compiled, which the validation of definitions rules out.
    pub fn compiled(&self) -> Result<Option<&Arc<Compiled>>, ApiError> {
        if self.text.deflated.is_none() {
            return Ok(None);
        }
        let compiled = self.compiled.get_or_init(|| Compiled::new(&self.source()?, &self.kind).map(Arc::new));
        match compiled {
            Some(compiled) => Ok(Some(compiled)),
            None => Err(ApiError::internal("the server could not properly serve the CR schema")),
        }
    }

    /// Shares the compiled form of an equal schema.
    pub fn share(&self, other: &VersionSchema) {
        let same = self.stamp() == other.stamp() && self.kind == other.kind;
        if let (true, Some(compiled)) = (same, other.compiled.get()) {
            // The compiled forms of equal schemas are equal.
            let _ = self.compiled.set(compiled.clone());
        }
    }
}

impl Compiled {
    fn new(schema: &Value, kind: &GVK) -> Option<Compiled> {
        let structural = StructuralSchema::compile(schema).ok()?;
        let types = structural.model(kind.clone());
        let root = types.kind(kind)?;
        Some(Compiled { structural, types, root })
    }
}

fn deflated(text: &[u8]) -> Bytes {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    // Writing to memory does not fail.
    let _ = encoder.write_all(text);
    Bytes::from(encoder.finish().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::tree;

    #[test]
    fn a_schema_comes_back_as_it_was_and_compiles() {
        let source = tree!({ "type": "object", "properties": tree!({ "a": tree!({ "type": "string" }) }) });
        let kind = || GVK::new("example.com", "v1", "X");
        let made = |source| VersionSchema::new(kind(), SchemaText::new(source, [].into_iter(), false));
        let schema = made(Some(&source));
        assert_eq!(schema.source().as_ref(), Some(&source));
        assert!(schema.compiled().unwrap().is_some());
        assert!(made(None).compiled().unwrap().is_none());
    }
}
