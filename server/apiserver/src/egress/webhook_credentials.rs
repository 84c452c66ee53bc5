//! Credentials towards admission webhooks: the users of a kubeconfig, which are named for the webhooks'
//! hosts.
//!
//! Upstream: k8s.io/apiserver `pkg/util/webhook/authentication.go`.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use super::kubeconfig::{Credentials, KubeconfigError, Users};

/// The credentials of a kubeconfig. The lock is held for a look-up or a replacement.
pub struct WebhookCredentials {
    file: PathBuf,
    users: RwLock<Users>,
}

impl WebhookCredentials {
    /// Reads a kubeconfig, with all certificates and tokens that it names.
    ///
    /// # Errors
    /// When one of the files cannot be read.
    pub fn read(file: &Path) -> Result<WebhookCredentials, KubeconfigError> {
        Ok(WebhookCredentials { file: file.to_owned(), users: RwLock::new(Users::read(file)?) })
    }

    /// The kubeconfig, and what it names now.
    pub fn files(&self) -> Vec<PathBuf> {
        Users::files_of(&self.file).unwrap_or_else(|_| self.users.read().files.clone())
    }

    /// Reads the files again. Calls that have begun keep their credentials.
    ///
    /// # Errors
    /// When one of them cannot be read; the previous ones stay in use.
    pub fn reload(&self) -> Result<(), KubeconfigError> {
        let users = Users::read(&self.file)?;
        *self.users.write() = users;
        Ok(())
    }

    /// The credentials for a server, `HOST:PORT`: of the user of that name, or of one with `*` for its first
    /// labels, of those without the port where it is 443, of the user `*`, of the current context.
    pub(super) fn find(&self, authority: &str) -> Option<WebhookUser> {
        let users = self.users.read();
        let named = |target: &str| {
            let wider = target.match_indices('.').map(|(at, _)| format!("*{}", &target[at..]));
            users.get(target).or_else(|| wider.into_iter().find_map(|name| users.get(&name)))
        };
        let host = authority.strip_suffix(":443").map(|host| host.trim_matches(['[', ']']));
        let found = named(authority).or_else(|| host.and_then(named));
        let found = found.or_else(|| users.get("*")).or_else(|| users.current());
        found.cloned().map(WebhookUser)
    }
}

impl fmt::Debug for WebhookCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebhookCredentials({:?})", self.file)
    }
}

/// A user as it was read: equal to itself alone.
#[derive(Clone)]
pub(super) struct WebhookUser(pub Arc<Credentials>);

impl PartialEq for WebhookUser {
    fn eq(&self, other: &WebhookUser) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for WebhookUser {}

impl Hash for WebhookUser {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(credentials: &WebhookCredentials, authority: &str) -> Option<String> {
        let user = credentials.find(authority)?;
        let value = user.0.authorization.as_ref().and_then(|value| value.to_str().ok());
        value.and_then(|value| value.strip_prefix("Bearer ")).map(str::to_owned)
    }

    #[test]
    fn users_are_named_for_hosts() {
        const USERS: &str = r#"users: [
            {name: "hooks.example.com:8443", user: {token: port}},
            {name: hooks.example.com, user: {token: host}},
            {name: "*.example.com", user: {token: domain}},
            {name: "*.example.com:8443", user: {token: domain-port}},
            {name: hook.ns.svc, user: {token: service}},
            {name: "::1", user: {token: loopback}}]
"#;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config");
        let write = |more: &str| std::fs::write(&file, format!("{USERS}{more}")).unwrap();
        write("");
        let credentials = WebhookCredentials::read(&file).unwrap();
        // server, the token for it
        let rows = [
            ("hooks.example.com:8443", Some("port")),
            ("hooks.example.com:443", Some("host")),
            ("hooks.example.com:8444", None),
            ("other.example.com:443", Some("domain")),
            ("a.b.example.com:8443", Some("domain-port")),
            ("example.com:443", None),
            ("hook.ns.svc:443", Some("service")),
            ("hook.ns.svc:8443", None),
            ("[::1]:443", Some("loopback")),
        ];
        for (authority, expected) in rows {
            assert_eq!(token(&credentials, authority).as_deref(), expected, "{authority}");
        }
        write("contexts: [{name: c, context: {user: hook.ns.svc}}]\ncurrent-context: c");
        credentials.reload().unwrap();
        assert_eq!(token(&credentials, "x:1").as_deref(), Some("service"));
        assert_eq!(token(&credentials, "hooks.example.com:443").as_deref(), Some("host"));
        std::fs::write(&file, "users: [{name: \"*\", user: {tokenFile: token}}]").unwrap();
        let error = credentials.reload().unwrap_err().to_string();
        assert!(error.contains("user \"*\": token: No such file"), "{error}");
        assert_eq!(token(&credentials, "x:1").as_deref(), Some("service"));
        std::fs::write(dir.path().join("token"), "t\n").unwrap();
        credentials.reload().unwrap();
        assert_eq!(token(&credentials, "x:1").as_deref(), Some("t"));
        assert_eq!(credentials.files(), [file.clone(), dir.path().join("token")]);
    }
}
