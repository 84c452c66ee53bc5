//! Certificates that the server makes, suites, revoked clients, and sockets in the file system.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use plinth_etcd::wire::maintenance::StatusResponse;
use plinth_etcd::wire::Empty;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationList, CertificateRevocationListParams, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::TlsConnector;
use tonic::transport::Identity;

use crate::support::{Client, TestServer};

/// An authority, and the files of a server's certificate of it.
struct Pki {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
    authority: String,
}

impl Pki {
    fn new() -> Pki {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = params.self_signed(&key).unwrap().pem();
        let pki = Pki { dir: tempfile::tempdir().unwrap(), issuer: Issuer::new(params, key), authority };
        let (certificate, key) = pki.issue(1);
        for (name, text) in [("server.crt", &certificate), ("server.key", &key), ("ca.crt", &pki.authority)] {
            std::fs::write(pki.dir.path().join(name), text).unwrap();
        }
        pki
    }

    /// A certificate with this serial number, and its key.
    fn issue(&self, serial: u64) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(serial));
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    /// Writes the list of revoked certificates, in DER.
    fn revoke(&self, serials: &[u64]) {
        std::fs::write(self.path("crl"), self.revoked(serials).der()).unwrap();
    }

    fn revoked(&self, serials: &[u64]) -> CertificateRevocationList {
        let now = std::time::SystemTime::now();
        let revoked_certs = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + std::time::Duration::from_secs(3600)).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap()
    }

    /// The flags of a server with a certificate, and more of them.
    fn flags(&self, more: &[&str]) -> Vec<String> {
        let files = [format!("--cert-file={}", self.path("server.crt"))];
        let key = format!("--key-file={}", self.path("server.key"));
        files.into_iter().chain([key]).chain(more.iter().map(|flag| (*flag).to_owned())).collect()
    }

    async fn start(&self, more: &[&str]) -> TestServer {
        let flags = self.flags(more);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        TestServer::start(&self.dir.path().join("data"), &flags).await
    }

    async fn refused(&self, more: &[&str]) -> String {
        let flags = self.flags(more);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        TestServer::refused(&self.dir.path().join("data"), &flags).await
    }
}

/// A handshake with a server whose certificate is of `authority`; with `suite` alone, if it is given.
async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    authority: &str,
    suite: Option<CipherSuite>,
) -> std::io::Result<TlsStream<S>> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|own| suite.is_none_or(|suite| own.suite() == suite));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

/// Whether a call of a client gets an answer.
async fn is_served(client: Result<Client, tonic::transport::Error>) -> bool {
    match client {
        Err(_) => false,
        // With TLS 1.3 the refusal may come with the first call.
        Ok(client) => client.call::<_, StatusResponse>("Maintenance/Status", Empty {}).await.is_ok(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_makes_a_certificate_for_itself() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    let flags = ["--data-dir", data, "--auto-tls", "--listen-client-urls", "https://localhost:0"];
    let store = dir.path().join("store");
    let server = TestServer::start(&store, &flags).await;
    let file = dir.path().join("fixtures/client/cert.pem");
    let made = std::fs::read_to_string(&file).unwrap();
    let client = server.tls_client(&made, None).await.unwrap();
    client.put("a", "1").await;
    server.stop().await;
    // It stays.
    let server = TestServer::start(&store, &flags).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), made);
    assert!(server.tls_client(&made, None).await.unwrap().get("a").await.is_some());
    server.stop().await;
    let refused = |more: &'static str| {
        let flags = [&flags[..], &[more]].concat();
        let store = store.clone();
        async move { TestServer::refused(&store, &flags).await }
    };
    std::fs::remove_file(&file).unwrap();
    let error = refused("--self-signed-cert-validity=0").await;
    assert!(error.starts_with("--self-signed-cert-validity: "), "{error}");
    // What cannot be used is reported, and not made once more.
    std::fs::write(&file, "nothing").unwrap();
    let error = refused("--metrics=basic").await;
    assert!(error.starts_with(file.to_str().unwrap()) && error.contains("no certificate"), "{error}");
    let without = TestServer::refused(&store, &["--listen-client-urls", "https://localhost:0"]).await;
    assert!(without.contains("needs --cert-file and --key-file, or --auto-tls"), "{without}");

    // A certificate of the flags takes precedence.
    let pki = Pki::new();
    let server = pki.start(&["--auto-tls", "--listen-client-urls", "https://127.0.0.1:0"]).await;
    server.tls_client(&pki.authority, None).await.unwrap().put("a", "1").await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn suites_are_those_of_the_flag() {
    const CHACHA: CipherSuite = CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256;
    let pki = Pki::new();
    let url = ["--listen-client-urls", "https://127.0.0.1:0"];
    let name = "--cipher-suites=TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305,TLS_RSA_WITH_AES_128_CBC_SHA";
    let server = pki.start(&[&url[..], &[name]].concat()).await;
    let connect = |address: SocketAddr| async move { TcpStream::connect(address).await.unwrap() };
    let stream = handshake(connect(server.address).await, &pki.authority, None).await.unwrap();
    assert_eq!(stream.get_ref().1.negotiated_cipher_suite().unwrap().suite(), CHACHA);
    let other = Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256);
    assert!(handshake(connect(server.address).await, &pki.authority, other).await.is_err());
    server.stop().await;
    for (flags, expected) in [
        (&["--cipher-suites=ROT13"][..], "unexpected TLS cipher suite \"ROT13\""),
        (&[name, "--tls-min-version=TLS1.3"], "only TLS1.3 is enabled"),
        (&["--cipher-suites=TLS_RSA_WITH_RC4_128_SHA", "--tls-max-version=TLS1.2"], "is supported"),
    ] {
        let error = pki.refused(&[&url[..], flags].concat()).await;
        assert!(error.starts_with("--cipher-suites: ") && error.contains(expected), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_clients_are_refused_as_the_list_changes() {
    let pki = Pki::new();
    pki.revoke(&[0x101]);
    let files = [
        format!("--trusted-ca-file={}", pki.path("ca.crt")),
        format!("--client-crl-file={}", pki.path("crl")),
    ];
    let flags = ["--listen-client-urls", "https://127.0.0.1:0", "--client-cert-auth", &files[0], &files[1]];
    let server = pki.start(&flags).await;
    let identities = [0x101, 0x102].map(|serial| {
        let (certificate, key) = pki.issue(serial);
        Identity::from_pem(certificate, key)
    });
    let served = |number: usize| {
        let client = server.tls_client(&pki.authority, Some(identities[number].clone()));
        async move { is_served(client.await).await }
    };
    assert!(!served(0).await && served(1).await);
    pki.revoke(&[0x102, 7]);
    assert!(served(0).await && !served(1).await);
    // Several lists, as of several authorities.
    let lists = [&[7][..], &[0x101], &[8]].map(|serials| pki.revoked(serials).pem().unwrap());
    std::fs::write(pki.path("crl"), lists.concat()).unwrap();
    assert!(!served(0).await && served(1).await);
    // A list that cannot be read: nobody is known not to be revoked.
    std::fs::write(pki.path("crl"), "nothing").unwrap();
    assert!(!served(0).await && !served(1).await);
    server.stop().await;
    let error = pki.refused(&flags).await;
    assert!(error.starts_with("--client-crl-file: ") && error.contains("not a list"), "{error}");
    std::fs::remove_file(pki.path("crl")).unwrap();
    let error = pki.refused(&flags).await;
    assert!(error.starts_with("--client-crl-file: ") && error.contains("No such file"), "{error}");
}

/// The response to a request for the version.
async fn version(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> String {
    let request = b"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test(flavor = "multi_thread")]
async fn sockets_in_the_file_system_are_served() {
    let pki = Pki::new();
    let (plain, secure) = (pki.path("plain.sock"), pki.path("secure.sock"));
    let urls = format!("unix://{plain},unixs://{secure}");
    // One that a process has left, which was killed.
    drop(std::os::unix::net::UnixListener::bind(&plain).unwrap());
    let server = pki.start(&["--listen-client-urls", &urls]).await;
    let client = Client::connect(&format!("unix://{plain}")).await.unwrap();
    client.put("a", "1").await;
    assert_eq!(client.get("a").await.unwrap().value, "1");
    assert!(version(UnixStream::connect(&plain).await.unwrap()).await.contains("etcdserver"));
    let stream = UnixStream::connect(&secure).await.unwrap();
    let stream = handshake(stream, &pki.authority, None).await.unwrap();
    assert!(version(stream).await.contains("etcdserver"));
    // Another server neither takes its place nor removes it; a file of somebody else in it stays.
    let urls = ["--listen-client-urls", &format!("unix://{plain}")];
    let error = TestServer::refused(&pki.dir.path().join("other"), &urls).await;
    assert!(error.contains("cannot listen on unix://") && error.contains("another process"), "{error}");
    assert_eq!(client.get("a").await.unwrap().value, "1");
    std::fs::remove_file(&secure).unwrap();
    std::fs::write(&secure, "data").unwrap();
    drop(client);
    server.stop().await;
    assert!(!Path::new(&plain).exists());
    assert_eq!(std::fs::read_to_string(&secure).unwrap(), "data");
    std::fs::remove_file(&secure).unwrap();

    // What is no socket is not removed.
    std::fs::write(&plain, "data").unwrap();
    let refused = |urls: String| {
        let pki = &pki;
        async move { pki.refused(&["--listen-client-urls", &urls]).await }
    };
    let error = refused(format!("unix://{plain}")).await;
    assert!(error.contains("cannot listen on unix://") && error.contains("no socket"), "{error}");
    assert_eq!(std::fs::read_to_string(&plain).unwrap(), "data");
    let error = refused(format!("unix://{}/a.sock", pki.path("absent"))).await;
    assert!(error.contains("No such file"), "{error}");
    let error = refused("unix://".to_owned()).await;
    assert!(error.starts_with("--listen-client-urls: "), "{error}");
    let dir = pki.dir.path().join("data");
    let without = ["--listen-client-urls", &format!("unixs://{secure}")];
    let error = TestServer::refused(&dir, &without).await;
    assert!(error.contains("--cert-file"), "{error}");
}
