//! A server's address and the client's credentials, from a kubeconfig.
//!
//! Understands what servers and test scripts write: one cluster and one user, in YAML (block or
//! flow style) or JSON, credentials inline or in files beside it. It looks for the few keys that it
//! needs wherever they stand, instead of reading contexts: a kubeconfig with several clusters is refused.

use std::path::Path;

use base64::prelude::{Engine, BASE64_STANDARD};

use super::client::{Endpoint, Identity};
use super::Error;

/// The endpoint that a kubeconfig file names, with its CA and credentials.
pub fn endpoint(path: &Path) -> Result<Endpoint, Error> {
    let text = std::fs::read_to_string(path).map_err(Error::io(format!("reading {}", path.display())))?;
    let bad = |reason: String| Error::Kubeconfig { path: path.to_path_buf(), reason };
    let dir = path.parent().unwrap_or(Path::new("."));

    let server = one(&text, "server").map_err(bad)?.ok_or_else(|| bad("no server".into()))?;
    let authority = server.strip_prefix("https://").ok_or_else(|| bad(format!("{server} is not https")))?;
    let ca = pem(&text, dir, "certificate-authority").map_err(bad)?;
    let ca = ca.ok_or_else(|| bad("no certificate-authority".into()))?;
    let certificate = pem(&text, dir, "client-certificate").map_err(bad)?;
    let key = pem(&text, dir, "client-key").map_err(bad)?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Identity::Certificate { certificate, key },
        _ => match one(&text, "token").map_err(bad)? {
            Some(token) => Identity::Token(token.to_string()),
            None => Identity::Anonymous,
        },
    };
    Endpoint::new(authority.trim_end_matches('/'), &ca, identity)
}

/// PEM bytes of `KEY-data` (base64) or of the file that `KEY` names.
fn pem(text: &str, dir: &Path, key: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = one(text, &format!("{key}-data"))? {
        return BASE64_STANDARD.decode(data).map(Some).map_err(|e| format!("{key}-data: {e}"));
    }
    let Some(file) = one(text, key)? else { return Ok(None) };
    std::fs::read(dir.join(file)).map(Some).map_err(|e| format!("{key}: {file}: {e}"))
}

/// The scalar of the only member named `key`, wherever it stands.
fn one<'a>(text: &'a str, key: &str) -> Result<Option<&'a str>, String> {
    let mut found = None;
    for (at, _) in text.match_indices(key) {
        let before = text[..at].chars().next_back();
        let is_key = before.is_none_or(|c| c.is_whitespace() || matches!(c, '{' | ',' | '"'));
        let rest = text[at + key.len()..].trim_start_matches('"');
        let Some(rest) = rest.strip_prefix(':').filter(|_| is_key) else { continue };
        let value = rest.trim_start_matches(' ').trim_start_matches('"');
        let end =
            value.find(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '}')).unwrap_or(value.len());
        let value = &value[..end];
        if value.is_empty() {
            continue; // a mapping below this key, not a scalar
        }
        if found.is_some_and(|f| f != value) {
            return Err(format!("more than one {key}: this reader needs one cluster and one user"));
        }
        found = Some(value);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::one;

    #[test]
    fn finds_scalars_in_every_style() {
        let block = "clusters:\n- cluster:\n    certificate-authority-data: QUJD\n    server: https://127.0.0.1:6443\n";
        let flow = r#"clusters: [{name: a, cluster: {server: "https://127.0.0.1:6443", certificate-authority-data: QUJD}}]"#;
        let json = r#"{"clusters":[{"cluster":{"server":"https://127.0.0.1:6443","certificate-authority-data":"QUJD"}}]}"#;
        for text in [block, flow, json] {
            assert_eq!(one(text, "server"), Ok(Some("https://127.0.0.1:6443")));
            assert_eq!(one(text, "certificate-authority-data"), Ok(Some("QUJD")));
            assert_eq!(one(text, "certificate-authority"), Ok(None));
        }
    }

    #[test]
    fn several_clusters_are_refused() {
        assert!(one("server: https://a\nserver: https://b\n", "server").is_err());
    }
}
