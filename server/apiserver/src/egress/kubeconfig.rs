//! Reads server, certificate authorities and credentials of a kubeconfig's current context.

use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use hyper::Uri;
use plinth_codec::{base64_text, yaml, Value};

use super::client::Origin;
use super::tls::{self, ServerTrust};
use plinth_pki::files;

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct KubeconfigError {
    path: PathBuf,
    what: String,
}

/// The current context of a kubeconfig.
pub struct Kubeconfig {
    /// The server, with the user's credentials.
    pub origin: Origin,
    /// Path and query of the server's URL; `/` if it has none.
    pub path: Uri,
    /// The URL as written.
    pub url: String,
}

impl Kubeconfig {
    /// Reads a kubeconfig as kubectl does: certificates and keys inline or in files, a token or a password.
    ///
    /// # Errors
    /// When the file cannot be read or is incomplete; a message of one line.
    pub fn read(path: &Path) -> Result<Kubeconfig, KubeconfigError> {
        read(path).map_err(|what| KubeconfigError { path: path.to_owned(), what })
    }
}

fn read(path: &Path) -> Result<Kubeconfig, String> {
    let text = std::fs::read(path).map_err(|e| e.to_string())?;
    let (config, _) = yaml::to_value(&text).map_err(|e| e.to_string())?;
    let dir = path.parent().unwrap_or(Path::new("."));
    let context = named(&config, "contexts", config.str_at(&["current-context"]).unwrap_or_default())
        .and_then(|entry| entry.get("context"))
        .ok_or("no current context")?;
    let part = |list: &str, key: &str| {
        let name = context.str_at(&[key]).unwrap_or_default();
        named(&config, list, name).and_then(|entry| entry.get(key))
    };
    let cluster = part("clusters", "cluster").ok_or("no cluster")?;
    let nobody = Value::object();
    let user = part("users", "user").unwrap_or(&nobody);
    let url = cluster.str_at(&["server"]).unwrap_or_default();
    let server: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
    let tls = match server.scheme_str() {
        Some("https") => Some(client_tls(cluster, user, dir)?),
        Some("http") => None,
        _ => return Err(format!("{url} is neither http nor https")),
    };
    let mut origin = Origin::of_url(&server, tls).ok_or_else(|| format!("{url:?} is no URL"))?;
    origin.authorization = authorization(user, dir)?;
    let other_name = cluster.str_at(&["tls-server-name"]).filter(|name| !name.is_empty());
    if let (Some((_, name)), Some(other)) = (&mut origin.tls, other_name) {
        *name = other.to_owned();
    }
    let path = server.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| format!("{url:?} is no URL"))?;
    Ok(Kubeconfig { origin, path, url: url.to_owned() })
}

fn client_tls(
    cluster: &Value,
    user: &Value,
    dir: &Path,
) -> Result<std::sync::Arc<rustls::ClientConfig>, String> {
    // The authority must be given: decisions about access are not left to the machine's trust store.
    let ca = pem(cluster, dir, "certificate-authority")?.ok_or("no certificate-authority")?;
    let roots = tls::authorities(&ca).map_err(|e| format!("certificate-authority: {e}"))?;
    let identity = match (pem(user, dir, "client-certificate")?, pem(user, dir, "client-key")?) {
        (Some(chain), Some(key)) => {
            let chain = files::certificates(&chain).map_err(|e| format!("client-certificate: {e}"))?;
            Some((chain, files::private_key(&key).map_err(|e| format!("client-key: {e}"))?))
        }
        _ => None,
    };
    tls::config(ServerTrust::Authorities(roots), identity).map_err(|e| e.to_string())
}

fn authorization(user: &Value, dir: &Path) -> Result<Option<HeaderValue>, String> {
    let text = |key: &str| user.str_at(&[key]).filter(|text| !text.is_empty());
    let value = match (text("token"), text("tokenFile"), text("username")) {
        (Some(token), ..) => format!("Bearer {token}"),
        (None, Some(file), _) => {
            let token = std::fs::read_to_string(dir.join(file)).map_err(|e| format!("{file}: {e}"))?;
            format!("Bearer {}", token.trim())
        }
        (None, None, Some(name)) => {
            format!(
                "Basic {}",
                base64_text::encode(format!("{name}:{}", text("password").unwrap_or_default()))
            )
        }
        (None, None, None) => return Ok(None),
    };
    let mut value = HeaderValue::try_from(value).map_err(|e| e.to_string())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// PEM of `KEY-data` (base64) or of the file that `KEY` names.
fn pem(entry: &Value, dir: &Path, key: &str) -> Result<Option<Vec<u8>>, String> {
    if let Some(data) = entry.str_at(&[&format!("{key}-data")]) {
        let bytes = base64_text::decode(data)
            .map_err(|at| format!("{key}-data: illegal base64 data at input byte {at}"))?;
        return Ok(Some(bytes));
    }
    let Some(file) = entry.str_at(&[key]) else { return Ok(None) };
    let bytes = std::fs::read(dir.join(file)).map_err(|e| format!("{key}: {file}: {e}"))?;
    Ok(Some(bytes))
}

fn named<'a>(config: &'a Value, list: &str, name: &str) -> Option<&'a Value> {
    let entries = config.get(list).and_then(Value::as_array)?;
    entries.iter().find(|entry| entry.str_at(&["name"]) == Some(name))
}
