//! Bearer tokens: each kind of token is tried in upstream's order until one knows it. What is local comes first, what
//! asks another server last.

use std::sync::Arc;

use super::bootstrap_token::BootstrapTokens;
use super::oidc::Issuers;
use super::service_account::ServiceAccounts;
use super::token_file::TokenFile;
use super::webhook::Webhook;
use super::{Authenticated, AuthnError};
use plinth_api::user::User;

/// The kinds of tokens that are known. Each locks for itself.
pub struct Tokens {
    pub(super) audiences: Vec<String>,
    pub(super) file: Option<TokenFile>,
    pub(super) accounts: Arc<ServiceAccounts>,
    pub(super) bootstrap: Option<BootstrapTokens>,
    pub(super) oidc: Issuers,
    pub(super) webhook: Option<Webhook>,
}

impl Tokens {
    /// Who a token stands for, and for which of the wanted audiences.
    ///
    /// # Errors
    /// What the kinds say that knew the token and found it wrong, or [`AuthnError::InvalidToken`].
    pub async fn authenticate(&self, token: &str, wanted: &[String]) -> Result<Authenticated, AuthnError> {
        let mut errors: Vec<AuthnError> = Vec::new();
        // Kinds that know no audiences speak for this server's own.
        let agnostic: Vec<String> = self.audiences.iter().filter(|a| wanted.contains(a)).cloned().collect();
        let ours = !agnostic.is_empty() || self.audiences.is_empty();
        let agnostic = |user: Arc<User>| Authenticated { user, audiences: agnostic.clone() };
        if let Some(user) = self.file.as_ref().filter(|_| ours).and_then(|file| file.authenticate(token)) {
            return Ok(agnostic(user));
        }
        match self.accounts.authenticate(token, wanted).await {
            Ok(Some(authenticated)) => return Ok(authenticated),
            Ok(None) => {}
            Err(error) => errors.push(AuthnError::ServiceAccount(error)),
        }
        if let Some(bootstrap) = self.bootstrap.as_ref().filter(|_| ours) {
            match bootstrap.authenticate(token).await {
                Ok(Some(user)) => return Ok(agnostic(user)),
                Ok(None) => {}
                Err(error) => errors.push(AuthnError::Storage(error.to_string())),
            }
        }
        if ours {
            match self.oidc.authenticate(token).await {
                Ok(Some(user)) => return Ok(agnostic(user)),
                Ok(None) => {}
                Err(error) => errors.push(AuthnError::Oidc(error)),
            }
        }
        if let Some(webhook) = &self.webhook {
            match webhook.authenticate(token, wanted).await {
                Ok(Some(authenticated)) => return Ok(authenticated),
                Ok(None) => {}
                Err(error) => errors.push(AuthnError::Webhook(error)),
            }
        }
        Err(AuthnError::together(errors).unwrap_or(AuthnError::InvalidToken))
    }
}
