//! `--cipher-suites`, by the names of Go (`crypto/tls`), as etcd has it (`client/pkg/tlsutil`).

use rustls::crypto::CryptoProvider;

use crate::options::{EtcdOptions, TlsVersion};
use crate::start_error::StartError;

const FLAG: &str = "--cipher-suites";

/// Go's suites but for those whose names end as others do; etcd knows the last two by shorter names, too.
const KNOWN: [&str; 27] = [
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
];

/// The provider of TLS, with those suites of TLS 1.2 that the options name. As in Go, those of TLS 1.3 are
/// not configurable.
pub(crate) fn provider(options: &EtcdOptions) -> Result<CryptoProvider, StartError> {
    let refused = |reason| Err(StartError::Flag { flag: FLAG, reason });
    let mut provider = (*plinth_pki::crypto_provider()).clone();
    let wanted = &options.cipher_suites;
    if wanted.is_empty() {
        return Ok(provider);
    }
    if let Some(unknown) = wanted.iter().find(|name| !KNOWN.contains(&name.as_str())) {
        return refused(format!("unexpected TLS cipher suite {unknown:?}"));
    }
    if options.tls_min_version == TlsVersion::Tls13 {
        return refused("cipher suites cannot be configured when only TLS1.3 is enabled".to_owned());
    }
    plinth_http::limit_cipher_suites(&mut provider, wanted);
    if provider.cipher_suites.iter().all(|suite| suite.tls13().is_some()) {
        match options.tls_max_version {
            TlsVersion::Tls12 => return refused("no suite of TLS 1.2 among them is supported".to_owned()),
            TlsVersion::Tls13 => {
                tracing::warn!(flag = FLAG, "no suite of TLS 1.2 among them is supported, TLS 1.3 is left");
            }
        }
    }
    Ok(provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::tests::options;

    #[test]
    fn suites_are_those_of_the_flag() {
        let both = "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_AES_128_CBC_SHA";
        for (flags, expected) in [
            (&[][..], Ok(6)),
            (&[both], Ok(1)),
            (&["--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"], Ok(1)),
            (&["--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"], Ok(1)),
            (&["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA"], Ok(0)),
            (&["--cipher-suites=TLS_AES_128_GCM_SHA256"], Ok(0)),
            (&["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA", "--tls-max-version=TLS1.2"], Err("supported")),
            (&[both, "--tls-min-version=TLS1.3"], Err("only TLS1.3 is enabled")),
            (&["--cipher-suites=ROT13"], Err("unexpected TLS cipher suite \"ROT13\"")),
            (&["--cipher-suites=tls_aes_128_gcm_sha256"], Err("unexpected TLS cipher suite")),
        ] {
            let suites = provider(&options(flags)).map(|provider| provider.cipher_suites);
            match (suites, expected) {
                (Ok(suites), Ok(count)) => {
                    let old = suites.iter().filter(|suite| suite.tls13().is_none()).count();
                    assert_eq!((old, suites.len() - old), (count, 3), "{flags:?}");
                }
                (Err(error), Err(end)) => {
                    let text = error.to_string();
                    assert!(text.starts_with("--cipher-suites: ") && text.contains(end), "{text}");
                }
                (suites, _) => panic!("{flags:?}: {suites:?}"),
            }
        }
    }
}
