//! Joining with a token: nothing is sent to a server before it has shown that it holds the key of the
//! authority that the token names.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use hyper::Uri;
use plinth_apiserver::egress::client::Origin;
use plinth_apiserver::egress::tls::{self, ServerTrust};
use plinth_pki::{
    authority_hash, parse_certificates, read_certificates, AuthorityHash, JoinToken, MalformedJoinToken,
};
use rustls::pki_types::CertificateDer;
use rustls::RootCertStore;

use super::super::hidden_token::HiddenToken;
use crate::bootstrap::pki::Pki;
use crate::client::{ClientError, ServerClient};

/// Path of a replica at which tokens are used.
pub(in crate::cli) const JOIN_PATH: &str = plinth_pki::JOIN_PATH;
/// Bytes of a file with a token.
const MAX_TOKEN_BYTES: u64 = 4096;

/// A token that cannot be used, or a server that it does not name.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum TokenError {
    #[error("--token or --token-file is required with --server")]
    Missing,
    #[error("the token cannot be used: {0}")]
    Malformed(#[from] MalformedJoinToken),
    #[error("--token-file: cannot read {path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("--server: {0:?} is not the URL of a server, like https://10.0.0.1:6443")]
    Url(String),
    #[error("{0} has another authority than the one that the token names; nothing was sent to it. Compare --server with the output of \"plinth token create\"")]
    OtherAuthority(String),
    #[error("{server} does not have a certificate of the cluster's own authority for this name, so it cannot be joined with a token: {source}")]
    Untrusted { server: String, source: Box<TokenError> },
    #[error("the checkpoint is of a cluster with another authority than the one that the token names")]
    OtherCluster,
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// The token of the flags.
///
/// # Errors
/// When there is none, or it is not whole. The error does not show it.
pub(super) fn read(given: Option<&HiddenToken>, file: Option<&Path>) -> Result<JoinToken, TokenError> {
    let text = match (given, file) {
        (Some(token), _) => token.expose().to_owned(),
        (None, Some(path)) => {
            let mut text = String::new();
            let read = match path == Path::new("-") {
                true => io::stdin().take(MAX_TOKEN_BYTES).read_to_string(&mut text),
                false => std::fs::File::open(path)
                    .and_then(|file| file.take(MAX_TOKEN_BYTES).read_to_string(&mut text)),
            };
            read.map_err(|source| TokenError::File { path: path.to_owned(), source })?;
            text
        }
        (None, None) => return Err(TokenError::Missing),
    };
    Ok(JoinToken::parse(text.trim())?)
}

/// The server at `url`, once its authority was found to be the token's, with the token's credential. A first
/// connection, on which anybody may answer and nothing is sent, fetches the authority; the second one trusts
/// that authority alone.
///
/// # Errors
/// See [`TokenError`]; the credential has not left this process then.
pub(super) fn connect(url: &str, token: &JoinToken) -> Result<ServerClient, TokenError> {
    let authority = authority_of(&client_of(url, ServerTrust::Anyone)?)?;
    let is_named = |certificate: &CertificateDer<'_>| authority_hash(certificate) == Some(token.authority);
    let mut roots = RootCertStore::empty();
    for certificate in authority.into_iter().filter(|certificate| is_named(certificate)) {
        roots.add(certificate)?;
    }
    if roots.is_empty() {
        return Err(TokenError::OtherAuthority(url.to_owned()));
    }
    let server = client_of(url, ServerTrust::Authorities(roots.into()))?;
    // Without the credential: a failure of TLS has words of its own.
    authority_of(&server)
        .map_err(|source| TokenError::Untrusted { server: url.to_owned(), source: Box::new(source) })?;
    let mut origin = server.origin().clone();
    let bearer = HeaderValue::try_from(format!("Bearer {}", token.credential.expose()));
    let mut bearer = bearer.map_err(|_| MalformedJoinToken)?;
    bearer.set_sensitive(true);
    origin.authorization = Some(bearer);
    Ok(ServerClient::new(origin, url.to_owned()))
}

/// A client without credentials for `https://HOST:PORT`.
///
/// # Errors
/// When it is another URL.
pub(in crate::cli) fn client_of(url: &str, trust: ServerTrust) -> Result<ServerClient, TokenError> {
    let invalid = || TokenError::Url(url.to_owned());
    let parsed: Uri = url.parse().map_err(|_| invalid())?;
    let has_path = parsed.path_and_query().is_some_and(|path| path.as_str() != "/");
    if parsed.scheme_str() != Some("https") || has_path || url.contains('@') {
        return Err(invalid());
    }
    let origin = Origin::of_url(&parsed, Some(tls::config(trust, None)?)).ok_or_else(invalid)?;
    Ok(ServerClient::new(origin, url.to_owned()))
}

/// The certificates that a server returns as the cluster's authority.
///
/// # Errors
/// When it cannot be asked, or answers something else.
pub(in crate::cli) fn authority_of(
    server: &ServerClient,
) -> Result<Vec<CertificateDer<'static>>, TokenError> {
    /// Longer than certificates are.
    const LIMIT: u64 = 256 << 10;
    let text = server.get_whole(JOIN_PATH, LIMIT)?;
    Ok(parse_certificates(&text).unwrap_or_default())
}

/// Checks that what was copied is the cluster that the token names.
///
/// # Errors
/// [`TokenError::OtherCluster`].
pub(super) fn check_authority(dir: &Path, token: &JoinToken) -> Result<(), TokenError> {
    match file_hashes(&Pki::at(dir).ca_cert()).contains(&token.authority) {
        true => Ok(()),
        false => Err(TokenError::OtherCluster),
    }
}

fn file_hashes(path: &Path) -> Vec<AuthorityHash> {
    let certificates = read_certificates(path).unwrap_or_default();
    certificates.iter().filter_map(|certificate| authority_hash(certificate)).collect()
}
