//! Values that kube-apiserver encrypts in etcd, with the providers of the same configuration: to move objects
//! from there and back.
//!
//! ```text
//! k8s:enc:PROVIDER:v1:KEY NAME:    aescbc, aesgcm, secretbox; then the cipher's bytes
//! k8s:enc:kms:v2:PLUGIN NAME:      then an EncryptedObject
//! ```
//!
//! AES-GCM, also that of KMS, authenticates the key in etcd, the other ciphers do not. Sources:
//! k8s.io/apiserver `pkg/server/options/encryptionconfig/config.go` and `pkg/storage/value/encrypt`.

use std::borrow::Cow;

use prost::Message as _;

use super::cipher::{CipherError, Kind};
use super::provider::{Provider, Providers};
use super::wire::EncryptedObject;
use super::{error, Encryption, EncryptionError, TransformError};

/// Begins each encrypted value.
const PREFIX: &[u8] = b"k8s:enc:";

impl Encryption {
    /// The plain form of a value of etcd. `key` is that of the object here, whose rule applies; `path` the
    /// key in etcd.
    ///
    /// # Errors
    /// When it is encrypted and no provider of the rule can decrypt it, or it is not encrypted and the rule
    /// has no `identity`.
    pub fn open_upstream<'v>(
        &self,
        key: &[u8],
        path: &[u8],
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, EncryptionError> {
        let providers = self.providers(key);
        match (value.strip_prefix(PREFIX), providers) {
            (None, None) => Ok(Cow::Borrowed(value)),
            (None, Some(providers)) if providers.reads_plain() => Ok(Cow::Borrowed(value)),
            (Some(sealed), Some(providers)) => open(&providers, path, sealed).map(Cow::Owned),
            _ => Err(TransformError::NoProvider),
        }
        .map_err(|cause| error(key, cause))
    }

    /// A value as kube-apiserver would write it to etcd with this configuration.
    ///
    /// # Errors
    /// When no key is available.
    pub fn seal_upstream(&self, key: &[u8], path: &[u8], value: Vec<u8>) -> Result<Vec<u8>, EncryptionError> {
        let Some(providers) = self.providers(key).filter(|providers| providers.encrypts()) else {
            return Ok(value);
        };
        seal(&providers, path, &value).map_err(|cause| error(key, cause))
    }
}

fn start(kind: &str, version: &str, name: &str) -> Vec<u8> {
    [PREFIX, format!("{kind}:{version}:{name}:").as_bytes()].concat()
}

fn open(providers: &Providers, path: &[u8], sealed: &[u8]) -> Result<Vec<u8>, TransformError> {
    let mut last = None;
    for provider in providers.all() {
        let tried: Vec<Result<Vec<u8>, TransformError>> = match provider {
            Provider::Identity => Vec::new(),
            Provider::Local(kind, keys) => keys
                .iter()
                .filter_map(|(name, cipher)| {
                    let bytes = sealed.strip_prefix(&start(kind.as_str(), "v1", name)[PREFIX.len()..])?;
                    Some(cipher.open_as_upstream(path, bytes).map_err(TransformError::Cipher))
                })
                .collect(),
            Provider::Kms(kms) => {
                let object = sealed.strip_prefix(&start("kms", "v2", kms.name())[PREFIX.len()..]);
                let opened = object.map(|object| match EncryptedObject::decode(object) {
                    Ok(object) => kms.open_as_upstream(path, &object),
                    Err(_) => Err(CipherError("the value cannot be decoded").into()),
                });
                opened.into_iter().collect()
            }
        };
        for opened in tried {
            match opened {
                Ok(plain) => return Ok(plain),
                Err(error) => last = Some(error),
            }
        }
    }
    Err(last.unwrap_or(TransformError::NoProvider))
}

fn seal(providers: &Providers, path: &[u8], plain: &[u8]) -> Result<Vec<u8>, TransformError> {
    let no_key = |kind: &Kind| TransformError::NoKey(kind.as_str().to_owned());
    match providers.all().first() {
        Some(Provider::Local(kind, keys)) => {
            let (name, cipher) = keys.first().ok_or_else(|| no_key(kind))?;
            let mut out = start(kind.as_str(), "v1", name);
            cipher.seal_as_upstream(path, plain, &mut out)?;
            Ok(out)
        }
        Some(Provider::Kms(kms)) => {
            let mut out = start("kms", "v2", kms.name());
            let object = kms.seal_as_upstream(path, plain)?;
            out.extend_from_slice(&object.encode_to_vec());
            Ok(out)
        }
        None | Some(Provider::Identity) => Err(TransformError::NoProvider),
    }
}
