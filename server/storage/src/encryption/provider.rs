//! The providers of a resource: the first one encrypts, all decrypt.

use super::cipher::{Cipher, Kind};
use super::config::ProviderConfig;
use super::error::TransformError;
use super::kms::Kms;
use super::wire::{SealedValue, KMS};
use plinth_http::RemoteWaits;

/// The providers of one entry of the configuration, in order.
pub(crate) struct Providers {
    providers: Vec<Provider>,
}

pub(super) enum Provider {
    Identity,
    /// Keys in the configuration file; the first one encrypts.
    Local(Kind, Vec<(String, Cipher)>),
    Kms(Kms),
}

impl Providers {
    /// All of them, in the order of the configuration.
    pub(super) fn all(&self) -> &[Provider] {
        &self.providers
    }

    /// Creates the providers and connects to plugins.
    pub(super) async fn new(configs: Vec<ProviderConfig>, remote_waits: &RemoteWaits) -> Providers {
        let mut providers = Vec::new();
        for config in configs {
            providers.push(match config {
                ProviderConfig::Identity => Provider::Identity,
                // The configuration's validation has checked the key lengths.
                ProviderConfig::Local(kind, keys) => {
                    let ciphers =
                        keys.into_iter().filter_map(|(name, key)| Some((name, Cipher::new(kind, &key)?)));
                    Provider::Local(kind, ciphers.collect())
                }
                ProviderConfig::Kms { name, socket, timeout } => {
                    Provider::Kms(Kms::start(name, &socket, timeout, remote_waits.clone()).await)
                }
            });
        }
        Providers { providers }
    }

    /// The KMS plugins.
    pub(super) fn plugins(&self) -> impl Iterator<Item = &Kms> {
        self.providers.iter().filter_map(|provider| match provider {
            Provider::Kms(kms) => Some(kms),
            Provider::Identity | Provider::Local(..) => None,
        })
    }

    /// Whether new values are encrypted.
    pub(super) fn encrypts(&self) -> bool {
        !matches!(self.providers.first(), None | Some(Provider::Identity))
    }

    /// Whether unencrypted values are accepted.
    pub(super) fn reads_plain(&self) -> bool {
        self.providers.iter().any(|p| matches!(p, Provider::Identity))
    }

    /// Encrypts a body that is bound to `place`.
    ///
    /// # Errors
    /// When no key is available.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, TransformError> {
        let mut out = Vec::with_capacity(plain.len() + 128);
        match self.providers.first() {
            Some(Provider::Local(kind, keys)) => {
                let (name, cipher) =
                    keys.first().ok_or_else(|| TransformError::NoKey(kind.as_str().to_owned()))?;
                SealedValue { provider: kind.as_str(), name, envelope: None, bytes: &[] }
                    .write_header(&mut out);
                cipher.seal(place, plain, &mut out)?;
            }
            Some(Provider::Kms(kms)) => kms.seal(place, plain, &mut out)?,
            None | Some(Provider::Identity) => return Err(TransformError::NoProvider),
        }
        Ok(out)
    }

    /// Decrypts a body. Several providers and keys may have the same name while one is being replaced: all of
    /// them are tried.
    ///
    /// # Errors
    /// When none can decrypt it.
    pub(super) fn open(&self, place: &[u8], body: &[u8]) -> Result<Vec<u8>, TransformError> {
        let sealed = SealedValue::read(body)?;
        let mut last = None;
        for provider in &self.providers {
            match provider {
                Provider::Local(kind, keys) if kind.as_str() == sealed.provider => {
                    let named = keys.iter().filter(|(name, _)| name == sealed.name);
                    let mut found = false;
                    for (_, cipher) in named {
                        found = true;
                        match cipher.open(place, sealed.bytes) {
                            Ok(plain) => return Ok(plain),
                            Err(error) => last = Some(TransformError::Cipher(error)),
                        }
                    }
                    if !found {
                        last = last.or_else(|| Some(TransformError::NoKey(kind.as_str().to_owned())));
                    }
                }
                Provider::Kms(kms) if sealed.provider == KMS && kms.name() == sealed.name => {
                    match kms.open(place, &sealed) {
                        Ok(plain) => return Ok(plain),
                        Err(error) => last = Some(error),
                    }
                }
                _ => {}
            }
        }
        Err(last.unwrap_or(TransformError::NoProvider))
    }

    /// Whether a body is encrypted with the key that new values get.
    pub(super) fn is_current(&self, body: &[u8]) -> bool {
        let Ok(sealed) = SealedValue::read(body) else { return false };
        match self.providers.first() {
            Some(Provider::Local(kind, keys)) => {
                kind.as_str() == sealed.provider && keys.first().is_some_and(|(name, _)| name == sealed.name)
            }
            Some(Provider::Kms(kms)) => {
                sealed.provider == KMS && kms.name() == sealed.name && kms.is_current(&sealed)
            }
            None | Some(Provider::Identity) => false,
        }
    }
}
