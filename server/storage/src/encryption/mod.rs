//! Encryption at rest of stored bodies.
//!
//! Only the body of a stored value is encrypted; its header (version, UID, labels, owners, selectable fields)
//! stays readable, so that selectors, owners and watches work without a key. A value is bound to its place:
//! the engine's key and the header are authenticated with the body, so that someone who writes to the disk
//! cannot change an object's name, labels or owners undetected. `docs/storage-format.md` has the format.
//!
//! Bodies are encrypted before they reach the engine, and so in its log, its history and its backups.

mod cipher;
mod config;
mod error;
mod kms;
mod options;
mod provider;
mod upstream;
mod wire;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;

pub use config::{parse_encryption_config, EncryptionConfigError};
pub use error::EncryptionError;
pub use options::EncryptionOptions;
pub use wire::SealedValue;

use crate::damaged_value::DamagedValue;
use crate::stored::{self, Header};
use config::{ResourceRule, Selector};
use error::TransformError;
use kms::Kms;
use plinth_http::RemoteWaits;
use plinth_registry::{is_custom_key, key_without_start};
use provider::Providers;

/// How often the configuration file is checked for changes if automatic reload is on.
const RELOAD_PERIOD: Duration = Duration::from_secs(2);

/// The active configuration. The lock is held to clone or to replace an `Arc`.
#[derive(Default)]
pub struct Encryption {
    rules: Option<RwLock<Arc<Rules>>>,
    /// Whether the configuration file is watched.
    reloads: bool,
    /// Bounds the threads that wait for KMS plugins.
    remote_waits: RemoteWaits,
}

/// A loaded configuration.
#[derive(Default)]
struct Rules {
    rules: Vec<(Vec<Selector>, Arc<Providers>)>,
    /// Cached lookups, by `GROUP/RESOURCE` of a key.
    found: RwLock<HashMap<Vec<u8>, Option<Arc<Providers>>>>,
}

impl Encryption {
    /// Loads the configuration of the options; without one nothing is encrypted. Starts the health checks of
    /// plugins and, if enabled, the automatic reload.
    ///
    /// # Errors
    /// [`EncryptionConfigError`].
    pub async fn start(
        options: &EncryptionOptions,
        remote_waits: &RemoteWaits,
    ) -> Result<Arc<Encryption>, EncryptionConfigError> {
        let Some(path) = &options.encryption_provider_config else { return Ok(Arc::default()) };
        let (rules, text) = config::read(path)?;
        let rules = RwLock::new(Arc::new(Rules::new(rules, remote_waits).await));
        let reloads = options.encryption_provider_config_automatic_reload;
        let encryption =
            Arc::new(Encryption { rules: Some(rules), reloads, remote_waits: remote_waits.clone() });
        if reloads {
            tokio::spawn(reload(Arc::downgrade(&encryption), path.clone(), text, RELOAD_PERIOD));
        }
        Ok(encryption)
    }

    /// Replaces the configuration.
    async fn apply(&self, text: &[u8]) -> Result<(), EncryptionConfigError> {
        let rules = Arc::new(Rules::new(config::parse_encryption_config(text)?, &self.remote_waits).await);
        if let Some(current) = &self.rules {
            *current.write() = rules;
        }
        Ok(())
    }

    /// Health checks of plugins under upstream's names: one for each plugin in the order of the
    /// configuration, or one for all if automatic reload is on.
    pub fn health(&self) -> Vec<(String, bool)> {
        let Some(rules) = &self.rules else { return Vec::new() };
        let rules = rules.read().clone();
        let healthy: Vec<bool> =
            rules.rules.iter().flat_map(|(_, providers)| providers.plugins().map(Kms::is_healthy)).collect();
        match self.reloads {
            true => vec![("kms-providers".to_owned(), healthy.into_iter().all(|healthy| healthy))],
            false => healthy
                .into_iter()
                .enumerate()
                .map(|(n, healthy)| (format!("kms-provider-{n}"), healthy))
                .collect(),
        }
    }

    /// Whether there is a configuration.
    pub fn is_configured(&self) -> bool {
        self.rules.is_some()
    }

    /// The providers of a key's resource; `None` if none is configured.
    fn providers(&self, key: &[u8]) -> Option<Arc<Providers>> {
        let rules = self.rules.as_ref()?.read().clone();
        rules.of_key(key)
    }

    /// Decrypts a stored value; borrowed when it is not encrypted. May call a plugin when the value's key was
    /// not used since the start: once per key.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn open<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, EncryptionError> {
        if self.rules.is_none() && !stored::is_sealed(value) {
            return Ok(Cow::Borrowed(value));
        }
        self.open_by_rules(key, value).map_err(|cause| error(key, cause))
    }

    fn open_by_rules<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, TransformError> {
        let providers = self.providers(key);
        let split = stored::split_stored(value)?;
        match (&providers, split.sealed) {
            (None, false) => Ok(Cow::Borrowed(value)),
            // Plain text is accepted only where the configuration has `identity`: otherwise someone who can
            // write to the disk could inject unencrypted objects.
            (Some(providers), false) if providers.reads_plain() => Ok(Cow::Borrowed(value)),
            (Some(providers), true) => {
                let body = providers.open(&place(key, split.header), split.body)?;
                // Custom and built-in resources of one name have the same place; the header, which is
                // authenticated with the body, distinguishes them.
                let is_custom = !Header::find(&split)?.schema().is_empty();
                if is_custom != is_custom_key(key) {
                    return Err(TransformError::Damaged(DamagedValue::new("a value of another resource")));
                }
                Ok(Cow::Owned(stored::join_stored(false, split.header, &body)))
            }
            _ => Err(TransformError::NoProvider),
        }
    }

    /// Encrypts a value that is stored under a key.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn seal(&self, key: &[u8], value: Bytes) -> Result<Bytes, EncryptionError> {
        let Some(providers) = self.providers(key).filter(|p| p.encrypts()) else { return Ok(value) };
        let sealed = || {
            let split = stored::split_stored(&value)?;
            let body = providers.seal(&place(key, split.header), split.body)?;
            Ok(stored::join_stored(true, split.header, &body))
        };
        sealed().map(Bytes::from).map_err(|cause| error(key, cause))
    }

    /// Whether a stored value is encrypted in another way than [`Encryption::seal`] would encrypt it now.
    pub fn is_stale(&self, key: &[u8], value: &[u8]) -> bool {
        let Some(providers) = self.providers(key) else { return false };
        match stored::split_stored(value) {
            Ok(split) if split.sealed => !providers.is_current(split.body),
            Ok(_) => providers.encrypts(),
            Err(_) => false,
        }
    }
}

impl Rules {
    async fn new(rules: Vec<ResourceRule>, remote_waits: &RemoteWaits) -> Rules {
        let mut built = Vec::new();
        for rule in rules {
            built.push((rule.resources, Arc::new(Providers::new(rule.providers, remote_waits).await)));
        }
        Rules { rules: built, found: RwLock::default() }
    }

    fn of_key(&self, key: &[u8]) -> Option<Arc<Providers>> {
        let key = key_without_start(key);
        let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let end = slashes.map(|(at, _)| at).nth(1)?;
        let start = &key[..end];
        if let Some(found) = self.found.read().get(start) {
            return found.clone();
        }
        let (group, resource) = std::str::from_utf8(start).ok()?.split_once('/')?;
        let group = if group == "core" { "" } else { group };
        // A rule for a resource takes precedence over one for its group, and that over one for all;
        // validation guarantees this order.
        let rule =
            self.rules.iter().find(|(selectors, _)| selectors.iter().any(|s| s.matches(group, resource)));
        let found = rule.map(|(_, providers)| providers.clone());
        self.found.write().insert(start.to_vec(), found.clone());
        found
    }
}

/// What a body is bound to: its key and its header. The prefix of custom resources' keys is excluded, so that
/// values of the previous layout need not be re-encrypted.
fn place(key: &[u8], header: &[u8]) -> Vec<u8> {
    let key = key_without_start(key);
    let mut place = Vec::with_capacity(8 + key.len() + header.len());
    place.extend_from_slice(&(key.len() as u64).to_be_bytes());
    place.extend_from_slice(key);
    place.extend_from_slice(header);
    place
}

/// Keys are shown as upstream's, which users search for: `/registry/secrets/default/web`,
/// `/registry/example.com/crontabs/default/nightly`.
fn error(key: &[u8], cause: TransformError) -> EncryptionError {
    let text = String::from_utf8_lossy(key_without_start(key));
    let rest = match is_custom_key(key) {
        true => &*text,
        false => text.split_once('/').map_or(&*text, |(_, rest)| rest),
    };
    EncryptionError { key: format!("/registry/{rest}"), cause }
}

/// Reloads the configuration when the file changes; an invalid one is ignored.
async fn reload(encryption: std::sync::Weak<Encryption>, path: PathBuf, mut last: Vec<u8>, period: Duration) {
    let mut tick = tokio::time::interval(period);
    loop {
        tick.tick().await;
        let Some(encryption) = encryption.upgrade() else { return };
        // A short file, read every other second by a task that nothing waits for.
        let read = path.clone();
        let Ok(Ok(text)) = tokio::task::spawn_blocking(move || std::fs::read(read)).await else { continue };
        if text == last {
            continue;
        }
        match encryption.apply(&text).await {
            Ok(()) => tracing::info!("encryption configuration reloaded"),
            Err(error) => tracing::error!(
                %error,
                path = %path.display(),
                "changed encryption configuration is invalid and ignored"
            ),
        }
        last = text;
    }
}

#[cfg(test)]
mod tests;
