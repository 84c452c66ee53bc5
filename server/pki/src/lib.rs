//! Public key infrastructure: certificates and requests for them, JSON web tokens, the curve that ring lacks.
//!
//! | subject | module |
//! |---|---|
//! | PKCS#10 requests, with proof of possession | `request` |
//! | distinguished names | `name` |
//! | subject alternative names | `alternative_names` |
//! | certificates and keys in PEM files | `files` |
//! | elements of DER | `der` |
//! | signatures of requests | `signature` |
//! | a certificate authority | `authority` |
//! | the built-in signers and their rules | `signers` |
//! | keys of pods, with proof of possession | `subject_key` |
//! | JSON web tokens, and their keys | `jwt` |
//! | tokens with which replicas join | `join_token` |
//! | private keys in PKCS#8 | `pkcs8` |
//! | ECDSA on P-521, and the crypto provider of TLS | `p521` |
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

#![cfg_attr(not(test), warn(unreachable_pub))]

mod alternative_names;
mod authority;
mod der;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod join_token;
mod jwt;
mod name;
mod p521;
mod pkcs8;
mod request;
mod signature;
mod signers;
mod subject_key;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use alternative_names::AlternativeNames;
pub use authority::{Authority, AuthorityError, Template, Uses};
pub use files::{
    parse_certificates, parse_private_key, read_bundle, read_certificates, read_key, FileError, TextError,
    CERTIFICATE_LABEL,
};
pub use join_token::{
    authority_hash, constant_time_eq, AuthorityHash, JoinCredential, JoinToken, MalformedJoinToken,
    NoRandomness, JOIN_PATH, JOIN_TOKEN_DESCRIPTION, JOIN_TOKEN_EXPIRATION, JOIN_TOKEN_HASH, JOIN_TOKEN_ID,
    JOIN_TOKEN_NAMESPACE, JOIN_TOKEN_SECRET_PREFIX, JOIN_TOKEN_SECRET_TYPE, JOIN_TOKEN_USAGE,
};
pub use jwt::keys::{
    key_kind, public_key_of, public_key_of_certificate, public_key_of_private, read_public_keys, KeyError,
    SigningKey, VerifyingKey,
};
pub use jwt::method::{MethodError, MethodKind, SigningMethod};
pub use jwt::{
    jwt_header, sign_jwt, unix_now, unverified_claims, verify_jwt, JwtAlgorithm, JwtError, JwtHeader,
    RegisteredClaims, JWT_LEEWAY, LONGEST_JWT,
};
pub use name::{Name, NameError, COMMON_NAME, ORGANIZATION, UID};
pub use p521::crypto_provider;
pub use pkcs8::pkcs8_from_key;
pub use request::{CertificateRequest, RequestError, CERTIFICATE_REQUEST_LABEL};
pub use signature::{check_signature, SignatureError};
pub use signers::{
    allowed_usages, certificate_uses, kubelet_client_error, Signer, CLIENT_SIGNER, KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER, LEGACY_UNKNOWN_SIGNER, SIGNERS,
};
pub use subject_key::{SubjectKey, SubjectKeyError};
