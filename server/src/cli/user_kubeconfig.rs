//! The kubeconfig of a user, to which `plinth up` adds a context.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use plinth_codec::value::{Map, Value};
use plinth_codec::yaml;

use crate::bootstrap::pki::{self, PkiError};
use plinth_api::{parse_config, Strictness};
use plinth_apiserver::private_files;

/// A context was not added; the file is as it was.
#[derive(Debug, thiserror::Error)]
pub enum UserKubeconfigError {
    /// Neither flag nor environment names a file.
    #[error("neither KUBECONFIG nor HOME is set; name the file with --user-kubeconfig")]
    NoFile,
    /// A file cannot be read or created.
    #[error("{path}: {source}")]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The underlying error.
        source: io::Error,
    },
    /// The file is no kubeconfig.
    #[error("{path}: {reason}; it was not changed")]
    Invalid {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The context or cluster of that name is of another cluster.
    #[error("{path} has {name:?} for another cluster; choose another name with --context, or remove that cluster there")]
    Taken {
        /// Path of the file.
        path: PathBuf,
        /// Name of the context.
        name: String,
    },
    /// Another program changes the file.
    #[error("{0} exists: another program changes the kubeconfig, or was killed while it did; then remove that file")]
    Locked(PathBuf),
    /// The file was not written.
    #[error(transparent)]
    Write(#[from] PkiError),
}

/// What is added.
pub(super) struct Entry<'a> {
    /// Name of the context and of the cluster.
    pub name: &'a str,
    /// The server's own kubeconfig, which has cluster and user.
    pub admin_kubeconfig: &'a Path,
}

/// The file that kubectl writes to.
pub(super) fn default_path(environment: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let listed = environment("KUBECONFIG");
    let first =
        listed.and_then(|list| std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| {
        let home = environment("HOME").filter(|home| !home.is_empty())?;
        Some(PathBuf::from(home).join(".kube/config"))
    })
}

/// Kubectl's lock: a file that exists while the kubeconfig is changed.
struct Lock(PathBuf);

impl Lock {
    fn of(file: &Path) -> Result<Lock, UserKubeconfigError> {
        let mut path = file.as_os_str().to_owned();
        path.push(".lock");
        let path = PathBuf::from(path);
        match private_files::create_new(&path) {
            Ok(_) => Ok(Lock(path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(UserKubeconfigError::Locked(path))
            }
            Err(source) => Err(UserKubeconfigError::Io { path, source }),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The next one reports what is left.
        let _ = fs::remove_file(&self.0);
    }
}

/// Adds the entry to the file, which is created if it does not exist, and makes it the current context.
/// Everything else in the file is kept, apart from comments.
///
/// # Errors
/// See [`UserKubeconfigError`].
pub(super) fn merge(file: &Path, entry: &Entry<'_>) -> Result<(), UserKubeconfigError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| UserKubeconfigError::Io { path, source }
    };
    if let Some(dir) = file.parent().filter(|dir| !dir.as_os_str().is_empty()) {
        private_files::create_dir_all(dir).map_err(io_error(dir))?;
    }
    // A link stays one: what it leads to is replaced.
    let file = match fs::canonicalize(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => file.to_owned(),
        found => found.map_err(io_error(file))?,
    };
    let _lock = Lock::of(&file)?;
    let text = match fs::read(&file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        read => read.map_err(io_error(&file))?,
    };
    let admin = fs::read(entry.admin_kubeconfig).map_err(io_error(entry.admin_kubeconfig))?;
    let admin = parse(entry.admin_kubeconfig, &admin)?;
    let mut config = parse(&file, &text)?;
    add(&file, &mut config, &admin, entry.name)?;
    let mut out = Vec::new();
    yaml::write(&Value::Object(config), &mut out);
    Ok(pki::write_secret(&file, &String::from_utf8_lossy(&out))?)
}

fn parse(path: &Path, text: &[u8]) -> Result<Map, UserKubeconfigError> {
    let invalid = |reason: String| UserKubeconfigError::Invalid { path: path.to_owned(), reason };
    if text.is_empty() {
        return Ok(Map::new());
    }
    match parse_config(text, Strictness::Strict).map_err(|error| invalid(error.to_string()))? {
        Value::Null => Ok(Map::new()),
        Value::Object(map) if matches!(map.get("kind").and_then(Value::as_str), None | Some("Config")) => {
            Ok(map)
        }
        _ => Err(invalid("not a kubeconfig of kind \"Config\"".to_owned())),
    }
}

/// The part of the first entry of a list, for example the cluster of `clusters`.
fn first_of(config: &Map, list: &str, part: &str) -> Value {
    let first = config.get(list).and_then(Value::as_array).and_then(|entries| entries.first());
    first.and_then(|entry| entry.get(part)).cloned().unwrap_or_default()
}

/// By what a cluster is known: its authority, as it may get another address. One that a public authority has
/// signed has its address.
fn authority(cluster: &Value) -> Option<&str> {
    cluster.str_at(&["certificate-authority-data"]).or_else(|| cluster.str_at(&["server"]))
}

fn add(file: &Path, config: &mut Map, admin: &Map, name: &str) -> Result<(), UserKubeconfigError> {
    let contexts = config.get("contexts").and_then(Value::as_array).unwrap_or_default();
    let present = contexts.iter().find(|entry| entry.str_at(&["name"]) == Some(name));
    let clusters = config.get("clusters").and_then(Value::as_array).unwrap_or_default();
    let cluster = clusters.iter().find(|entry| entry.str_at(&["name"]) == Some(name));
    let own = first_of(admin, "clusters", "cluster");
    let is_other = cluster.is_some_and(|entry| entry.get("cluster").map(authority) != Some(authority(&own)));
    if is_other || present.is_some_and(|entry| entry.str_at(&["context", "cluster"]) != Some(name)) {
        return Err(UserKubeconfigError::Taken { path: file.to_owned(), name: name.to_owned() });
    }
    let user = format!("{name}-admin");
    // What a user added to the context, such as a namespace, is kept.
    let context = present.and_then(|entry| entry.get("context")).and_then(Value::as_object);
    let mut context = context.cloned().unwrap_or_else(Map::new);
    context.insert("cluster", name);
    context.insert("user", user.as_str());
    config.insert("apiVersion", "v1");
    config.insert("kind", "Config");
    for (list, part, name, value) in [
        ("clusters", "cluster", name, own),
        ("users", "user", &user, first_of(admin, "users", "user")),
        ("contexts", "context", name, Value::Object(context)),
    ] {
        let mut entry = Map::new();
        entry.insert("name", name);
        entry.insert(part, value);
        let entries = config.entry(list);
        if entries.is_null() {
            *entries = Value::Array(Vec::new());
        }
        let Some(entries) = entries.as_array_mut() else {
            let reason = format!("{list} is not a list");
            return Err(UserKubeconfigError::Invalid { path: file.to_owned(), reason });
        };
        match entries.iter_mut().find(|present| present.str_at(&["name"]) == Some(name)) {
            Some(present) => *present = Value::Object(entry),
            None => entries.push(Value::Object(entry)),
        }
    }
    config.insert("current-context", name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADMIN: &str = "apiVersion: v1\nkind: Config\nclusters:\n- name: plinth\n  cluster: {server: 'https://127.0.0.1:1'}\n\
        users:\n- name: kubernetes-admin\n  user: {token: t}\n";

    fn merged(present: &str) -> Result<String, UserKubeconfigError> {
        let dir = tempfile::tempdir().unwrap();
        let (file, admin) = (dir.path().join(".kube/config"), dir.path().join("admin.kubeconfig"));
        fs::create_dir(dir.path().join(".kube")).unwrap();
        fs::write(&file, present).unwrap();
        fs::write(&admin, ADMIN).unwrap();
        let outcome = merge(&file, &Entry { name: "plinth", admin_kubeconfig: &admin });
        let after = fs::read_to_string(&file).unwrap();
        if outcome.is_err() {
            assert_eq!(after, present);
        }
        assert!(!dir.path().join(".kube/config.lock").exists());
        outcome.map(|()| after)
    }

    #[test]
    fn a_context_is_added_and_the_rest_is_kept() {
        let other = "clusters:\n- {name: a, cluster: {server: 'https://a'}}\nusers: null\ncontexts:\n\
            - {name: a, context: {cluster: a, user: b}}\n\
            - {name: plinth, context: {cluster: plinth, namespace: mine, user: old}}\n\
            current-context: a\npreferences: {colors: true}\n";
        let text = merged(other).unwrap();
        let (config, _) = yaml::to_value(text.as_bytes()).unwrap();
        assert_eq!(config.str_at(&["current-context"]), Some("plinth"));
        assert_eq!(config.at(&["preferences", "colors"]).and_then(Value::as_bool), Some(true));
        let names = |list: &str| {
            let entries = config.list_at(&[list]).iter();
            entries.map(|entry| entry.str_at(&["name"]).unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("clusters"), ["a", "plinth"]);
        assert_eq!(names("users"), ["plinth-admin"]);
        assert_eq!(names("contexts"), ["a", "plinth"]);
        let context = &config.list_at(&["contexts"])[1];
        assert_eq!(context.str_at(&["context", "namespace"]), Some("mine"));
        assert_eq!(context.str_at(&["context", "user"]), Some("plinth-admin"));
        assert_eq!(merged(&text).unwrap(), text, "a second time changes nothing");
        assert!(merged("").unwrap().contains("current-context: plinth\n"));
    }

    #[test]
    fn what_is_no_kubeconfig_or_has_the_name_for_another_cluster_is_left_alone() {
        for refused in [
            "kind: Pod\n",
            "- a\n",
            "contexts: 1\n",
            "a: [\n",
            "contexts:\n- {name: plinth, context: {cluster: prod, user: me}}\n",
            "clusters:\n- {name: plinth, cluster: {server: 'https://b', certificate-authority-data: b}}\n\
                contexts:\n- {name: plinth, context: {cluster: plinth, user: plinth-admin}}\n",
            "clusters:\n- {name: plinth, cluster: {server: 'https://127.0.0.1:2'}}\n",
        ] {
            assert!(merged(refused).is_err(), "{refused:?}");
        }
    }

    #[test]
    fn the_file_is_the_one_that_kubectl_writes_to() {
        let set = |kubeconfig: &'static str| {
            default_path(move |name| match name {
                "KUBECONFIG" => Some(kubeconfig.into()),
                "HOME" => Some("/h".into()),
                _ => None,
            })
        };
        assert_eq!(set(":/a:/b"), Some("/a".into()));
        assert_eq!(set(""), Some("/h/.kube/config".into()));
        assert_eq!(default_path(|_| None), None);
    }
}
