//! PKCS#10 requests (RFC 2986), as CertificateSigningRequests hold them in PEM.

use std::net::IpAddr;

use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::cri_attributes::ParsedCriAttribute;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer;
use yasna::Tag;

use super::pem;
use super::signature::{self, SignatureError};

/// What is wrong with a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No PEM, or PEM of something else.
    #[error("PEM block type must be CERTIFICATE REQUEST")]
    Pem,
    /// Not the DER of a request.
    #[error("asn1: structure error: not a certificate request")]
    Malformed,
    /// The sender does not hold the key, or that cannot be found out.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

/// A request, read and copied out of its encoding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CertificateRequest {
    /// The subject, DER of a Name.
    pub subject: Vec<u8>,
    /// The public key, DER of a SubjectPublicKeyInfo.
    pub public_key: Vec<u8>,
    /// The common name of the subject; empty without one.
    pub common_name: String,
    /// The organizations of the subject.
    pub organizations: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// E-mail addresses.
    pub emails: Vec<String>,
    /// IP addresses.
    pub ips: Vec<IpAddr>,
    /// URIs.
    pub uris: Vec<String>,
}

impl CertificateRequest {
    /// Reads a request in PEM and checks that its sender holds the key.
    ///
    /// # Errors
    /// [`RequestError`].
    pub fn read(text: &[u8]) -> Result<CertificateRequest, RequestError> {
        let first = pem::blocks(text).next().filter(|block| block.label == "CERTIFICATE REQUEST");
        let der = first.ok_or(RequestError::Pem)?.contents;
        let (rest, request) =
            X509CertificationRequest::from_der(&der).map_err(|_| RequestError::Malformed)?;
        if !rest.is_empty() {
            return Err(RequestError::Malformed);
        }
        let info = &request.certification_request_info;
        signature::check(
            &info.subject_pki,
            &request.signature_algorithm,
            info.raw,
            &request.signature_value.data,
        )?;
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().map(str::to_owned).map_err(|_| RequestError::Malformed)
        };
        let mut out = CertificateRequest {
            subject: info.subject.as_raw().to_vec(),
            public_key: info.subject_pki.raw.to_vec(),
            common_name: info.subject.iter_common_name().last().map(text).transpose()?.unwrap_or_default(),
            organizations: info.subject.iter_organization().map(text).collect::<Result<_, _>>()?,
            ..CertificateRequest::default()
        };
        for attribute in info.iter_attributes() {
            let ParsedCriAttribute::ExtensionRequest(requested) = attribute.parsed_attribute() else {
                continue;
            };
            for extension in &requested.extensions {
                if let ParsedExtension::SubjectAlternativeName(names) = extension.parsed_extension() {
                    for name in &names.general_names {
                        out.add(name)?;
                    }
                }
            }
        }
        Ok(out)
    }

    fn add(&mut self, name: &GeneralName<'_>) -> Result<(), RequestError> {
        match name {
            GeneralName::DNSName(name) => self.dns_names.push((*name).to_owned()),
            GeneralName::RFC822Name(name) => self.emails.push((*name).to_owned()),
            GeneralName::URI(name) => self.uris.push((*name).to_owned()),
            GeneralName::IPAddress(octets) => {
                let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
                let ip = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
                self.ips.push(ip.map_err(|_| RequestError::Malformed)?);
            }
            // Names of other kinds are looked at by no rule, and come into no certificate.
            _ => {}
        }
        Ok(())
    }

    /// The value of the extension `subjectAltName` (RFC 5280, 4.2.1.6) with the names that were looked at, in Go's order; `None` when there
    /// are none.
    pub fn alternative_names(&self) -> Option<Vec<u8>> {
        /// Context tags of GeneralName.
        const EMAIL: u64 = 1;
        const DNS: u64 = 2;
        const URI: u64 = 6;
        const IP: u64 = 7;
        let octets = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let texts = |tag: u64, list: &[String]| -> Vec<(u64, Vec<u8>)> {
            list.iter().map(|text| (tag, text.as_bytes().to_vec())).collect()
        };
        let ips = self.ips.iter().map(|ip| (IP, octets(ip))).collect();
        let all =
            [texts(DNS, &self.dns_names), texts(EMAIL, &self.emails), ips, texts(URI, &self.uris)].concat();
        let der = yasna::construct_der(|writer| {
            writer.write_sequence(|writer| {
                for (tag, name) in &all {
                    writer
                        .next()
                        .write_tagged_implicit(Tag::context(*tag), |writer| writer.write_bytes(name));
                }
            });
        });
        (!all.is_empty()).then_some(der)
    }
}
