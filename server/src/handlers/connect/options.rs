//! Flags about the way to kubelets.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// How kubelets are reached.
#[derive(Clone, Debug, Args)]
pub struct KubeletOptions {
    /// Client certificate shown to kubelets, PEM
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    pub kubelet_client_certificate: Option<PathBuf>,
    /// Its private key, PEM
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    pub kubelet_client_key: Option<PathBuf>,
    /// Authority of the kubelets' certificates, PEM; without it they are not checked
    #[arg(long, value_name = "FILE")]
    pub kubelet_certificate_authority: Option<PathBuf>,
    /// Which of a node's addresses to use, the first of these types that it has
    #[arg(
        long,
        value_name = "TYPES",
        value_delimiter = ',',
        default_value = "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP"
    )]
    pub kubelet_preferred_address_types: Vec<String>,
}

/// What the way to a kubelet needs: settings that are read once. Immutable.
pub struct Kubelets {
    /// TLS towards kubelets.
    pub tls: Arc<ClientConfig>,
    /// TLS towards pods and services that are proxied to over HTTPS: their certificates are not checked, as upstream does.
    pub insecure: Arc<ClientConfig>,
    /// Types of addresses in order of preference.
    pub address_types: Vec<String>,
}

/// A file of these flags cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeletSetupError {
    /// The file cannot be read as PEM.
    #[error("{}: {source}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: rustls::pki_types::pem::Error,
    },
    /// Certificate and key do not go together, or are of no known kind.
    #[error("TLS towards kubelets: {0}")]
    Tls(#[from] rustls::Error),
}

impl Kubelets {
    /// Reads what the flags name.
    ///
    /// # Errors
    /// [`KubeletSetupError`].
    pub fn new(options: &KubeletOptions) -> Result<Kubelets, KubeletSetupError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            || ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
        let unchecked = || Arc::new(Unchecked(provider.clone()));
        let verified = match &options.kubelet_certificate_authority {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate)?;
                }
                builder()?.with_root_certificates(roots)
            }
            None => builder()?.dangerous().with_custom_certificate_verifier(unchecked()),
        };
        let tls = match (&options.kubelet_client_certificate, &options.kubelet_client_key) {
            (Some(certificate), Some(key)) => {
                let key = PrivateKeyDer::from_pem_file(key)
                    .map_err(|source| KubeletSetupError::Pem { path: key.clone(), source })?;
                verified.with_client_auth_cert(certificates(certificate)?, key)?
            }
            _ => verified.with_no_client_auth(),
        };
        let insecure =
            builder()?.dangerous().with_custom_certificate_verifier(unchecked()).with_no_client_auth();
        Ok(Kubelets {
            tls: Arc::new(tls),
            insecure: Arc::new(insecure),
            address_types: options.kubelet_preferred_address_types.clone(),
        })
    }
}

fn certificates(path: &PathBuf) -> Result<Vec<CertificateDer<'static>>, KubeletSetupError> {
    let pem = |source| KubeletSetupError::Pem { path: path.clone(), source };
    CertificateDer::pem_file_iter(path).map_err(pem)?.collect::<Result<_, _>>().map_err(pem)
}

/// Takes any certificate: what upstream does when no authority is named. Signatures are still checked, so that the other
/// end is at least who holds the key of the certificate that it shows.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
