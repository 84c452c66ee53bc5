//! The providers of a resource: the first writes, all read.

use super::cipher::{Cipher, Kind};
use super::config::ProviderConfig;
use super::kms::Kms;
use super::wire::{Sealed, KMS};
use super::Why;
use plinth_http::pull::RemoteWaits;

/// The providers of one entry of the configuration, in its order.
pub struct Providers {
    providers: Vec<Provider>,
}

enum Provider {
    Identity,
    /// Keys of the file; the first one writes.
    Local(Kind, Vec<(String, Cipher)>),
    Kms(Kms),
}

impl Providers {
    /// Builds them; plugins are asked for their first key.
    pub async fn new(configs: Vec<ProviderConfig>, remote_waits: &RemoteWaits) -> Providers {
        let mut providers = Vec::new();
        for config in configs {
            providers.push(match config {
                ProviderConfig::Identity => Provider::Identity,
                // The configuration has checked the lengths of the keys.
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

    /// The plugins among them.
    pub fn plugins(&self) -> impl Iterator<Item = &Kms> {
        self.providers.iter().filter_map(|provider| match provider {
            Provider::Kms(kms) => Some(kms),
            Provider::Identity | Provider::Local(..) => None,
        })
    }

    /// Whether new values are encrypted.
    pub fn encrypts(&self) -> bool {
        !matches!(self.providers.first(), None | Some(Provider::Identity))
    }

    /// Whether plain values are read.
    pub fn reads_plain(&self) -> bool {
        self.providers.iter().any(|p| matches!(p, Provider::Identity))
    }

    /// The encrypted form of a body that belongs to `place`.
    ///
    /// # Errors
    /// When no key can be had.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, Why> {
        let mut out = Vec::with_capacity(plain.len() + 128);
        match self.providers.first() {
            Some(Provider::Local(kind, keys)) => {
                let (name, cipher) = keys.first().ok_or_else(|| Why::NoKey(kind.as_str().to_owned()))?;
                Sealed { provider: kind.as_str(), name, envelope: None, bytes: &[] }.write_head(&mut out);
                cipher.seal(place, plain, &mut out)?;
            }
            Some(Provider::Kms(kms)) => kms.seal(place, plain, &mut out)?,
            None | Some(Provider::Identity) => return Err(Why::NoProvider),
        }
        Ok(out)
    }

    /// The plain form of an encrypted body. Several providers and keys may have the same name while one is being
    /// replaced: all of them are tried.
    ///
    /// # Errors
    /// When none opens it.
    pub fn open(&self, place: &[u8], body: &[u8]) -> Result<Vec<u8>, Why> {
        let sealed = Sealed::read(body)?;
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
                            Err(error) => last = Some(Why::Cipher(error)),
                        }
                    }
                    if !found {
                        last = last.or_else(|| Some(Why::NoKey(kind.as_str().to_owned())));
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
        Err(last.unwrap_or(Why::NoProvider))
    }

    /// Whether an encrypted body is under the key that writes now.
    pub fn is_current(&self, body: &[u8]) -> bool {
        let Ok(sealed) = Sealed::read(body) else { return false };
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
