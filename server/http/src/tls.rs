//! TLS: the serving certificate, and client certificates accepted as presented.
//!
//! A client certificate of an unknown authority must get a readable 401, not a failed handshake (upstream's
//! behaviour). So the handshake only checks that the client holds the key of its certificate; whether the
//! certificate is trusted is decided once per connection in `plinth_apiserver::authn`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::ResolvesServerCert;
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, SignatureScheme, SupportedCipherSuite,
    SupportedProtocolVersion,
};

use plinth_pki::{crypto_provider, read_certificates, read_key, FileError};

/// Leaves those cipher suites of TLS 1.2 that are named, by the names of Go (`crypto/tls`), which has two of
/// them also without the hash. As in Go, those of TLS 1.3 are not configurable.
pub fn limit_cipher_suites(provider: &mut CryptoProvider, names: &[String]) {
    let is_named =
        |suite: &str| names.iter().any(|name| name == suite || suite.strip_suffix("_SHA256") == Some(name));
    let stays = |suite: &SupportedCipherSuite| {
        suite.tls13().is_some() || suite.suite().as_str().is_some_and(is_named)
    };
    provider.cipher_suites.retain(stays);
}

/// An unusable certificate, key or combination of both.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file that cannot be read as PEM.
    #[error(transparent)]
    File(#[from] FileError),
    /// A certificate or key that rustls rejects.
    #[error("unusable certificate or key: {0}")]
    Rustls(#[from] rustls::Error),
    /// A file of certificate authorities without a usable certificate.
    #[error("{path}: {source}")]
    Authorities {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: rustls::server::VerifierBuilderError,
    },
}

/// The serving certificate, reloaded when its files change. New connections get the current one; the lock is
/// held for a clone or a replacement only.
#[derive(Debug)]
pub struct ServingCertificate {
    cert: PathBuf,
    key: PathBuf,
    current: RwLock<Arc<CertifiedKey>>,
}

impl ServingCertificate {
    /// Reads the certificate chain and its key.
    ///
    /// # Errors
    /// When a file cannot be read or they do not belong together.
    pub fn read(cert: &Path, key: &Path) -> Result<ServingCertificate, TlsError> {
        let current = RwLock::new(Arc::new(certified(cert, key)?));
        Ok(ServingCertificate { cert: cert.to_owned(), key: key.to_owned(), current })
    }

    /// The certificate last loaded.
    pub fn current(&self) -> Arc<CertifiedKey> {
        self.current.read().clone()
    }

    /// Paths of the certificate and key file.
    pub fn files(&self) -> Vec<PathBuf> {
        vec![self.cert.clone(), self.key.clone()]
    }

    /// Reloads the files; on an error the old certificate stays.
    ///
    /// # Errors
    /// As [`ServingCertificate::read`].
    pub fn reload(&self) -> Result<(), TlsError> {
        let new = certified(&self.cert, &self.key)?;
        *self.current.write() = Arc::new(new);
        Ok(())
    }
}

fn certified(cert: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let certified = CertifiedKey::from_der(read_certificates(cert)?, read_key(key)?, &crypto_provider())?;
    Ok(certified)
}

/// The server's TLS configuration: HTTP/2 preferred, client certificates requested and accepted unverified.
///
/// # Errors
/// When the provider supports none of these versions.
pub fn server_config(
    certificates: Arc<dyn ResolvesServerCert>,
    provider: Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ServerConfig, TlsError> {
    let verifier = Arc::new(NoteClientCertificate { provider: provider.clone() });
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Accepts any client certificate whose key the client proves to hold.
#[derive(Debug)]
struct NoteClientCertificate {
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for NoteClientCertificate {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
