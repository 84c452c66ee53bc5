//! `plinth token`: tokens with which replicas join.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use hyper::{Method, StatusCode};
use plinth_apiserver::egress::tls::ServerTrust;
use plinth_apiserver::flags::duration;
use plinth_codec::base64_text;
use plinth_codec::time::Timestamp;
use plinth_pki::{
    authority_hash, AuthorityHash, JoinCredential, JoinToken, NoRandomness, JOIN_TOKEN_DESCRIPTION,
    JOIN_TOKEN_EXPIRATION, JOIN_TOKEN_HASH, JOIN_TOKEN_ID, JOIN_TOKEN_SECRET_PREFIX, JOIN_TOKEN_SECRET_TYPE,
    JOIN_TOKEN_USAGE,
};
use rustls::RootCertStore;
use serde_json::{json, Value};

use super::join::{authority_of, client_of, JoinError, JOIN_PATH};
use super::output;
use crate::client::{ClientError, ServerClient};

/// Path of the Secrets of tokens.
const SECRETS: &str = "/api/v1/namespaces/kube-system/secrets";
/// Longest response of a server that is read.
const MAX_RESPONSE: u64 = 64 << 20;
/// Longest validity of a token.
const LONGEST_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

/// Options of `plinth token`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  plinth token create --kubeconfig ./data/admin.kubeconfig\n  plinth token list --kubeconfig ./data/admin.kubeconfig"
)]
pub struct TokenOptions {
    /// What to do
    #[command(subcommand)]
    pub command: TokenCommand,
}

/// Subcommands of `plinth token`.
#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Create a token with which one replica joins, and print it
    Create(CreateOptions),
    /// List the tokens that were not used, without their secrets
    List(ListOptions),
    /// Delete a token
    Delete(DeleteOptions),
}

/// Options of `plinth token create`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  plinth token create --kubeconfig ./data/admin.kubeconfig --print-join-command\n  plinth token create --kubeconfig ./data/admin.kubeconfig --ttl 10m > token\n\nWhoever has the token gets the cluster's keys with it, once: hand it over as you would hand over the keys. The cluster\nkeeps a hash of it, in a Secret of kube-system."
)]
pub struct CreateOptions {
    /// Kubeconfig for a running replica; its user must be in system:masters
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// Time for which the token can be used, at most 168h
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = duration)]
    pub ttl: Duration,
    /// Text for people, shown by "plinth token list"
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub description: String,
    /// Print the whole command with which the replica joins
    #[arg(long)]
    pub print_join_command: bool,
    /// URL in that command (default: that of the kubeconfig)
    #[arg(long, value_name = "URL", requires = "print_join_command")]
    pub server: Option<String>,
}

/// Options of `plinth token list`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plinth token list --kubeconfig ./data/admin.kubeconfig")]
pub struct ListOptions {
    /// Kubeconfig for a running server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
}

/// Options of `plinth token delete`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  plinth token delete 07401b --kubeconfig ./data/admin.kubeconfig")]
pub struct DeleteOptions {
    /// The first part of the token after its authority, as "plinth token list" shows it
    #[arg(value_name = "ID")]
    pub id: String,
    /// Kubeconfig for a running server
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
}

/// A command failed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum TokenCommandError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Join(#[from] JoinError),
    #[error("--ttl is at least 1s and at most 168h")]
    Ttl,
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
    #[error("{server} names no authority, so that no token for it can be made")]
    NoAuthority { server: String },
    #[error("{server} has a certificate of another authority than the cluster's own (--tls-cert-file), which a token cannot name: \
             join with --kubeconfig, or create the token with a kubeconfig for a server that has one ({reason})")]
    ForeignCertificate { server: String, reason: String },
    #[error("standard output: {0}")]
    Output(#[source] io::Error),
    #[error("the response of {0} cannot be read")]
    Response(String),
    #[error("{0:?} is no token for joining; \"plinth token list\" shows those that there are")]
    NoToken(String),
}

/// Runs a command.
///
/// # Errors
/// See [`TokenCommandError`].
pub(super) fn token(options: TokenOptions) -> Result<(), TokenCommandError> {
    match options.command {
        TokenCommand::Create(options) => {
            let text = create(&options)?;
            output::write(format!("{text}\n")).map_err(TokenCommandError::Output)
        }
        TokenCommand::List(options) => list(&options.kubeconfig),
        TokenCommand::Delete(options) => delete(&options.kubeconfig, &options.id),
    }
}

/// Creates a token; returns what is printed.
///
/// # Errors
/// See [`TokenCommandError`].
pub fn create(options: &CreateOptions) -> Result<String, TokenCommandError> {
    if options.ttl < Duration::from_secs(1) || options.ttl > LONGEST_TTL {
        return Err(TokenCommandError::Ttl);
    }
    let server = ServerClient::of_kubeconfig(&options.kubeconfig)?;
    let authority = authority(&server)?;
    let mut end = Timestamp::now();
    end.seconds += i64::try_from(options.ttl.as_secs()).map_err(|_| TokenCommandError::Ttl)?;
    let credential = loop {
        let credential = JoinCredential::generate()?;
        let secret = secret_of(&credential, end, &options.description).to_string();
        match server.call(Method::POST, SECRETS, &secret, &mut io::sink()) {
            Ok(_) => break credential,
            // The ID is that of another token.
            Err(ClientError::Refused(StatusCode::CONFLICT, _)) => {}
            Err(error) => return Err(error.into()),
        }
    };
    let token = JoinToken { authority, credential }.expose();
    if !options.print_join_command {
        return Ok(token);
    }
    let url = options.server.as_deref().unwrap_or(server.url()).trim_end_matches('/');
    Ok(format!("plinth join --server {url} --token {token} --data-dir DIR"))
}

/// The authority that servers' certificates are of, which a token names.
///
/// # Errors
/// When the server does not name it, or has another certificate.
fn authority(server: &ServerClient) -> Result<AuthorityHash, TokenCommandError> {
    let shown = || server.url().to_owned();
    let certificates = authority_of(server).map_err(JoinError::from)?;
    let [certificate] = certificates.as_slice() else {
        return Err(TokenCommandError::NoAuthority { server: shown() });
    };
    let hash =
        authority_hash(certificate).ok_or_else(|| TokenCommandError::NoAuthority { server: shown() })?;
    // What a joining replica will do.
    let foreign = |reason: String| TokenCommandError::ForeignCertificate { server: shown(), reason };
    let mut roots = RootCertStore::empty();
    roots.add(certificate.clone()).map_err(|error| foreign(error.to_string()))?;
    let joining = client_of(server.url(), ServerTrust::Authorities(roots.into())).map_err(JoinError::from)?;
    joining.get(JOIN_PATH, &mut io::sink()).map_err(|error| foreign(error.to_string()))?;
    Ok(hash)
}

/// The Secret of a token. The secret itself is not in it.
fn secret_of(credential: &JoinCredential, end: Timestamp, description: &str) -> Value {
    let encoded = |text: &str| Value::from(base64_text::encode(text));
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": format!("{}{}", JOIN_TOKEN_SECRET_PREFIX, credential.id()) },
        "type": JOIN_TOKEN_SECRET_TYPE,
        "immutable": true,
        "data": {
            JOIN_TOKEN_ID: encoded(credential.id()),
            JOIN_TOKEN_HASH: encoded(&credential.hash()),
            JOIN_TOKEN_USAGE: encoded("true"),
            JOIN_TOKEN_EXPIRATION: encoded(&end.to_rfc3339()),
            JOIN_TOKEN_DESCRIPTION: encoded(description),
        },
    })
}

/// The text of a key of a Secret.
fn text(secret: &Value, key: &str) -> String {
    let decoded = base64_text::decode(secret["data"][key].as_str().unwrap_or_default()).unwrap_or_default();
    // It is shown on a terminal.
    String::from_utf8_lossy(&decoded).chars().filter(|c| !c.is_control()).collect()
}

fn is_for_joining(secret: &Value) -> bool {
    secret["type"] == JOIN_TOKEN_SECRET_TYPE && text(secret, JOIN_TOKEN_USAGE) == "true"
}

fn list(kubeconfig: &Path) -> Result<(), TokenCommandError> {
    let server = ServerClient::of_kubeconfig(kubeconfig)?;
    let path = format!("{SECRETS}?fieldSelector=type%3D{}", "bootstrap.kubernetes.io%2Ftoken");
    let body = server.get_whole(&path, MAX_RESPONSE)?;
    let unreadable = |_| TokenCommandError::Response(server.url().to_owned());
    let list: Value = serde_json::from_slice(&body).map_err(unreadable)?;
    let secrets = list["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut page = format!("{:<8}{:<22}DESCRIPTION\n", "ID", "EXPIRES");
    let now = Timestamp::now().to_rfc3339();
    // Of a list the items name no type of object; their field `type` is there.
    for secret in secrets.iter().filter(|secret| is_for_joining(secret)) {
        let end = text(secret, JOIN_TOKEN_EXPIRATION);
        let shown = if end.as_str() <= now.as_str() { "expired".to_owned() } else { end };
        let (id, description) = (text(secret, JOIN_TOKEN_ID), text(secret, JOIN_TOKEN_DESCRIPTION));
        page += &format!("{id:<8}{shown:<22}{description}\n");
    }
    output::write(&page).map_err(TokenCommandError::Output)
}

fn delete(kubeconfig: &Path, id: &str) -> Result<(), TokenCommandError> {
    let no_token = || TokenCommandError::NoToken(id.to_owned());
    if !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err(no_token());
    }
    let server = ServerClient::of_kubeconfig(kubeconfig)?;
    let path = format!("{SECRETS}/{}{id}", JOIN_TOKEN_SECRET_PREFIX);
    let body = match server.get_whole(&path, MAX_RESPONSE) {
        Err(ClientError::Refused(StatusCode::NOT_FOUND, _)) => return Err(no_token()),
        found => found?,
    };
    let unreadable = |_| TokenCommandError::Response(server.url().to_owned());
    let secret: Value = serde_json::from_slice(&body).map_err(unreadable)?;
    if !is_for_joining(&secret) {
        return Err(no_token());
    }
    let options = json!({ "preconditions": { "uid": secret["metadata"]["uid"] } }).to_string();
    server.call(Method::DELETE, &path, &options, &mut io::sink())?;
    output::line(format_args!("token {id} deleted"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_pki::{JOIN_TOKEN_DESCRIPTION, JOIN_TOKEN_EXPIRATION};

    #[test]
    fn a_secret_holds_no_secret() {
        let credential = JoinCredential::generate().unwrap();
        let end = Timestamp { seconds: 1_800_000_000, nanos: 0 };
        let secret = secret_of(&credential, end, "rack \u{1b}[2J4");
        assert!(is_for_joining(&secret));
        assert_eq!(text(&secret, JOIN_TOKEN_EXPIRATION), "2027-01-15T08:00:00Z");
        assert_eq!(text(&secret, JOIN_TOKEN_DESCRIPTION), "rack [2J4");
        let whole = secret["data"].as_object().unwrap();
        let (_, hidden) =
            credential.expose().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        for key in whole.keys() {
            assert!(!text(&secret, key).contains(&hidden), "{key}");
        }
    }

    #[test]
    fn an_argument_is_not_shown() {
        let token: crate::cli::HiddenToken = "plinth-join.secret".parse().unwrap();
        assert_eq!(format!("{token:?}"), "…");
    }
}
