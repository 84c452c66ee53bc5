//! The flags of authentication: names and meanings are kube-apiserver's.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// Who may send requests, and by which credentials they are known.
#[derive(Clone, Debug, Args)]
pub struct AuthenticationOptions {
    /// Authorities whose client certificates are trusted, PEM; the server's own authority when not given
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// Serve requests without credentials, as system:anonymous
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set, num_args = 0..=1,
        default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: bool,
}
