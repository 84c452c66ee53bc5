//! Certificates that do not prevent a start but that clients reject, as reported by the log and `plinth
//! verify`.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use plinth_pki::{check_signature, SignatureError};

/// Why clients reject a certificate.
#[derive(Debug, thiserror::Error)]
pub enum RejectedCertificate {
    /// Its basic constraints say that it is not a CA.
    #[error("{path} is not a certificate authority (its basic constraints say so): clients reject everything that it signed")]
    NotAnAuthority {
        /// Path of the file.
        path: PathBuf,
    },
    /// It has expired, or is not valid yet.
    #[error("{path} is valid from {from} to {until} only: clients reject it now")]
    NotNow {
        /// Path of the file.
        path: PathBuf,
        /// Start of its validity.
        from: OffsetDateTime,
        /// End of its validity.
        until: OffsetDateTime,
    },
    /// It was not signed by the current authority.
    #[error(
        "{path} was not signed by {authority}: clients that trust only that authority reject it\nMove it and its key away, and the next start \
         creates new ones"
    )]
    OtherAuthority {
        /// Path of the file.
        path: PathBuf,
        /// Path of the authority's file.
        authority: PathBuf,
    },
}

/// Checks the authority's certificate.
pub(super) fn of_authority(
    path: PathBuf,
    certificate: &CertificateDer<'_>,
    now: OffsetDateTime,
) -> Option<RejectedCertificate> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    // A certificate without the extension is treated like version 1, where roots are accepted.
    if parsed.basic_constraints().is_ok_and(|found| found.is_some_and(|found| !found.value.ca)) {
        return Some(RejectedCertificate::NotAnAuthority { path });
    }
    not_now(path, &parsed, now)
}

/// Checks a certificate file, which may include intermediate certificates.
pub(super) fn of_leaf(
    path: PathBuf,
    chain: &[CertificateDer<'_>],
    (authority, authorities): (PathBuf, &[CertificateDer<'_>]),
    now: OffsetDateTime,
) -> Option<RejectedCertificate> {
    let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
    let is_issued = chain.iter().any(|link| authorities.iter().any(|issuer| is_issued_by(link, issuer)));
    match is_issued {
        true => not_now(path, &parsed, now),
        false => Some(RejectedCertificate::OtherAuthority { path, authority }),
    }
}

/// Whether `issuer` has the name of `certificate`'s issuer, and signed it.
pub(super) fn is_issued_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok((_, parsed)), Ok((_, authority))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(issuer))
    else {
        return false;
    };
    parsed.issuer().as_raw() == authority.subject().as_raw() && is_signed_by(certificate, issuer)
}

fn not_now(
    path: PathBuf,
    certificate: &X509Certificate<'_>,
    now: OffsetDateTime,
) -> Option<RejectedCertificate> {
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
    (now < from || now > until).then_some(RejectedCertificate::NotNow { path, from, until })
}

/// Whether a certificate's signature is valid. True if it was issued by another issuer or with an unsupported
/// algorithm.
pub(super) fn is_signed_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok((_, certificate)), Ok((_, issuer))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(issuer))
    else {
        return false;
    };
    if certificate.issuer().as_raw() != issuer.subject().as_raw() {
        return true;
    }
    let (tbs, algorithm) = (&certificate.tbs_certificate, &certificate.signature_algorithm);
    let checked =
        check_signature(issuer.public_key(), algorithm, tbs.as_ref(), &certificate.signature_value.data);
    *algorithm == tbs.signature && matches!(checked, Ok(()) | Err(SignatureError::Unimplemented))
}
