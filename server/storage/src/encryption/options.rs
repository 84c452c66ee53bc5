//! Command-line options of encryption at rest, under upstream's names.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// Encryption at rest.
#[derive(Clone, Debug, Default, Args)]
pub struct EncryptionOptions {
    /// File with the EncryptionConfiguration (apiserver.config.k8s.io/v1): which resources are encrypted and
    /// how
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Reload the encryption configuration when its file changes
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub encryption_provider_config_automatic_reload: bool,
}
