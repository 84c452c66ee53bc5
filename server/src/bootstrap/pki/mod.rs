//! Credentials: certificate authority, serving certificate, service-account key, admin certificate.
//!
//! Everything is in `DIR/pki`, keys with mode 0600, and created once; later starts reuse it. Only the serving
//! and admin certificates are reissued when they do not cover the served addresses or expire soon.

mod acceptance;
mod integrity;
#[cfg(test)]
mod tests;

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};
use x509_parser::oid_registry::OID_X509_COMMON_NAME;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

pub use acceptance::RejectedCertificate;

use acceptance::is_signed_by;

use super::files::{create_durably, exists, sync_parent};
use super::stage::Stage;
use plinth_api::MASTERS_GROUP;
use plinth_pki::{
    certificate_uses, pkcs8_from_key, public_key_of, public_key_of_certificate, read_certificates, read_key,
    AlternativeNames, Authority, AuthorityError, FileError, Name, SigningKey, Template,
};

/// The common name of the server's own authority.
const AUTHORITY_NAME: &str = "kubernetes";
/// Validity of the authority, in years; it is not renewed.
const AUTHORITY_YEARS: i64 = 10;
/// Validity of the other certificates, in days.
const LEAF_DAYS: i64 = 365;
/// A serving or admin certificate that expires within this many days is reissued at start.
const RENEW_DAYS: i64 = 90;

/// Names, without extensions, of certificates that no other credentials depend on: the server's and the
/// administrator's.
const LEAVES: [&str; 2] = ["apiserver", "admin"];

/// Certificates are backdated for clients whose clocks are behind.
const BACKDATE: Duration = Duration::minutes(5);

/// Errors of creating or loading credentials.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// A file cannot be read or written.
    #[error("cannot read or write {path}: {source}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: std::io::Error,
    },
    /// A key or certificate cannot be created or parsed.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// A certificate or key file is invalid.
    #[error(transparent)]
    Pem(#[from] FileError),
    /// The authority cannot sign.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// The authority's key matches its certificate but is of a kind that cannot sign.
    #[error(
        "cannot use the server's certificates and keys: {path} holds a key of a kind that cannot sign the server's certificates\n\
         Put a key of RSA, ECDSA P-256, ECDSA P-384 or Ed25519 there, and its certificate"
    )]
    UnsupportedKey {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file is missing that issued credentials depend on. Nothing was changed.
    #[error("cannot use the server's certificates and keys: {path} is missing\n{}", remedy(.path))]
    Lost {
        /// Path of the file.
        path: PathBuf,
    },
    /// A file is damaged that issued credentials depend on. Nothing was changed.
    #[error("cannot use the server's certificates and keys: {path}: {reason}\n{}", remedy(.path))]
    Damaged {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

fn is_leaf(path: &Path) -> bool {
    path.file_stem().and_then(|stem| stem.to_str()).is_some_and(|stem| LEAVES.contains(&stem))
}

fn remedy(path: &Path) -> String {
    let dir = path.parent().and_then(Path::parent).unwrap_or(Path::new(".")).display();
    if is_leaf(path) {
        return format!("Run plinth repair --data-dir {dir}: the next start creates a new one");
    }
    format!(
        "Put it back from a copy. If there is none: plinth repair --data-dir {dir} has new ones made, and every credential that was \
         issued ends"
    )
}

/// The files in `DIR/pki`.
#[derive(Clone, Debug)]
pub struct Pki {
    dir: PathBuf,
}

impl Pki {
    /// The credentials in a data directory; created by [`Pki::ensure`].
    pub fn at(data_dir: &Path) -> Pki {
        Pki { dir: data_dir.join("pki") }
    }

    /// Certificate of the authority that signs and verifies client and serving certificates.
    pub fn ca_cert(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// The authority's private key.
    pub fn ca_key(&self) -> PathBuf {
        self.dir.join("ca.key")
    }

    /// The server's certificate.
    pub fn serving_cert(&self) -> PathBuf {
        self.dir.join("apiserver.crt")
    }

    /// The server's private key.
    pub fn serving_key(&self) -> PathBuf {
        self.dir.join("apiserver.key")
    }

    /// The administrator's client certificate (`O=system:masters`).
    pub fn admin_cert(&self) -> PathBuf {
        self.dir.join("admin.crt")
    }

    /// The administrator's private key.
    pub fn admin_key(&self) -> PathBuf {
        self.dir.join("admin.key")
    }

    /// The key that signs service-account tokens (ECDSA P-256).
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join("sa.key")
    }

    /// Fails if a key or certificate that issued credentials depend on has been lost. Changes nothing.
    ///
    /// # Errors
    /// [`PkiError::Lost`] and [`PkiError::Damaged`], or the error of reading a file.
    pub fn check(&self, stage: Stage) -> Result<(), PkiError> {
        let [ca_cert, ca_key, sa_key] = [self.ca_cert(), self.ca_key(), self.service_account_key()];
        let there =
            |path: &PathBuf| exists(path).map_err(|source| PkiError::File { path: path.clone(), source });
        let lost = |path: &PathBuf| Err(PkiError::Lost { path: path.clone() });
        let found = [there(&ca_cert)?, there(&ca_key)?, there(&sa_key)?];
        let may_be_missing = match stage {
            // The key is written first: a first start that was killed does not leave a certificate without a
            // key.
            Stage::New | Stage::Keys if found[0] && !found[1] => return lost(&ca_key),
            Stage::New | Stage::Keys => true,
            Stage::Restored => found == [false; 3],
            Stage::Complete => false,
        };
        for (path, found) in [&ca_cert, &ca_key, &sa_key].into_iter().zip(found) {
            if !found && !may_be_missing {
                return lost(path);
            }
        }
        if found[0] && found[1] {
            let certificates = read_certificates(&ca_cert).map_err(damaged)?;
            let key = read_key(&ca_key).map_err(damaged)?;
            Authority::new((&ca_cert, &certificates), (&ca_key, &key)).map_err(|error| match error {
                AuthorityError::Certificate { path } => {
                    PkiError::Damaged { path, reason: "no certificate that can be read".into() }
                }
                AuthorityError::Key { path } => {
                    PkiError::Damaged { path, reason: "not the key of the authority's certificate".into() }
                }
                other => other.into(),
            })?;
            let is_intact = certificates.first().is_some_and(|first| is_signed_by(first, first));
            if !is_intact {
                return Err(PkiError::Damaged { path: ca_cert, reason: "its signature is wrong".into() });
            }
            self.authority_key()?;
        }
        if found[2] {
            let key = read_key(&sa_key).map_err(damaged)?;
            if pkcs8_from_key(&key).is_none_or(|der| SigningKey::from_pkcs8(&der).is_err()) {
                return Err(PkiError::Damaged {
                    path: sa_key,
                    reason: "it holds no key that can sign".into(),
                });
            }
        }
        Ok(())
    }

    /// Finds all damage, including damage that does not prevent a start: see `integrity`. A missing file is
    /// an error only as for [`Pki::check`].
    pub fn verify(&self, stage: Stage) -> Vec<PkiError> {
        if let Err(error) = self.check(stage) {
            return vec![error];
        }
        let mut errors = Vec::new();
        let mut authority = None;
        if exists(&self.ca_cert()).unwrap_or(true) {
            match self.verify_authority() {
                Ok(certificate) => authority = Some(certificate),
                Err(error) => errors.push(error),
            }
        }
        // Without an authority the signatures cannot be verified.
        if let Some(authority) = authority {
            let pairs = [(self.serving_cert(), self.serving_key()), (self.admin_cert(), self.admin_key())];
            errors.extend(pairs.iter().filter_map(|(cert, key)| verify_leaf(cert, key, &authority).err()));
        }
        errors
    }

    /// Certificates that do not prevent a start but that clients reject. Unreadable files are skipped.
    pub fn rejected(&self) -> Vec<RejectedCertificate> {
        let now = OffsetDateTime::now_utc();
        let read = |path: &Path| read_certificates(path).unwrap_or_default();
        let authorities = read(&self.ca_cert());
        let Some(first) = authorities.first() else { return Vec::new() };
        if let Some(found) = acceptance::of_authority(self.ca_cert(), first, now) {
            return vec![found];
        }
        let leaves = [self.serving_cert(), self.admin_cert()].into_iter();
        let of_leaf = |path: PathBuf| {
            let chain = read(&path);
            acceptance::of_leaf(path, &chain, (self.ca_cert(), &authorities), now)
        };
        leaves.filter_map(of_leaf).collect()
    }

    /// Verifies all certificates in the authority's file and returns the first.
    fn verify_authority(&self) -> Result<CertificateDer<'static>, PkiError> {
        let path = self.ca_cert();
        let certificates = read_certificates(&path).map_err(damaged)?;
        let unreadable = integrity::CertificateDamage::Unreadable;
        let first = certificates.first().ok_or(unreadable);
        first
            .and_then(|first| integrity::check_certificates(&certificates, first).map(|()| first.clone()))
            .map_err(|damage| PkiError::Damaged { path, reason: damage.to_string() })
    }

    /// The files to be recreated where [`Pki::verify`] reports `error`: the damaged ones, and those that
    /// depend on them. None when recreating them does not help.
    pub fn dependents_of(&self, error: &PkiError) -> Option<Vec<PathBuf>> {
        let (PkiError::Lost { path } | PkiError::Damaged { path, .. }) = error else { return None };
        if *path == self.service_account_key() {
            return Some(vec![path.clone()]);
        }
        let pairs = [[self.serving_cert(), self.serving_key()], [self.admin_cert(), self.admin_key()]];
        if let Some(pair) = pairs.into_iter().find(|pair| pair.contains(path)) {
            return Some(pair.to_vec());
        }
        Some(vec![
            self.ca_cert(),
            self.ca_key(),
            self.serving_cert(),
            self.serving_key(),
            self.admin_cert(),
            self.admin_key(),
        ])
    }

    /// Whether `error` concerns a certificate or key that no other credentials depend on: a start recreates
    /// it if it is missing.
    pub fn is_leaf(&self, error: &PkiError) -> bool {
        matches!(error, PkiError::Lost { path } | PkiError::Damaged { path, .. } if is_leaf(path))
    }

    /// Creates missing files, as far as [`Pki::check`] allows. `serves` are the names and addresses besides
    /// loopback that the serving certificate must cover, `service_ip` the cluster address of the `kubernetes`
    /// service.
    ///
    /// # Errors
    /// When a file cannot be written or an existing key cannot be used.
    pub fn ensure(&self, serves: &[SanType], service_ip: IpAddr) -> Result<(), PkiError> {
        let file = |path: &Path| {
            let path = path.to_owned();
            move |source| PkiError::File { path, source }
        };
        create_durably(&self.dir).map_err(file(&self.dir))?;
        let there = |path: PathBuf| exists(&path).map_err(file(&path));
        if !there(self.ca_cert())? || !there(self.ca_key())? {
            let key = KeyPair::generate()?;
            let cert = authority_params().self_signed(&key)?;
            write_secret(&self.ca_key(), &key.serialize_pem())?;
            write(&self.ca_cert(), &cert.pem())?;
        }
        if !there(self.service_account_key())? {
            write_secret(&self.service_account_key(), &KeyPair::generate()?.serialize_pem())?;
        }
        let authorities = read_certificates(&self.ca_cert())?;
        let issuer = self.issuer(&authorities)?;
        let mut serving = leaf_params("kube-apiserver", &[], ExtendedKeyUsagePurpose::ServerAuth);
        serving.subject_alt_names = serving_names(serves, service_ip);
        let admin = leaf_params("kubernetes-admin", &[MASTERS_GROUP], ExtendedKeyUsagePurpose::ClientAuth);
        let mut leaves = vec![
            (serving, self.serving_cert(), self.serving_key()),
            (admin, self.admin_cert(), self.admin_key()),
        ];
        leaves.retain(|(params, cert, key)| !is_current(cert, key, &params.subject_alt_names, &authorities));
        if leaves.is_empty() {
            return Ok(());
        }
        // As early as the authority, as kubeadm does: this machine's clock may be ahead of the clients'.
        let earliest = Authority::read(&self.ca_cert(), &self.ca_key())?.not_before();
        for (mut params, cert, key) in leaves {
            params.not_before = params.not_before.min(earliest);
            issue(&issuer, &params, &cert, &key)?;
        }
        Ok(())
    }

    /// Issues a client certificate and key in PEM for a user, groups and, unless empty, a UID.
    ///
    /// # Errors
    /// When the authority cannot be read or has expired.
    pub fn issue_client(
        &self,
        user: &str,
        groups: &[&str],
        uid: &str,
        valid: Duration,
    ) -> Result<(String, String), PkiError> {
        let key = KeyPair::generate()?;
        let now = OffsetDateTime::now_utc();
        let authority = Authority::read(&self.ca_cert(), &self.ca_key())?;
        let cert = authority.sign(&Template {
            subject: &Name::of_user(user, groups, uid),
            public_key: &rcgen::PublicKeyData::subject_public_key_info(&key),
            names: &AlternativeNames::default(),
            uses: certificate_uses(&["digital signature", "key encipherment", "client auth"])
                .unwrap_or_default(),
            not_before: authority.not_before().min(now - BACKDATE),
            not_after: now + valid,
        })?;
        Ok((cert, key.serialize_pem()))
    }

    /// The authority's key, in any supported format.
    fn authority_key(&self) -> Result<KeyPair, PkiError> {
        let path = self.ca_key();
        let pkcs8 = pkcs8_from_key(&read_key(&path)?);
        pkcs8
            .and_then(|der| KeyPair::try_from(&PrivatePkcs8KeyDer::from(der)).ok())
            .ok_or(PkiError::UnsupportedKey { path })
    }

    fn issuer(&self, authorities: &[CertificateDer<'static>]) -> Result<Issuer<'static, KeyPair>, PkiError> {
        let key = self.authority_key()?;
        let certificate = authorities.first().ok_or(rcgen::Error::CouldNotParseCertificate)?;
        Ok(Issuer::from_ca_cert_der(certificate, key)?)
    }
}

/// Whether a certificate exists, is valid, does not expire soon, covers those addresses and is signed by the
/// first of the authorities.
fn is_current(cert: &Path, key: &Path, san: &[SanType], authorities: &[CertificateDer<'_>]) -> bool {
    let Ok(certificates) = read_certificates(cert) else { return false };
    let (Some(certificate), Some(authority)) = (certificates.first(), authorities.first()) else {
        return false;
    };
    // Issued here by a former authority: clients would reject it.
    let is_left_over = is_of_own_authority(certificate)
        && !authorities.iter().any(|authority| acceptance::is_issued_by(certificate, authority));
    is_usable(certificate, key, san) && is_signed_by(certificate, authority) && !is_left_over
}

fn issue(
    issuer: &Issuer<'static, KeyPair>,
    params: &CertificateParams,
    cert_path: &Path,
    key_path: &Path,
) -> Result<(), PkiError> {
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, issuer)?;
    write_secret(key_path, &key.serialize_pem())?;
    write(cert_path, &cert.pem())
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(AUTHORITY_NAME, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages =
        vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    validity(&mut params, Duration::days(365 * AUTHORITY_YEARS));
    params
}

fn leaf_params(name: &str, groups: &[&str], usage: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = subject(name, groups);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    validity(&mut params, Duration::days(LEAF_DAYS));
    params
}

fn subject(name: &str, groups: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    for group in groups {
        subject.push(DnType::OrganizationName, *group);
    }
    subject.push(DnType::CommonName, name);
    subject
}

fn validity(params: &mut CertificateParams, how_long: Duration) {
    let now = OffsetDateTime::now_utc();
    // Backdated for clients whose clocks are behind.
    params.not_before = now - BACKDATE;
    params.not_after = now + how_long;
}

/// The names of upstream's own serving certificate, and every served name and address.
fn serving_names(serves: &[SanType], service_ip: IpAddr) -> Vec<SanType> {
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
    ];
    let mut san: Vec<SanType> =
        names.iter().filter_map(|n| (*n).try_into().ok().map(SanType::DnsName)).collect();
    let loopback = [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1])];
    let addresses = loopback.into_iter().chain([service_ip]).map(SanType::IpAddress);
    for name in addresses.chain(serves.iter().cloned()) {
        let is_unspecified = matches!(name, SanType::IpAddress(ip) if ip.is_unspecified());
        if !is_unspecified && !san.contains(&name) {
            san.push(name);
        }
    }
    san
}

/// Whether the issuer of a certificate has the name of the server's own authority.
fn is_of_own_authority(certificate: &CertificateDer<'_>) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return false };
    let mut attributes = certificate.issuer().iter_attributes();
    let is_name = |attribute: &AttributeTypeAndValue<'_>| {
        *attribute.attr_type() == OID_X509_COMMON_NAME && attribute.as_str() == Ok(AUTHORITY_NAME)
    };
    attributes.next().is_some_and(is_name) && attributes.next().is_none()
}

/// Reports an invalid file as damage.
fn damaged(error: FileError) -> PkiError {
    match error {
        FileError::Text { path, source } => PkiError::Damaged { path, reason: source.to_string() },
        error => error.into(),
    }
}

/// Verifies the server's or the administrator's certificate and key. Missing ones are recreated at the next
/// start.
fn verify_leaf(cert: &Path, key: &Path, authority: &CertificateDer<'_>) -> Result<(), PkiError> {
    let damage =
        |path: &Path, reason: &str| PkiError::Damaged { path: path.to_owned(), reason: reason.into() };
    let there = |path: &Path| exists(path).unwrap_or(true);
    let mut public = None;
    if there(cert) {
        let certificates = read_certificates(cert).map_err(damaged)?;
        integrity::check_certificates(&certificates, authority)
            .map_err(|reason| damage(cert, &reason.to_string()))?;
        public = certificates.first().and_then(|first| public_key_of_certificate(first));
    }
    if there(key) {
        let der = read_key(key).map_err(damaged)?;
        let public_half =
            public_key_of(&der).ok_or_else(|| damage(key, "it holds no key that can be used"))?;
        if public.is_some_and(|public| public != public_half) {
            return Err(damage(key, "it is not the key of its certificate"));
        }
    }
    Ok(())
}

/// Whether a certificate is valid by now, does not expire soon, covers those names and addresses and matches
/// its key file.
fn is_usable(certificate: &CertificateDer<'_>, key: &Path, san: &[SanType]) -> bool {
    let Ok((_, parsed)) = X509Certificate::from_der(certificate) else { return false };
    let now = OffsetDateTime::now_utc();
    let renew_at = now + Duration::days(RENEW_DAYS);
    // An unusable key, or that of another certificate, is recreated with its certificate.
    let is_its_key = read_key(key)
        .ok()
        .and_then(|der| KeyPair::try_from(&der).ok())
        .is_some_and(|key| rcgen::PublicKeyData::subject_public_key_info(&key) == parsed.public_key().raw);
    let validity = parsed.validity();
    let is_valid = validity.not_before.to_datetime() <= now && validity.not_after.to_datetime() >= renew_at;
    if !is_its_key || !is_valid {
        return false;
    }
    let covered = AlternativeNames::of_certificate(&parsed).unwrap_or_default();
    san.iter().all(|name| match name {
        SanType::IpAddress(ip) => covered.ips.contains(ip),
        SanType::DnsName(name) => covered.dns.iter().any(|dns| dns == name.as_str()),
        _ => true,
    })
}

fn write(path: &Path, text: &str) -> Result<(), PkiError> {
    write_with_mode(path, text, 0o644)
}

/// Writes a file that only its owner can read, atomically: a crash leaves the old one or the new one.
pub fn write_secret(path: &Path, text: &str) -> Result<(), PkiError> {
    write_with_mode(path, text, 0o600)
}

fn write_with_mode(path: &Path, text: &str, mode: u32) -> Result<(), PkiError> {
    let error = |source| PkiError::File { path: path.to_owned(), source };
    let temporary = path.with_extension("new");
    // A leftover of a crash may have another mode.
    let _ = fs::remove_file(&temporary);
    let mut file =
        fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary).map_err(error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(error)?;
    fs::rename(&temporary, path).map_err(error)?;
    sync_parent(path).map_err(error)
}
