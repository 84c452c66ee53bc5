//! `--client-crl-file`: certificates of clients that are revoked, as etcd has it
//! (`client/pkg/transport/listener_tls.go`): by their serial numbers alone, and the file is read whenever
//! it has changed, so that a new list needs no restart. A file that cannot be read has all clients with
//! certificates refused.

use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use x509_parser::prelude::{CertificateRevocationList, FromDer as _, X509Certificate};

/// Why a client is refused.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub(crate) enum RevocationError {
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: not a list of revoked certificates (CRL)", path.display())]
    Malformed { path: PathBuf },
    #[error("certificate of the client is malformed")]
    Certificate,
    #[error("certificate serial {serial} revoked")]
    Revoked { serial: String },
}

/// Serial numbers, without leading zeros.
type Serials = HashSet<Vec<u8>>;
/// What differs between two states of a file: its inode, its length, and when it was written.
type Stamp = (u64, u64, i64, i64);

/// The list of a file.
#[derive(Debug)]
pub(crate) struct Revocations {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Arc<Serials>)>>,
}

impl Revocations {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or has no list.
    pub(crate) fn open(path: &Path) -> Result<Revocations, RevocationError> {
        let revocations = Revocations { path: path.to_owned(), read: Mutex::default() };
        revocations.serials()?;
        Ok(revocations)
    }

    fn serials(&self) -> Result<Arc<Serials>, RevocationError> {
        let failed = |source| RevocationError::Read { path: self.path.clone(), source };
        let mut read = self.read.lock();
        // Before it is read: what is written meanwhile has it reloaded.
        let file = std::fs::metadata(&self.path).map_err(failed)?;
        let stamp = (file.ino(), file.len(), file.mtime(), file.mtime_nsec());
        if let Some((at, serials)) = read.as_ref() {
            if *at == stamp {
                return Ok(Arc::clone(serials));
            }
        }
        let bytes = std::fs::read(&self.path).map_err(failed)?;
        let serials = parse(&bytes).ok_or_else(|| RevocationError::Malformed { path: self.path.clone() })?;
        let serials = Arc::new(serials);
        *read = Some((stamp, Arc::clone(&serials)));
        Ok(serials)
    }

    /// Refuses a client one of whose certificates is in the list. Reads from disk.
    ///
    /// # Errors
    /// See [`RevocationError`].
    pub(crate) fn check(&self, certificates: &[CertificateDer<'_>]) -> Result<(), RevocationError> {
        let serials = self.serials()?;
        for certificate in certificates {
            let (_, certificate) =
                X509Certificate::from_der(certificate).map_err(|_| RevocationError::Certificate)?;
            if serials.contains(significant(certificate.raw_serial())) {
                return Err(RevocationError::Revoked { serial: certificate.raw_serial_as_string() });
            }
        }
        Ok(())
    }
}

/// The serial numbers of a list in DER, as etcd reads it, or of one or several in PEM: as many as there are
/// authorities.
fn parse(bytes: &[u8]) -> Option<Serials> {
    let pem: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(bytes).collect();
    let pem = pem.ok()?;
    let lists = match pem.is_empty() {
        true => vec![bytes],
        false => pem.iter().map(AsRef::as_ref).collect(),
    };
    let mut serials = Serials::new();
    for list in lists {
        let (_, list) = CertificateRevocationList::from_der(list).ok().filter(|(rest, _)| rest.is_empty())?;
        serials.extend(list.iter_revoked_certificates().map(|one| significant(one.raw_serial()).to_owned()));
    }
    Some(serials)
}

/// A number without its leading zeros.
fn significant(serial: &[u8]) -> &[u8] {
    let zeros = serial.iter().take_while(|byte| **byte == 0).count();
    serial.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rcgen::{
        BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod,
        KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber,
    };

    use super::*;

    fn list(issuer: &Issuer<'_, KeyPair>, serials: &[&[u8]]) -> rcgen::CertificateRevocationList {
        let now = std::time::SystemTime::now();
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from_slice(serial),
            revocation_time: now.into(),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: now.into(),
            next_update: (now + std::time::Duration::from_secs(3600)).into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(issuer).unwrap()
    }

    #[test]
    fn serials_of_the_file_are_refused_as_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("list");
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::CrlSign, KeyUsagePurpose::KeyCertSign];
        let issuer = Issuer::new(params, key);
        let certificate = |serial: &[u8]| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.serial_number = Some(SerialNumber::from_slice(serial));
            params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().clone()
        };
        let (one, two) = (certificate(&[0x80, 1]), certificate(&[0x7f, 2]));

        assert!(matches!(Revocations::open(&path), Err(RevocationError::Read { .. })));
        for garbage in ["", "nothing", "-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n"] {
            std::fs::write(&path, garbage).unwrap();
            assert!(matches!(Revocations::open(&path), Err(RevocationError::Malformed { .. })), "{garbage}");
        }
        std::fs::write(&path, list(&issuer, &[]).der()).unwrap();
        let revocations = Revocations::open(&path).unwrap();
        revocations.check(&[one.clone(), two.clone()]).unwrap();
        // DER, then PEM; a first bit that is set has a zero before it.
        std::fs::write(&path, list(&issuer, &[&[0x80, 1]]).der()).unwrap();
        let error = revocations.check(std::slice::from_ref(&one)).unwrap_err();
        assert_eq!(error.to_string(), "certificate serial 00:80:01 revoked");
        revocations.check(std::slice::from_ref(&two)).unwrap();
        std::fs::write(&path, list(&issuer, &[&[9], &[0x7f, 2]]).pem().unwrap()).unwrap();
        revocations.check(std::slice::from_ref(&one)).unwrap();
        assert!(revocations.check(&[one.clone(), two]).is_err(), "each certificate counts");
        assert!(matches!(revocations.check(&[vec![1].into()]), Err(RevocationError::Certificate)));
        // Those of several authorities, in one file; one of them is cut off.
        let pem = |serial: &[u8]| list(&issuer, &[serial]).pem().unwrap();
        let several = pem(&[9]) + &pem(&[0x80, 1]);
        std::fs::write(&path, &several).unwrap();
        assert!(revocations.check(std::slice::from_ref(&one)).is_err(), "each list counts");
        std::fs::write(&path, &several[..several.len() - 40]).unwrap();
        let cut = revocations.check(std::slice::from_ref(&one));
        assert!(matches!(cut, Err(RevocationError::Malformed { .. })), "{cut:?}");
        let mut cut = list(&issuer, &[&[9]]).der().to_vec();
        cut.pop();
        std::fs::write(&path, cut).unwrap();
        assert!(matches!(
            revocations.check(std::slice::from_ref(&one)),
            Err(RevocationError::Malformed { .. })
        ));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(revocations.check(&[one]), Err(RevocationError::Read { .. })));
    }
}
