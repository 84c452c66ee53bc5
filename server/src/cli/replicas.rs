//! `plinth replicas`: lists the replicas of a cluster, or removes one that is gone.

use std::path::PathBuf;

use clap::Args;
use hyper::Method;

use crate::client::{ClientError, ServerClient};
use crate::members::Member;

/// Path of the list.
const REPLICAS_PATH: &str = "/plinth/replicas";

/// Options of `plinth replicas`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth replicas --kubeconfig ./data/admin.kubeconfig\n  plinth replicas --kubeconfig ./data/admin.kubeconfig --remove 1234"
)]
pub struct ReplicasOptions {
    /// Kubeconfig for a running replica
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Id of a replica that is gone: removes it from the list, and the journal is not kept for it
    #[arg(long, value_name = "ID")]
    pub remove: Option<u16>,
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

/// Removes the replica, or prints a line for each.
///
/// # Errors
/// See [`ReplicasError`].
pub fn replicas(options: ReplicasOptions) -> Result<(), ReplicasError> {
    let server = ServerClient::of_kubeconfig(&options.kubeconfig)?;
    if let Some(id) = options.remove {
        server.call(Method::DELETE, &format!("{REPLICAS_PATH}/{id}"), "", &mut std::io::sink())?;
        println!("replica {id} removed");
        return Ok(());
    }
    let mut text = Vec::new();
    server.get(REPLICAS_PATH, &mut text)?;
    let members: Vec<Member> = serde_json::from_slice(&text)?;
    let newest = members.iter().map(|member| member.applied).max().unwrap_or(0);
    println!(
        "{:<8}{:<24}{:<10}{:>12}{:>12}{:>20}  {:<34}SEEN",
        "REPLICA", "ADDRESS", "VERSION", "POSITION", "LAG", "REVISION", "HASH"
    );
    for member in members {
        let seen = member.age_now().as_secs();
        println!(
            "{:<8}{:<24}{:<10}{:>12}{:>12}{:>20}  {:<34}{seen}s ago",
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
