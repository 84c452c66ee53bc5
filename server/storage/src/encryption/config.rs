//! EncryptionConfiguration (`apiserver.config.k8s.io/v1`): decoding and validation.
//!
//! Rules and messages of k8s.io/apiserver `pkg/apis/apiserver/validation/validation_encryption.go`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;
use serde::Deserialize;

use super::cipher::Kind;
use plinth_api::{decode_config, ConfigKind};

/// Timeout of KMS plugins unless configured.
const KMS_TIMEOUT: Duration = Duration::from_secs(3);

/// An invalid configuration file. Never contains key material.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionConfigError {
    /// The configuration of a file is wrong, or the file cannot be read.
    #[error("--encryption-provider-config: {path}: {error}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is wrong.
        error: Box<EncryptionConfigError>,
    },
    /// The file cannot be read.
    #[error("error reading encryption provider configuration file: {0}")]
    Read(std::io::Error),
    /// The file is not YAML, or has unknown fields.
    #[error("error decoding encryption provider configuration file: {0}")]
    Syntax(String),
    /// The configuration violates a rule.
    #[error("{0}")]
    Invalid(String),
}

/// One entry of `resources`.
#[derive(Debug)]
pub struct ResourceRule {
    /// The resources that the rule applies to.
    pub resources: Vec<Selector>,
    /// The first provider encrypts, all decrypt.
    pub providers: Vec<ProviderConfig>,
}

/// `secrets`, `deployments.apps`, `*.apps`, `*.` (core), `*.*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// API group; `*` for all.
    pub group: String,
    /// Plural resource; `*` for all.
    pub resource: String,
}

impl Selector {
    /// `schema.ParseGroupResource`: the text before the first dot is the resource.
    fn parse(text: &str) -> Selector {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        Selector { group: group.to_owned(), resource: resource.to_owned() }
    }

    /// Whether the selector includes a resource.
    pub fn matches(&self, group: &str, resource: &str) -> bool {
        (self.group == "*" || self.group == group) && (self.resource == "*" || self.resource == resource)
    }

    fn masks(&self, other: &Selector) -> bool {
        self.resource == "*" && (self.group == "*" || self.group == other.group) && self != other
    }
}

/// One entry of `providers`.
pub enum ProviderConfig {
    /// No encryption.
    Identity,
    /// Keys in the file: name and bytes. The first encrypts, all decrypt.
    Local(Kind, Vec<(String, Vec<u8>)>),
    /// A KMS plugin behind a Unix socket.
    Kms {
        /// Unique name.
        name: String,
        /// Path of the socket, or `@` and its abstract name.
        socket: String,
        /// Timeout of a call.
        timeout: Duration,
    },
}

impl std::fmt::Debug for ProviderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Keys must not be logged.
        match self {
            ProviderConfig::Identity => f.write_str("identity"),
            ProviderConfig::Local(kind, keys) => write!(f, "{}({} keys)", kind.as_str(), keys.len()),
            ProviderConfig::Kms { name, socket, .. } => write!(f, "kms({name}, {socket})"),
        }
    }
}

const KIND: ConfigKind =
    ConfigKind { kind: "EncryptionConfiguration", versions: &["apiserver.config.k8s.io/v1"] };

#[derive(Default, Deserialize)]
#[serde(default)]
struct EncryptionConfiguration {
    resources: Vec<ResourceEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ResourceEntry {
    resources: Vec<String>,
    providers: Vec<ProviderEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ProviderEntry {
    aesgcm: Option<KeysEntry>,
    aescbc: Option<KeysEntry>,
    secretbox: Option<KeysEntry>,
    identity: Option<IdentityEntry>,
    kms: Option<KmsEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeysEntry {
    keys: Vec<KeyEntry>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeyEntry {
    name: String,
    secret: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct IdentityEntry {}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct KmsEntry {
    api_version: String,
    name: String,
    endpoint: String,
    timeout: Option<String>,
    cachesize: Option<i32>,
}

/// Reads and validates a file.
///
/// # Errors
/// [`EncryptionConfigError`].
pub(super) fn read(path: &Path) -> Result<(Vec<ResourceRule>, Vec<u8>), EncryptionConfigError> {
    let parse = || {
        let text = std::fs::read(path).map_err(EncryptionConfigError::Read)?;
        Ok((parse_encryption_config(&text)?, text))
    };
    parse().map_err(|error| EncryptionConfigError::File { path: path.to_owned(), error: Box::new(error) })
}

/// Decodes and validates a configuration.
///
/// # Errors
/// [`EncryptionConfigError`].
pub fn parse_encryption_config(text: &[u8]) -> Result<Vec<ResourceRule>, EncryptionConfigError> {
    let config: EncryptionConfiguration =
        decode_config(text, KIND).map_err(|error| EncryptionConfigError::Syntax(error.to_string()))?;
    if config.resources.is_empty() {
        return invalid("resources: Required value: at least one resources is required");
    }
    let mut rules: Vec<ResourceRule> = Vec::new();
    let mut kms_names = Vec::new();
    for (i, entry) in config.resources.iter().enumerate() {
        let path = format!("resources[{i}]");
        let resources = resources(&entry.resources, &path)?;
        for selector in &resources {
            let earlier = rules.iter().flat_map(|rule| &rule.resources);
            if let Some(mask) = earlier.into_iter().find(|earlier| earlier.masks(selector)) {
                return invalid(format!(
                    "resource \"{}\" is masked by earlier rule \"{}\"",
                    written(selector),
                    written(mask)
                ));
            }
        }
        if entry.providers.is_empty() {
            return invalid(format!(
                "{path}.providers: Required value: at least one {path}.providers is required"
            ));
        }
        let mut providers = Vec::new();
        for (j, given) in entry.providers.iter().enumerate() {
            providers.push(provider(given, &format!("{path}.providers[{j}]"), &mut kms_names)?);
        }
        rules.push(ResourceRule { resources, providers });
    }
    Ok(rules)
}

fn written(selector: &Selector) -> String {
    match (selector.group.as_str(), selector.resource.as_str()) {
        ("", "*") => "*.".to_owned(),
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    }
}

fn invalid<T>(what: impl Into<String>) -> Result<T, EncryptionConfigError> {
    Err(EncryptionConfigError::Invalid(what.into()))
}

fn resources(names: &[String], path: &str) -> Result<Vec<Selector>, EncryptionConfigError> {
    if names.is_empty() {
        return invalid(format!(
            "{path}.resources: Required value: at least one {path}.resources is required"
        ));
    }
    for (j, name) in names.iter().enumerate() {
        let selector = Selector::parse(name);
        let why = match name.as_str() {
            _ if name.chars().any(char::is_uppercase) => "resource name should not contain capital letters",
            "*" => "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources",
            "apiserveripinfo" | "serviceipallocations" | "servicenodeportallocations" => {
                "resources which do not have REST API/s cannot be encrypted"
            }
            _ if selector.group == "events.k8s.io" => {
                "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the config file"
            }
            _ if selector.group == "extensions" => {
                "'extensions' group has been removed and cannot be used for encryption"
            }
            _ if selector.group == "*" && selector.resource != "*" => {
                "encrypting the same resource across groups is not supported"
            }
            _ => continue,
        };
        return invalid(format!("{path}.resources[{j}]: Invalid value: {name:?}: {why}"));
    }
    let selectors: Vec<Selector> = names.iter().map(|name| Selector::parse(name)).collect();
    for (i, one) in selectors.iter().enumerate() {
        for (j, other) in selectors.iter().enumerate().filter(|(j, _)| *j != i) {
            let why = match () {
                () if one == other => "the same resource cannot be specified multiple times",
                () if one.masks(other) => {
                    "using overlapping resources such as 'secrets' and '*.' in the same resource list is not allowed as they will be masked"
                }
                () => continue,
            };
            return invalid(format!("{path}.resources: Invalid value: [{},{}]: {why}", names[i], names[j]));
        }
    }
    Ok(selectors)
}

fn provider(
    given: &ProviderEntry,
    path: &str,
    kms_names: &mut Vec<String>,
) -> Result<ProviderConfig, EncryptionConfigError> {
    let ProviderEntry { aesgcm, aescbc, secretbox, identity, kms } = given;
    let local = [
        (Kind::AesGcm, "aesgcm", aesgcm),
        (Kind::AesCbc, "aescbc", aescbc),
        (Kind::Secretbox, "secretbox", secretbox),
    ];
    let mut local = local.into_iter().filter_map(|(kind, name, entry)| Some((kind, name, entry.as_ref()?)));
    match (local.next(), local.next(), identity, kms) {
        (Some((kind, name, entry)), None, None, None) => {
            Ok(ProviderConfig::Local(kind, keys(&entry.keys, &format!("{path}.{name}"), kind)?))
        }
        (None, None, Some(_), None) => Ok(ProviderConfig::Identity),
        (None, None, None, Some(kms)) => kms_provider(kms, &format!("{path}.kms"), kms_names),
        (None, None, None, None) => invalid(format!(
            "{path}: Invalid value: provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"
        )),
        _ => invalid(format!(
            "{path}: Invalid value: more than one provider specified in a single element, should split into different list elements"
        )),
    }
}

fn keys(given: &[KeyEntry], path: &str, kind: Kind) -> Result<Vec<(String, Vec<u8>)>, EncryptionConfigError> {
    if given.is_empty() {
        return invalid(format!("{path}.keys: Required value: at least one keys is required"));
    }
    let mut keys = Vec::new();
    for (i, key) in given.iter().enumerate() {
        let path = format!("{path}.keys[{i}]");
        for (field, text) in [("name", &key.name), ("secret", &key.secret)] {
            if text.is_empty() {
                let why = format!("{field} is a mandatory field for a key");
                return invalid(format!("{path}.{field}: Required value: {why}"));
            }
        }
        let redacted = format!("{path}.secret: Invalid value: \"REDACTED\":");
        let Ok(secret) = STANDARD.decode(&key.secret) else {
            return invalid(format!("{redacted} secrets must be base64 encoded"));
        };
        let lengths = kind.key_lengths();
        if !lengths.contains(&secret.len()) {
            let list: Vec<String> = lengths.iter().map(ToString::to_string).collect();
            return invalid(format!(
                "{redacted} secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                list.join(" ")
            ));
        }
        keys.push((key.name.clone(), secret));
    }
    Ok(keys)
}

fn kms_provider(
    given: &KmsEntry,
    path: &str,
    names: &mut Vec<String>,
) -> Result<ProviderConfig, EncryptionConfigError> {
    let name = match given.name.as_str() {
        "" => {
            return invalid(format!("{path}.name: Required value: name is a mandatory field for a provider"))
        }
        name if name.contains(':') => {
            return invalid(format!(
                "{path}.name: Invalid value: {name:?}: invalid KMS provider name {name}, must not contain ':'"
            ));
        }
        name if names.iter().any(|n| n == name) => {
            return invalid(format!(
                "{path}.name: Invalid value: {name:?}: duplicate KMS provider name {name}, names must be unique"
            ));
        }
        name => name.to_owned(),
    };
    if given.api_version != "v2" {
        // Version 1, which is also the default of `apiVersion`, is disabled by default upstream.
        return invalid(
            "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.",
        );
    }
    if given.cachesize.is_some() {
        return invalid(format!("{path}.cachesize: Invalid value: cachesize is not supported in v2"));
    }
    let timeout = match &given.timeout {
        None => KMS_TIMEOUT,
        Some(text) => match plinth_codec::time::parse_duration(text).ok().and_then(|n| u64::try_from(n).ok())
        {
            Some(nanos) if nanos > 0 => Duration::from_nanos(nanos),
            _ => {
                return invalid(format!(
                    "{path}.timeout: Invalid value: {text:?}: timeout should be a positive value"
                ));
            }
        },
    };
    let endpoint = given.endpoint.as_str();
    let Some(socket) = socket_of(endpoint) else {
        let why = match endpoint.split_once("://") {
            _ if endpoint.is_empty() => "endpoint is a mandatory field for a kms".to_owned(),
            scheme => format!(
                "unsupported scheme {:?} for KMS provider, only unix is supported",
                scheme.map_or("", |(scheme, _)| scheme)
            ),
        };
        return invalid(format!("{path}.endpoint: Invalid value: {endpoint:?}: {why}"));
    };
    names.push(name.clone());
    Ok(ProviderConfig::Kms { name, socket: socket.to_owned(), timeout })
}

/// The socket of an endpoint `unix:///path`, `unix:///@name` or `unix:@name`; the last two are abstract. As
/// `ParseEndpoint` of k8s.io/kms `pkg/util`.
fn socket_of(endpoint: &str) -> Option<&str> {
    let rest = endpoint.strip_prefix("unix:")?;
    let path = rest.strip_prefix("//").unwrap_or(rest);
    let socket = path.strip_prefix('/').filter(|name| name.starts_with('@')).unwrap_or(path);
    Some(socket).filter(|socket| !socket.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "c2VjcmV0IGlzIHNlY3VyZQ==";

    fn config(resources: &str, providers: &str) -> String {
        format!(
            "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [{resources}]\n  providers: [{providers}]\n"
        )
    }

    #[test]
    fn a_configuration_says_what_it_says() {
        let local = format!("{{aesgcm: {{keys: [{{name: a, secret: {KEY}}}]}}}}");
        let kms = "{kms: {apiVersion: v2, name: k, endpoint: unix:///run/kms.sock, timeout: 5s}}";
        let text =
            config("secrets, '*.apps', 'x.y.example.com'", &format!("{local}, {kms}, {{identity: {{}}}}"));
        let rules = parse_encryption_config(text.as_bytes()).unwrap();
        let [rule] = rules.as_slice() else { panic!() };
        for (group, resource, expected) in [
            ("", "secrets", true),
            ("", "configmaps", false),
            ("apps", "deployments", true),
            ("y.example.com", "x", true),
            ("example.com", "x", false),
        ] {
            let matches = rule.resources.iter().any(|s| s.matches(group, resource));
            assert_eq!(matches, expected, "{resource}.{group}");
        }
        let [ProviderConfig::Local(Kind::AesGcm, keys), ProviderConfig::Kms { name, socket, timeout }, ProviderConfig::Identity] =
            rule.providers.as_slice()
        else {
            panic!("{:?}", rule.providers)
        };
        assert_eq!(keys.as_slice(), [("a".to_owned(), b"secret is secure".to_vec())]);
        assert_eq!((name.as_str(), socket.as_str(), timeout.as_secs()), ("k", "/run/kms.sock", 5));
    }

    #[test]
    fn endpoints_are_paths_or_abstract_names() {
        for (endpoint, socket) in [
            ("unix:///run/kms.sock", Some("/run/kms.sock")),
            ("unix:/run/kms.sock", Some("/run/kms.sock")),
            ("unix:///@name", Some("@name")),
            ("unix:@name", Some("@name")),
            ("unix:///run/@name", Some("/run/@name")),
            ("unix://", None),
            ("unix:", None),
            ("tcp://@name", None),
        ] {
            assert_eq!(socket_of(endpoint), socket, "{endpoint}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused_in_upstreams_words() {
        let identity = "{identity: {}}";
        let key = |kind: &str, name: &str, secret: &str| {
            format!("{{{kind}: {{keys: [{{name: {name}, secret: {secret}}}]}}}}")
        };
        let kms = |fields: &str| format!("{{kms: {{{fields}}}}}");
        let rows: Vec<(String, &str)> = vec![
            (config("", identity), "at least one resources[0].resources is required"),
            (config("secrets", ""), "at least one resources[0].providers is required"),
            (config("Secrets", identity), "should not contain capital letters"),
            (config("'*'", identity), "use '*.' to encrypt all"),
            (config("'secrets.*'", identity), "encrypting the same resource across groups is not supported"),
            (config("'*.events.k8s.io'", identity), "Use 'events' instead"),
            (config("serviceipallocations", identity), "do not have REST API/s"),
            (config("secrets, secrets", identity), "cannot be specified multiple times"),
            (config("secrets, '*.'", identity), "they will be masked"),
            (config("'*.*', 'a.b'", identity), "they will be masked"),
            (config("secrets", "{}"), "does not contain any of the expected providers"),
            (config("secrets", "{identity: {}, aesgcm: {keys: []}}"), "more than one provider specified"),
            (config("secrets", "{aesgcm: {keys: []}}"), "at least one keys is required"),
            (config("secrets", &key("aesgcm", "a", "'?'")), "secrets must be base64 encoded"),
            (config("secrets", &key("secretbox", "a", KEY)), "got 16, expected one of [32]"),
            (config("secrets", &key("aescbc", "''", KEY)), "name is a mandatory field for a key"),
            (config("secrets", &kms("apiVersion: v2, name: k")), "endpoint is a mandatory field for a kms"),
            (
                config("secrets", &kms("apiVersion: v2, name: k, endpoint: 'tcp://x'")),
                "unsupported scheme \"tcp\"",
            ),
            (config("secrets", &kms("name: k, endpoint: 'unix:///x'")), "KMSv1 is deprecated"),
            (
                config("secrets", &kms("apiVersion: v2, name: 'a:b', endpoint: 'unix:///x'")),
                "must not contain ':'",
            ),
            (
                config("secrets", &kms("apiVersion: v2, name: k, endpoint: 'unix:///x', timeout: 0s")),
                "timeout should be a positive value",
            ),
            (config("secrets", "{rot13: {}}"), "unknown field"),
            ("kind: Pod\napiVersion: v1\n".into(), "no kind \"Pod\" is registered"),
            (
                format!("{}- resources: [secrets]\n  providers: [{identity}]\n", config("'*.*'", identity)),
                "resource \"secrets\" is masked by earlier rule \"*.*\"",
            ),
        ];
        for (text, expected) in rows {
            let error = parse_encryption_config(text.as_bytes()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}\n{text}");
            assert!(!error.contains(KEY), "a key is in the error: {error}");
        }
    }
}
