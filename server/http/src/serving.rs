//! `--tls-*`: serving certificates and TLS parameters (k8s.io/apiserver `pkg/server/options/serving.go`,
//! k8s.io/component-base `cli/flag`).

use std::path::PathBuf;
use std::sync::Arc;

use clap::{ArgAction, Args, ValueEnum};
use rustls::crypto::CryptoProvider;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{NamedGroup, ServerConfig, SupportedProtocolVersion};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::tls::{self, ServingCertificate, TlsError};
use plinth_pki::{AlternativeNames, Name};

/// TLS of the listener.
#[derive(Clone, Debug, Args)]
pub struct TlsOptions {
    /// File with the serving certificate, PEM; without it the server creates one
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// File with the private key of --tls-cert-file, PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// Certificate and key file for the given server names (SNI); *.example.com is a wildcard; without names,
    /// those of the certificate apply
    #[arg(long, value_name = "CERTIFICATE,KEY[:NAME,...]", value_parser = named)]
    pub tls_sni_cert_key: Vec<NamedCertificate>,
    /// Minimum TLS version; 1.0 and 1.1 mean 1.2
    #[arg(long, value_name = "VERSION")]
    pub tls_min_version: Option<TlsVersion>,
    /// Cipher suites of TLS 1.2, by Go's names; unsupported ones are ignored. Those of TLS 1.3 are not
    /// configurable
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = suite)]
    pub tls_cipher_suites: Vec<String>,
    /// Key exchange mechanisms, by their TLS numbers; unsupported ones are ignored
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    pub tls_curve_preferences: Vec<u16>,
    /// Disable HTTP/2
    #[arg(long, value_name = "BOOL", default_value_t = false, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub disable_http2_serving: bool,
}

/// `--tls-min-version`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TlsVersion {
    /// TLS 1.0, served as 1.2.
    #[value(name = "VersionTLS10")]
    Tls10,
    /// TLS 1.1, served as 1.2.
    #[value(name = "VersionTLS11")]
    Tls11,
    /// TLS 1.2.
    #[value(name = "VersionTLS12")]
    Tls12,
    /// TLS 1.3.
    #[value(name = "VersionTLS13")]
    Tls13,
}

/// The value of one `--tls-sni-cert-key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedCertificate {
    certificate: PathBuf,
    key: PathBuf,
    names: Vec<String>,
}

fn named(text: &str) -> Result<NamedCertificate, String> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) = files
        .split_once(',')
        .filter(|(_, key)| !key.contains(','))
        .ok_or("expected comma separated certificate and key file paths")?;
    let names = names.split(',').map(|name| name.trim().to_ascii_lowercase()).filter(|name| !name.is_empty());
    Ok(NamedCertificate {
        certificate: certificate.trim().into(),
        key: key.trim().into(),
        names: names.collect(),
    })
}

fn suite(text: &str) -> Result<String, String> {
    match text.starts_with("TLS_") {
        true => Ok(text.to_owned()),
        false => Err(format!("Cipher suite {text} not supported or doesn't exist")),
    }
}

impl TlsOptions {
    /// TLS configuration of the listener.
    ///
    /// # Errors
    /// When no cipher suite or key exchange mechanism is left.
    pub fn server_config(&self, certificates: Arc<Certificates>) -> Result<ServerConfig, TlsError> {
        let mut config = tls::server_config(certificates, self.provider(), self.versions())?;
        if self.disable_http2_serving {
            config.alpn_protocols.retain(|protocol| protocol != b"h2");
        }
        Ok(config)
    }

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static NEWEST: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];
        match self.tls_min_version {
            Some(TlsVersion::Tls13) => NEWEST,
            _ => rustls::ALL_VERSIONS,
        }
    }

    /// The enabled cipher suites and key exchange mechanisms.
    fn provider(&self) -> Arc<CryptoProvider> {
        let mut provider = (*plinth_pki::crypto_provider()).clone();
        if !self.tls_cipher_suites.is_empty() {
            tls::limit_cipher_suites(&mut provider, &self.tls_cipher_suites);
        }
        if !self.tls_curve_preferences.is_empty() {
            let wanted = |group: NamedGroup| self.tls_curve_preferences.contains(&u16::from(group));
            provider.kx_groups.retain(|group| wanted(group.name()));
        }
        Arc::new(provider)
    }
}

/// The serving certificates, selected by the server name (SNI) of the client.
#[derive(Debug)]
pub struct Certificates {
    /// Used when no other certificate matches.
    others: ServingCertificate,
    named: Vec<(Vec<String>, ServingCertificate)>,
}

impl Certificates {
    /// Reads the certificates of the options; `others` is used when no name matches one of them.
    ///
    /// # Errors
    /// When a file cannot be used.
    pub fn read(others: ServingCertificate, options: &TlsOptions) -> Result<Certificates, TlsError> {
        let read = |named: &NamedCertificate| {
            let certificate = ServingCertificate::read(&named.certificate, &named.key)?;
            let names = match named.names.is_empty() {
                true => names_of(&certificate.current()),
                false => named.names.clone(),
            };
            Ok((names, certificate))
        };
        let named = options.tls_sni_cert_key.iter().map(read).collect::<Result<_, TlsError>>()?;
        Ok(Certificates { others, named })
    }

    /// Paths of all certificate and key files.
    pub fn files(&self) -> Vec<PathBuf> {
        self.all().flat_map(ServingCertificate::files).collect()
    }

    /// Reloads the files; a certificate that cannot be loaded stays as it was.
    ///
    /// # Errors
    /// The last error.
    pub fn reload(&self) -> Result<(), TlsError> {
        let mut outcome = Ok(());
        for certificate in self.all() {
            if let Err(error) = certificate.reload() {
                outcome = Err(error);
            }
        }
        outcome
    }

    fn all(&self) -> impl Iterator<Item = &ServingCertificate> {
        std::iter::once(&self.others).chain(self.named.iter().map(|(_, certificate)| certificate))
    }

    /// The certificate for a server name: an exact match, else one with a `*` in place of the first label.
    fn of(&self, name: Option<&str>) -> &ServingCertificate {
        let find = |name: &str| {
            let found = self.named.iter().find(|(names, _)| names.iter().any(|own| own == name));
            found.map(|(_, certificate)| certificate)
        };
        let name = name.map(|name| name.trim_end_matches('.').to_ascii_lowercase());
        let star = || name.as_ref()?.split_once('.').and_then(|(_, rest)| find(&format!("*.{rest}")));
        name.as_deref().and_then(find).or_else(star).unwrap_or(&self.others)
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.of(hello.server_name()).current())
    }
}

/// The DNS names of a certificate; its common name if it has none.
fn names_of(certificate: &CertifiedKey) -> Vec<String> {
    let Some(leaf) = certificate.cert.first() else { return Vec::new() };
    let Ok((_, leaf)) = X509Certificate::from_der(leaf) else { return Vec::new() };
    let listed = AlternativeNames::of_certificate(&leaf).unwrap_or_default().dns;
    if !listed.is_empty() {
        return listed.iter().map(|name| name.to_ascii_lowercase()).collect();
    }
    Name::from_der(leaf.subject().as_raw())
        .map(|subject| vec![subject.common_name().to_ascii_lowercase()])
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        tls: TlsOptions,
    }

    fn options(flags: &[&str]) -> Result<TlsOptions, clap::Error> {
        Command::try_parse_from(std::iter::once(&"serve").chain(flags)).map(|command| command.tls)
    }

    #[test]
    fn what_is_agreed_on_goes_by_the_flags() {
        // flags, whether TLS 1.2 is spoken, suites of TLS 1.2, ways to exchange keys
        let rows: &[(&[&str], bool, usize, usize)] = &[
            (&[], true, 6, 3),
            (&["--tls-min-version=VersionTLS10"], true, 6, 3),
            (&["--tls-min-version=VersionTLS13"], false, 6, 3),
            (
                &["--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA"],
                true,
                1,
                3,
            ),
            (&["--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"], true, 1, 3),
            (&["--tls-cipher-suites=TLS_AES_128_GCM_SHA256"], true, 0, 3),
            (&["--tls-curve-preferences=29,23", "--tls-curve-preferences=4588"], true, 6, 2),
        ];
        for (flags, old, suites, groups) in rows {
            let options = options(flags).unwrap();
            let provider = options.provider();
            assert_eq!(options.versions().len() == 2, *old, "{flags:?}");
            let of_old = provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
            assert_eq!((of_old, provider.kx_groups.len()), (*suites, *groups), "{flags:?}");
            assert_eq!(provider.cipher_suites.len() - of_old, 3, "TLS 1.3 keeps its own: {flags:?}");
        }
        for flag in ["--tls-min-version=SSL3", "--tls-cipher-suites=ROT13", "--tls-sni-cert-key=alone"] {
            assert!(options(&[flag]).is_err(), "{flag}");
        }
    }

    #[test]
    fn a_name_leads_to_its_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name).display().to_string();
        for (name, of) in [("a", "own.example.com"), ("b", "b.test"), ("c", "c.test")] {
            let made = rcgen::generate_simple_self_signed([of.to_owned()]).unwrap();
            std::fs::write(file(&format!("{name}.crt")), made.cert.pem()).unwrap();
            std::fs::write(file(&format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
        }
        let named = |name: &str, names: &str| {
            format!(
                "--tls-sni-cert-key={},{}{names}",
                file(&format!("{name}.crt")),
                file(&format!("{name}.key"))
            )
        };
        let flags = [named("b", ""), named("c", ":*.wild.test, Exact.wild.test")];
        let options = options(&flags.each_ref().map(String::as_str)).unwrap();
        let own = ServingCertificate::read(file("a.crt").as_ref(), file("a.key").as_ref()).unwrap();
        let certificates = Certificates::read(own, &options).unwrap();
        assert_eq!(certificates.files().len(), 6);
        // name, whose certificate
        let rows = [
            (None, "own.example.com"),
            (Some("own.example.com"), "own.example.com"),
            (Some("b.test"), "b.test"),
            (Some("B.TEST"), "b.test"),
            (Some("x.b.test"), "own.example.com"),
            (Some("exact.wild.test"), "c.test"),
            (Some("other.wild.test"), "c.test"),
            (Some("deep.other.wild.test"), "own.example.com"),
            (Some("wild.test"), "own.example.com"),
        ];
        for (name, of) in rows {
            assert_eq!(names_of(&certificates.of(name).current()), [of], "{name:?}");
        }
        // One that has become unusable stays as it was, the others are reloaded.
        std::fs::write(file("c.crt"), "nothing").unwrap();
        assert!(certificates.reload().is_err());
        assert_eq!(names_of(&certificates.of(Some("exact.wild.test")).current()), ["c.test"]);
    }
}
