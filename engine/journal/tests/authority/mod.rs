//! A certificate authority for tests of journals over TLS.

#![allow(dead_code)] // each program of tests uses a part of it

/// An authority and what it has signed, PEM.
pub(crate) struct Authority {
    pub certificate: String,
    pub issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "authority of a test");
        let certificate = params.self_signed(&key).unwrap().pem();
        Authority { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    /// A certificate for 127.0.0.1, and its key.
    pub(crate) fn sign(&self, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}
