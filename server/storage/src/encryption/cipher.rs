//! The ciphers. Each takes its randomness from the operating system.
//!
//! | name | what | binds key and header |
//! |---|---|---|
//! | `aesgcm` | AES-GCM (NIST SP 800-38D), a random nonce of 12 bytes before the ciphertext | as associated data |
//! | `aescbc` | AES-CBC with PKCS#7 padding, a random IV of 16 bytes before the ciphertext | by a hash inside |
//! | `secretbox` | XSalsa20-Poly1305, a random nonce of 24 bytes before the ciphertext | by a hash inside |
//!
//! AES-CBC does not authenticate: someone who can write to the disk can change the plaintext. It is supported
//! because existing configurations use it. The hash inside makes such changes hard to hide, but is not a MAC.

use aes::cipher::block_padding::Pkcs7;
use aes::cipher::{BlockDecryptMut, BlockEncryptMut, KeyIvInit};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::rand_core::RngCore;
use aes_gcm::aead::{Aead, OsRng, Payload};
use aes_gcm::{AesGcm, KeyInit};
use crypto_secretbox::XSalsa20Poly1305;
use sha2::{Digest, Sha256};

const GCM_NONCE: usize = 12;
const CBC_IV: usize = 16;
const BOX_NONCE: usize = 24;
const HASH: usize = 32;

/// The bytes were not encrypted with this key, or not for this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CipherError(pub &'static str);

const NOT_OURS: CipherError =
    CipherError("the value cannot be decrypted with this key, or has been tampered with");

/// The kinds of ciphers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `aesgcm`.
    AesGcm,
    /// `aescbc`.
    AesCbc,
    /// `secretbox`.
    Secretbox,
}

impl Kind {
    /// Name in the configuration and on disk.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::AesGcm => "aesgcm",
            Kind::AesCbc => "aescbc",
            Kind::Secretbox => "secretbox",
        }
    }

    /// The valid key lengths, in bytes.
    pub fn key_lengths(self) -> &'static [usize] {
        match self {
            Kind::AesGcm | Kind::AesCbc => &[16, 24, 32],
            Kind::Secretbox => &[32],
        }
    }
}

/// A cipher with its key. Immutable; boxed, since an expanded key is large.
pub(super) struct Cipher(Box<Inner>);

enum Inner {
    Gcm128(AesGcm<Aes128, U12>),
    Gcm192(AesGcm<Aes192, U12>),
    Gcm256(AesGcm<Aes256, U12>),
    /// The raw key: CBC mode expands it for each value.
    Cbc(Vec<u8>),
    Secretbox(XSalsa20Poly1305),
}

impl std::fmt::Debug for Cipher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cipher(..)")
    }
}

impl Cipher {
    /// A cipher of the given kind; `None` if the key has an invalid length.
    pub(super) fn new(kind: Kind, key: &[u8]) -> Option<Cipher> {
        if !kind.key_lengths().contains(&key.len()) {
            return None;
        }
        Some(Cipher(Box::new(match (kind, key.len()) {
            (Kind::AesGcm, 16) => Inner::Gcm128(AesGcm::new_from_slice(key).ok()?),
            (Kind::AesGcm, 24) => Inner::Gcm192(AesGcm::new_from_slice(key).ok()?),
            (Kind::AesGcm, _) => Inner::Gcm256(AesGcm::new_from_slice(key).ok()?),
            (Kind::AesCbc, _) => Inner::Cbc(key.to_vec()),
            (Kind::Secretbox, _) => Inner::Secretbox(XSalsa20Poly1305::new_from_slice(key).ok()?),
        })))
    }

    /// Appends the encrypted form of `plain`, bound to `place`.
    pub(super) fn seal(&self, place: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        match self.authenticates_data() {
            true => self.seal_as_upstream(place, plain, out),
            false => self.seal_as_upstream(place, &hashed(place, plain), out),
        }
    }

    /// Decrypts bytes that were encrypted for `place`.
    ///
    /// # Errors
    /// [`CipherError`] when they were encrypted for another place or with another key.
    pub(super) fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
        let plain = self.open_as_upstream(place, sealed)?;
        match self.authenticates_data() {
            true => Ok(plain),
            false => unhashed(place, plain),
        }
    }

    /// As kube-apiserver encrypts values in etcd: only AES-GCM binds them to a place, their key in etcd.
    pub(super) fn seal_as_upstream(
        &self,
        place: &[u8],
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), CipherError> {
        let failed = |_| CipherError("the value cannot be encrypted");
        match &*self.0 {
            Inner::Gcm128(gcm) => seal_gcm(gcm, place, plain, out),
            Inner::Gcm192(gcm) => seal_gcm(gcm, place, plain, out),
            Inner::Gcm256(gcm) => seal_gcm(gcm, place, plain, out),
            Inner::Cbc(key) => {
                let iv: [u8; CBC_IV] = random();
                out.extend_from_slice(&iv);
                encrypt_cbc(key, &iv, plain, out)
            }
            Inner::Secretbox(secretbox) => {
                let nonce: [u8; BOX_NONCE] = random();
                out.extend_from_slice(&nonce);
                out.extend_from_slice(&secretbox.encrypt(&nonce.into(), plain).map_err(failed)?);
                Ok(())
            }
        }
    }

    /// Decrypts bytes that [`Cipher::seal_as_upstream`] or kube-apiserver encrypted.
    ///
    /// # Errors
    /// [`CipherError`] when they were encrypted with another key.
    pub(super) fn open_as_upstream(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
        match &*self.0 {
            Inner::Gcm128(gcm) => open_gcm(gcm, place, sealed),
            Inner::Gcm192(gcm) => open_gcm(gcm, place, sealed),
            Inner::Gcm256(gcm) => open_gcm(gcm, place, sealed),
            Inner::Cbc(key) => {
                let (iv, sealed) = split::<CBC_IV>(sealed)?;
                decrypt_cbc(key, &iv, sealed)
            }
            Inner::Secretbox(secretbox) => {
                let (nonce, sealed) = split::<BOX_NONCE>(sealed)?;
                secretbox.decrypt(&nonce.into(), sealed).map_err(|_| NOT_OURS)
            }
        }
    }

    /// Whether the cipher itself binds a value to its place.
    fn authenticates_data(&self) -> bool {
        matches!(&*self.0, Inner::Gcm128(_) | Inner::Gcm192(_) | Inner::Gcm256(_))
    }
}

/// Random bytes from the operating system.
pub(super) fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0u8; N];
    OsRng.fill_bytes(&mut bytes);
    bytes
}

fn seal_gcm(
    gcm: &impl Aead<NonceSize = U12>,
    place: &[u8],
    plain: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), CipherError> {
    let nonce: [u8; GCM_NONCE] = random();
    out.extend_from_slice(&nonce);
    let sealed = gcm
        .encrypt(&nonce.into(), Payload { msg: plain, aad: place })
        .map_err(|_| CipherError("the value cannot be encrypted"))?;
    out.extend_from_slice(&sealed);
    Ok(())
}

fn open_gcm(gcm: &impl Aead<NonceSize = U12>, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
    let (nonce, sealed) = split::<GCM_NONCE>(sealed)?;
    gcm.decrypt(&nonce.into(), Payload { msg: sealed, aad: place }).map_err(|_| NOT_OURS)
}

fn split<const N: usize>(sealed: &[u8]) -> Result<([u8; N], &[u8]), CipherError> {
    sealed
        .split_first_chunk::<N>()
        .map(|(first, rest)| (*first, rest))
        .ok_or(CipherError("the value is too short"))
}

fn encrypt_cbc(key: &[u8], iv: &[u8], plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
    let bad = |_| CipherError("the key has a wrong length");
    let sealed = match key.len() {
        16 => cbc::Encryptor::<Aes128>::new_from_slices(key, iv)
            .map_err(bad)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
        24 => cbc::Encryptor::<Aes192>::new_from_slices(key, iv)
            .map_err(bad)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
        _ => cbc::Encryptor::<Aes256>::new_from_slices(key, iv)
            .map_err(bad)?
            .encrypt_padded_vec_mut::<Pkcs7>(plain),
    };
    out.extend_from_slice(&sealed);
    Ok(())
}

fn decrypt_cbc(key: &[u8], iv: &[u8], sealed: &[u8]) -> Result<Vec<u8>, CipherError> {
    let bad = |_| CipherError("the key has a wrong length");
    let plain = match key.len() {
        16 => cbc::Decryptor::<Aes128>::new_from_slices(key, iv)
            .map_err(bad)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
        24 => cbc::Decryptor::<Aes192>::new_from_slices(key, iv)
            .map_err(bad)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
        _ => cbc::Decryptor::<Aes256>::new_from_slices(key, iv)
            .map_err(bad)?
            .decrypt_padded_vec_mut::<Pkcs7>(sealed),
    };
    plain.map_err(|_| NOT_OURS)
}

/// For ciphers without associated data: the plaintext is prefixed with the hash of the place.
fn hashed(place: &[u8], plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HASH + plain.len());
    let hash: [u8; HASH] = Sha256::digest(place).into();
    out.extend_from_slice(&hash);
    out.extend_from_slice(plain);
    out
}

fn unhashed(place: &[u8], mut plain: Vec<u8>) -> Result<Vec<u8>, CipherError> {
    let hash: [u8; HASH] = Sha256::digest(place).into();
    match plain.starts_with(&hash) {
        true => Ok(plain.split_off(HASH)),
        false => Err(NOT_OURS),
    }
}

#[cfg(test)]
#[path = "cipher_tests.rs"]
mod tests;
