//! TLS of the listeners: certificates, versions and suites, and which clients are refused.

use std::path::Path;
use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio_rustls::TlsAcceptor;

use crate::options::{EtcdOptions, TlsVersion};
use crate::revocations::Revocations;
use crate::self_signed;
use crate::start_error::StartError;

/// TLS of a listener.
#[derive(Clone)]
pub(crate) struct Tls {
    pub acceptor: TlsAcceptor,
    /// The list of certificates that are refused.
    pub revocations: Option<Arc<Revocations>>,
}

impl Tls {
    /// TLS by the options. `hosts` are those of the URLs, for a certificate that the server makes itself.
    /// None without a certificate.
    pub(crate) fn new(
        options: &EtcdOptions,
        provider: CryptoProvider,
        hosts: &[String],
    ) -> Result<Option<Tls>, StartError> {
        let (cert_file, key_file) = match (&options.cert_file, &options.key_file) {
            (Some(certificate), Some(key)) => {
                if options.auto_tls {
                    tracing::warn!("--auto-tls is ignored, since --cert-file is given");
                }
                (certificate.clone(), key.clone())
            }
            _ if options.auto_tls => {
                self_signed::files(&options.data_dir, hosts, options.self_signed_cert_validity)?
            }
            _ => return Ok(None),
        };
        let (cert_file, key_file) = (cert_file.as_path(), key_file.as_path());
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions(options)?)
            .map_err(|error| unusable(cert_file, &error))?;
        let builder = match &options.trusted_ca_file {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let mut roots = RootCertStore::empty();
                for certificate in read(file)? {
                    roots.add(certificate).map_err(|error| unusable(file, &error))?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| unusable(file, &error))?)
            }
        };
        let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| unusable(key_file, &error))?;
        let config = builder.with_single_cert(read(cert_file)?, key);
        let mut config = config.map_err(|error| unusable(cert_file, &error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let revocations = match &options.client_crl_file {
            None => None,
            Some(file) => {
                let opened = Revocations::open(file);
                Some(Arc::new(opened.map_err(|error| StartError::Flag {
                    flag: "--client-crl-file",
                    reason: error.to_string(),
                })?))
            }
        };
        Ok(Some(Tls { acceptor: TlsAcceptor::from(Arc::new(config)), revocations }))
    }
}

fn unusable(file: &Path, error: &dyn std::fmt::Display) -> StartError {
    StartError::Certificate { file: file.display().to_string(), reason: error.to_string() }
}

fn read(file: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certificates = certificates.map_err(|error| unusable(file, &error))?;
    match certificates.is_empty() {
        true => Err(unusable(file, &"no certificate in PEM is in it")),
        false => Ok(certificates),
    }
}

/// The versions of TLS that are spoken.
fn versions(options: &EtcdOptions) -> Result<Vec<&'static SupportedProtocolVersion>, StartError> {
    let (min, max) = (options.tls_min_version, options.tls_max_version);
    let known = [(TlsVersion::Tls12, &TLS12), (TlsVersion::Tls13, &TLS13)];
    let versions: Vec<_> = known
        .into_iter()
        .filter(|(version, _)| (min..=max).contains(version))
        .map(|(_, version)| version)
        .collect();
    match versions.is_empty() {
        true => {
            let reason = "the minimum is greater than the maximum".to_owned();
            Err(StartError::Flag { flag: "--tls-min-version", reason })
        }
        false => Ok(versions),
    }
}
