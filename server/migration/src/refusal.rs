//! [`Refusal`]: why an object cannot be imported.

use plinth_storage::EncryptionError;

/// Largest stored value that the engine takes, with room for what encryption adds.
pub(crate) const MAX_VALUE: usize = (8 << 20) - (64 << 10);

/// Why an object cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The key is none of an object that is known here.
    #[error("no API that this version serves keeps objects there")]
    UnknownKey,
    /// The custom resource is not defined.
    #[error("there is no CustomResourceDefinition {0}")]
    Undefined(String),
    /// The value is encrypted.
    #[error("the value is encrypted ({0}); give the EncryptionConfiguration of the kube-apiserver with --encryption-provider-config")]
    Encrypted(String),
    /// The value cannot be decrypted.
    #[error(transparent)]
    Encryption(#[from] EncryptionError),
    /// The value is not an object.
    #[error("the value cannot be decoded: {0}")]
    Decode(String),
    /// The value is an object of another kind.
    #[error("the value is a {0}")]
    Kind(String),
    /// The version is not one that can be converted.
    #[error("version {version} is not served any more, and cannot be converted: {error}; let the kube-apiserver store the object again")]
    Version {
        /// The version of the value.
        version: String,
        /// What the stored version lacks.
        error: String,
    },
    /// The key names another object than the value.
    #[error("the value is the object {0}")]
    Name(String),
    /// The object is larger than what a store takes.
    #[error("the object has {0} bytes, a store takes {MAX_VALUE}")]
    TooLarge(usize),
}
