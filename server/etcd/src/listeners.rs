//! The addresses that are listened on, and TLS.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tokio::net::{lookup_host, TcpListener};
use tokio_rustls::TlsAcceptor;

use crate::options::{EtcdOptions, TlsVersion};
use crate::serves::Serves;
use crate::start_error::StartError;

/// An address that is listened on.
pub(crate) struct Listener {
    pub socket: TcpListener,
    /// None for http.
    pub tls: Option<TlsAcceptor>,
    pub serves: Serves,
}

/// A URL to listen on.
struct ListenUrl<'a> {
    is_tls: bool,
    host: &'a str,
}

fn parse_url(url: &str) -> Option<ListenUrl<'_>> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_tls = match scheme {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    (has_port && !host.contains('/')).then_some(ListenUrl { is_tls, host })
}

/// Binds the addresses of the options.
pub(crate) async fn bind(options: &EtcdOptions) -> Result<Vec<Listener>, StartError> {
    let clients = options.listen_client_urls.iter().map(|url| (Serves::Clients, url));
    let metrics = options.listen_metrics_urls.iter().map(|url| (Serves::Metrics, url));
    let mut listeners = Vec::new();
    for (serves, url) in clients.chain(metrics) {
        let flag = |reason| StartError::Flag { flag: serves.flag(), reason };
        let parsed = parse_url(url).ok_or_else(|| flag(format!("{url:?} is not http(s)://HOST:PORT")))?;
        let tls = match parsed.is_tls {
            true => Some(tls(options, serves)?),
            false => None,
        };
        let failed = |source| StartError::Bind { url: url.clone(), source };
        let addresses: Vec<SocketAddr> = lookup_host(parsed.host).await.map_err(failed)?.collect();
        // As etcd, which listens on one address of a name.
        let address = addresses.iter().find(|address| address.is_ipv4()).or(addresses.first());
        let address = address.ok_or_else(|| flag(format!("{url:?} has no address")))?;
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        listeners.push(Listener { socket, tls, serves });
    }
    Ok(listeners)
}

fn tls(options: &EtcdOptions, serves: Serves) -> Result<TlsAcceptor, StartError> {
    let (Some(cert_file), Some(key_file)) = (&options.cert_file, &options.key_file) else {
        let reason = "an https URL needs --cert-file and --key-file".to_owned();
        return Err(StartError::Flag { flag: serves.flag(), reason });
    };
    let of = |file: &std::path::Path| {
        let file = file.display().to_string();
        move |error: &dyn std::fmt::Display| StartError::Certificate { file, reason: error.to_string() }
    };
    let read = |file: &std::path::Path| -> Result<Vec<CertificateDer<'static>>, StartError> {
        let certificates =
            CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        certificates.map_err(|error| of(file)(&error))
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(options)?)
        .map_err(|error| of(cert_file)(&error))?;
    let builder = match &options.trusted_ca_file {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let mut roots = RootCertStore::empty();
            for certificate in read(file)? {
                roots.add(certificate).map_err(|error| of(file)(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
            builder.with_client_cert_verifier(verifier.map_err(|error| of(file)(&error))?)
        }
    };
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| of(key_file)(&error))?;
    let mut config =
        builder.with_single_cert(read(cert_file)?, key).map_err(|error| of(cert_file)(&error))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
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
