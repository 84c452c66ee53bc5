//! Client certificates: the common name is the user, the organizations are the groups, an extension of the subject
//! the UID (k8s.io/apiserver `pkg/authentication/request/x509`).

use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::RootCertStore;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::AuthnError;
use plinth_api::user::{self, User};
use plinth_http::tls::TlsError;
use plinth_pki::files;
use plinth_pki::name::{self, Name};
use plinth_pki::p521;

/// Certificates that a client may show beside its own, and those of one name among them: which of them leads to an authority is
/// found out by trying, and what there is to try grows with the sixth power of those that share a name.
const INTERMEDIATES: usize = 8;
const OF_ONE_NAME: usize = 2;
/// How long a refusal holds for a connection: a certificate may begin to be valid, or a clock be put right.
const REFUSED_FOR: u64 = 10;

/// What a connection's client showed in its handshake. The handshake proves that it holds the key; whether the
/// certificate is to be trusted is judged at the connection's first request and again when the authorities change or
/// the certificate ends. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    shown: Option<Arc<Shown>>,
}

#[derive(Debug)]
struct Shown {
    chain: Vec<CertificateDer<'static>>,
    /// Held to look and to put, never while a certificate is judged.
    judged: Mutex<Option<Judgement>>,
}

#[derive(Clone, Debug)]
struct Judgement {
    /// Which authorities judged.
    generation: u64,
    /// Until when it holds: the end of the certificate, for refusals [`REFUSED_FOR`]. In seconds since 1970.
    until: u64,
    outcome: Result<Option<Arc<User>>, AuthnError>,
}

impl Peer {
    /// A connection whose client showed this chain, the leaf first.
    pub fn new(chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let owned = |chain: &[CertificateDer<'_>]| chain.iter().map(|c| c.clone().into_owned()).collect();
        let shown = chain.filter(|chain| !chain.is_empty());
        Peer { shown: shown.map(|chain| Arc::new(Shown { chain: owned(chain), judged: Mutex::default() })) }
    }

    /// The certificates, the leaf first; none when the client showed none.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.shown.as_ref().map_or(&[], |shown| &shown.chain)
    }
}

/// The authorities of a PEM file. The file can be read again while connections are served.
pub struct Authorities {
    verifier: RwLock<(u64, Arc<dyn ClientCertVerifier>)>,
}

impl Authorities {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or holds no usable certificate.
    pub fn read(file: &Path) -> Result<Authorities, TlsError> {
        Ok(Authorities { verifier: RwLock::new((0, verifier(file)?)) })
    }

    /// Reads the file again; on an error the old authorities stay.
    ///
    /// # Errors
    /// As [`Authorities::read`].
    pub fn reload(&self, file: &Path) -> Result<(), TlsError> {
        let verifier = verifier(file)?;
        let mut current = self.verifier.write();
        *current = (current.0 + 1, verifier);
        Ok(())
    }

    /// Counts the reloads.
    fn generation(&self) -> u64 {
        self.verifier.read().0
    }

    /// Whether the chain leads to one of the authorities, is within its time and meant for clients.
    ///
    /// # Errors
    /// [`AuthnError::Certificate`].
    pub fn verify(&self, chain: &[CertificateDer<'_>]) -> Result<(), AuthnError> {
        let verifier = self.verifier.read().1.clone();
        let Some((leaf, intermediates)) = chain.split_first() else { return Err(AuthnError::NoCredentials) };
        check_intermediates(intermediates).map_err(|why| AuthnError::Certificate(why.to_owned()))?;
        let verified = verifier.verify_client_cert(leaf, intermediates, UnixTime::now());
        verified.map(|_| ()).map_err(|error| AuthnError::Certificate(error.to_string()))
    }
}

/// Whether these are few enough to try which of them leads to an authority.
fn check_intermediates(shown: &[CertificateDer<'_>]) -> Result<(), &'static str> {
    if shown.len() > INTERMEDIATES {
        return Err("x509: too many intermediate certificates");
    }
    let mut names: Vec<&[u8]> = Vec::with_capacity(shown.len());
    for certificate in shown {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|_| "x509: malformed certificate")?;
        let name = parsed.tbs_certificate.subject.as_raw();
        if names.iter().filter(|other| **other == name).count() >= OF_ONE_NAME {
            return Err("x509: too many intermediate certificates of one name");
        }
        names.push(name);
    }
    Ok(())
}

fn verifier(file: &Path) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in files::read_certificates(file)? {
        roots.add(cert)?;
    }
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots), p521::provider()).build()?)
}

/// Checks client certificates against the authorities of `--client-ca-file`.
pub struct CertificateAuthenticator {
    authorities: Authorities,
}

impl CertificateAuthenticator {
    /// Trusts the authorities of a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no usable certificate.
    pub fn new(client_ca_file: &Path) -> Result<CertificateAuthenticator, TlsError> {
        Ok(CertificateAuthenticator { authorities: Authorities::read(client_ca_file)? })
    }

    /// Trusts what the file says by now.
    ///
    /// # Errors
    /// When it cannot be used; then nothing changes.
    pub fn reload(&self, client_ca_file: &Path) -> Result<(), TlsError> {
        self.authorities.reload(client_ca_file)
    }

    /// Who the certificate of a connection belongs to; `None` without a certificate or a name in it. One signature
    /// check per connection, then a lock and a comparison per request.
    ///
    /// # Errors
    /// [`AuthnError::Certificate`].
    pub fn authenticate(&self, peer: &Peer) -> Result<Option<Arc<User>>, AuthnError> {
        let Some(shown) = &peer.shown else { return Ok(None) };
        let generation = self.authorities.generation();
        let now = UnixTime::now().as_secs();
        let known = shown.judged.lock().clone();
        if let Some(judgement) = known.filter(|j| j.generation == generation && now < j.until) {
            return judgement.outcome;
        }
        let (outcome, until) = self.judge(&shown.chain, now);
        *shown.judged.lock() = Some(Judgement { generation, until, outcome: outcome.clone() });
        outcome
    }

    fn judge(&self, chain: &[CertificateDer<'_>], now: u64) -> (Result<Option<Arc<User>>, AuthnError>, u64) {
        if let Err(error) = self.authorities.verify(chain) {
            // Strangers must not make the same be found out at every request.
            return (Err(error), now.saturating_add(REFUSED_FOR));
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
    // A subject that is not understood names nobody: what it hides may be another user or group.
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
    let id = format!("X509SHA256={}", hex(&Sha256::digest(der)));
    user.extra.insert(user::CREDENTIAL_ID.to_owned(), vec![id]);
    Ok(Some(Arc::new(user.authenticated())))
}

fn uid_of(subject: &Name) -> Result<String, AuthnError> {
    let refuse = |why: &str| Err(AuthnError::Certificate(why.to_owned()));
    let uids: Vec<&str> = subject.values(name::UID).collect();
    match uids.as_slice() {
        [] => Ok(String::new()),
        [""] => refuse("UID cannot be an empty string"),
        [uid] => Ok((*uid).to_owned()),
        _ => refuse("expected 1 UID, but found multiple"),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
        text
    })
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

    /// An authority in a file, and what it makes: intermediates of these names, the last of which signs the leaf.
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
        let (file, mut shown) = chain(&["a"]);
        shown.push(CertificateDer::from(vec![0x30, 0]));
        assert!(CertificateAuthenticator::new(file.path())
            .unwrap()
            .authenticate(&Peer::new(Some(&shown)))
            .is_err());
    }

    #[test]
    fn a_refusal_is_found_out_once() {
        let (file, _) = chain(&[]);
        let (_other, stranger) = chain(&["a"]);
        let authority = CertificateAuthenticator::new(file.path()).unwrap();
        let peer = Peer::new(Some(&stranger));
        let error = authority.authenticate(&peer).unwrap_err();
        let kept = peer.shown.as_ref().unwrap().judged.lock().clone().unwrap();
        assert!(kept.until > UnixTime::now().as_secs(), "it is kept");
        assert_eq!(kept.outcome.unwrap_err(), error);
        // Another authority judges anew.
        authority.reload(_other.path()).unwrap();
        assert!(authority.authenticate(&peer).is_ok());
    }
}
