//! TLS client settings: which servers are trusted, and the client's own certificate.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_name, WebPkiServerVerifier};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use x509_parser::prelude::{FromDer, X509Certificate};

use plinth_pki::{crypto_provider, parse_certificates};

/// Why a PEM text contains no certificate authorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthoritiesError {
    /// It is not PEM.
    #[error("unable to parse bytes as PEM block")]
    Pem,
    /// It contains an invalid certificate, or none.
    #[error("data does not contain any valid certificates")]
    Certificate,
}

/// Which servers a client trusts.
pub enum ServerTrust {
    /// Servers with a certificate of one of these authorities.
    Authorities(Arc<RootCertStore>),
    /// Any server.
    Anyone,
}

/// A client's certificate with its intermediates, and its key.
pub type ClientCertificate = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

/// TLS 1.2 and 1.3 as a client.
///
/// # Errors
/// When certificate and key do not match, or the key's type is not supported.
pub fn config(
    trust: ServerTrust,
    identity: Option<ClientCertificate>,
) -> Result<Arc<ClientConfig>, rustls::Error> {
    let provider = crypto_provider();
    let builder =
        ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions()?;
    let builder = match trust {
        // No verifier can be built from an empty store: no server is trusted.
        ServerTrust::Authorities(roots) if roots.is_empty() => builder.with_root_certificates(roots),
        trust => {
            let authorities = match trust {
                ServerTrust::Authorities(roots) => Some(AuthorityVerifier::new(roots, &provider)?),
                ServerTrust::Anyone => None,
            };
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Verifier { provider, authorities }))
        }
    };
    Ok(Arc::new(match identity {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key)?,
        None => builder.with_no_client_auth(),
    }))
}

/// The certificate authorities of a PEM text.
///
/// # Errors
/// [`AuthoritiesError`]: all certificates must be valid, and there must be at least one.
pub fn authorities(pem: &[u8]) -> Result<Arc<RootCertStore>, AuthoritiesError> {
    let mut roots = RootCertStore::empty();
    let certificates = parse_certificates(pem).map_err(|_| AuthoritiesError::Pem)?;
    if certificates.is_empty() {
        return Err(AuthoritiesError::Pem);
    }
    for certificate in certificates {
        roots.add(certificate).map_err(|_| AuthoritiesError::Certificate)?;
    }
    Ok(Arc::new(roots))
}

/// The certificate authorities of a PEM text; the system's when it is blank.
///
/// # Errors
/// As [`authorities`].
pub fn authorities_or_system(pem: &[u8]) -> Result<Arc<RootCertStore>, AuthoritiesError> {
    match pem.iter().all(u8::is_ascii_whitespace) {
        true => Ok(system_authorities()),
        false => authorities(pem),
    }
}

/// The system's trust store, or what `SSL_CERT_FILE` and `SSL_CERT_DIR` name; empty where there is none.
/// Loaded once, as Go does.
fn system_authorities() -> Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "a part of the system's trust store cannot be loaded; its certificate \
                authorities are not trusted");
        }
        let mut roots = RootCertStore::empty();
        // Trust stores contain certificates of obsolete forms; those are skipped.
        let _ = roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    };
    ROOTS.get_or_init(read).clone()
}

/// Verifies servers by [`ServerTrust`]. Signatures are always checked, so that the server is known to hold
/// the key of the certificate that it sends.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` where any server is trusted.
    authorities: Option<AuthorityVerifier>,
}

/// Accepts certificates that an authority has signed, and a certificate that is itself an authority. Webhooks
/// often sign their own certificate and publish it as `caBundle`; tools mark it as a CA, which webpki rejects
/// as a server certificate. Go accepts it.
#[derive(Debug)]
struct AuthorityVerifier {
    webpki: Arc<WebPkiServerVerifier>,
    roots: Arc<RootCertStore>,
}

impl AuthorityVerifier {
    fn new(
        roots: Arc<RootCertStore>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<AuthorityVerifier, rustls::Error> {
        let webpki = WebPkiServerVerifier::builder_with_provider(roots.clone(), provider.clone()).build();
        let webpki = webpki.map_err(|e| rustls::Error::General(e.to_string()))?;
        Ok(AuthorityVerifier { webpki, roots })
    }

    /// Whether the certificate, with its key and subject, is one of the authorities.
    fn is_authority(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut alone = RootCertStore::empty();
        alone.add(certificate.clone().into_owned()).is_ok()
            && alone.roots.iter().all(|anchor| self.roots.roots.contains(anchor))
    }

    /// For a certificate that is an authority: whether it is valid now and has that name.
    fn verify_authority(
        certificate: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
        error: rustls::Error,
    ) -> Result<(), rustls::Error> {
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| error)?;
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let (first, last) =
            (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp());
        let time = |seconds: i64| {
            UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
        };
        if seconds < first {
            return Err(CertificateError::NotValidYetContext { time: now, not_before: time(first) }.into());
        }
        if seconds > last {
            return Err(CertificateError::ExpiredContext { time: now, not_after: time(last) }.into());
        }
        verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else { return Ok(ServerCertVerified::assertion()) };
        match authorities.webpki.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(error) if authorities.is_authority(certificate) => {
                AuthorityVerifier::verify_authority(certificate, name, now, error)
                    .map(|()| ServerCertVerified::assertion())
            }
            outcome => outcome,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tls_error::in_go;
    use super::*;

    #[test]
    fn an_authority_may_answer_for_itself() {
        use rustls::pki_types::ServerName;
        let made = |name: &str, not_after: Option<(i32, u8, u8)>| {
            let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
            params.distinguished_name.push(rcgen::DnType::CommonName, name);
            if let Some((year, month, day)) = not_after {
                params.not_after = rcgen::date_time_ymd(year, month, day);
            }
            params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap()
        };
        let (hook, other, old) = (made("hook", None), made("other", None), made("old", Some((2001, 1, 1))));
        let trusted = format!("{}{}", hook.pem(), old.pem());
        let roots = authorities(trusted.as_bytes()).unwrap();
        let provider = crypto_provider();
        let authorities = Some(AuthorityVerifier::new(roots, &provider).unwrap());
        let verifier = Verifier { provider, authorities };
        // certificate, server name, error
        let rows = [
            (&hook, "hook", None),
            (&hook, "elsewhere", Some("certificate is valid for hook, not elsewhere")),
            (&other, "other", Some("certificate signed by unknown authority")),
            (&other, "hook", Some("certificate signed by unknown authority")),
            (&old, "old", Some("is after 2001-01-01T00:00:00Z")),
        ];
        for (who, name, error) in rows {
            let server = ServerName::try_from(name).unwrap();
            let outcome = verifier.verify_server_cert(who.der(), &[], &server, &[], UnixTime::now());
            let shown = outcome.err().map(|error| in_go(&std::io::Error::other(error)));
            match error {
                None => assert_eq!(shown, None, "{name}"),
                Some(end) => assert!(shown.as_ref().is_some_and(|shown| shown.ends_with(end)), "{shown:?}"),
            }
        }
    }

    #[test]
    fn bundles_are_certificates_or_nothing() {
        let certificate = rcgen::generate_simple_self_signed(vec!["a".into()]).unwrap().cert.pem();
        let rows = [
            ("bogus", Err(AuthoritiesError::Pem)),
            ("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", Err(AuthoritiesError::Certificate)),
            (certificate.as_str(), Ok(1)),
        ];
        for (pem, expected) in rows {
            assert_eq!(authorities_or_system(pem.as_bytes()).map(|roots| roots.len()), expected, "{pem}");
        }
        assert!(authorities(b" \n").is_err() && authorities_or_system(b" \n").is_ok());
    }
}
