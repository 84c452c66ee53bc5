//! `plinth replicas`: the replicas of a cluster.

use std::path::PathBuf;

use clap::Args;

use super::client::{self, ClientError};
use crate::replica::members::Member;

/// Path of the list.
const REPLICAS_PATH: &str = "/plinth/replicas";

/// Options of `plinth replicas`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plinth replicas --kubeconfig ./data/admin.kubeconfig")]
pub struct ReplicasOptions {
    /// Kubeconfig for a running replica
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
}

/// The replicas cannot be listed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ReplicasError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the list of replicas cannot be read: {0}")]
    Decode(#[from] serde_json::Error),
}

/// Prints a line for each replica.
///
/// # Errors
/// See [`ReplicasError`].
pub fn replicas(options: ReplicasOptions) -> Result<(), ReplicasError> {
    let mut text = Vec::new();
    client::download(&options.kubeconfig, REPLICAS_PATH, &mut text)?;
    let members: Vec<Member> = serde_json::from_slice(&text)?;
    let newest = members.iter().map(|member| member.applied).max().unwrap_or(0);
    println!(
        "{:<8}{:<24}{:<10}{:>12}{:>8}{:>12}  {:<34}SEEN",
        "REPLICA", "ADDRESS", "VERSION", "POSITION", "LAG", "REVISION", "HASH"
    );
    for member in members {
        let seen = member.age_now().as_secs();
        println!(
            "{:<8}{:<24}{:<10}{:>12}{:>8}{:>12}  {:<34}{seen}s ago",
            member.id,
            member.address.to_string(),
            member.version,
            member.applied,
            newest.saturating_sub(member.applied),
            member.revision,
            member.hash,
        );
    }
    Ok(())
}
