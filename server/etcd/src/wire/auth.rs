//! Requests about users and roles.

use super::ResponseHeader;

/// `AuthStatusResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AuthStatusResponse {
    /// The header.
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
    /// The header.
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    /// The users or roles.
    #[prost(string, repeated, tag = "2")]
    pub names: Vec<String>,
}
