//! Kinds of `certificates.k8s.io`.

pub mod certificate_signing_request;
pub(crate) mod cluster_trust_bundle;
mod issued_certificate;
pub(crate) mod pod_certificate_request;
mod requested_key;
pub(crate) mod signer_name;
