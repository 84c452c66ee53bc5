//! Why a value cannot be encrypted or decrypted.

use crate::damaged_value::DamagedValue;
use plinth_api::ApiError;

/// A stored value that cannot be decrypted, or a new one that cannot be encrypted.
#[derive(Debug, thiserror::Error)]
#[error("unable to transform key {key:?}: {cause}")]
pub struct EncryptionError {
    pub(super) key: String,
    pub(super) cause: TransformError,
}

/// The cause of an [`EncryptionError`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum TransformError {
    /// No configured provider of the resource can decrypt it.
    #[error("no matching prefix found")]
    NoProvider,
    /// It is encrypted with a key that is not configured.
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(String),
    /// It is not a valid stored value.
    #[error(transparent)]
    Damaged(#[from] DamagedValue),
    /// The cipher failed.
    #[error(transparent)]
    Cipher(#[from] super::cipher::CipherError),
    /// The KMS plugin is unavailable or returned an error.
    #[error("kms provider {name:?}: {error}")]
    Kms {
        /// Name of the plugin.
        name: String,
        /// The plugin's error.
        error: String,
    },
}

impl EncryptionError {
    /// Whether the error concerns this value alone; errors of a plugin are transient and concern all values.
    pub fn affects_only_this_value(&self) -> bool {
        !matches!(self.cause, TransformError::Kms { .. })
    }
}

impl From<EncryptionError> for ApiError {
    fn from(error: EncryptionError) -> ApiError {
        ApiError::internal(error)
    }
}
