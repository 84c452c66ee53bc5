//! Descriptions of the built-in types and fields, for `kubectl explain`.
//!
//! The descriptions are not part of the source: the build script takes them from the k8s-openapi crate and
//! compresses them into the program (see `docs/openapi.md`).

use std::borrow::Cow;
use std::io::Read;
use std::sync::{Arc, Weak};

use flate2::read::DeflateDecoder;
use parking_lot::Mutex;

use super::Descriptions;

/// Sorted lines: one for each type, then one for each of its fields: tab, name, tab, text. The type's own
/// text has the empty name; `\u{1}` stands for a line break.
static COMPRESSED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.deflate"));

/// The kind whose descriptions of `kind` and `apiVersion` are used for all, and that of `metadata` for custom
/// resources.
pub(super) const ANY_KIND: &str = "io.k8s.api.core.v1.Pod";

/// The texts, unpacked.
#[derive(Debug)]
pub struct BundledDescriptions {
    texts: String,
    /// The offset of each type's line, in the order of names.
    types: Vec<u32>,
}

/// The texts that the program carries; empty when it was built without. They take two thirds of a megabyte
/// and two milliseconds to unpack, and are dropped with the last `Arc`, so it should be held only while
/// documents are built.
pub fn bundled() -> Arc<BundledDescriptions> {
    static SHARED: Mutex<Weak<BundledDescriptions>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock();
    if let Some(bundled) = shared.upgrade() {
        return bundled;
    }
    let bundled = Arc::new(BundledDescriptions::unpack(COMPRESSED));
    *shared = Arc::downgrade(&bundled);
    bundled
}

impl BundledDescriptions {
    fn unpack(compressed: &[u8]) -> BundledDescriptions {
        let mut texts = String::new();
        // The build script wrote it. If it is damaged, documents merely lack descriptions.
        if DeflateDecoder::new(compressed).read_to_string(&mut texts).is_err() {
            texts.clear();
        }
        let mut types = Vec::new();
        let mut start = 0;
        for line in texts.split_inclusive('\n') {
            if !line.starts_with('\t') {
                types.push(start as u32);
            }
            start += line.len();
        }
        BundledDescriptions { texts, types }
    }

    fn line(&self, start: usize) -> &str {
        self.texts.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default()
    }

    fn find(&self, type_name: &str, field: &str) -> Option<&str> {
        let found = self.types.binary_search_by(|&start| self.line(start as usize).cmp(type_name)).ok()?;
        let start = *self.types.get(found)? as usize;
        let fields = self.texts.get(start..)?.lines().skip(1).map_while(|line| line.strip_prefix('\t'));
        fields.filter_map(|line| line.split_once('\t')).find(|(name, _)| *name == field).map(|(_, text)| text)
    }
}

impl Descriptions for BundledDescriptions {
    fn of(&self, type_name: &str, field: Option<&str>) -> Option<Cow<'_, str>> {
        let found = self.find(type_name, field.unwrap_or_default());
        let text = match field {
            Some("apiVersion" | "kind") => found.or_else(|| self.find(ANY_KIND, field.unwrap_or_default())),
            _ => found,
        }?;
        Some(match text.contains('\u{1}') {
            true => Cow::Owned(text.replace('\u{1}', "\n")),
            false => Cow::Borrowed(text),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn packed(texts: &str) -> BundledDescriptions {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(texts.as_bytes()).unwrap();
        BundledDescriptions::unpack(&encoder.finish().unwrap())
    }

    #[test]
    fn finds_types_and_fields() {
        let texts = packed(
            "a.A\n\t\tType a.\n\tone\tField\u{1}one.\na.B\n\ttwo\tTwo.\nio.k8s.api.core.v1.Pod\n\tkind\tA kind.\n",
        );
        assert_eq!(texts.of("a.A", None).as_deref(), Some("Type a."));
        assert_eq!(texts.of("a.A", Some("one")).as_deref(), Some("Field\none."));
        assert_eq!(texts.of("a.A", Some("two")), None, "that is the next type's");
        assert_eq!(texts.of("a.B", None), None);
        assert_eq!(texts.of("a.B", Some("two")).as_deref(), Some("Two."));
        assert_eq!(texts.of("a.C", Some("kind")).as_deref(), Some("A kind."));
        assert_eq!(texts.of("", None), None);
    }

    #[test]
    fn damaged_or_missing_texts_are_none() {
        assert_eq!(BundledDescriptions::unpack(b"\xff\xff\xff").of("a.A", None), None);
        assert_eq!(packed("").of("a.A", Some("kind")), None);
    }

    #[test]
    fn the_bundled_texts_cover_the_schema() {
        let texts = bundled();
        if texts.types.is_empty() {
            return; // Built where the crate's source was not at hand.
        }
        assert!(Arc::ptr_eq(&texts, &bundled()));
        let schema = crate::schema::builtin();
        let spec = schema.structure(schema.named("io.k8s.api.core.v1.PodSpec").unwrap()).unwrap();
        for field in &spec.fields {
            assert!(texts.of(&spec.name, Some(&field.name)).is_some(), "{}", field.name);
        }
    }
}
