//! A front proxy's authority and certificate: with these a client names the user of each request in headers.

use std::path::{Path, PathBuf};

use plinth_benches::api::client::Identity;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair};

/// An authority in a directory, and a certificate of it for the front proxy.
pub struct FrontProxy {
    dir: PathBuf,
    issuer: Issuer<'static, KeyPair>,
}

impl FrontProxy {
    /// Makes the authority and writes its certificate into `dir`.
    pub fn new(dir: &Path) -> FrontProxy {
        let key = KeyPair::generate().expect("key");
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name = DistinguishedName::new();
        authority.distinguished_name.push(DnType::CommonName, "recording");
        let certificate = authority.clone().self_signed(&key).expect("authority");
        std::fs::write(dir.join("front-proxy-ca.crt"), certificate.pem()).expect("authority's file");
        FrontProxy { dir: dir.to_owned(), issuer: Issuer::new(authority, key) }
    }

    /// The file of the authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.dir.join("front-proxy-ca.crt")
    }

    /// The proxy's identity.
    pub fn identity(&self) -> Identity {
        let (certificate, key) = self.signed("front-proxy", &[]);
        Identity::Certificate { certificate: certificate.into_bytes(), key: key.into_bytes() }
    }

    /// A certificate and its key, both PEM.
    pub fn signed(&self, name: &str, names: &[&str]) -> (String, String) {
        let key = KeyPair::generate().expect("key");
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).expect("certificate");
        (certificate.pem(), key.serialize_pem())
    }

    /// The flags of a server that trusts this proxy and asks that webhook, whose kubeconfig is written here.
    pub fn flags(&self, kubeconfig: &str) -> Vec<String> {
        let webhook = self.dir.join("webhook.kubeconfig");
        std::fs::write(&webhook, kubeconfig).expect("kubeconfig of the webhook");
        vec![
            format!("--requestheader-client-ca-file={}", self.authority().display()),
            "--requestheader-allowed-names=front-proxy".to_owned(),
            "--requestheader-username-headers=X-Remote-User".to_owned(),
            "--requestheader-group-headers=X-Remote-Group".to_owned(),
            "--requestheader-uid-headers=X-Remote-Uid".to_owned(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
            "--authorization-mode=Webhook".to_owned(),
            format!("--authorization-webhook-config-file={}", webhook.display()),
            "--authorization-webhook-version=v1".to_owned(),
            "--authorization-webhook-cache-authorized-ttl=0s".to_owned(),
            "--authorization-webhook-cache-unauthorized-ttl=0s".to_owned(),
        ]
    }
}
