//! KMS v2: a plugin encrypts a seed, keys derived from the seed encrypt the values.
//!
//! As upstream does since Kubernetes 1.29 (k8s.io/apiserver `pkg/storage/value/encrypt/envelope/kmsv2`): a
//! random seed is generated once and encrypted by the plugin; each value's own AES-256-GCM key is derived
//! from the seed and 32 random bytes by HKDF-SHA256 (RFC 5869), so nonces never repeat under a key. A write
//! does not call the plugin. When the plugin reports another key ID, a new seed is generated; values under
//! the old one are stale and re-encrypted at their next update. Old seeds are decrypted by the plugin once
//! and cached.

mod client;
mod hkdf;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;

use super::cipher::{random, Cipher, Kind};
use super::error::TransformError;
use super::wire::{EncryptedObject, Envelope, SealedValue, KMS};
use client::{Client, EncryptResponse, StatusResponse};
use plinth_http::RemoteWaits;

/// Interval of status calls to a healthy plugin, and to an unhealthy one.
const HEALTHY_PERIOD: Duration = Duration::from_secs(60);
const UNHEALTHY_PERIOD: Duration = Duration::from_secs(10);
/// How long a seed is used for writes after the plugin was last healthy (upstream's
/// `kmsv2PluginWriteDEKSourceMaxTTL`).
const LONGEST_WRITE: Duration = Duration::from_secs(180);
/// Maximum number of cached seeds.
const MOST_SEEDS: usize = 1024;
/// Upstream's limits on key IDs, encrypted seeds and annotations, in bytes.
const LONGEST_KEY_ID: usize = 1024;
const LONGEST_SEED: usize = 1024;
const LONGEST_ANNOTATIONS: usize = 32 << 10;
/// Number of random bytes that a value's key is derived from.
const INFO: usize = 32;
const SEED: usize = 32;

type Seed = [u8; SEED];

/// A plugin and its seeds. A background task checks the plugin's health until this value is dropped.
pub(crate) struct Kms {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    client: Client,
    runtime: Handle,
    remote_waits: RemoteWaits,
    /// Result of the last health check.
    healthy: AtomicBool,
    /// The seed for writes; the lock is held for a clone or a replacement.
    current: RwLock<Option<Arc<Current>>>,
    /// Decrypted seeds by their encrypted form, key ID and annotations; the lock is held for a lookup.
    seeds: Mutex<HashMap<Vec<u8>, Seed>>,
}

/// The seed that new values are encrypted with.
struct Current {
    seed: Seed,
    response: EncryptResponse,
    /// Expiry for writes.
    until: Instant,
}

impl Kms {
    /// Connects to a plugin. A plugin that is not available yet is retried; until then writes fail.
    pub(super) async fn start(
        name: String,
        socket: &str,
        timeout: Duration,
        remote_waits: RemoteWaits,
    ) -> Kms {
        let shared = Arc::new(Shared {
            name,
            client: Client::new(socket, timeout),
            runtime: Handle::current(),
            remote_waits,
            healthy: AtomicBool::new(false),
            current: RwLock::default(),
            seeds: Mutex::default(),
        });
        let mut period = shared.check_health().await;
        let weak: Weak<Shared> = Arc::downgrade(&shared);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(period).await;
                let Some(shared) = weak.upgrade() else { return };
                period = shared.check_health().await;
            }
        });
        Kms { shared }
    }

    /// The plugin's name in the configuration.
    pub(super) fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether the plugin was healthy at the last check, at most a minute ago.
    pub(super) fn is_healthy(&self) -> bool {
        self.shared.healthy.load(Ordering::Relaxed)
    }

    /// Encrypts a body and appends it to `out`.
    ///
    /// # Errors
    /// When the plugin has not provided a key, or has been unhealthy for too long.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError> {
        let error = |error: &str| self.shared.error(error);
        let current = self.shared.current.read().clone();
        let current = current.ok_or_else(|| error("the plugin has given no key yet"))?;
        if current.until < Instant::now() {
            return Err(error("the plugin's key has expired, and it does not answer"));
        }
        let response = &current.response;
        let annotations = response.annotations.iter().map(|(k, v)| (k.as_str(), v.as_slice())).collect();
        let envelope = Envelope { key_id: &response.key_id, seed: &response.ciphertext, annotations };
        SealedValue { provider: KMS, name: &self.shared.name, envelope: Some(envelope), bytes: &[] }
            .write_header(out);
        let info: [u8; INFO] = random();
        out.extend_from_slice(&info);
        let cipher = cipher(&current.seed, &info).ok_or_else(|| error("no cipher"))?;
        Ok(cipher.seal(place, plain, out)?)
    }

    /// Decrypts a body. Calls the plugin when the seed is not cached.
    ///
    /// # Errors
    /// When the plugin cannot decrypt the seed, or the body was modified.
    pub(super) fn open(&self, place: &[u8], sealed: &SealedValue<'_>) -> Result<Vec<u8>, TransformError> {
        let error = |error: &str| self.shared.error(error);
        let Some(envelope) = &sealed.envelope else { return Err(error("no envelope")) };
        let seed = self.shared.seed(envelope)?;
        let (info, bytes) =
            sealed.bytes.split_first_chunk::<INFO>().ok_or_else(|| error("the value is too short"))?;
        let cipher = cipher(&seed, info).ok_or_else(|| error("no cipher"))?;
        Ok(cipher.open(place, bytes)?)
    }

    /// Decrypts a value that kube-apiserver encrypted (`EncryptedObject` of its `kmsv2/v2/api.proto`).
    ///
    /// # Errors
    /// As [`Kms::open`].
    pub(super) fn open_as_upstream(
        &self,
        place: &[u8],
        object: &EncryptedObject,
    ) -> Result<Vec<u8>, TransformError> {
        let error = |error: &str| self.shared.error(error);
        let annotations = object.annotations.iter().map(|(k, v)| (k.as_str(), v.as_slice())).collect();
        let envelope = Envelope { key_id: &object.key_id, seed: &object.encrypted_dek_source, annotations };
        let secret = self.shared.seed(&envelope)?;
        let (key, bytes) = match object.encrypted_dek_source_type {
            EncryptedObject::KEY => (secret, object.encrypted_data.as_slice()),
            EncryptedObject::SEED => {
                let (info, bytes) = object
                    .encrypted_data
                    .split_first_chunk::<INFO>()
                    .ok_or_else(|| error("the value is too short"))?;
                (hkdf::expand(&secret, info), bytes)
            }
            _ => return Err(error("the value was encrypted in a way that is not known here")),
        };
        let cipher = Cipher::new(Kind::AesGcm, &key).ok_or_else(|| error("no cipher"))?;
        Ok(cipher.open_as_upstream(place, bytes)?)
    }

    /// Encrypts a value as kube-apiserver does.
    ///
    /// # Errors
    /// As [`Kms::seal`].
    pub(super) fn seal_as_upstream(
        &self,
        place: &[u8],
        plain: &[u8],
    ) -> Result<EncryptedObject, TransformError> {
        let error = |error: &str| self.shared.error(error);
        let current = self.shared.current.read().clone();
        let current = current.ok_or_else(|| error("the plugin has given no key yet"))?;
        let info: [u8; INFO] = random();
        let mut encrypted_data = info.to_vec();
        let cipher = Cipher::new(Kind::AesGcm, &hkdf::expand(&current.seed, &info));
        cipher.ok_or_else(|| error("no cipher"))?.seal_as_upstream(place, plain, &mut encrypted_data)?;
        let response = &current.response;
        Ok(EncryptedObject {
            encrypted_data,
            key_id: response.key_id.clone(),
            encrypted_dek_source: response.ciphertext.clone(),
            annotations: response.annotations.clone(),
            encrypted_dek_source_type: EncryptedObject::SEED,
        })
    }

    /// Whether a body was encrypted with the current key.
    pub(super) fn is_current(&self, sealed: &SealedValue<'_>) -> bool {
        let current = self.shared.current.read().clone();
        match (current, &sealed.envelope) {
            (Some(current), Some(envelope)) => current.response.key_id == envelope.key_id,
            // Without a current key nothing can be re-encrypted.
            (None, _) => true,
            (Some(_), None) => false,
        }
    }
}

fn cipher(seed: &Seed, info: &[u8]) -> Option<Cipher> {
    Cipher::new(Kind::AesGcm, &hkdf::derive(&[], seed, info))
}

impl Shared {
    fn error(&self, error: impl std::fmt::Display) -> TransformError {
        TransformError::Kms { name: self.name.clone(), error: error.to_string() }
    }

    /// Checks the plugin's health and generates a new seed when its key ID changed. Returns the time until
    /// the next check.
    async fn check_health(&self) -> Duration {
        let checked = self.check().await;
        self.healthy.store(checked.is_ok(), Ordering::Relaxed);
        match checked {
            Ok(()) => HEALTHY_PERIOD,
            Err(error) => {
                tracing::warn!(provider = %self.name, %error, "KMS plugin is unhealthy");
                UNHEALTHY_PERIOD
            }
        }
    }

    async fn check(&self) -> Result<(), TransformError> {
        let until = Instant::now() + LONGEST_WRITE;
        let StatusResponse { version, healthz, key_id } =
            self.client.status().await.map_err(|e| self.error(e))?;
        if healthz != "ok" {
            return Err(self.error(format!("got unexpected healthz status: {}", client::shown(&healthz))));
        }
        if !matches!(version.as_str(), "v2" | "v2beta1") {
            return Err(self.error(format!("expected KMSv2 API version v2, got {}", client::shown(&version))));
        }
        let current = self.current.read().clone();
        if let Some(current) = current.filter(|c| c.response.key_id == key_id) {
            let (seed, response) = (current.seed, current.response.clone());
            *self.current.write() = Some(Arc::new(Current { seed, response, until }));
            return Ok(());
        }
        let seed: Seed = random();
        let response = self.client.encrypt(&seed).await.map_err(|e| self.error(e))?;
        if response.key_id != key_id {
            return Err(self.error("status and encryption name different keys"));
        }
        self.validate(&response)?;
        self.remember(
            fingerprint(
                &response.key_id,
                &response.ciphertext,
                response.annotations.iter().map(|(k, v)| (k.as_str(), v.as_slice())),
            ),
            seed,
        );
        *self.current.write() = Some(Arc::new(Current { seed, response, until }));
        Ok(())
    }

    /// Upstream's limits on a plugin's response.
    fn validate(&self, response: &EncryptResponse) -> Result<(), TransformError> {
        let annotations: usize = response.annotations.iter().map(|(k, v)| k.len() + v.len()).sum();
        let what = match () {
            () if response.key_id.is_empty() || response.key_id.len() > LONGEST_KEY_ID => "key ID",
            () if response.ciphertext.is_empty() || response.ciphertext.len() > LONGEST_SEED => {
                "encrypted seed"
            }
            () if annotations > LONGEST_ANNOTATIONS => "annotations",
            () => return Ok(()),
        };
        Err(self.error(format!("the {what} that the plugin gave is empty or too long")))
    }

    fn remember(&self, fingerprint: Vec<u8>, seed: Seed) {
        let mut seeds = self.seeds.lock();
        if seeds.len() >= MOST_SEEDS {
            // The cache is simply cleared: seeds are decrypted again when needed.
            seeds.clear();
        }
        seeds.insert(fingerprint, seed);
    }

    /// The decrypted seed of an envelope, from the cache or the plugin.
    fn seed(&self, envelope: &Envelope<'_>) -> Result<Seed, TransformError> {
        let known = fingerprint(envelope.key_id, envelope.seed, envelope.annotations.iter().copied());
        if let Some(seed) = self.seeds.lock().get(&known) {
            return Ok(*seed);
        }
        let annotations: BTreeMap<String, Vec<u8>> =
            envelope.annotations.iter().map(|(k, v)| ((*k).to_owned(), v.to_vec())).collect();
        let response = self.client.decrypt(envelope.seed, envelope.key_id, annotations);
        // Once per seed and start; `block_in_place` moves the other tasks of this thread to another one
        // meanwhile.
        let response =
            self.remote_waits.block_on(|| tokio::task::block_in_place(|| self.runtime.block_on(response)));
        let plain = response.map_err(|e| self.error(e))?.map_err(|e| self.error(e))?;
        let seed: Seed = plain.try_into().map_err(|_| self.error("the decrypted seed has a wrong length"))?;
        self.remember(known, seed);
        Ok(seed)
    }
}

/// Cache key of a seed.
fn fingerprint<'a>(
    key_id: &str,
    seed: &[u8],
    annotations: impl Iterator<Item = (&'a str, &'a [u8])>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(key_id.len() + seed.len() + 8);
    let mut put = |bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u64).to_be_bytes());
        out.extend_from_slice(bytes);
    };
    put(key_id.as_bytes());
    put(seed);
    for (name, value) in annotations {
        put(name.as_bytes());
        put(value);
    }
    out
}

#[cfg(test)]
mod tests;
