//! Requests about users and roles.

use std::fmt;

use super::ResponseHeader;

/// `AuthStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// Whether authentication is enabled.
    #[prost(bool, tag = "2")]
    pub enabled: bool,
    /// Revision of users and roles.
    #[prost(uint64, tag = "3")]
    pub auth_revision: u64,
}

/// `AuthUserListResponse`, `AuthRoleListResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamesResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The users or roles.
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}

/// `AuthenticateRequest`. It prints without the password.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

impl fmt::Debug for AuthenticateRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `AuthenticateResponse`. It prints without the token.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct AuthenticateResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// What later requests carry as `token`.
    #[prost(string, tag = "2")]
    pub token: String,
}

impl fmt::Debug for AuthenticateResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthenticateResponse").field("header", &self.header).finish_non_exhaustive()
    }
}
