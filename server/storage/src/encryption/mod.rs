//! Encryption at rest: which resources' bodies are encrypted, with what, and back.
//!
//! Only the body of a stored value is encrypted; its header (version, UID, labels, owners, selectable fields) stays
//! readable, so that selectors, owners and watches work without a key. A value is bound to its place: the engine's key
//! and the header are authenticated with the body, so that nobody who writes to the disk can give an object
//! another name, labels or owners unseen. `docs/storage-format.md` has the bytes.
//!
//! What has gone through here is encrypted everywhere behind: in the log, in history, in backups.

mod cipher;
pub mod config;
mod kms;
pub mod options;
mod provider;
pub mod wire;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::RwLock;

pub use config::ConfigError;
pub use options::EncryptionOptions;

use crate::stored::{self, Damaged, Head};
use config::{ResourceRule, Selector};
use kms::Kms;
use plinth_api::api_error::ApiError;
use plinth_http::pull::RemoteWaits;
use plinth_registry::key;
use provider::Providers;

/// How often a configuration that is reloaded is looked at.
const RELOAD_PERIOD: Duration = Duration::from_secs(2);

/// Why a stored value cannot be opened, or a new one not be sealed.
#[derive(Debug, thiserror::Error)]
#[error("unable to transform key {key:?}: {why}")]
pub struct EncryptionError {
    key: String,
    why: Why,
}

/// What is wrong with a value.
#[derive(Debug, thiserror::Error)]
pub enum Why {
    /// Nothing that is configured for the resource opens it.
    #[error("no matching prefix found")]
    NoProvider,
    /// It is encrypted with a key that is not configured.
    #[error("no matching key was found for the provided {0} transformer")]
    NoKey(String),
    /// It is not what was stored.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// The cipher does not take it.
    #[error(transparent)]
    Cipher(#[from] cipher::CipherError),
    /// The plugin that keeps the key does not answer, or says no.
    #[error("kms provider {name:?}: {error}")]
    Kms {
        /// Its name.
        name: String,
        /// What it says.
        error: String,
    },
}

impl EncryptionError {
    /// Whether it concerns that value alone: what a plugin does not open now it may open in a moment, with all others.
    pub fn is_of_the_value(&self) -> bool {
        !matches!(self.why, Why::Kms { .. })
    }
}

impl From<EncryptionError> for ApiError {
    fn from(error: EncryptionError) -> ApiError {
        ApiError::internal(error)
    }
}

/// What is encrypted and how. The lock is held to copy an `Arc`, or to put another one there.
#[derive(Default)]
pub struct Encryption {
    rules: Option<RwLock<Arc<Rules>>>,
    /// Whether the configuration is read again.
    reloads: bool,
    /// Bounds the threads that wait for KMS plugins.
    remote_waits: RemoteWaits,
}

/// A configuration in use.
#[derive(Default)]
struct Rules {
    rules: Vec<(Vec<Selector>, Arc<Providers>)>,
    /// What was looked up, by `GROUP/RESOURCE` of a key.
    found: RwLock<HashMap<Vec<u8>, Option<Arc<Providers>>>>,
}

impl Encryption {
    /// Encryption by these options; none without a configuration. Plugins are asked for their keys in the background,
    /// and a changed configuration is taken over where that is wanted.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub async fn start(
        options: &EncryptionOptions,
        remote_waits: &RemoteWaits,
    ) -> Result<Arc<Encryption>, ConfigError> {
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

    /// Puts another configuration in place.
    async fn take_over(&self, text: &[u8]) -> Result<(), ConfigError> {
        let rules = Arc::new(Rules::new(config::parse(text)?, &self.remote_waits).await);
        if let Some(current) = &self.rules {
            *current.write() = rules;
        }
        Ok(())
    }

    /// The health checks of plugins: upstream's names, and whether what they name is well. One for each plugin in the order of
    /// the configuration, or one for all where it is read again.
    pub fn health(&self) -> Vec<(String, bool)> {
        let Some(rules) = &self.rules else { return Vec::new() };
        let rules = rules.read().clone();
        let well: Vec<bool> =
            rules.rules.iter().flat_map(|(_, providers)| providers.plugins().map(Kms::is_well)).collect();
        match self.reloads {
            true => vec![("kms-providers".to_owned(), well.into_iter().all(|well| well))],
            false => {
                well.into_iter().enumerate().map(|(n, well)| (format!("kms-provider-{n}"), well)).collect()
            }
        }
    }

    /// The providers of a key's resource; `None` where nothing is configured for it.
    fn providers(&self, key: &[u8]) -> Option<Arc<Providers>> {
        let rules = self.rules.as_ref()?.read().clone();
        rules.of_key(key)
    }

    /// The plain form of a stored value; borrowed when it is not encrypted. May wait for a plugin when the value is
    /// under a key that has not been seen since the start: once per key.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn open<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, EncryptionError> {
        if self.rules.is_none() && !stored::is_sealed(value) {
            return Ok(Cow::Borrowed(value));
        }
        self.open_by_rules(key, value).map_err(|why| error(key, why))
    }

    fn open_by_rules<'v>(&self, key: &[u8], value: &'v [u8]) -> Result<Cow<'v, [u8]>, Why> {
        let providers = self.providers(key);
        let divided = stored::divide(value)?;
        match (&providers, divided.sealed) {
            (None, false) => Ok(Cow::Borrowed(value)),
            // Plain text is read only where the configuration allows it: else who can write to the disk could slip
            // objects in that nobody encrypted.
            (Some(providers), false) if providers.reads_plain() => Ok(Cow::Borrowed(value)),
            (Some(providers), true) => {
                let body = providers.open(&place(key, divided.head), divided.body)?;
                // Custom and built-in resources of one name have one place; the header, which is authenticated with
                // the body, tells them apart.
                let is_custom = !Head::find(&divided)?.schema().is_empty();
                if is_custom != key::is_custom(key) {
                    return Err(Why::Damaged(Damaged::new("a value of another resource")));
                }
                Ok(Cow::Owned(stored::join(false, divided.head, &body)))
            }
            _ => Err(Why::NoProvider),
        }
    }

    /// The form of a value that is stored under a key.
    ///
    /// # Errors
    /// [`EncryptionError`] naming the key.
    pub fn seal(&self, key: &[u8], value: Bytes) -> Result<Bytes, EncryptionError> {
        let Some(providers) = self.providers(key).filter(|p| p.encrypts()) else { return Ok(value) };
        let sealed = || {
            let divided = stored::divide(&value)?;
            let body = providers.seal(&place(key, divided.head), divided.body)?;
            Ok(stored::join(true, divided.head, &body))
        };
        sealed().map(Bytes::from).map_err(|why| error(key, why))
    }

    /// Whether a stored value is in another form than [`Encryption::seal`] would give it today.
    pub fn is_stale(&self, key: &[u8], value: &[u8]) -> bool {
        let Some(providers) = self.providers(key) else { return false };
        match stored::divide(value) {
            Ok(divided) if divided.sealed => !providers.is_current(divided.body),
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
        let key = key::without_start(key);
        let slashes = key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        let end = slashes.map(|(at, _)| at).nth(1)?;
        let start = &key[..end];
        if let Some(found) = self.found.read().get(start) {
            return found.clone();
        }
        let (group, resource) = std::str::from_utf8(start).ok()?.split_once('/')?;
        let group = if group == "core" { "" } else { group };
        // A rule for the resource itself comes before one for its group, and that before one for all; validation has
        // seen to it that they stand in this order.
        let rule =
            self.rules.iter().find(|(selectors, _)| selectors.iter().any(|s| s.matches(group, resource)));
        let found = rule.map(|(_, providers)| providers.clone());
        self.found.write().insert(start.to_vec(), found.clone());
        found
    }
}

/// What a body is bound to: where the value lies, and its header. What keys of custom resources start with is left out, so
/// that values which were sealed before they had it can be opened without being sealed again.
fn place(key: &[u8], head: &[u8]) -> Vec<u8> {
    let key = key::without_start(key);
    let mut place = Vec::with_capacity(8 + key.len() + head.len());
    place.extend_from_slice(&(key.len() as u64).to_be_bytes());
    place.extend_from_slice(key);
    place.extend_from_slice(head);
    place
}

/// Keys are named as upstream's are, which people look for: `/registry/secrets/default/web`,
/// `/registry/example.com/crontabs/default/nightly`.
fn error(key: &[u8], why: Why) -> EncryptionError {
    let text = String::from_utf8_lossy(key::without_start(key));
    let rest = match key::is_custom(key) {
        true => &*text,
        false => text.split_once('/').map_or(&*text, |(_, rest)| rest),
    };
    EncryptionError { key: format!("/registry/{rest}"), why }
}

/// Takes a changed configuration over; one that is wrong leaves the one before in place.
async fn reload(encryption: std::sync::Weak<Encryption>, path: PathBuf, mut last: Vec<u8>, period: Duration) {
    let mut tick = tokio::time::interval(period);
    loop {
        tick.tick().await;
        let Some(encryption) = encryption.upgrade() else { return };
        // A short file, read every other second by a task that nobody waits for.
        let read = path.clone();
        let Ok(Ok(text)) = tokio::task::spawn_blocking(move || std::fs::read(read)).await else { continue };
        if text == last {
            continue;
        }
        match encryption.take_over(&text).await {
            Ok(()) => tracing::info!("the encryption configuration was taken over"),
            Err(error) => tracing::error!(%error, "the changed encryption configuration is not used"),
        }
        last = text;
    }
}

#[cfg(test)]
mod tests;
