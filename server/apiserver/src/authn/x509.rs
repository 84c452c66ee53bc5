//! Client certificates: the common name is the user, the organizations are the groups, an attribute of the
//! subject is the UID (k8s.io/apiserver `pkg/authentication/request/x509`).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, RwLock};
use plinth_codec::hex;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::RootCertStore;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::AuthnError;
use plinth_api::{User, CREDENTIAL_ID_KEY};
use plinth_http::TlsError;
use plinth_pki::{crypto_provider, read_bundle, Name, UID};

/// Intermediate certificates that a client may present, and how many of them may have the same subject: path
/// building is by trial, and its cost grows with the sixth power of those that share a subject.
const MAX_INTERMEDIATES: usize = 8;
const MAX_SAME_SUBJECT: usize = 2;
/// How long a refusal is cached for a connection, in seconds: a certificate may become valid, or a clock be
/// corrected.
const REFUSAL_TTL: u64 = 10;

/// The certificate that a connection's client presented in the handshake, which proves that it holds the key.
/// The certificate is verified at the connection's first request and again when the authorities change or it
/// expires. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    presented: Option<Arc<PresentedChain>>,
}

#[derive(Debug)]
struct PresentedChain {
    chain: Vec<CertificateDer<'static>>,
    /// The lock is held to read or replace it, never during verification.
    cache: Mutex<Option<CachedOutcome>>,
}

#[derive(Clone, Debug)]
struct CachedOutcome {
    /// Generation of the authorities.
    generation: u64,
    /// Valid until: the certificate's expiration, or [`REFUSAL_TTL`] for refusals. Seconds since 1970.
    until: u64,
    outcome: Result<Option<Arc<User>>, AuthnError>,
}

impl Peer {
    /// The certificates that a connection's client presented, leaf first.
    pub fn new(chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let owned = |chain: &[CertificateDer<'_>]| chain.iter().map(|c| c.clone().into_owned()).collect();
        let presented = chain.filter(|chain| !chain.is_empty());
        Peer {
            presented: presented
                .map(|chain| Arc::new(PresentedChain { chain: owned(chain), cache: Mutex::default() })),
        }
    }

    /// How long the certificate is valid from now on, if it was accepted.
    pub(crate) fn valid_for(&self) -> Option<Duration> {
        let cache = self.presented.as_ref()?.cache.lock();
        let accepted = cache.as_ref().filter(|cached| matches!(cached.outcome, Ok(Some(_))))?;
        let until = UNIX_EPOCH.checked_add(Duration::from_secs(accepted.until))?;
        until.duration_since(SystemTime::now()).ok()
    }

    /// The certificates, leaf first; empty when there are none.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.presented.as_ref().map_or(&[], |presented| &presented.chain)
    }
}

/// Certificate authorities of a PEM file, which can be reloaded at any time. The lock is held for a clone or
/// a replacement.
pub struct Authorities {
    current: RwLock<Bundle>,
}

/// What was loaded last.
struct Bundle {
    /// Number of reloads before.
    generation: u64,
    verifier: Arc<dyn ClientCertVerifier>,
    /// Content of the file.
    pem: Arc<str>,
}

impl Authorities {
    /// Loads the file.
    ///
    /// # Errors
    /// When it cannot be read or has no valid certificate.
    pub fn read(file: &Path) -> Result<Authorities, TlsError> {
        Ok(Authorities { current: RwLock::new(Bundle::read(file, 0)?) })
    }

    /// Reloads the file; on an error the previous authorities stay in use.
    ///
    /// # Errors
    /// As [`Authorities::read`].
    pub fn reload(&self, file: &Path) -> Result<(), TlsError> {
        // Reloads come one after the other.
        let new = Bundle::read(file, self.generation() + 1)?;
        *self.current.write() = new;
        Ok(())
    }

    /// Number of reloads.
    fn generation(&self) -> u64 {
        self.current.read().generation
    }

    /// The content of the file as of when it was loaded.
    pub fn pem(&self) -> Arc<str> {
        self.current.read().pem.clone()
    }

    /// Verifies that the chain leads to one of the authorities, is valid now and meant for clients.
    ///
    /// # Errors
    /// [`AuthnError::Certificate`].
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), AuthnError> {
        let verifier = self.current.read().verifier.clone();
        let Some((leaf, intermediates)) = chain.split_first() else { return Err(AuthnError::NoCredentials) };
        check_intermediates(intermediates).map_err(|why| AuthnError::Certificate(why.to_owned()))?;
        let verified = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
        verified.map(|_| ()).map_err(|error| AuthnError::Certificate(error.to_string()))
    }
}

/// Limits the intermediates before path building.
fn check_intermediates(presented: &[CertificateDer<'_>]) -> Result<(), &'static str> {
    if presented.len() > MAX_INTERMEDIATES {
        return Err("x509: too many intermediate certificates");
    }
    let mut names: Vec<&[u8]> = Vec::with_capacity(presented.len());
    for certificate in presented {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| "x509: malformed certificate")?;
        let name = parsed.tbs_certificate.subject.as_raw();
        if names.iter().filter(|other| **other == name).count() >= MAX_SAME_SUBJECT {
            return Err("x509: too many intermediate certificates of one name");
        }
        names.push(name);
    }
    Ok(())
}

impl Bundle {
    fn read(file: &Path, generation: u64) -> Result<Bundle, TlsError> {
        let (certificates, content) = read_bundle(file)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider())
            .build()
            .map_err(|source| TlsError::Authorities { path: file.to_owned(), source })?;
        Ok(Bundle { generation, verifier, pem: String::from_utf8_lossy(&content).into() })
    }
}

/// Authenticates client certificates of the authorities in `--client-ca-file`.
pub struct CertificateAuthenticator {
    authorities: Authorities,
}

impl CertificateAuthenticator {
    /// Loads the authorities of a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or has no valid certificate.
    pub fn new(client_ca_file: &Path) -> Result<CertificateAuthenticator, TlsError> {
        Ok(CertificateAuthenticator { authorities: Authorities::read(client_ca_file)? })
    }

    /// Reloads the authorities.
    ///
    /// # Errors
    /// When the file cannot be used; the previous ones stay in use.
    pub fn reload(&self, client_ca_file: &Path) -> Result<(), TlsError> {
        self.authorities.reload(client_ca_file)
    }

    /// The authorities, PEM.
    pub(crate) fn authorities_pem(&self) -> Arc<str> {
        self.authorities.pem()
    }

    /// The user of a connection's certificate; `None` without a certificate or a common name. One signature
    /// verification per connection, then a lock and a comparison per request.
    ///
    /// # Errors
    /// [`AuthnError::Certificate`].
    pub fn authenticate(&self, peer: &Peer) -> Result<Option<Arc<User>>, AuthnError> {
        let Some(presented) = &peer.presented else { return Ok(None) };
        let generation = self.authorities.generation();
        let now = UnixTime::now().as_secs();
        let entry = presented.cache.lock().clone();
        if let Some(cached) = entry.filter(|j| j.generation == generation && now < j.until) {
            return cached.outcome;
        }
        let (outcome, until) = self.verify(&presented.chain, now);
        *presented.cache.lock() = Some(CachedOutcome { generation, until, outcome: outcome.clone() });
        outcome
    }

    fn verify(&self, chain: &[CertificateDer<'_>], now: u64) -> (Result<Option<Arc<User>>, AuthnError>, u64) {
        if let Err(error) = self.authorities.verify(chain) {
            // Unauthenticated clients must not cause a verification at every request.
            return (Err(error), now.saturating_add(REFUSAL_TTL));
        }
        let leaf = chain.first().map(AsRef::as_ref).unwrap_or_default();
        match X509Certificate::from_der(leaf) {
            Ok((_, cert)) => {
                let until = u64::try_from(cert.validity().not_after.timestamp()).unwrap_or(0);
                (user_of(&cert, leaf), until)
            }
            Err(error) => (Err(AuthnError::Certificate(error.to_string())), 0),
        }
    }
}

fn user_of(cert: &X509Certificate<'_>, der: &[u8]) -> Result<Option<Arc<User>>, AuthnError> {
    // A subject that cannot be parsed is refused: it may name another user or group.
    let subject = Name::from_der(cert.subject().as_raw())
        .map_err(|error| AuthnError::Certificate(error.to_string()))?;
    if subject.common_name().is_empty() {
        return Ok(None);
    }
    let mut user = User {
        name: subject.common_name().to_owned(),
        uid: uid_of(&subject)?,
        groups: subject.organizations().into_iter().map(str::to_owned).collect(),
        ..User::default()
    };
    let id = format!("X509SHA256={}", hex::lower(&Sha256::digest(der)));
    user.extra.insert(CREDENTIAL_ID_KEY.to_owned(), vec![id]);
    Ok(Some(Arc::new(user.authenticated())))
}

fn uid_of(subject: &Name) -> Result<String, AuthnError> {
    let refuse = |why: &str| Err(AuthnError::Certificate(why.to_owned()));
    let uids: Vec<&str> = subject.values(UID).collect();
    match uids.as_slice() {
        [] => Ok(String::new()),
        [""] => refuse("UID cannot be an empty string"),
        [uid] => Ok((*uid).to_owned()),
        _ => refuse("expected 1 UID, but found multiple"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

    fn params(name: &str, is_authority: bool) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        } else {
            params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        }
        params
    }

    /// A certificate authority in a file, and its chain: intermediates of these names, the last of which
    /// signs the leaf.
    fn chain(names: &[&str]) -> (tempfile::NamedTempFile, Vec<CertificateDer<'static>>) {
        let key = KeyPair::generate().unwrap();
        let root = params("root", true);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), root.self_signed(&key).unwrap().pem()).unwrap();
        let mut issuer = Issuer::new(root, key);
        let mut made = Vec::new();
        for name in names {
            let (key, params) = (KeyPair::generate().unwrap(), params(name, true));
            made.insert(0, params.signed_by(&key, &issuer).unwrap().der().clone());
            issuer = Issuer::new(params, key);
        }
        let leaf = params("jane", false).signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
        made.insert(0, leaf.der().clone());
        (file, made)
    }

    #[test]
    fn chains_by_table() {
        let rows: &[(&[&str], bool)] = &[
            (&[], true),
            (&["a"], true),
            (&["a", "b", "c"], true),
            (&["a", "a"], true),
            (&["a", "b", "c", "d", "e", "f", "g", "h", "i"], false),
            (&["a", "a", "a"], false),
        ];
        for (names, good) in rows {
            let (file, chain) = chain(names);
            let authority = CertificateAuthenticator::new(file.path()).unwrap();
            let user = authority.authenticate(&Peer::new(Some(&chain)));
            assert_eq!(user.is_ok(), *good, "{names:?}: {user:?}");
        }
        let (file, mut presented) = chain(&["a"]);
        presented.push(CertificateDer::from(vec![0x30, 0]));
        assert!(CertificateAuthenticator::new(file.path())
            .unwrap()
            .authenticate(&Peer::new(Some(&presented)))
            .is_err());
    }

    #[test]
    fn a_refusal_is_found_out_once() {
        let (file, _) = chain(&[]);
        let (_other, unknown) = chain(&["a"]);
        let authority = CertificateAuthenticator::new(file.path()).unwrap();
        let peer = Peer::new(Some(&unknown));
        let error = authority.authenticate(&peer).unwrap_err();
        let kept = peer.presented.as_ref().unwrap().cache.lock().clone().unwrap();
        assert!(kept.until > UnixTime::now().as_secs(), "it is kept");
        assert_eq!(kept.outcome.unwrap_err(), error);
        // A reload discards the cached outcome.
        authority.reload(_other.path()).unwrap();
        assert!(authority.authenticate(&peer).is_ok());
    }
}
