//! Whom credentials belong to.

use std::sync::Arc;

use plinth_api::User;

/// A user, and for which of the requested audiences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authenticated {
    /// Who the credentials belong to.
    pub user: Arc<User>,
    /// The audiences; empty when none were requested.
    pub audiences: Vec<String>,
}
