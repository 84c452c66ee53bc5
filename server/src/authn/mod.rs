//! Who sends a request.
//!
//! A chain of authenticators, in upstream's order (kubernetes `pkg/kubeapiserver/authenticator/config.go`): the
//! first that knows the credentials decides. An authenticator that finds credentials of its kind wrong says why; when
//! no other one accepts the request that is a 401, also where nobody would need credentials. A request without any
//! is anonymous.
//!
//! | credentials | module |
//! |---|---|
//! | client certificate | [`x509`] |
//! | none | [`anonymous`] |

pub mod anonymous;
mod options;
pub mod user;
pub mod x509;

use std::sync::Arc;

use hyper::header::{HeaderMap, AUTHORIZATION};

use crate::http::tls::TlsError;

pub use anonymous::Anonymous;
pub use options::AuthenticationOptions;
pub use user::User;
pub use x509::{CertificateAuthenticator, Peer};

/// Why credentials were not accepted. Clients hear a bare 401 and only the log says more, lest the answer helps to
/// guess.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    /// A client certificate that is not to be trusted or names nobody.
    #[error("client certificate: {0}")]
    Certificate(String),
    /// A bearer token that no authenticator knows.
    #[error("invalid bearer token")]
    InvalidToken,
    /// No credentials, where anonymous requests are not served.
    #[error("no credentials")]
    NoCredentials,
}

/// Who a request is from.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who it is made as: what authorization and everything after it looks at.
    pub user: Arc<User>,
    /// Whose credentials they are, when they act as another user; for audit.
    pub impersonator: Option<Arc<User>>,
}

/// Why the chain cannot be set up; the text is for people at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A certificate file.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The chain. Behind the server's `Arc`; each authenticator is immutable or locks for itself.
pub struct Authenticator {
    certificates: CertificateAuthenticator,
    anonymous: Anonymous,
}

impl Authenticator {
    /// The chain that the options ask for. `own_ca` is the authority of this server, trusted unless
    /// `--client-ca-file` names others.
    ///
    /// # Errors
    /// When a file that an option names cannot be used.
    pub fn new(
        options: &AuthenticationOptions,
        own_ca: &std::path::Path,
    ) -> Result<Authenticator, SetupError> {
        let client_ca = options.client_ca_file.as_deref().unwrap_or(own_ca);
        Ok(Authenticator {
            certificates: CertificateAuthenticator::new(client_ca)?,
            anonymous: Anonymous::new(options.anonymous_auth),
        })
    }

    /// Who sends a request with these headers to this path over this connection.
    ///
    /// # Errors
    /// [`AuthnError`]: the request is answered 401.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Arc<User>, AuthnError> {
        let mut refused = None;
        match self.certificates.authenticate(peer) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(fault) => refused = Some(fault),
        }
        if bearer_token(headers).is_some() {
            refused.get_or_insert(AuthnError::InvalidToken);
        }
        match refused {
            // Wrong credentials are refused even where nobody needs any, as upstream does.
            Some(fault) => Err(fault),
            None => self.anonymous.authenticate(path).ok_or(AuthnError::NoCredentials),
        }
    }
}

/// The token of `Authorization: Bearer TOKEN`; `None` for another scheme and for an empty token.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(AUTHORIZATION)?.to_str().ok()?.trim();
    let mut parts = value.splitn(3, ' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bearer_tokens_by_table() {
        let rows = [
            ("Bearer abc", Some("abc")),
            ("bearer abc", Some("abc")),
            ("  BEARER abc  ", Some("abc")),
            ("Bearer abc def", Some("abc")),
            ("Bearer", None),
            ("Bearer ", None),
            ("Bearer  abc", None),
            ("Basic abc", None),
            ("", None),
        ];
        for (header, token) in rows {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, header.parse().unwrap());
            assert_eq!(bearer_token(&headers), token, "{header:?}");
        }
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
