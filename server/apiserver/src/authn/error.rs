//! Why credentials are refused, and why the authenticators cannot be set up.

use plinth_http::TlsError;

/// Why credentials were refused. Clients get a bare 401, lest the answer help an attacker; the reason is in
/// the log, and in the status of a TokenReview.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    /// A client certificate that is not trusted or has no common name.
    #[error("client certificate: {0}")]
    Certificate(String),
    /// A certificate that is not the front proxy's.
    #[error("front proxy: {0}")]
    Proxy(String),
    /// A bearer token that no authenticator recognizes.
    #[error("invalid bearer token")]
    InvalidToken,
    /// A service account token that is invalid, expired or revoked.
    #[error(transparent)]
    ServiceAccount(#[from] super::service_account::TokenError),
    /// An ID token that is invalid or cannot be verified.
    #[error(transparent)]
    Oidc(#[from] super::oidc::OidcError),
    /// The webhook could not be called, or refused the token.
    #[error(transparent)]
    Webhook(#[from] super::webhook::TokenWebhookError),
    /// WebSocket subprotocols with an invalid token.
    #[error(transparent)]
    WebSocket(#[from] super::websocket::ProtocolError),
    /// The objects needed to verify the credentials could not be read.
    #[error("{0}")]
    Storage(String),
    /// No credentials, and anonymous requests are not allowed.
    #[error("no credentials")]
    NoCredentials,
    /// Several authenticators returned errors.
    #[error("[{}]", texts(.0))]
    Several(Vec<AuthnError>),
}

fn texts(errors: &[AuthnError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl AuthnError {
    /// The error as reported by a TokenReview: upstream tries its own tokens first, which adds their error.
    pub(crate) fn for_review(self) -> AuthnError {
        AuthnError::merge(vec![AuthnError::InvalidToken, self]).unwrap_or(AuthnError::InvalidToken)
    }

    /// Merges errors, without duplicates; `None` for none.
    pub(super) fn merge(errors: Vec<AuthnError>) -> Option<AuthnError> {
        let mut all: Vec<AuthnError> = Vec::new();
        for error in errors {
            let members = match error {
                AuthnError::Several(members) => members,
                one => vec![one],
            };
            for member in members {
                if !all.contains(&member) {
                    all.push(member);
                }
            }
        }
        match all.len() {
            0 | 1 => all.pop(),
            _ => Some(AuthnError::Several(all)),
        }
    }
}

/// Why the authenticators cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum AuthenticationSetupError {
    /// A file of authorities is invalid.
    #[error("{flag}: {source}")]
    Authorities {
        /// The flag that names the file.
        flag: &'static str,
        /// What is wrong with it.
        source: TlsError,
    },
    /// A key file is invalid.
    #[error(
        "keys of service accounts (--service-account-key-file, --service-account-signing-key-file): {0}"
    )]
    Key(#[from] plinth_pki::KeyError),
    /// The token file is invalid.
    #[error(transparent)]
    TokenFile(#[from] super::token_file::TokenFileError),
    /// The OpenID Connect configuration is invalid.
    #[error(transparent)]
    Oidc(#[from] super::oidc::config::ConfigError),
    /// The kubeconfig of the authentication webhook is invalid.
    #[error(transparent)]
    Webhook(#[from] crate::egress::KubeconfigError),
    /// An invalid header name of the front proxy.
    #[error("{0:?} is no name of a header")]
    HeaderName(String),
    /// Flags that are contradictory or out of range.
    #[error("{0}")]
    Flag(String),
}
