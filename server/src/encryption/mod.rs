//! Encryption at rest: which resources' bodies are encrypted, with what, and back.
//!
//! Only the body of a stored value is encrypted; its header stays readable, so that selectors, owners and watches
//! work without a key (see `docs/storage-format.md` for the format and for what the header tells). Key and header
//! are bound to the body: moved to another key or changed, a value no longer opens.

use std::borrow::Cow;

use bytes::Bytes;

use crate::status::ApiError;
use crate::storage::stored::{self, Damaged};

/// Why a stored value cannot be opened, or a new one not be sealed.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The value is encrypted and nothing that is configured opens it.
    #[error("unable to transform key {key:?}: no matching key was found for the provided encryption prefix")]
    NoProvider {
        /// The key of the value.
        key: String,
    },
    /// The value is not what was once stored.
    #[error("unable to transform key {key:?}: {source}")]
    Damaged {
        /// The key of the value.
        key: String,
        /// What is wrong.
        source: Damaged,
    },
}

impl From<EncryptionError> for ApiError {
    fn from(error: EncryptionError) -> ApiError {
        ApiError::internal(error)
    }
}

/// What is encrypted and how.
#[derive(Debug, Default)]
pub struct Encryption {}

impl Encryption {
    /// The plain form of a stored value; borrowed when it is not encrypted.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn open<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, EncryptionError> {
        let name = || String::from_utf8_lossy(key).into_owned();
        let divided =
            stored::divide(value).map_err(|source| EncryptionError::Damaged { key: name(), source })?;
        match divided.sealed {
            false => Ok(Cow::Borrowed(value)),
            true => Err(EncryptionError::NoProvider { key: name() }),
        }
    }

    /// The form of a value that is stored under a key.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn seal(&self, _key: &[u8], value: Bytes) -> Result<Bytes, EncryptionError> {
        Ok(value)
    }

    /// Whether a stored value is in another form than [`Encryption::seal`] would give it today.
    pub fn is_stale(&self, _key: &[u8], _value: &[u8]) -> bool {
        false
    }
}
