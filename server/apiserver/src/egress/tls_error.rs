//! Errors of TLS in the words of Go's `crypto/tls` and `crypto/x509`, because people search for them.

use std::io;
use std::net::IpAddr;

use plinth_codec::time::Timestamp;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

/// What Go reports for a handshake that failed.
pub(super) fn in_go(error: &io::Error) -> String {
    let of_tls = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    match of_tls {
        Some(Error::InvalidCertificate(error)) => {
            format!("tls: failed to verify certificate: x509: {}", of_certificate(error))
        }
        Some(Error::AlertReceived(alert)) => match name_of(*alert) {
            Some(name) => format!("remote error: tls: {name}"),
            None => format!("remote error: tls: alert({})", u8::from(*alert)),
        },
        // The answer of a server without TLS.
        Some(Error::InvalidMessage(InvalidMessage::InvalidContentType)) => {
            "tls: first record does not look like a TLS handshake".to_owned()
        }
        None if error.kind() == io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
        None if error.kind() == io::ErrorKind::ConnectionReset => "read: connection reset by peer".to_owned(),
        _ => format!("tls: {error}"),
    }
}

fn of_certificate(error: &CertificateError) -> String {
    match error {
        // An authority of the same name with another key is none of it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        // It is an authority itself, and none of those that are trusted.
        CertificateError::Other(other) if other.to_string() == "CaUsedAsEndEntity" => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::ExpiredContext { time, not_after } => {
            format!("{}: current time {} is after {}", OUT_OF_TIME, date(*time), date(*not_after))
        }
        CertificateError::NotValidYetContext { time, not_before } => {
            format!("{}: current time {} is before {}", OUT_OF_TIME, date(*time), date(*not_before))
        }
        CertificateError::Expired | CertificateError::NotValidYet => OUT_OF_TIME.to_owned(),
        CertificateError::NotValidForNameContext { expected, presented } => other_name(expected, presented),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "certificate specifies an incompatible key usage".to_owned()
        }
        error => error.to_string(),
    }
}

const OUT_OF_TIME: &str = "certificate has expired or is not yet valid";

fn date(time: UnixTime) -> String {
    let seconds = std::time::Duration::from_secs(time.as_secs());
    Timestamp::from(std::time::UNIX_EPOCH + seconds).to_rfc3339().to_string()
}

/// `presented` are the certificate's names as webpki writes them, each in parentheses after its type.
fn other_name(expected: &ServerName<'_>, presented: &[String]) -> String {
    let (mut hosts, mut addresses) = (Vec::new(), Vec::new());
    for name in presented {
        let inside = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
        let inside = inside.unwrap_or(name).trim_matches('"');
        match inside.parse::<IpAddr>() {
            Ok(_) => addresses.push(inside),
            Err(_) => hosts.push(inside),
        }
    }
    let expected = expected.to_str();
    let is_address = expected.parse::<IpAddr>().is_ok();
    match (is_address, hosts.as_slice(), addresses.as_slice()) {
        (true, _, []) => {
            format!("cannot validate certificate for {expected} because it doesn't contain any IP SANs")
        }
        (true, _, valid) | (false, valid @ [_, ..], _) => {
            format!("certificate is valid for {}, not {expected}", valid.join(", "))
        }
        (false, [], _) => {
            format!("certificate is not valid for any names, but wanted to match {expected}")
        }
    }
}

/// Go's name of an alert.
fn name_of(alert: AlertDescription) -> Option<&'static str> {
    Some(match alert {
        AlertDescription::UnexpectedMessage => "unexpected message",
        AlertDescription::HandshakeFailure => "handshake failure",
        AlertDescription::BadCertificate => "bad certificate",
        AlertDescription::UnsupportedCertificate => "unsupported certificate",
        AlertDescription::CertificateRevoked => "revoked certificate",
        AlertDescription::CertificateExpired => "expired certificate",
        AlertDescription::CertificateUnknown => "unknown certificate",
        AlertDescription::UnknownCA => "unknown certificate authority",
        AlertDescription::AccessDenied => "access denied",
        AlertDescription::ProtocolVersion => "protocol version not supported",
        AlertDescription::InsufficientSecurity => "insufficient security level",
        AlertDescription::InternalError => "internal error",
        AlertDescription::UnrecognisedName => "unrecognized name",
        AlertDescription::CertificateRequired => "certificate required",
        AlertDescription::NoApplicationProtocol => "no application protocol",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_gos_words() {
        let at = |seconds| UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds));
        let name = |name: &'static str| ServerName::try_from(name).unwrap();
        let named = |expected: ServerName<'static>, presented: &[&str]| {
            let presented = presented.iter().map(|name| (*name).to_owned()).collect();
            Error::from(CertificateError::NotValidForNameContext { expected, presented })
        };
        let x509 = "tls: failed to verify certificate: x509:";
        let rows = [
            (
                CertificateError::UnknownIssuer.into(),
                format!("{x509} certificate signed by unknown authority"),
            ),
            (
                CertificateError::ExpiredContext { time: at(1_796_025_633), not_after: at(978_307_200) }.into(),
                format!(
                    "{x509} certificate has expired or is not yet valid: current time 2026-11-30T08:00:33Z is \
                     after 2001-01-01T00:00:00Z"
                ),
            ),
            (
                CertificateError::NotValidYetContext { time: at(0), not_before: at(978_307_200) }.into(),
                format!(
                    "{x509} certificate has expired or is not yet valid: current time 1970-01-01T00:00:00Z is \
                     before 2001-01-01T00:00:00Z"
                ),
            ),
            (
                named(name("c.test"), &["DnsName(\"a.test\")", "Address(10.0.0.1)", "DnsName(\"b.test\")"]),
                format!("{x509} certificate is valid for a.test, b.test, not c.test"),
            ),
            (
                named(name("c.test"), &[]),
                format!("{x509} certificate is not valid for any names, but wanted to match c.test"),
            ),
            (
                named(name("127.0.0.1"), &["DnsName(\"a.test\")"]),
                format!(
                    "{x509} cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"
                ),
            ),
            (
                named(name("127.0.0.1"), &["Address(10.0.0.1)"]),
                format!("{x509} certificate is valid for 10.0.0.1, not 127.0.0.1"),
            ),
            (
                CertificateError::InvalidPurpose.into(),
                format!("{x509} certificate specifies an incompatible key usage"),
            ),
            (
                Error::AlertReceived(AlertDescription::CertificateRequired),
                "remote error: tls: certificate required".to_owned(),
            ),
            (
                InvalidMessage::InvalidContentType.into(),
                "tls: first record does not look like a TLS handshake".to_owned(),
            ),
        ];
        for (error, expected) in rows {
            assert_eq!(in_go(&io::Error::new(io::ErrorKind::InvalidData, error)), expected);
        }
        assert_eq!(in_go(&io::ErrorKind::UnexpectedEof.into()), "EOF");
    }
}
