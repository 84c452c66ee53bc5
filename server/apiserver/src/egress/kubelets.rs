//! Flags and TLS settings of connections to kubelets.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use parking_lot::RwLock;
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

/// Settings of the connections to kubelets. The lock is held for a look-up or a replacement.
pub struct Kubelets {
    options: KubeletOptions,
    loaded: RwLock<Arc<KubeletTls>>,
    /// TLS settings for pods and services proxied over HTTPS: their certificates are not verified, as
    /// upstream.
    pub insecure: Arc<ClientConfig>,
}

/// TLS settings for kubelets, of the files that the flags name.
pub(crate) struct KubeletTls {
    pub verified: Arc<ClientConfig>,
    /// The same without verification of their certificates, for logs that are asked for so.
    pub unverified: Arc<ClientConfig>,
}

impl KubeletTls {
    fn load(options: &KubeletOptions) -> Result<KubeletTls, KubeletSetupError> {
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
        let same = identity.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()));
        Ok(KubeletTls { verified: config(trust, identity)?, unverified: config(ServerTrust::Anyone, same)? })
    }
}

fn config(
    trust: ServerTrust,
    identity: Option<ClientCertificate>,
) -> Result<Arc<ClientConfig>, KubeletSetupError> {
    tls::config(trust, identity).map_err(|error| KubeletSetupError::Client(error.into()))
}

impl Kubelets {
    /// Loads the files that the flags name.
    ///
    /// # Errors
    /// When a file cannot be read, or certificate and key do not match.
    pub fn new(options: &KubeletOptions) -> Result<Kubelets, KubeletSetupError> {
        Ok(Kubelets {
            options: options.clone(),
            loaded: RwLock::new(Arc::new(KubeletTls::load(options)?)),
            insecure: config(ServerTrust::Anyone, None)?,
        })
    }

    /// The files that the flags name.
    pub fn files(&self) -> Vec<PathBuf> {
        let KubeletOptions {
            kubelet_client_certificate,
            kubelet_client_key,
            kubelet_certificate_authority,
            ..
        } = &self.options;
        let files = [kubelet_client_certificate, kubelet_client_key, kubelet_certificate_authority];
        files.into_iter().flatten().cloned().collect()
    }

    /// Loads them again; new connections use them.
    ///
    /// # Errors
    /// As [`Kubelets::new`]; the previous ones stay in use.
    pub fn reload(&self) -> Result<(), KubeletSetupError> {
        *self.loaded.write() = Arc::new(KubeletTls::load(&self.options)?);
        Ok(())
    }

    pub(crate) fn tls(&self) -> Arc<KubeletTls> {
        self.loaded.read().clone()
    }

    /// Types of addresses in order of preference.
    pub(crate) fn address_types(&self) -> &[String] {
        &self.options.kubelet_preferred_address_types
    }
}
