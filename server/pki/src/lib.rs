//! Public keys at work: certificates and the requests for them, JSON web tokens, the curve that ring does not have.
//!
//! | subject | module |
//! |---|---|
//! | what a PKCS#10 request asks for, and whether its sender holds the key | [`request`] |
//! | distinguished names, of requests and of certificates | [`name`] |
//! | subject alternative names, of both | [`alternative_names`] |
//! | certificates and keys in PEM files | [`files`] |
//! | elements of DER | `der` |
//! | which signatures of requests are taken | [`signature`] |
//! | an authority that signs, and what may be signed for how long | [`authority`] |
//! | the built-in signers and their rules | [`signers`] |
//! | JSON web tokens, and their keys | [`jwt`] |
//! | ECDSA on P-521, and the crypto provider of TLS | [`p521`] |
//!
//! Certificates are written here with `yasna` rather than with `rcgen`, whose names can hold each attribute once: a
//! user of two groups has two organizations. `rcgen` makes keys and the self-signed authority.
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
pub mod jwt;
pub mod name;
pub mod p521;
pub mod request;
pub mod signature;
pub mod signers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use alternative_names::AlternativeNames;
pub use authority::{Authority, Template};
pub use name::{Name, NameError};
pub use request::CertificateRequest;
