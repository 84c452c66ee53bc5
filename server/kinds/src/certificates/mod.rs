//! Kinds of `certificates.k8s.io`.

pub mod certificate_signing_request;
pub(crate) mod cluster_trust_bundle;
mod signer_name;
