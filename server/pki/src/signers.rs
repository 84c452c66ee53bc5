//! The built-in signers (kubernetes `pkg/controller/certificates/signer` and
//! `pkg/apis/certificates/helpers.go`).

use super::authority::Uses;
use super::CertificateRequest;
use plinth_api::{NODES_GROUP, NODE_USER_PREFIX};

/// Client certificates for the API server.
pub const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// Client certificates of kubelets.
pub const KUBELET_CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Serving certificates of kubelets.
pub const KUBELET_SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// Certificates of the API version that had no signer names.
pub const LEGACY_UNKNOWN_SIGNER: &str = "kubernetes.io/legacy-unknown";

/// A signer and its validation.
pub struct Signer {
    /// The signer's name.
    pub name: &'static str,
    /// Validates a request; the error, if any.
    pub error: fn(&CertificateRequest, &[&str]) -> Option<String>,
}

/// All built-in signers.
pub static SIGNERS: &[Signer] = &[
    Signer { name: CLIENT_SIGNER, error: |_, usages| client_error(usages) },
    Signer { name: KUBELET_CLIENT_SIGNER, error: kubelet_client_error },
    Signer { name: KUBELET_SERVING_SIGNER, error: kubelet_serving_error },
    Signer { name: LEGACY_UNKNOWN_SIGNER, error: |_, _| None },
];

fn client_error(usages: &[&str]) -> Option<String> {
    let allowed = ["digital signature", "key encipherment", "client auth"];
    if let Some(usage) = usages.iter().find(|usage| !allowed.contains(usage)) {
        return Some(format!("invalid usage for client certificate: {usage}"));
    }
    match usages.contains(&"client auth") {
        true => None,
        false => Some("missing required usage for client certificate: client auth".into()),
    }
}

/// Validates a kubelet's request for a client certificate.
pub fn kubelet_client_error(request: &CertificateRequest, usages: &[&str]) -> Option<String> {
    if request.subject.organizations() != [NODES_GROUP] {
        return Some("subject organization is not system:nodes".into());
    }
    let names = [
        (request.names.dns.is_empty(), "DNS"),
        (request.names.emails.is_empty(), "Email"),
        (request.names.ips.is_empty(), "IP"),
        (request.names.uris.is_empty(), "URI"),
    ];
    if let Some((_, kind)) = names.iter().find(|(none, _)| !none) {
        return Some(format!("{kind} subjectAltNames are not allowed"));
    }
    if !request.subject.common_name().starts_with(NODE_USER_PREFIX) {
        return Some("subject common name does not begin with system:node:".into());
    }
    usage_error(usages, "client auth")
}

fn kubelet_serving_error(request: &CertificateRequest, usages: &[&str]) -> Option<String> {
    if request.subject.organizations() != [NODES_GROUP] {
        return Some("subject organization is not system:nodes".into());
    }
    if request.names.dns.is_empty() && request.names.ips.is_empty() {
        return Some("DNS or IP subjectAltName is required".into());
    }
    for (none, kind) in [(request.names.emails.is_empty(), "Email"), (request.names.uris.is_empty(), "URI")] {
        if !none {
            return Some(format!("{kind} subjectAltNames are not allowed"));
        }
    }
    if let Some(error) = usage_error(usages, "server auth") {
        return Some(error);
    }
    match request.subject.common_name().starts_with(NODE_USER_PREFIX) {
        true => None,
        false => Some("subject common name does not begin with system:node:".into()),
    }
}

/// Validates the usages of a kubelet's certificate: it signs and has one purpose; RSA keys may also encipher.
fn usage_error(usages: &[&str], purpose: &str) -> Option<String> {
    let (signs, enciphers) = ("digital signature", "key encipherment");
    let has = |usage: &str| usages.contains(&usage);
    let others = usages.iter().any(|usage| ![signs, enciphers, purpose].contains(usage));
    match has(signs) && has(purpose) && !others {
        true => None,
        // Upstream lists them sorted.
        false if purpose == "client auth" => {
            Some(format!("usages did not match [{purpose} {signs} {enciphers}]"))
        }
        false => Some(format!("usages did not match [{signs} {enciphers} {purpose}]")),
    }
}

/// A usage of `spec.usages` in X.509: a bit of `keyUsage` or a purpose of `extKeyUsage`.
enum Usage {
    Key(u32),
    Extended(&'static [u64]),
}

const PKIX: [u64; 8] = [1, 3, 6, 1, 5, 5, 7, 3];

/// `id-kp` of RFC 5280 with its last number.
macro_rules! purpose {
    ($last:literal) => {
        Usage::Extended(&[PKIX[0], PKIX[1], PKIX[2], PKIX[3], PKIX[4], PKIX[5], PKIX[6], PKIX[7], $last])
    };
}

/// All usages by their names in the API.
static USAGES: &[(&str, Usage)] = &[
    ("any", Usage::Extended(&[2, 5, 29, 37, 0])),
    ("cert sign", Usage::Key(5)),
    ("client auth", purpose!(2)),
    ("code signing", purpose!(3)),
    ("content commitment", Usage::Key(1)),
    ("crl sign", Usage::Key(6)),
    ("data encipherment", Usage::Key(3)),
    ("decipher only", Usage::Key(8)),
    ("digital signature", Usage::Key(0)),
    ("email protection", purpose!(4)),
    ("encipher only", Usage::Key(7)),
    ("ipsec end system", purpose!(5)),
    ("ipsec tunnel", purpose!(6)),
    ("ipsec user", purpose!(7)),
    ("key agreement", Usage::Key(4)),
    ("key encipherment", Usage::Key(2)),
    ("microsoft sgc", Usage::Extended(&[1, 3, 6, 1, 4, 1, 311, 10, 3, 3])),
    ("netscape sgc", Usage::Extended(&[2, 16, 840, 1, 113730, 4, 1])),
    ("ocsp signing", purpose!(9)),
    ("s/mime", purpose!(4)),
    ("server auth", purpose!(1)),
    ("signing", Usage::Key(0)),
    ("timestamping", purpose!(8)),
];

/// The valid usages, sorted.
pub fn allowed_usages() -> impl Iterator<Item = &'static str> {
    USAGES.iter().map(|(name, _)| *name)
}

/// Converts usages to X.509; `None` when one is unknown.
pub fn certificate_uses(usages: &[&str]) -> Option<Uses> {
    let mut uses = Uses::default();
    for usage in usages {
        match &USAGES.iter().find(|(name, _)| name == usage)?.1 {
            Usage::Key(bit) => uses.key |= 1 << bit,
            Usage::Extended(purpose) if !uses.extended.contains(purpose) => uses.extended.push(purpose),
            Usage::Extended(_) => {}
        }
    }
    uses.extended.sort_unstable();
    Some(uses)
}
