use std::net::{IpAddr, Ipv4Addr};

use plinth_codec::pem;
use rcgen::{CertificateParams, IsCa, Issuer, KeyPair};

use super::*;

const SERVICE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

fn fresh() -> (tempfile::TempDir, Pki) {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::at(dir.path());
    pki.ensure(&[], SERVICE).unwrap();
    (dir, pki)
}

fn reasons(pki: &Pki) -> Vec<String> {
    pki.verify(Stage::Complete).iter().map(ToString::to_string).collect()
}

fn files(pki: &Pki) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(&pki.dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert_eq!(files.len(), 7, "{files:?}");
    files
}

/// Flips each bit of all files, except for the server's certificate, where it is one bit per byte: its checks
/// are the same as for the administrator's, and 20,000 checks take some seconds.
#[test]
fn every_flipped_bit_of_a_file_that_was_made_here_is_reported() {
    let missed: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|half| {
                scope.spawn(move || {
                    let (_dir, pki) = fresh();
                    assert!(reasons(&pki).is_empty());
                    files(&pki).iter().skip(half).step_by(2).flat_map(|file| flips(&pki, file)).collect()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| -> Vec<String> { thread.join().unwrap() }).collect()
    });
    assert!(missed.is_empty(), "{} are missed: {missed:#?}", missed.len());
}

/// The flips that are not reported, or not for that file.
fn flips(pki: &Pki, file: &Path) -> Vec<String> {
    let sound = fs::read(file).unwrap();
    let mut missed = Vec::new();
    let is_sampled = file.file_stem().is_some_and(|stem| stem == "apiserver");
    let bits = (0..sound.len() * 8).filter(|bit| !is_sampled || bit % 8 == bit / 8 % 8);
    for bit in bits {
        let mut bytes = sound.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        fs::write(file, &bytes).unwrap();
        let name = |path: &Path| path.file_stem().map(ToOwned::to_owned);
        // A certificate and a key that do not fit each other are reported as either.
        let is_reported =
            |error: &PkiError| matches!(error, PkiError::Damaged { path, .. } if name(path) == name(file));
        if !pki.verify(Stage::Complete).iter().any(is_reported) {
            missed.push(format!("{}: byte {}, bit {}", file.display(), bit / 8, bit % 8));
        }
    }
    fs::write(file, sound).unwrap();
    missed
}

#[test]
fn what_is_in_order_is_not_reported() {
    let (_dir, pki) = fresh();
    let rewrite = |path: &Path, change: &dyn Fn(String) -> String| {
        let text = fs::read_to_string(path).unwrap();
        fs::write(path, change(text)).unwrap();
        assert_eq!(reasons(&pki), [""; 0], "{}", path.display());
        assert!(pki.check(Stage::Complete).is_ok());
    };
    let other = CertificateParams::default().self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
    for path in files(&pki) {
        rewrite(&path, &|text| text.replace('\n', "\r\n"));
        rewrite(&path, &|text| format!("# the cluster's\n\n{text}end"));
    }
    rewrite(&pki.ca_cert(), &|text| format!("{text}\n{other}"));
    // The authority's name with another key, signed by a third one: what a change of its key leaves.
    let [key, former] = [(); 2].map(|()| KeyPair::generate().unwrap());
    let renewed = authority_params().signed_by(&key, &Issuer::new(authority_params(), former)).unwrap().pem();
    rewrite(&pki.ca_cert(), &|text| format!("{text}\n{renewed}"));
    fs::remove_file(pki.admin_cert()).unwrap();
    fs::remove_file(pki.admin_key()).unwrap();
    assert_eq!(reasons(&pki), [""; 0], "the next start makes them");
}

/// An authority that was signed by another one, and a certificate of the server by that one.
#[test]
fn certificates_of_other_issuers_are_not_reported() {
    let (_dir, pki) = fresh();
    let named = |name: &str| {
        let mut params = authority_params();
        params.distinguished_name = subject(name, &[]);
        params
    };
    let root_key = KeyPair::generate().unwrap();
    let root = Issuer::new(named("ca-2"), root_key);
    let key = KeyPair::generate().unwrap();
    // One bit from the name of its issuer.
    let cert = named("ca-3").signed_by(&key, &root).unwrap();
    fs::write(pki.ca_cert(), cert.pem()).unwrap();
    fs::write(pki.ca_key(), key.serialize_pem()).unwrap();
    for (cert, key_path) in [(pki.serving_cert(), pki.serving_key()), (pki.admin_cert(), pki.admin_key())] {
        let key = KeyPair::generate().unwrap();
        let mut params = leaf_params("own", &[], ExtendedKeyUsagePurpose::ServerAuth);
        params.is_ca = IsCa::NoCa;
        fs::write(cert, params.signed_by(&key, &root).unwrap().pem()).unwrap();
        fs::write(key_path, key.serialize_pem()).unwrap();
    }
    assert_eq!(reasons(&pki), [""; 0]);
    assert!(pki.check(Stage::Complete).is_ok());
}

/// The algorithm beside the signature is none of the signed part.
#[test]
fn damage_outside_of_the_signed_part_of_an_authority_is_reported() {
    let (_dir, pki) = fresh();
    let mut der = plinth_pki::read_certificates(&pki.ca_cert()).unwrap().remove(0).to_vec();
    let ecdsa_sha256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
    let at = der.windows(8).rposition(|part| part == ecdsa_sha256).unwrap();
    der[at + 7] = 3;
    fs::write(pki.ca_cert(), pem::encode(plinth_pki::CERTIFICATE_LABEL, &der)).unwrap();
    let errors = pki.verify(Stage::Complete);
    assert!(errors[0].to_string().contains("ca.crt"), "{errors:?}");
    assert_eq!(pki.dependents_of(&errors[0]).unwrap().len(), 6);
    assert!(!pki.is_leaf(&errors[0]));
}

#[test]
fn the_key_of_another_certificate_is_reported() {
    let (_dir, pki) = fresh();
    fs::copy(pki.admin_key(), pki.serving_key()).unwrap();
    let errors = pki.verify(Stage::Complete);
    assert!(
        errors[0].to_string().contains("apiserver.key: it is not the key of its certificate"),
        "{errors:?}"
    );
    assert!(errors[0].to_string().contains("the next start creates a new one") && pki.is_leaf(&errors[0]));
    assert_eq!(pki.dependents_of(&errors[0]).unwrap(), [pki.serving_cert(), pki.serving_key()]);
}

/// Writes another authority whose key is in PEM under that label.
fn replace_authority(pki: &Pki, label: &str, der: &[u8], key: &KeyPair) {
    fs::write(pki.ca_cert(), authority_params().self_signed(key).unwrap().pem()).unwrap();
    fs::write(pki.ca_key(), pem::encode(label, der)).unwrap();
}

#[test]
fn an_authority_has_its_key_in_any_form() {
    let (_dir, pki) = fresh();
    let signs = |label: &str| {
        assert_eq!(reasons(&pki), [""; 0], "{label}");
        for path in [pki.serving_cert(), pki.admin_cert(), pki.serving_key(), pki.admin_key()] {
            fs::remove_file(path).unwrap();
        }
        pki.check(Stage::Complete).unwrap();
        pki.ensure(&[], SERVICE).unwrap();
        assert_eq!(reasons(&pki), [""; 0], "{label}");
    };
    let remove_leaves = || {
        for path in [pki.serving_cert(), pki.admin_cert()] {
            fs::remove_file(path).unwrap();
        }
    };
    let key = KeyPair::generate().unwrap();
    let pkcs8 = key.serialize_der();
    // The ECPrivateKey is what follows the algorithm, in an octet string.
    let prime256v1 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
    let at = pkcs8.windows(8).position(|part| part == prime256v1).unwrap() + 8;
    assert_eq!(pkcs8[at], 4);
    remove_leaves();
    replace_authority(&pki, "EC PRIVATE KEY", &pkcs8[at + 2..], &key);
    pki.ensure(&[], SERVICE).unwrap();
    signs("EC PRIVATE KEY");

    let rsa = include_str!("../../../pki/src/jwt/testdata/rsa-pkcs1.pem");
    let der = pem::parse(rsa.as_bytes()).unwrap().remove(0).contents;
    let pkcs8 =
        plinth_pki::pkcs8_from_key(&rustls::pki_types::PrivateKeyDer::Pkcs1(der.clone().into())).unwrap();
    let key = KeyPair::try_from(&PrivatePkcs8KeyDer::from(pkcs8)).unwrap();
    remove_leaves();
    replace_authority(&pki, "RSA PRIVATE KEY", &der, &key);
    pki.ensure(&[], SERVICE).unwrap();
    signs("RSA PRIVATE KEY");
}

#[test]
fn certificates_that_clients_reject_are_reported_or_reissued() {
    let (_dir, pki) = fresh();
    let rejected = || pki.rejected().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(rejected(), [""; 0]);
    // An authority of another name in the place of ours: what ours signed is made again.
    let key = KeyPair::generate().unwrap();
    let authority = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = authority_params();
        params.distinguished_name = subject("corporation", &[]);
        change(&mut params);
        fs::write(pki.ca_cert(), params.clone().self_signed(&key).unwrap().pem()).unwrap();
        fs::write(pki.ca_key(), key.serialize_pem()).unwrap();
        Issuer::new(params, KeyPair::try_from(&PrivatePkcs8KeyDer::from(key.serialize_der())).unwrap())
    };
    authority(&|_| {});
    assert_eq!(rejected().len(), 2, "{:?}", rejected());
    assert!(rejected()[0].contains("apiserver.crt was not signed by"), "{:?}", rejected());
    pki.ensure(&[], SERVICE).unwrap();
    assert_eq!((rejected(), reasons(&pki)), (vec![], vec![]));
    // A certificate of another issuer is kept and reported; with the intermediate certificate in its file it
    // is accepted.
    let other = Issuer::new(
        {
            let mut params = authority_params();
            params.distinguished_name = subject("other", &[]);
            params
        },
        KeyPair::generate().unwrap(),
    );
    let serving = KeyPair::generate().unwrap();
    let mut params = leaf_params("own", &[], ExtendedKeyUsagePurpose::ServerAuth);
    params.subject_alt_names = serving_names(&[], SERVICE);
    let own = params.signed_by(&serving, &other).unwrap().pem();
    fs::write(pki.serving_cert(), &own).unwrap();
    fs::write(pki.serving_key(), serving.serialize_pem()).unwrap();
    pki.ensure(&[], SERVICE).unwrap();
    assert_eq!(fs::read_to_string(pki.serving_cert()).unwrap(), own);
    assert_eq!(rejected().len(), 1, "{:?}", rejected());
    let between = {
        let mut params = authority_params();
        params.distinguished_name = subject("other", &[]);
        params.signed_by(other.key(), &authority(&|_| {})).unwrap().pem()
    };
    fs::write(pki.serving_cert(), format!("{own}{between}")).unwrap();
    assert_eq!(rejected(), [""; 0]);
    // Authorities that are none.
    authority(&|params| params.is_ca = IsCa::ExplicitNoCa);
    assert!(rejected()[0].contains("not a certificate authority"), "{:?}", rejected());
    authority(&|params| params.not_after = OffsetDateTime::now_utc() - Duration::days(1));
    assert!(rejected()[0].contains("clients reject it now"), "{:?}", rejected());
}

/// The clock of another machine, or of this one earlier, was ahead.
#[test]
fn certificates_are_valid_by_clocks_that_are_behind() {
    let (_dir, pki) = fresh();
    let authority = Authority::read(&pki.ca_cert(), &pki.ca_key()).unwrap();
    let begins = |path: &Path| {
        let certificates = read_certificates(path).unwrap();
        let (_, parsed) = X509Certificate::from_der(&certificates[0]).unwrap();
        parsed.validity().not_before.to_datetime()
    };
    for path in [pki.serving_cert(), pki.admin_cert()] {
        assert_eq!(begins(&path), authority.not_before());
    }
    let issuer = pki.issuer(&read_certificates(&pki.ca_cert()).unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = leaf_params("kube-apiserver", &[], ExtendedKeyUsagePurpose::ServerAuth);
    params.subject_alt_names = serving_names(&[], SERVICE);
    params.not_before = OffsetDateTime::now_utc() + Duration::hours(1);
    fs::write(pki.serving_cert(), params.signed_by(&key, &issuer).unwrap().pem()).unwrap();
    fs::write(pki.serving_key(), key.serialize_pem()).unwrap();
    pki.ensure(&[], SERVICE).unwrap();
    assert_eq!(begins(&pki.serving_cert()), authority.not_before(), "made again");
}
