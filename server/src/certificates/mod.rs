//! X.509: requests are read and judged, certificates are issued.
//!
//! | subject | module |
//! |---|---|
//! | what a PKCS#10 request asks for, and whether its sender holds the key | [`request`] |
//! | PEM, as Go reads it | [`pem`] |
//! | which signatures of requests are taken | [`signature`] |
//! | an authority that signs, and what may be signed for how long | [`authority`] |
//! | the built-in signers and their rules | [`signers`] |
//!
//! Certificates are written here with `yasna` rather than with `rcgen`, whose names can hold each attribute once: a
//! user of two groups has two organizations. `rcgen` makes keys and the self-signed authority.

pub mod authority;
pub mod pem;
pub mod request;
pub mod signature;
pub mod signers;

pub use authority::{Authority, Template};
pub use request::CertificateRequest;
