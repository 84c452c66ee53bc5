//! Flags and TLS settings of connections to kubelets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use rustls::server::VerifierBuilderError;
use rustls::{ClientConfig, RootCertStore};

use super::tls::{self, ClientCertificate, ServerTrust};
use plinth_http::TlsError;
use plinth_pki::{read_certificates, read_key};

/// Flags of the connections to kubelets.
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

/// Files of the flags that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeletSetupError {
    /// The authority's.
    #[error("--kubelet-certificate-authority: {0}")]
    Authority(#[source] TlsError),
    /// The client certificate or its key.
    #[error("--kubelet-client-certificate and --kubelet-client-key: {0}")]
    Client(#[source] TlsError),
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_certificates(path)? {
        roots.add(certificate)?;
    }
    match roots.is_empty() {
        true => {
            Err(TlsError::Authorities { path: path.to_owned(), source: VerifierBuilderError::NoRootAnchors })
        }
        false => Ok(roots),
    }
}

fn identity(certificate: &Path, key: &Path) -> Result<ClientCertificate, TlsError> {
    Ok((read_certificates(certificate)?, read_key(key)?))
}

/// Settings of the connections to kubelets, loaded once. Immutable.
pub struct Kubelets {
    /// TLS settings for kubelets.
    pub tls: Arc<ClientConfig>,
    /// The same without verification of their certificates, for logs that are asked for so.
    pub unverified: Arc<ClientConfig>,
    /// TLS settings for pods and services proxied over HTTPS: their certificates are not verified, as
    /// upstream.
    pub insecure: Arc<ClientConfig>,
    /// Types of addresses in order of preference.
    pub address_types: Vec<String>,
}

impl Kubelets {
    /// Loads the files that the flags name.
    ///
    /// # Errors
    /// When a file cannot be read, or certificate and key do not match.
    pub fn new(options: &KubeletOptions) -> Result<Kubelets, KubeletSetupError> {
        let trust = match &options.kubelet_certificate_authority {
            Some(path) => {
                ServerTrust::Authorities(Arc::new(authorities(path).map_err(KubeletSetupError::Authority)?))
            }
            None => ServerTrust::Anyone,
        };
        let identity = match (&options.kubelet_client_certificate, &options.kubelet_client_key) {
            (Some(certificate), Some(key)) => {
                Some(identity(certificate, key).map_err(KubeletSetupError::Client)?)
            }
            _ => None,
        };
        let config = |trust, identity| {
            tls::config(trust, identity).map_err(|error| KubeletSetupError::Client(error.into()))
        };
        let same = identity.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        Ok(Kubelets {
            tls: config(trust, identity)?,
            unverified: config(ServerTrust::Anyone, same)?,
            insecure: config(ServerTrust::Anyone, None)?,
            address_types: options.kubelet_preferred_address_types.clone(),
        })
    }
}
