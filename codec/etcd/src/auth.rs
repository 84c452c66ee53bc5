//! Requests about users and roles.

use std::fmt;

use bytes::Bytes;

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

/// `AuthUserListResponse`, `AuthRoleListResponse`, and `AuthUserGetResponse` with the roles of a user.
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

/// `authpb.UserAddOptions`.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct UserAddOptions {
    /// The user has no password: a client certificate names it.
    #[prost(bool, tag = "1")]
    pub no_password: bool,
}

/// Values of `authpb.Permission.Type`.
pub mod permission_type {
    pub const READ: i32 = 0;
    pub const WRITE: i32 = 1;
    pub const READWRITE: i32 = 2;
}

/// `authpb.Permission`: of a role, for a key or a range of keys.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Permission {
    /// One of [`permission_type`].
    #[prost(int32, tag = "1")]
    pub perm_type: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// `authpb.User`, as etcd stores it. It prints without the hash of the password.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct User {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// The hash by bcrypt.
    #[prost(bytes = "bytes", tag = "2")]
    pub password: Bytes,
    /// Names of the roles that the user has, sorted.
    #[prost(string, repeated, tag = "3")]
    pub roles: Vec<String>,
    #[prost(message, optional, tag = "4")]
    pub options: Option<UserAddOptions>,
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).field("roles", &self.roles).finish_non_exhaustive()
    }
}

/// `authpb.Role`, as etcd stores it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Role {
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// Sorted by their keys.
    #[prost(message, repeated, tag = "2")]
    pub permissions: Vec<Permission>,
}

/// `AuthUserAddRequest`. It prints without the password.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct UserAddRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
    #[prost(message, optional, tag = "3")]
    pub options: Option<UserAddOptions>,
}

impl fmt::Debug for UserAddRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserAddRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `AuthUserChangePasswordRequest`. It prints without the password.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct ChangePasswordRequest {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub password: String,
}

impl fmt::Debug for ChangePasswordRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangePasswordRequest").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Requests that name a user or a role and nothing else: to get or delete one, to add a role.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NameRequest {
    #[prost(string, tag = "1")]
    pub name: String,
}

/// `AuthUserGrantRoleRequest`, `AuthUserRevokeRoleRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct UserRoleRequest {
    #[prost(string, tag = "1")]
    pub user: String,
    #[prost(string, tag = "2")]
    pub role: String,
}

/// `AuthRoleGrantPermissionRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GrantPermissionRequest {
    /// Of the role.
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub permission: Option<Permission>,
}

/// `AuthRoleRevokePermissionRequest`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RevokePermissionRequest {
    #[prost(string, tag = "1")]
    pub role: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub key: Bytes,
    #[prost(bytes = "bytes", tag = "3")]
    pub range_end: Bytes,
}

/// `AuthRoleGetResponse`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RoleGetResponse {
    #[prost(message, optional, tag = "1")]
    pub header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub permissions: Vec<Permission>,
}
