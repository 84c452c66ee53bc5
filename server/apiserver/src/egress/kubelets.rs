//! Flags and TLS settings of connections to kubelets.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use rustls::{ClientConfig, RootCertStore};

use super::tls::{self, ServerTrust};
use plinth_http::tls::TlsError;
use plinth_pki::files::{read_certificates, read_key};

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

/// Settings of the connections to kubelets, loaded once. Immutable.
pub struct Kubelets {
    /// TLS settings for kubelets.
    pub tls: Arc<ClientConfig>,
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
    pub fn new(options: &KubeletOptions) -> Result<Kubelets, TlsError> {
        let trust = match &options.kubelet_certificate_authority {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for certificate in read_certificates(path)? {
                    roots.add(certificate)?;
                }
                ServerTrust::Authorities(Arc::new(roots))
            }
            None => ServerTrust::Anyone,
        };
        let identity = match (&options.kubelet_client_certificate, &options.kubelet_client_key) {
            (Some(certificate), Some(key)) => Some((read_certificates(certificate)?, read_key(key)?)),
            _ => None,
        };
        Ok(Kubelets {
            tls: tls::config(trust, identity)?,
            insecure: tls::config(ServerTrust::Anyone, None)?,
            address_types: options.kubelet_preferred_address_types.clone(),
        })
    }
}
