//! `--auto-tls`: a certificate that the server makes for itself, in `fixtures/client` of the data directory,
//! where etcd has it (`client/pkg/transport/listener.go`, `SelfCert`). It is made once; remove both files for
//! another.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose,
    SanType,
};

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::start_error::StartError;

/// The directory, in that of the data.
const DIRECTORY: &str = "fixtures/client";
/// etcd's years have no leap days.
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
/// Most years; the dates of certificates end with the year 9999.
const MOST_YEARS: u32 = 1000;

/// The files of the certificate and of its key, made if one is missing, for these hosts and so many years.
pub(crate) fn files(data_dir: &Path, hosts: &[String], years: u32) -> Result<(PathBuf, PathBuf), StartError> {
    if !(1..=MOST_YEARS).contains(&years) {
        let reason = format!("{years} is not a number of years from 1 to {MOST_YEARS}");
        return Err(StartError::Flag { flag: "--self-signed-cert-validity", reason });
    }
    let dir = data_dir.join(DIRECTORY);
    let (certificate, key) = (dir.join("cert.pem"), dir.join("key.pem"));
    if certificate.exists() && key.exists() {
        warn_of_end(&certificate);
        return Ok((certificate, key));
    }
    let failed = |error: &dyn std::fmt::Display| StartError::Certificate {
        file: certificate.display().to_string(),
        reason: error.to_string(),
    };
    let pair = KeyPair::generate().map_err(|error| failed(&error))?;
    let made = params(hosts, years).and_then(|params| params.self_signed(&pair));
    let made = made.map_err(|error| failed(&error))?;
    DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(|error| failed(&error))?;
    replace(&key, pair.serialize_pem().as_bytes(), 0o600).map_err(|error| failed(&error))?;
    replace(&certificate, made.pem().as_bytes(), 0o644).map_err(|error| failed(&error))?;
    tracing::warn!(path = %certificate.display(), "made a certificate for the server itself, for --auto-tls");
    Ok((certificate, key))
}

/// Warns where a certificate is not valid any more: no client accepts it. As with etcd it is served all the
/// same, since clients have its file.
fn warn_of_end(certificate: &Path) {
    // One that cannot be read is reported by who serves it.
    let Ok(der) = CertificateDer::from_pem_file(certificate) else { return };
    if X509Certificate::from_der(&der).is_ok_and(|(_, read)| !read.validity().is_valid()) {
        tracing::warn!(
            path = %certificate.display(),
            "certificate of --auto-tls is not valid now: remove it, and the server makes another"
        );
    }
}

/// What the certificate has. Unlike etcd's it is no authority: a client that trusts it trusts this server.
fn params(hosts: &[String], years: u32) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "etcd");
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now();
    params.not_before = now.into();
    params.not_after = (now + YEAR * years).into();
    for host in hosts {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.as_str().try_into()?),
        };
        if !params.subject_alt_names.contains(&name) {
            params.subject_alt_names.push(name);
        }
    }
    Ok(params)
}

/// Writes a file under its name once it is whole.
fn replace(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(text)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_certificate_is_made_once_with_hosts_and_years() {
        let dir = tempfile::tempdir().unwrap();
        let hosts = ["localhost", "127.0.0.1", "::1", "localhost"].map(str::to_owned);
        let (certificate, key) = files(dir.path(), &hosts, 3).unwrap();
        assert_eq!(certificate, dir.path().join("fixtures/client/cert.pem"));
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        let first = fs::read(&certificate).unwrap();
        let der = CertificateDer::from_pem_slice(&first).unwrap();
        let (_, read) = X509Certificate::from_der(&der).unwrap();
        let validity = read.validity();
        let seconds = validity.not_after.timestamp() - validity.not_before.timestamp();
        assert_eq!(seconds, 3 * 365 * 24 * 3600);
        let names = read.subject_alternative_name().unwrap().unwrap();
        assert_eq!(names.value.general_names.len(), 3);
        assert!(!read.is_ca());
        files(dir.path(), &[], 9).unwrap();
        assert_eq!(fs::read(&certificate).unwrap(), first);
        fs::remove_file(&key).unwrap();
        files(dir.path(), &hosts, 1).unwrap();
        assert_ne!(fs::read(&certificate).unwrap(), first, "without its key it is useless");
        for years in [0, MOST_YEARS + 1] {
            let error = files(dir.path(), &hosts, years).unwrap_err().to_string();
            assert!(error.starts_with("--self-signed-cert-validity: "), "{error}");
        }
        let error = files(dir.path().join("fixtures/client/cert.pem").as_ref(), &hosts, 1).unwrap_err();
        assert!(matches!(error, StartError::Certificate { .. }), "{error}");
    }
}
