//! The form of an encrypted body on disk.
//!
//! ```text
//! text   provider: "aesgcm", "aescbc", "secretbox" or "kms"
//! text   name of the key, or of the KMS plugin
//! for kms only:
//!   text   key ID of the plugin
//!   bytes  the seed, encrypted by the plugin
//!   varint number of annotations, then per annotation: text name, bytes value
//! the cipher's bytes
//! ```
//!
//! `varint` is unsigned LEB128, `text` and `bytes` are a varint length and what follows.

use std::collections::BTreeMap;

use crate::damaged_value::DamagedValue;
use crate::varint::{put_varint, read_varint};

/// The parts of an encrypted body; borrows the stored bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SealedValue<'a> {
    /// Name of the provider's kind.
    pub provider: &'a str,
    /// Name of the key or plugin.
    pub name: &'a str,
    /// Envelope of a KMS plugin.
    pub envelope: Option<Envelope<'a>>,
    /// Output of the cipher.
    pub bytes: &'a [u8],
}

/// A seed that is encrypted by a KMS plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// ID of the plugin's key.
    pub key_id: &'a str,
    /// The encrypted seed.
    pub seed: &'a [u8],
    /// Annotations of the plugin.
    pub annotations: Vec<(&'a str, &'a [u8])>,
}

/// Provider name of KMS plugins.
pub(super) const KMS: &str = "kms";
/// Maximum number of annotations per value.
const MOST_ANNOTATIONS: usize = 1024;

/// What kube-apiserver has in etcd in the place of a body that a KMS plugin's key encrypts: `EncryptedObject`
/// of its `kmsv2/v2/api.proto`.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct EncryptedObject {
    /// What the cipher returned; with a seed, behind 32 bytes of info.
    #[prost(bytes = "vec", tag = "1")]
    pub encrypted_data: Vec<u8>,
    /// The plugin's key.
    #[prost(string, tag = "2")]
    pub key_id: String,
    /// Key or seed, encrypted by the plugin.
    #[prost(bytes = "vec", tag = "3")]
    pub encrypted_dek_source: Vec<u8>,
    /// Annotations that decryption needs.
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// [`EncryptedObject::KEY`] or [`EncryptedObject::SEED`].
    #[prost(int32, tag = "5")]
    pub encrypted_dek_source_type: i32,
}

impl EncryptedObject {
    /// The plugin encrypted a key for AES-GCM.
    pub(crate) const KEY: i32 = 0;
    /// The plugin encrypted a seed; the key is derived from it and the info by the second step of HKDF.
    pub(crate) const SEED: i32 = 1;
}

impl<'a> SealedValue<'a> {
    /// Appends everything before the cipher's bytes.
    pub fn write_header(&self, out: &mut Vec<u8>) {
        put(out, self.provider.as_bytes());
        put(out, self.name.as_bytes());
        if let Some(envelope) = &self.envelope {
            put(out, envelope.key_id.as_bytes());
            put(out, envelope.seed);
            put_varint(out, envelope.annotations.len());
            for (name, value) in &envelope.annotations {
                put(out, name.as_bytes());
                put(out, value);
            }
        }
    }

    /// Parses an encrypted body.
    ///
    /// # Errors
    /// [`DamagedValue`] when the bytes do not start as [`SealedValue::write_header`] writes them.
    pub fn read(body: &'a [u8]) -> Result<SealedValue<'a>, DamagedValue> {
        let mut at = body;
        let (provider, name) = (text(&mut at)?, text(&mut at)?);
        let envelope = match provider == KMS {
            false => None,
            true => {
                let (key_id, seed) = (text(&mut at)?, bytes(&mut at)?);
                let count = read_varint(&mut at)?;
                if count > MOST_ANNOTATIONS {
                    return Err(DamagedValue::new("too many annotations"));
                }
                let annotations = (0..count).map(|_| Ok((text(&mut at)?, bytes(&mut at)?)));
                Some(Envelope { key_id, seed, annotations: annotations.collect::<Result<_, _>>()? })
            }
        };
        Ok(SealedValue { provider, name, envelope, bytes: at })
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn bytes<'a>(at: &mut &'a [u8]) -> Result<&'a [u8], DamagedValue> {
    let len = read_varint(at)?;
    let (bytes, rest) = at.split_at_checked(len).ok_or(DamagedValue::new("encrypted body ends early"))?;
    *at = rest;
    Ok(bytes)
}

fn text<'a>(at: &mut &'a [u8]) -> Result<&'a str, DamagedValue> {
    std::str::from_utf8(bytes(at)?).map_err(|_| DamagedValue::new("text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_back_and_truncation_is_an_error() {
        let local = SealedValue { provider: "aesgcm", name: "key1", envelope: None, bytes: b"sealed" };
        let annotations = vec![("a.example.com", &b"\0\x01"[..]), ("b.example.com", b"")];
        let envelope = Some(Envelope { key_id: "id", seed: &[7; 300], annotations });
        let kms = SealedValue { provider: "kms", name: "plugin", envelope, bytes: b"sealed" };
        for sealed in [local, kms] {
            let mut out = Vec::new();
            sealed.write_header(&mut out);
            let header = out.len();
            out.extend_from_slice(sealed.bytes);
            assert_eq!(SealedValue::read(&out).unwrap(), sealed);
            for end in 0..header {
                assert!(SealedValue::read(&out[..end]).is_err(), "cut at {end}");
            }
        }
    }
}
