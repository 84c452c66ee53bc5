use std::path::{Path, PathBuf};

use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use base64::Engine as _;
use plinth_codec::pem;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use super::*;
use crate::authority::{Authority, Template, Uses};
use crate::request::{CertificateRequest, RequestError, CERTIFICATE_REQUEST_LABEL};
use crate::signature::SignatureError;
use crate::{files, AlternativeNames, Name};

/// What OpenSSL made: an authority, and certificates of one key that it signed with each hash.
fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/p521/testdata").join(name)
}

const KEY: &str = "../../jwt/testdata/p521-pkcs8.pem";

fn certificates(name: &str) -> Vec<CertificateDer<'static>> {
    files::read_certificates(&file(name)).unwrap()
}

fn private(name: &str) -> PrivateKey {
    let der = files::read_key(&file(name)).unwrap();
    PrivateKey::from_pkcs8(der.secret_der()).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
    digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

#[test]
fn answers_of_the_standards() {
    // RFC 7515, A.4.
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let x =
        decode("AekpBQ8ST8a8VcfVOTNl353vSrDCLLJXmPk06wTjxrrjcBpXp5EOnYG_NjFZ6OvLFV1jSfS9tsz4qUxcWceqwQGk");
    let y =
        decode("ADSmRA43Z1DSNx_RvcLI87cdL07l6jQyyBXMoxVg_l2Th-x3S1WDhjDly79ajL4Kkd0AZMaZmh9ubmf63e3kyMj2");
    let point = [vec![4], x, y].concat();
    let message = b"eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZA";
    let signature = decode("AdwMgeerwtHoh-l192l60hp9wAHZFVJbLfD_UxMi70cwnZOYaRI1bKPWROc-mZZqwqT2SI-KGDKB34XO0aw_7XdtAG8GaSwFKdCAPZgoXD2YBJZCPEX3xKpRwcdOO8KpEHwJjyqOgzDO7iKvU8vcnwNrmxYbSW9ERBXukOXolLzeO_Jn");
    let key = PublicKey::from_point(&point).unwrap();
    assert!(key.verifies(message, &signature));
    assert!(!key.verifies(b"eyJhbGciOiJFUzUxMiJ9.UGF5bG9hZB", &signature), "another message");
    for at in 0..signature.len() {
        let mut changed = signature.clone();
        changed[at] ^= 1;
        assert!(!key.verifies(message, &changed), "byte {at}");
    }
    for cut in [0, 1, 65, 66, 131] {
        assert!(!key.verifies(message, &signature[..cut]), "{cut} bytes");
    }
    assert!(!key.verifies(message, &[0; 132]), "zeros are no signature");
    // RFC 6979, A.2.7: with SHA-512.
    let scalar = bytes("00FAD06DAA62BA3B25D2FB40133DA757205DE67F5BB0018FEE8C86E1B68C7E75CAA896EB32F1F47C70855836A6D16FCC1466F6D8FBEC67DB89EC0C08B0E996B83538");
    let key = PrivateKey(SigningKey::from_slice(&scalar).unwrap());
    let r = "00C328FAFCBD79DD77850370C46325D987CB525569FB63C5D3BC53950E6D4C5F174E25A1EE9017B5D450606ADD152B534931D7D4E8455CC91F9B15BF05EC36E377FA";
    let s = "00617CCE7CF5064806C467F678D3B4080D6F1CC50AF26CA209417308281B68AF282623EAA63E5B5C0723D8B8C37FF0777B1A20F8CCB1DCCC43997F1EE0E44DA4A67A";
    assert_eq!(key.sign(b"sample").unwrap(), bytes(&format!("{r}{s}")));
}

#[test]
fn points_by_table() {
    let good = private(KEY).0.verifying_key().to_sec1_point(false).as_bytes().to_vec();
    let compressed = private(KEY).0.verifying_key().to_sec1_point(true).as_bytes().to_vec();
    let mut off = good.clone();
    off[132] ^= 1;
    let rows: [(&str, &[u8], bool); 6] = [
        ("uncompressed", &good, true),
        ("compressed", &compressed, false),
        ("not on the curve", &off, false),
        ("infinity", &[0], false),
        ("too short", &good[..132], false),
        ("zeros", &[&[4][..], &[0; 132]].concat(), false),
    ];
    for (what, point, taken) in rows {
        assert_eq!(PublicKey::from_point(point).is_some(), taken, "{what}");
    }
}

/// Whether a chain leads to the authority.
fn verified(chain: &[CertificateDer<'_>]) -> Result<(), rustls::Error> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates("authority.pem").remove(0)).unwrap();
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), crypto_provider());
    let now = rustls::pki_types::UnixTime::now();
    verifier.build().unwrap().verify_client_cert(&chain[0], &[], now).map(|_| ())
}

#[test]
fn certificates_of_each_hash_lead_to_their_authority() {
    for hash in ["sha256", "sha384", "sha512"] {
        let chain = certificates(&format!("client-{hash}.pem"));
        verified(&chain).unwrap_or_else(|error| panic!("{hash}: {error}"));
        let mut changed = chain[0].to_vec();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        assert!(verified(&[changed.into()]).is_err(), "{hash}: another signature");
        let pem = std::fs::read(file(&format!("request-{hash}.pem"))).unwrap();
        let request = CertificateRequest::read(&pem).unwrap_or_else(|error| panic!("{hash}: {error}"));
        assert_eq!((request.subject.common_name(), request.subject.organizations()), ("jane", vec!["dev"]));
        let mut der = pem::parse_one(&pem, CERTIFICATE_REQUEST_LABEL).unwrap();
        let last = der.len() - 1;
        der[last] ^= 1;
        let damaged = pem::encode(CERTIFICATE_REQUEST_LABEL, &der);
        let wrong = SignatureError::Wrong("x509: ECDSA verification failure");
        assert_eq!(
            CertificateRequest::read(damaged.as_bytes()),
            Err(RequestError::Signature(wrong)),
            "{hash}"
        );
    }
}

#[test]
fn an_authority_of_the_curve_signs() {
    let authority = Authority::read(&file("authority.pem"), &file("authority-key.pem")).unwrap();
    assert!(Authority::read(&file("authority.pem"), &file(KEY)).is_err(), "the key of another certificate");
    let key = rcgen::KeyPair::generate().unwrap();
    let now = time::OffsetDateTime::now_utc();
    let public = rcgen::PublicKeyData::subject_public_key_info(&key);
    let template = Template {
        subject: &Name::of_user("jane", &["dev"], ""),
        public_key: &public,
        names: &AlternativeNames::default(),
        uses: Uses { key: 1, extended: vec![&[1, 3, 6, 1, 5, 5, 7, 3, 2]] },
        not_before: now - time::Duration::minutes(5),
        not_after: now + time::Duration::hours(1),
    };
    let pem = authority.sign(&template).unwrap();
    let certificates = files::parse_certificates(pem.as_bytes()).unwrap();
    verified(&certificates).unwrap();
}

#[test]
fn tls_with_keys_of_the_curve_at_both_ends() {
    let certified = || (certificates("client-sha512.pem"), files::read_key(&file(KEY)).unwrap());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificates("authority.pem").remove(0)).unwrap();
    let roots = Arc::new(roots);
    for version in rustls::ALL_VERSIONS {
        let provider = crypto_provider();
        let clients =
            rustls::server::WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let (chain, key) = certified();
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(chain, key)
            .unwrap();
        let (chain, key) = certified();
        let client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots.clone())
            .with_client_auth_cert(chain, key)
            .unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).unwrap();
            server.read_tls(&mut wire.as_slice()).unwrap();
            server.process_new_packets().unwrap();
            wire.clear();
            server.write_tls(&mut wire).unwrap();
            client.read_tls(&mut wire.as_slice()).unwrap();
            client.process_new_packets().unwrap();
        }
        assert_eq!(server.peer_certificates().unwrap(), certificates("client-sha512.pem"), "{version:?}");
    }
}
