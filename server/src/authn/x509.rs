//! Client certificates: the common name is the user, the organizations are the groups
//! (k8s.io/apiserver `pkg/authentication/request/x509`).

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::WebPkiClientVerifier;
use rustls::RootCertStore;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{Peer, User};
use crate::http::tls::{self, TlsError};

/// Checks client certificates against the authorities of `--client-ca-file`. Immutable, shared by all
/// connections.
pub struct CertificateAuthenticator {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl CertificateAuthenticator {
    /// Reads the authorities from a PEM file.
    ///
    /// # Errors
    /// When the file cannot be read or holds no usable certificate.
    pub fn new(client_ca_file: &Path) -> Result<CertificateAuthenticator, TlsError> {
        let mut roots = RootCertStore::empty();
        for cert in tls::read_certificates(client_ca_file)? {
            roots.add(cert)?;
        }
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), tls::provider()).build()?;
        Ok(CertificateAuthenticator { verifier })
    }

    /// Who the chain that a connection showed belongs to. One signature check; called once per connection.
    pub fn authenticate(&self, chain: Option<&[CertificateDer<'_>]>) -> Peer {
        let Some([leaf, intermediates @ ..]) = chain else { return Peer::Anonymous };
        if self.verifier.verify_client_cert(leaf, intermediates, UnixTime::now()).is_err() {
            return Peer::Refused;
        }
        match user_of(leaf) {
            Some(user) => Peer::Certificate(Arc::new(user)),
            None => Peer::Refused,
        }
    }
}

fn user_of(leaf: &CertificateDer<'_>) -> Option<User> {
    let (_, cert) = X509Certificate::from_der(leaf).ok()?;
    let subject = cert.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?;
    if name.is_empty() {
        return None;
    }
    let mut groups: Vec<String> =
        subject.iter_organization().filter_map(|o| o.as_str().ok()).map(str::to_owned).collect();
    groups.push("system:authenticated".into());
    Some(User { name: name.to_owned(), groups })
}
