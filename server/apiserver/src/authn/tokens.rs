//! Bearer tokens: authenticators are tried in upstream's order, local ones first, those that
//! call another server last.

use std::sync::Arc;

use super::bootstrap_token::BootstrapTokens;
use super::oidc::Issuers;
use super::service_account::ServiceAccounts;
use super::token_file::TokenFile;
use super::webhook::TokenWebhook;
use super::Notice;
use super::{Authenticated, AuthnError};
use plinth_api::User;

/// Authenticators of bearer tokens.
pub(crate) struct Tokens {
    pub(super) audiences: Vec<String>,
    pub(super) file: Option<TokenFile>,
    pub(super) accounts: Arc<ServiceAccounts>,
    pub(super) bootstrap: Option<BootstrapTokens>,
    pub(super) oidc: Issuers,
    pub(super) webhook: Option<TokenWebhook>,
}

impl Tokens {
    /// Authenticates a token for some audiences; see [`ServiceAccounts::authenticate`] for `notices`.
    ///
    /// # Errors
    /// The errors of authenticators that recognized the token, or [`AuthnError::InvalidToken`].
    pub(crate) async fn authenticate(
        &self,
        token: &str,
        wanted: &[String],
        notices: &mut Vec<Notice>,
    ) -> Result<Authenticated, AuthnError> {
        let mut errors: Vec<AuthnError> = Vec::new();
        // Authenticators without audiences authenticate for this server's own.
        let agnostic: Vec<String> = self.audiences.iter().filter(|a| wanted.contains(a)).cloned().collect();
        let ours = !agnostic.is_empty() || self.audiences.is_empty();
        let agnostic = |user: Arc<User>| Authenticated { user, audiences: agnostic.clone() };
        if let Some(user) = self.file.as_ref().filter(|_| ours).and_then(|file| file.authenticate(token)) {
            return Ok(agnostic(user));
        }
        match self.accounts.authenticate(token, wanted, notices).await {
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
        Err(AuthnError::merge(errors).unwrap_or(AuthnError::InvalidToken))
    }
}
