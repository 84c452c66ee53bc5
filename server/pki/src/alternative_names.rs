//! Subject alternative names (RFC 5280, 4.2.1.6). All other code uses this decoder and encoder.

use std::net::IpAddr;

use x509_parser::der_parser::asn1_rs::{oid, Oid};
use x509_parser::prelude::X509Certificate;
use yasna::Tag;

use super::der::{Reader, SEQUENCE};

/// Context tags of `GeneralName`.
const EMAIL: u8 = 1;
const DNS: u8 = 2;
const URI: u8 = 6;
const IP: u8 = 7;
/// The class of these tags.
const CONTEXT: u8 = 0x80;

/// Names of the supported kinds. Names of other kinds are skipped, and never issued.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// DNS names.
    pub dns: Vec<String>,
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// URIs, also those of SPIFFE.
    pub uris: Vec<String>,
}

impl AlternativeNames {
    /// Decodes the value of the extension, DER of `GeneralNames`; `None` if it is malformed. Strings must be
    /// visible ASCII: other characters may terminate the string for other readers, or be invisible to the
    /// approver.
    pub fn from_der(der: &[u8]) -> Option<AlternativeNames> {
        let mut outer = Reader::new(der);
        let mut all = Reader::new(outer.read(SEQUENCE)?);
        outer.end()?;
        let mut names = AlternativeNames::default();
        while !all.is_empty() {
            let name = all.element()?;
            match name.tag ^ CONTEXT {
                EMAIL => names.emails.push(text(name.contents)?),
                DNS => names.dns.push(text(name.contents)?),
                URI => names.uris.push(text(name.contents)?),
                IP => names.ips.push(ip(name.contents)?),
                _ => {}
            }
        }
        Some(names)
    }

    /// The names of a certificate, empty without the extension; `None` if it is malformed.
    pub fn of_certificate(certificate: &X509Certificate<'_>) -> Option<AlternativeNames> {
        const EXTENSION: Oid<'static> = oid!(2.5.29 .17);
        match certificate.get_extension_unique(&EXTENSION).ok()? {
            Some(extension) => AlternativeNames::from_der(extension.value),
            None => Some(AlternativeNames::default()),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == AlternativeNames::default()
    }

    /// Encodes the value of the extension, in Go's order; `None` without names.
    pub fn to_der(&self) -> Option<Vec<u8>> {
        let octets = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let texts = |tag: u8, list: &[String]| -> Vec<(u8, Vec<u8>)> {
            list.iter().map(|text| (tag, text.as_bytes().to_vec())).collect()
        };
        let ips = self.ips.iter().map(|ip| (IP, octets(ip))).collect();
        let all = [texts(DNS, &self.dns), texts(EMAIL, &self.emails), ips, texts(URI, &self.uris)].concat();
        let der = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                for (tag, name) in &all {
                    let tag = Tag::context(u64::from(*tag));
                    writer.next().write_tagged_implicit(tag, |writer| writer.write_bytes(name));
                }
            });
        });
        (!all.is_empty()).then_some(der)
    }
}

fn text(bytes: &[u8]) -> Option<String> {
    let is_visible = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_graphic);
    is_visible.then(|| bytes.iter().copied().map(char::from).collect())
}

fn ip(octets: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(octets).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_by_table() {
        let names = AlternativeNames {
            dns: vec!["a.example".into(), "*.b".into()],
            emails: vec!["a@b".into()],
            ips: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            uris: vec!["spiffe://a/b".into()],
        };
        let der = names.to_der().unwrap();
        assert_eq!(AlternativeNames::from_der(&der), Some(names));
        assert_eq!(AlternativeNames::default().to_der(), None);
        let rows: [(&[u8], bool); 9] = [
            (&[0x30, 0], true),
            (&[0x30, 3, 0x82, 1, b'a'], true),
            // A registered identifier.
            (&[0x30, 3, 0x88, 1, 0x2a], true),
            (&[0x30, 2, 0x82, 0], false),
            (&[0x30, 4, 0x82, 2, b'a', 0], false),
            (&[0x30, 3, 0x82, 1, 0xe4], false),
            (&[0x30, 5, 0x87, 3, 1, 2, 3], false),
            (&[0x30, 3, 0x82, 1, b'a', 0], false),
            (&[0x30, 3, 0x82, 2, b'a'], false),
        ];
        for (der, good) in rows {
            assert_eq!(AlternativeNames::from_der(der).is_some(), good, "{der:?}");
        }
    }
}
