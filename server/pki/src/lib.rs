//! Public key infrastructure: certificates and requests for them, JSON web tokens, the curve that ring lacks.
//!
//! | subject | module |
//! |---|---|
//! | PKCS#10 requests, with proof of possession | [`request`] |
//! | distinguished names | [`name`] |
//! | subject alternative names | [`alternative_names`] |
//! | certificates and keys in PEM files | [`files`] |
//! | elements of DER | `der` |
//! | signatures of requests | [`signature`] |
//! | a certificate authority | [`authority`] |
//! | the built-in signers and their rules | [`signers`] |
//! | JSON web tokens, and their keys | [`jwt`] |
//! | tokens with which replicas join | [`join_token`] |
//! | private keys in PKCS#8 | [`pkcs8`] |
//! | ECDSA on P-521, and the crypto provider of TLS | [`p521`] |
//!
//! Certificates are encoded with `yasna`, not with `rcgen`, whose names have each attribute at most once: a
//! user in two groups has two organizations. `rcgen` generates keys and the self-signed authority.
//!
//! ```
//! use plinth_pki::Name;
//!
//! let jane = Name::of_user("jane", &["dev", "ops"], "");
//! assert_eq!(jane.common_name(), "jane");
//! assert_eq!(jane.organizations(), ["dev", "ops"]);
//! ```

pub mod alternative_names;
pub mod authority;
mod der;
pub mod files;
#[doc(hidden)]
pub mod fuzzing;
pub mod join_token;
pub mod jwt;
pub mod name;
pub mod p521;
pub mod pkcs8;
pub mod request;
pub mod signature;
pub mod signers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use alternative_names::AlternativeNames;
pub use authority::{Authority, Template};
pub use name::{Name, NameError};
pub use request::CertificateRequest;
