//! Reads server, certificate authorities and credentials of a kubeconfig's current context, or the
//! credentials of all its users.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::Uri;
use plinth_codec::base64_text;
use serde::de::IgnoredAny;
use serde::Deserialize;

use super::client::Origin;
use super::tls::{self, ClientCertificate, ServerTrust};
use plinth_api::{decode_config_part, parse_config, Strictness};
use plinth_pki::{parse_certificates, parse_private_key};

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {what}")]
pub struct KubeconfigError {
    path: PathBuf,
    what: String,
}

/// The file (client-go `tools/clientcmd/api/v1`). Unknown fields are ignored, as clients do.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Config {
    kind: String,
    clusters: Vec<NamedCluster>,
    contexts: Vec<NamedContext>,
    users: Vec<NamedUser>,
    #[serde(rename = "current-context")]
    current_context: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedCluster {
    name: String,
    cluster: Cluster,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct NamedUser {
    name: String,
    user: User,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    tls_server_name: String,
    certificate_authority: String,
    certificate_authority_data: String,
    proxy_url: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    password: String,
    // What follows is refused: without it the user would be another one, or none.
    exec: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    #[serde(rename = "as")]
    impersonated: String,
    as_uid: String,
    as_groups: Vec<String>,
    as_user_extra: Option<IgnoredAny>,
}

/// The current context of a kubeconfig.
pub struct Kubeconfig {
    /// The server, with the user's credentials.
    pub origin: Origin,
    /// Path and query of the server's URL; `/` if it has none.
    pub path: Uri,
    /// The URL as written.
    pub url: String,
    /// The file, and those that it names for this context.
    pub files: Vec<PathBuf>,
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

/// The credentials of a user, which may be none.
pub(super) struct Credentials {
    identity: Option<ClientCertificate>,
    pub authorization: Option<HeaderValue>,
}

impl Credentials {
    fn read(user: &User, dir: &Path) -> Result<Credentials, String> {
        let identity = identity(user, dir)?;
        let credentials = Credentials { identity, authorization: authorization(user, dir)? };
        tls::config(ServerTrust::Anyone, credentials.identity()).map_err(|e| e.to_string())?;
        Ok(credentials)
    }

    /// The user's certificate, which has been checked.
    pub(super) fn identity(&self) -> Option<ClientCertificate> {
        self.identity.as_ref().map(|(chain, key)| (chain.clone(), key.clone_key()))
    }
}

/// The users of a kubeconfig.
pub(super) struct Users {
    by_name: HashMap<String, Arc<Credentials>>,
    /// The user of the current context; empty without one.
    current: String,
    /// The file, and those that it names for its users.
    pub files: Vec<PathBuf>,
}

impl Users {
    /// Reads the users of a kubeconfig, and their certificates and tokens.
    ///
    /// # Errors
    /// When the file, or one that it names, cannot be read; a message of one line.
    pub(super) fn read(path: &Path) -> Result<Users, KubeconfigError> {
        let read = || {
            let config = parse(path)?;
            let dir = path.parent().unwrap_or(Path::new("."));
            let mut by_name = HashMap::new();
            for NamedUser { name, user } in &config.users {
                let credentials =
                    Credentials::read(user, dir).map_err(|why| format!("user {name:?}: {why}"))?;
                by_name.insert(name.clone(), Arc::new(credentials));
            }
            let context = config.current();
            let current = context.map(|context| context.user.clone()).unwrap_or_default();
            Ok(Users { by_name, current, files: config.files_of_users(path) })
        };
        read().map_err(|what| KubeconfigError { path: path.to_owned(), what })
    }

    /// A kubeconfig and the files that it names for its users, whether or not they can be read.
    ///
    /// # Errors
    /// When the kubeconfig cannot be read; a message of one line.
    pub(super) fn files_of(path: &Path) -> Result<Vec<PathBuf>, KubeconfigError> {
        let config = parse(path).map_err(|what| KubeconfigError { path: path.to_owned(), what })?;
        Ok(config.files_of_users(path))
    }

    /// The user by name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Credentials>> {
        self.by_name.get(name)
    }

    /// The user of the current context.
    pub(super) fn current(&self) -> Option<&Arc<Credentials>> {
        self.get(&self.current)
    }
}

/// A value in the file, and the file that has it otherwise.
type Named<'a> = (&'a str, &'a str);

fn named_files(named: &[Named<'_>], dir: &Path) -> Vec<PathBuf> {
    let named = named.iter().filter(|(data, file)| data.is_empty() && !file.is_empty());
    named.map(|(_, file)| dir.join(file)).collect()
}

impl User {
    fn files(&self) -> [Named<'_>; 3] {
        [
            (&self.client_certificate_data, &self.client_certificate),
            (&self.client_key_data, &self.client_key),
            ("", &self.token_file),
        ]
    }

    fn not_supported(&self) -> Option<&'static str> {
        let given = [
            ("exec", self.exec.is_some()),
            ("auth-provider", self.auth_provider.is_some()),
            ("as", !self.impersonated.is_empty()),
            ("as-uid", !self.as_uid.is_empty()),
            ("as-groups", !self.as_groups.is_empty()),
            ("as-user-extra", self.as_user_extra.is_some()),
        ];
        given.into_iter().find(|(_, is_given)| *is_given).map(|(name, _)| name)
    }
}

impl Config {
    /// The file, and those that it names for its users.
    fn files_of_users(&self, path: &Path) -> Vec<PathBuf> {
        let dir = path.parent().unwrap_or(Path::new("."));
        let named = self.users.iter().flat_map(|entry| named_files(&entry.user.files(), dir));
        std::iter::once(path.to_owned()).chain(named).collect()
    }

    fn current(&self) -> Option<&Context> {
        let context = self.contexts.iter().find(|entry| entry.name == self.current_context);
        context.and_then(|entry| entry.context.as_ref())
    }
}

fn parse(file: &Path) -> Result<Config, String> {
    let text = std::fs::read(file).map_err(|e| e.to_string())?;
    let config = parse_config(&text, Strictness::Lenient)
        .and_then(|tree| decode_config_part(&tree, Strictness::Lenient));
    let config: Config = config.map_err(|e| e.to_string())?;
    match config.kind.as_str() {
        "" | "Config" => Ok(config),
        kind => Err(format!("is a {kind:?}, not a kubeconfig of kind \"Config\"")),
    }
}

fn read(file: &Path) -> Result<Kubeconfig, String> {
    let config = parse(file)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    let context = config.current().ok_or("no current context")?;
    let cluster = config.clusters.iter().find(|entry| entry.name == context.cluster);
    let cluster = cluster.map(|entry| &entry.cluster).ok_or("no cluster")?;
    let nobody = User::default();
    let user = config.users.iter().find(|entry| entry.name == context.user);
    let user = user.map_or(&nobody, |entry| &entry.user);
    if !cluster.proxy_url.is_empty() {
        return Err("\"proxy-url\" of a cluster is not supported".to_owned());
    }
    let url = cluster.server.as_str();
    let server: Uri = url.parse().map_err(|_| format!("{url:?} is no URL"))?;
    let tls = match server.scheme_str() {
        Some("https") => Some(client_tls(cluster, user, dir)?),
        Some("http") => None,
        _ => return Err(format!("{url} is neither http nor https")),
    };
    let mut origin = Origin::of_url(&server, tls).ok_or_else(|| format!("{url:?} is no URL"))?;
    origin.authorization = authorization(user, dir)?;
    if let (Some((_, name)), false) = (&mut origin.tls, cluster.tls_server_name.is_empty()) {
        name.clone_from(&cluster.tls_server_name);
    }
    let path = server.path_and_query().map_or("/", |path| path.as_str());
    let path = path.parse().map_err(|_| format!("{url:?} is no URL"))?;
    let authority: Named<'_> = (&cluster.certificate_authority_data, &cluster.certificate_authority);
    let mut files = vec![file.to_owned()];
    files.extend(named_files(&[authority], dir));
    files.extend(named_files(&user.files(), dir));
    Ok(Kubeconfig { origin, path, url: url.to_owned(), files })
}

fn client_tls(cluster: &Cluster, user: &User, dir: &Path) -> Result<Arc<rustls::ClientConfig>, String> {
    // The authority must be given: decisions about access are not left to the machine's trust store.
    let (data, file) = (&cluster.certificate_authority_data, &cluster.certificate_authority);
    let ca = pem("certificate-authority", data, file, dir)?.ok_or("no certificate-authority")?;
    let roots = tls::authorities(&ca).map_err(|e| format!("certificate-authority: {e}"))?;
    tls::config(ServerTrust::Authorities(roots), identity(user, dir)?).map_err(|e| e.to_string())
}

fn identity(user: &User, dir: &Path) -> Result<Option<ClientCertificate>, String> {
    let chain = pem("client-certificate", &user.client_certificate_data, &user.client_certificate, dir)?;
    let key = pem("client-key", &user.client_key_data, &user.client_key, dir)?;
    let (Some(chain), Some(key)) = (chain, key) else { return Ok(None) };
    let chain = parse_certificates(&chain).map_err(|e| format!("client-certificate: {e}"))?;
    Ok(Some((chain, parse_private_key(&key).map_err(|e| format!("client-key: {e}"))?)))
}

fn authorization(user: &User, dir: &Path) -> Result<Option<HeaderValue>, String> {
    if let Some(what) = user.not_supported() {
        return Err(format!(
            "{what:?} of a user is not supported: it needs a token, a tokenFile, a client certificate or a password"
        ));
    }
    let given = |text: &'_ String| Some(text.clone()).filter(|text| !text.is_empty());
    // A file may be renewed, so it goes before a token, as for client-go.
    let value = match (given(&user.token_file), given(&user.token), given(&user.username)) {
        (None, Some(token), _) => format!("Bearer {token}"),
        (Some(file), ..) => {
            let token = std::fs::read_to_string(dir.join(&file)).map_err(|e| format!("{file}: {e}"))?;
            match token.trim() {
                "" => return Err(format!("{file}: no token")),
                token => format!("Bearer {token}"),
            }
        }
        (None, None, Some(name)) => {
            format!("Basic {}", base64_text::encode(format!("{name}:{}", user.password)))
        }
        (None, None, None) => return Ok(None),
    };
    let mut value = HeaderValue::try_from(value).map_err(|e| e.to_string())?;
    value.set_sensitive(true);
    Ok(Some(value))
}

/// PEM of the field `KEY-data` (base64) or of the file that the field `KEY` names.
fn pem(key: &str, data: &str, file: &str, dir: &Path) -> Result<Option<Vec<u8>>, String> {
    if !data.is_empty() {
        let bytes = base64_text::decode(data)
            .map_err(|at| format!("{key}-data: illegal base64 data at input byte {at}"))?;
        return Ok(Some(bytes));
    }
    if file.is_empty() {
        return Ok(None);
    }
    let bytes = std::fs::read(dir.join(file)).map_err(|e| format!("{key}: {file}: {e}"))?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_make_another_user_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let cluster = "server: \"http://localhost:1\"";
        let rows = [
            ("", cluster, None),
            ("username: a, password: b, token: t", cluster, None),
            ("token: t, exec: {command: get-token}", cluster, Some("\"exec\"")),
            ("auth-provider: {name: oidc}", cluster, Some("\"auth-provider\"")),
            ("token: t, as: bob", cluster, Some("\"as\"")),
            ("token: t, as-uid: u", cluster, Some("\"as-uid\"")),
            ("token: t, as-groups: [g]", cluster, Some("\"as-groups\"")),
            ("token: t, as-user-extra: {a: [b]}", cluster, Some("\"as-user-extra\"")),
            ("", "server: \"http://localhost:1\", proxy-url: \"http://p\"", Some("\"proxy-url\"")),
        ];
        for (user, cluster, refused) in rows {
            let text = format!(
                "clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
                 contexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
            );
            std::fs::write(&file, text).unwrap();
            let read = Kubeconfig::read(&file).map(|_| ()).map_err(|error| error.to_string());
            let users = Users::read(&file).map(|_| ()).map_err(|error| error.to_string());
            match refused {
                None => assert_eq!((read, users), (Ok(()), Ok(())), "{user}"),
                Some(what) => {
                    assert!(read.as_ref().is_err_and(|text| text.contains(what)), "{user}: {read:?}");
                    // Of the users alone.
                    assert_eq!(users.is_err(), what != "\"proxy-url\"", "{user}: {users:?}");
                }
            }
        }
    }
}
