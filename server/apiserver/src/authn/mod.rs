//! Who sends a request.
//!
//! A chain of authenticators, in upstream's order (kubernetes `pkg/kubeapiserver/authenticator/config.go`): the
//! first that knows the credentials decides. An authenticator that finds credentials of its kind wrong says why; when
//! no other one accepts the request that is a 401, also where nobody would need credentials. A request without any
//! is anonymous.
//!
//! | credentials | module |
//! |---|---|
//! | a front proxy's certificate and headers | [`request_header`] |
//! | client certificate | [`x509`] |
//! | bearer token: of a file, of a service account, of a Secret for new nodes, of an OpenID Connect issuer, of a service elsewhere | [`tokens`] |
//! | bearer token among the subprotocols of a WebSocket | [`websocket`] |
//! | none | [`anonymous`] |
//!
//! [`impersonation`] is the step after: a user who acts as another one.

pub mod anonymous;
pub mod bootstrap_token;
pub mod impersonation;
pub mod oidc;
mod options;
pub mod remarks;
pub mod request_header;
pub mod service_account;
pub mod token_file;
pub mod tokens;
mod trust;
pub mod webhook;
pub mod websocket;
pub mod x509;

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use hyper::header::{HeaderMap, AUTHORIZATION};
use plinth_api::user::User;

use crate::reload::Watched;
use plinth_http::tls::TlsError;
use plinth_storage::Store;

pub use anonymous::Anonymous;
pub use options::AuthenticationOptions;
pub use service_account::ServiceAccounts;
pub use trust::{Trust, TrustedProxy};
pub use x509::{CertificateAuthenticator, Peer};

/// Why credentials were not accepted. Clients hear a bare 401 and only the log says more, lest the answer helps to
/// guess; a TokenReview says it to those who may ask for one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthnError {
    /// A client certificate that is not to be trusted or names nobody.
    #[error("client certificate: {0}")]
    Certificate(String),
    /// A certificate that is not a front proxy's.
    #[error("front proxy: {0}")]
    Proxy(String),
    /// A bearer token that no authenticator knows.
    #[error("invalid bearer token")]
    InvalidToken,
    /// A service-account token that is wrong, has ended or was revoked.
    #[error(transparent)]
    ServiceAccount(#[from] service_account::TokenError),
    /// An ID token that is wrong or cannot be checked.
    #[error(transparent)]
    Oidc(#[from] oidc::OidcError),
    /// A service elsewhere could not be asked, or refuses a token.
    #[error(transparent)]
    Webhook(#[from] webhook::WebhookError),
    /// Subprotocols of a WebSocket that should be a token and are none.
    #[error(transparent)]
    WebSocket(#[from] websocket::ProtocolError),
    /// What credentials are checked against could not be read.
    #[error("{0}")]
    Storage(String),
    /// No credentials, where anonymous requests are not served.
    #[error("no credentials")]
    NoCredentials,
    /// Several authenticators have found something wrong.
    #[error("[{}]", texts(.0))]
    Several(Vec<AuthnError>),
}

fn texts(errors: &[AuthnError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl AuthnError {
    /// As a TokenReview tells it: upstream asks the tokens of its own first, which do not know this one.
    pub fn for_review(self) -> AuthnError {
        AuthnError::together(vec![AuthnError::InvalidToken, self]).unwrap_or(AuthnError::InvalidToken)
    }

    /// Several as one, each once; `None` for none.
    fn together(errors: Vec<AuthnError>) -> Option<AuthnError> {
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

/// Who a request is from.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who it is made as: what authorization and everything after it looks at.
    pub user: Arc<User>,
    /// When the credentials are somebody else's: the constrained permission by which they act as this user, empty for the
    /// old form. For audit.
    pub impersonated: Option<String>,
}

/// A user, and for which of the audiences that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// Who it is.
    pub user: Arc<User>,
    /// The audiences; none when none were asked for.
    pub audiences: Vec<String>,
}

/// Why the chain cannot be set up; the text is for people at start-up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// A certificate file.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A key file.
    #[error(transparent)]
    Key(#[from] plinth_pki::jwt::KeyError),
    /// A token file.
    #[error(transparent)]
    TokenFile(#[from] token_file::TokenFileError),
    /// Issuers of ID tokens.
    #[error(transparent)]
    Oidc(#[from] oidc::config::ConfigError),
    /// The kubeconfig of the authentication webhook.
    #[error(transparent)]
    Webhook(#[from] crate::outward::KubeconfigError),
    /// A header of the front proxy that no request can have.
    #[error("{0:?} is no name of a header")]
    HeaderName(String),
    /// Flags that do not fit together or are out of bounds.
    #[error("{0}")]
    Flag(String),
}

/// What the chain stands on, besides its options.
pub struct Foundation<'a> {
    /// The authority of this server: trusted unless `--client-ca-file` names others.
    pub own_ca: &'a Path,
    /// The key that signs service-account tokens unless `--service-account-signing-key-file` names another.
    pub own_signing_key: &'a Path,
    /// Where tokens, accounts and what they are bound to lie.
    pub store: Store,
    /// Host and port by which the server is reached.
    pub address: String,
}

/// The chain. Behind the server's `Arc`; each authenticator is immutable or locks for itself.
pub struct Authenticator {
    proxy: Option<request_header::RequestHeaders>,
    certificates: CertificateAuthenticator,
    tokens: tokens::Tokens,
    anonymous: Anonymous,
    discovery: Option<service_account::discovery::Documents>,
}

impl Authenticator {
    /// The chain that the options ask for.
    ///
    /// # Errors
    /// When a file that an option names cannot be used, or options contradict each other.
    pub fn new(options: &AuthenticationOptions, on: Foundation<'_>) -> Result<Authenticator, SetupError> {
        options.check()?;
        let client_ca = options.client_ca_file.as_deref().unwrap_or(on.own_ca);
        let settings = options.service_accounts(on.own_signing_key);
        let accounts = Arc::new(ServiceAccounts::new(settings, on.store.clone())?);
        let jwks_uri = options.service_account_jwks_uri.as_deref();
        let configuration = options.configuration()?;
        let anonymous = match &configuration.anonymous {
            Some(anonymous) => {
                let paths = anonymous.conditions.iter().map(|condition| condition.path.clone()).collect();
                Anonymous::new(anonymous.enabled).only_at(paths)
            }
            None => Anonymous::new(options.anonymous_auth.unwrap_or(true)),
        };
        Ok(Authenticator {
            proxy: request_header::RequestHeaders::new(options)?,
            certificates: CertificateAuthenticator::new(client_ca)?,
            discovery: service_account::discovery::documents(&accounts, jwks_uri, &on.address),
            tokens: tokens::Tokens {
                audiences: accounts.settings().audiences.clone(),
                file: options.token_auth_file.as_deref().map(token_file::TokenFile::read).transpose()?,
                accounts,
                bootstrap: options
                    .enable_bootstrap_token_auth
                    .then(|| bootstrap_token::BootstrapTokens::new(on.store.clone())),
                oidc: oidc::Issuers::new(&configuration)?,
                webhook: options.webhook()?,
            },
            anonymous,
        })
    }

    /// Who issues and checks the tokens of service accounts.
    pub fn service_accounts(&self) -> &Arc<ServiceAccounts> {
        &self.tokens.accounts
    }

    /// What relying parties read to check tokens.
    pub fn discovery(&self) -> Option<&service_account::discovery::Documents> {
        self.discovery.as_ref()
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
        let mut errors = Vec::new();
        if let Some(proxy) = &self.proxy {
            match proxy.authenticate(peer, headers) {
                Ok(Some(user)) => return Ok(user),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        match self.certificates.authenticate(peer) {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
        if let Some(token) = bearer_token(headers) {
            match Box::pin(self.tokens.authenticate(&token, &self.tokens.audiences)).await {
                Ok(authenticated) => return Ok(authenticated.user),
                Err(error) => errors.push(error),
            }
        }
        let offered = match websocket::token(headers) {
            Ok(Some(token)) => {
                let authenticated = Box::pin(self.tokens.authenticate(&token, &self.tokens.audiences)).await;
                authenticated.map(|authenticated| Some(authenticated.user))
            }
            Ok(None) => Ok(None),
            Err(error) => Err(error.into()),
        };
        match offered {
            Ok(Some(user)) => return Ok(user),
            Ok(None) => {}
            Err(error) => errors.push(error),
        }
        match AuthnError::together(errors) {
            // Wrong credentials are refused even where nobody needs any, as upstream does.
            Some(error) => Err(error),
            None => self.anonymous.authenticate(path).ok_or(AuthnError::NoCredentials),
        }
    }

    /// Who a token stands for, and for which of the audiences (of this server when there are none): a TokenReview.
    ///
    /// # Errors
    /// [`AuthnError`], for the review to tell.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<Authenticated, AuthnError> {
        let audiences = if audiences.is_empty() { &self.tokens.audiences } else { audiences };
        // What follows a space is no part of a token, there as in the header.
        let token = token.trim().split(' ').next().unwrap_or_default();
        self.tokens.authenticate(token, audiences).await
    }

    /// What runs beside the requests: it keeps what is known of bound objects fresh.
    pub async fn follow(&self) {
        self.tokens.accounts.follow().await;
    }
}

/// The files that the options name and that are read again when they change.
pub fn watched(authenticator: &Arc<Authenticator>, options: &AuthenticationOptions) -> Vec<Watched> {
    let mut watched = Vec::new();
    if let Some(file) = options.client_ca_file.clone() {
        let authenticator = authenticator.clone();
        watched.push(Watched::new("client authorities", vec![file.clone()], move || {
            authenticator.certificates.reload(&file)
        }));
    }
    if let Some(file) = options.requestheader_client_ca_file.clone() {
        let authenticator = authenticator.clone();
        watched.push(Watched::new("front proxy authorities", vec![file.clone()], move || {
            authenticator.proxy.as_ref().map_or(Ok(()), |proxy| proxy.reload(&file))
        }));
    }
    if let Some(file) = options.oidc.authentication_config.clone() {
        let (authenticator, own) = (authenticator.clone(), options.service_account_issuer.clone());
        watched.push(Watched::new("authentication configuration", vec![file.clone()], move || {
            authenticator.tokens.oidc.reload(&file, &own)
        }));
    }
    watched
}

/// The token of `Authorization: Bearer TOKEN`; `None` for another scheme and for an empty token. One that is no text
/// stays wrong: it must not pass for none.
fn bearer_token(headers: &HeaderMap) -> Option<Cow<'_, str>> {
    let value = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii();
    let mut parts = value.splitn(3, |byte| *byte == b' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then(|| String::from_utf8_lossy(token))
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

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
            assert_eq!(bearer_token(&headers).as_deref(), token, "{header:?}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, HeaderValue::from_bytes(b"Bearer a\xff").unwrap());
        assert_eq!(bearer_token(&headers).as_deref(), Some("a\u{fffd}"));
        assert_eq!(bearer_token(&HeaderMap::new()), None);
    }
}
