//! Command-line options of encryption at rest, under upstream's names.

use std::path::PathBuf;

use clap::Args;

/// What is encrypted on disk.
#[derive(Clone, Debug, Default, Args)]
pub struct EncryptionOptions {
    /// EncryptionConfiguration (apiserver.config.k8s.io/v1): which resources are encrypted and with what
    #[arg(long, value_name = "FILE")]
    pub encryption_provider_config: Option<PathBuf>,
    /// Whether a changed configuration is taken over without a restart
    #[arg(long, requires = "encryption_provider_config")]
    pub encryption_provider_config_automatic_reload: bool,
}
