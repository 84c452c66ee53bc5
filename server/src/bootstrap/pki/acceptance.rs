//! Certificates that a server can start with and that clients do not accept: what the log and `plinth verify` say about them.

use std::path::PathBuf;

use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::is_signed_by;

/// Why clients do not accept a certificate.
#[derive(Debug, thiserror::Error)]
pub enum Unaccepted {
    /// Its basic constraints say that it is no authority.
    #[error("{path} is not a certificate authority (its basic constraints say so): clients accept nothing that it signed")]
    NotAnAuthority {
        /// The file.
        path: PathBuf,
    },
    /// Its time is over, or has not come.
    #[error("{path} is valid from {from} to {until} only: clients do not accept it now")]
    NotNow {
        /// The file.
        path: PathBuf,
        /// The first moment of its time.
        from: OffsetDateTime,
        /// The last.
        until: OffsetDateTime,
    },
    /// The authority is another one than that which signed it.
    #[error(
        "{path} was not signed by {authority}: who trusts only that authority does not accept it\nMove it and its key away, and the next start \
         makes new ones"
    )]
    OtherAuthority {
        /// The file.
        path: PathBuf,
        /// The authority's file.
        authority: PathBuf,
    },
}

/// Looks at the authority's certificate.
pub(super) fn of_authority(
    path: PathBuf,
    certificate: &CertificateDer<'_>,
    now: OffsetDateTime,
) -> Option<Unaccepted> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    // A certificate without the extension is of version 1, or as good as one: then roots are believed.
    if parsed.basic_constraints().is_ok_and(|found| found.is_some_and(|found| !found.value.ca)) {
        return Some(Unaccepted::NotAnAuthority { path });
    }
    not_now(path, &parsed, now)
}

/// Looks at a file of a certificate and those that lead from it to an authority.
pub(super) fn of_leaf(
    path: PathBuf,
    chain: &[CertificateDer<'_>],
    (authority, authorities): (PathBuf, &[CertificateDer<'_>]),
    now: OffsetDateTime,
) -> Option<Unaccepted> {
    let (_, parsed) = X509Certificate::from_der(chain.first()?).ok()?;
    let is_issued = chain.iter().any(|link| authorities.iter().any(|issuer| is_issued_by(link, issuer)));
    match is_issued {
        true => not_now(path, &parsed, now),
        false => Some(Unaccepted::OtherAuthority { path, authority }),
    }
}

/// Whether `issuer` has the name that `certificate` gives for its issuer, and signed it.
pub(super) fn is_issued_by(certificate: &CertificateDer<'_>, issuer: &CertificateDer<'_>) -> bool {
    let (Ok((_, parsed)), Ok((_, authority))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(issuer))
    else {
        return false;
    };
    parsed.issuer().as_raw() == authority.subject().as_raw() && is_signed_by(certificate, issuer)
}

fn not_now(path: PathBuf, certificate: &X509Certificate<'_>, now: OffsetDateTime) -> Option<Unaccepted> {
    let validity = certificate.validity();
    let (from, until) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
    (now < from || now > until).then_some(Unaccepted::NotNow { path, from, until })
}
