//! Authentication.
//!
//! A chain of authenticators, in upstream's order (kubernetes `pkg/kubeapiserver/authenticator/config.go`):
//! the first that recognizes the credentials decides. An authenticator that finds its kind of credentials
//! invalid returns an error; if no other one accepts the request it is answered 401, even where anonymous
//! requests are allowed. A request without credentials is anonymous.
//!
//! | credentials | module |
//! |---|---|
//! | a front proxy's certificate and headers | [`request_header`] |
//! | client certificate | [`x509`] |
//! | bearer token: token file, service account, bootstrap token, OpenID Connect issuer, webhook | [`tokens`]
//! |
//! | bearer token among the subprotocols of a WebSocket | [`websocket`] |
//! | none | [`anonymous`] |
//!
//! [`impersonation`] is the step after it.

pub mod anonymous;
mod authenticated;
pub mod bootstrap_token;
mod error;
pub mod impersonation;
mod notices;
pub mod oidc;
mod options;
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

use hyper::header::{HeaderMap, HeaderName, AUTHORIZATION};
use plinth_api::User;

use crate::metrics::{ReloadMetrics, ReloadedConfig};
use crate::reload::WatchedFiles;
use plinth_pki::JOIN_PATH;
use plinth_storage::Store;

pub use anonymous::Anonymous;
pub use authenticated::Authenticated;
pub use error::{AuthenticationSetupError, AuthnError};
pub use notices::Notice;
pub use options::AuthenticationOptions;
pub use service_account::ServiceAccounts;
pub use trust::{ClusterAuthenticationInfo, ProxyFlags, TrustedProxy};
pub use x509::{CertificateAuthenticator, Peer};

/// The user of a request.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The effective user, for authorization and everything after it.
    pub user: Arc<User>,
    /// If the sender impersonates the user: the constrained permission that allows it, empty for the
    /// legacy verb. For audit.
    pub impersonated: Option<String>,
}

/// What the authenticators need in addition to their options.
pub struct Dependencies<'a> {
    /// This server's CA: trusted unless `--client-ca-file` names others.
    pub own_ca: &'a Path,
    /// The key that signs service account tokens unless `--service-account-signing-key-file` names another.
    pub own_signing_key: &'a Path,
    /// Stores tokens, accounts and the objects that tokens are bound to.
    pub store: Store,
    /// Host and port at which clients reach the server.
    pub address: String,
}

/// The chain of authenticators. Each is immutable or has its own lock.
pub struct Authenticator {
    proxy: Option<request_header::RequestHeaders>,
    certificates: CertificateAuthenticator,
    tokens: tokens::Tokens,
    anonymous: Anonymous,
    discovery: Option<service_account::discovery::Documents>,
}

impl Authenticator {
    /// Sets up the authenticators.
    ///
    /// # Errors
    /// When a file cannot be used, or options contradict each other.
    pub fn new(
        options: &AuthenticationOptions,
        on: Dependencies<'_>,
    ) -> Result<Authenticator, AuthenticationSetupError> {
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
            certificates: CertificateAuthenticator::new(client_ca).map_err(|source| {
                AuthenticationSetupError::Authorities { flag: "--client-ca-file", source }
            })?,
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

    /// Whether a header is one in which a front proxy names the user.
    pub(crate) fn is_proxy_header(&self, name: &HeaderName) -> bool {
        self.proxy.as_ref().is_some_and(|proxy| proxy.is_read(name))
    }

    /// What extension API servers need to trust whom this server trusts.
    pub fn cluster_authentication_info(&self) -> ClusterAuthenticationInfo {
        ClusterAuthenticationInfo {
            client_authorities: self.certificates.authorities_pem(),
            proxy: self.proxy.as_ref().map(request_header::RequestHeaders::trusted),
        }
    }

    /// Issues and verifies service account tokens.
    pub fn service_accounts(&self) -> &Arc<ServiceAccounts> {
        &self.tokens.accounts
    }

    /// The OpenID Connect discovery documents.
    pub fn discovery(&self) -> Option<&service_account::discovery::Documents> {
        self.discovery.as_ref()
    }

    /// Authenticates a request; what its credentials are to be noted with is added to `notices`, also where
    /// they are refused.
    ///
    /// # Errors
    /// [`AuthnError`]: the request is answered 401.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        path: &str,
        notices: &mut Vec<Notice>,
    ) -> Result<Arc<User>, AuthnError> {
        // A new replica presents its join token there. What comes with such a request is no user's
        // credential, and it gets nothing but what the token grants (`endpoints/join.rs`).
        if path == JOIN_PATH {
            return Ok(Arc::new(User::anonymous()));
        }
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
            match Box::pin(self.tokens.authenticate(&token, &self.tokens.audiences, notices)).await {
                Ok(authenticated) => return Ok(authenticated.user),
                Err(error) => errors.push(error),
            }
        }
        let offered = match websocket::token(headers) {
            Ok(Some(token)) => {
                let audiences = &self.tokens.audiences;
                let authenticated = Box::pin(self.tokens.authenticate(&token, audiences, notices)).await;
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
        match AuthnError::merge(errors) {
            // Invalid credentials are refused even where anonymous requests are allowed, as upstream does.
            Some(error) => Err(error),
            None => self.anonymous.authenticate(path).ok_or(AuthnError::NoCredentials),
        }
    }

    /// Authenticates a token for some audiences (this server's own when empty): a TokenReview.
    ///
    /// # Errors
    /// [`AuthnError`], for the review's status.
    pub async fn review(&self, token: &str, audiences: &[String]) -> Result<Authenticated, AuthnError> {
        let audiences = if audiences.is_empty() { &self.tokens.audiences } else { audiences };
        // What follows a space is not part of the token, as in the header.
        let token = token.trim().split(' ').next().unwrap_or_default();
        // A review notes nothing: the token is not the request's.
        self.tokens.authenticate(token, audiences, &mut Vec::new()).await
    }
}

/// The files of the options that are reloaded when they change.
pub fn watched_files(
    authenticator: &Arc<Authenticator>,
    options: &AuthenticationOptions,
    metrics: &Arc<ReloadMetrics>,
) -> Vec<WatchedFiles> {
    let mut watched = Vec::new();
    if let Some(file) = options.client_ca_file.clone() {
        let authenticator = authenticator.clone();
        watched.push(WatchedFiles::new("client authorities", vec![file.clone()], move || {
            authenticator.certificates.reload(&file)
        }));
    }
    if let Some(file) = options.requestheader_client_ca_file.clone() {
        let authenticator = authenticator.clone();
        watched.push(WatchedFiles::new("front proxy authorities", vec![file.clone()], move || {
            authenticator.proxy.as_ref().map_or(Ok(()), |proxy| proxy.reload(&file))
        }));
    }
    if let Some(file) = options.oidc.authentication_config.clone() {
        let (authenticator, own) = (authenticator.clone(), options.service_account_issuer.clone());
        let files = WatchedFiles::new("authentication configuration", vec![file.clone()], move || {
            authenticator.tokens.oidc.reload(&file, &own)
        });
        watched.push(files.counted(metrics, ReloadedConfig::Authentication));
    }
    watched
}

/// The token of `Authorization: Bearer TOKEN`; `None` for another scheme and for an empty token. One that is
/// not UTF-8 stays invalid: it must not pass for a missing one.
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
