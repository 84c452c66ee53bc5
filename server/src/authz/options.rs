//! Flags of authorization, as kube-apiserver names them.

use clap::{Args, ValueEnum};

/// Who may do what.
#[derive(Clone, Debug, Args)]
pub struct AuthorizationOptions {
    /// Authorizers, asked in this order until one decides
    #[arg(long, default_value = "Node,RBAC", value_name = "LIST", value_delimiter = ',')]
    pub authorization_mode: Vec<Mode>,
}

/// One word of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Nodes: what their pods need.
    #[value(name = "Node")]
    Node,
    /// Roles and bindings.
    #[value(name = "RBAC")]
    Rbac,
    /// Everything to everybody who is authenticated.
    #[value(name = "AlwaysAllow")]
    AlwaysAllow,
    /// Nothing to anybody.
    #[value(name = "AlwaysDeny")]
    AlwaysDeny,
}
