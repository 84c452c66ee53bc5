//! `plinth replicas`: lists the replicas of a cluster, compares them, or removes one that is gone.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use hyper::Method;
use serde::Deserialize;

use super::output;
use crate::client::{ClientError, ServerClient};
use crate::members::{self, Member};

/// Path of the list.
const REPLICAS_PATH: &str = "/plinth/replicas";

/// Options of `plinth replicas`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth replicas --kubeconfig ./data/admin.kubeconfig\n  plinth replicas --kubeconfig ./data/admin.kubeconfig --compare\n  plinth replicas --kubeconfig ./data/admin.kubeconfig --remove 1234"
)]
pub struct ReplicasOptions {
    /// Kubeconfig for a running replica
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Id of a replica that is gone: removes it from the list, and the journal is not kept for it
    #[arg(long, value_name = "ID")]
    pub remove: Option<u64>,
    /// Wait until each replica that has not stopped has recorded its hash at one position, and compare them
    #[arg(long, conflicts_with = "remove")]
    pub compare: bool,
}

/// Pause between two looks at the list.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// The replicas cannot be listed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ReplicasError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("the list of replicas cannot be read: {0}")]
    Decode(#[from] serde_json::Error),
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("the replicas differ at position {0}: the hashes above should be equal\nSee \"A replica that has come to another state\" in docs/replication.md")]
    Differ(u64),
    #[error("replica {id} has not recorded its hash at position {position}, and is compared with no other one\nWait until it is up and has a lag of 0, or remove it from the list if it is gone")]
    NotCompared { id: u16, position: u64 },
}

/// Removes the replica, or prints a line for each.
///
/// # Errors
/// See [`ReplicasError`].
pub fn replicas(options: ReplicasOptions) -> Result<(), ReplicasError> {
    let server = ServerClient::of_kubeconfig(&options.kubeconfig)?;
    if let Some(id) = options.remove {
        server.call(Method::DELETE, &format!("{REPLICAS_PATH}/{id}"), "", &mut io::sink())?;
        output::line(format_args!("replica {id} removed"));
        return Ok(());
    }
    if options.compare {
        return compare(&server);
    }
    let members = list(&server)?;
    let newest = members.iter().map(|member| member.applied).max().unwrap_or(0);
    let mut page = format!(
        "{:<8}{:<24}{:<10}{:>12}{:>12}{:>20}  {:<34}SEEN\n",
        "REPLICA", "ADDRESS", "VERSION", "POSITION", "LAG", "REVISION", "HASH"
    );
    for member in members {
        let seen = member.age_now().as_secs();
        page += &format!(
            "{:<8}{:<24}{:<10}{:>12}{:>12}{:>20}  {:<34}{seen}s ago\n",
            member.id,
            member.address.to_string(),
            member.version,
            member.applied,
            newest.saturating_sub(member.applied),
            member.revision,
            member.hash,
        );
    }
    output::write(&page).map_err(ReplicasError::Output)
}

/// Longest list of replicas that is read.
const MAX_LIST: u64 = 1 << 20;

fn list(server: &ServerClient) -> Result<Vec<Member>, ReplicasError> {
    Ok(serde_json::from_slice(&server.get_whole(REPLICAS_PATH, MAX_LIST)?)?)
}

/// The position that replicas are compared at.
#[derive(Deserialize)]
struct Comparison {
    position: u64,
}

/// Compares all replicas that have not stopped at one position, which a server that lists them chooses.
fn compare(server: &ServerClient) -> Result<(), ReplicasError> {
    let deadline = Instant::now() + members::NOTICED_WITHIN;
    let hash_of = |member: &Member, position: u64| {
        let compared = member.compared.clone().filter(|compared| compared.position == position);
        compared.and_then(|compared| compared.hash)
    };
    let (position, members, missing) = loop {
        // The same while they record it, unless somebody else has had all of them do so and goes on.
        let mut text = Vec::new();
        server.call(Method::POST, REPLICAS_PATH, "", &mut text)?;
        let Comparison { position } = serde_json::from_slice(&text)?;
        std::thread::park_timeout(LOOK_INTERVAL);
        let mut members = list(server)?;
        members.retain(|member| !member.stopped);
        let missing = members.iter().find(|member| hash_of(member, position).is_none());
        let missing = missing.map(|member| member.id);
        if missing.is_none() || Instant::now() >= deadline {
            break (position, members, missing);
        }
    };
    let mut page = format!("{:<8}{:<24}{:>12}  HASH\n", "REPLICA", "ADDRESS", "POSITION");
    let mut hashes = BTreeSet::new();
    for member in &members {
        let hash = hash_of(member, position);
        let shown = hash.as_deref().unwrap_or("-");
        page += &format!("{:<8}{:<24}{position:>12}  {shown}\n", member.id, member.address.to_string());
        hashes.extend(hash);
    }
    if hashes.len() <= 1 && missing.is_none() {
        page += &format!("{} replicas have the same state at position {position}\n", members.len());
    }
    let written = output::write(&page).map_err(ReplicasError::Output);
    // What they are is reported whether or not the table could be written.
    match (hashes.len(), missing) {
        (2.., _) => Err(ReplicasError::Differ(position)),
        (_, Some(id)) => Err(ReplicasError::NotCompared { id, position }),
        (_, None) => written,
    }
}
