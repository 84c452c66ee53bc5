//! Audit policy: `Policy` of audit.k8s.io/v1.
//!
//! AuditRule matching as in k8s.io/apiserver `pkg/audit/policy/checker.go`, validation as in
//! `pkg/apis/audit/validation`.

use std::path::Path;

use serde::de::IgnoredAny;
use serde::Deserialize;

use plinth_api::{
    decode_config, decode_config_tree, parse_config, ConfigDecodeError, ConfigKind, RequestInfo, Route,
    Strictness, User,
};

/// The audit level; each one includes the previous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AuditLevel {
    /// No event is written.
    None,
    /// Metadata of request and response.
    Metadata,
    /// Also the request object.
    Request,
    /// Also the response object.
    RequestResponse,
}

impl AuditLevel {
    /// As in an audit policy and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditLevel::None => "None",
            AuditLevel::Metadata => "Metadata",
            AuditLevel::Request => "Request",
            AuditLevel::RequestResponse => "RequestResponse",
        }
    }

    fn parse(text: &str) -> Option<AuditLevel> {
        [AuditLevel::None, AuditLevel::Metadata, AuditLevel::Request, AuditLevel::RequestResponse]
            .into_iter()
            .find(|level| level.as_str() == text)
    }
}

/// A stage of a request at which an event is generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditStage {
    /// Before the request is processed.
    RequestReceived,
    /// The head of a long-running response has been sent.
    ResponseStarted,
    /// The response has been sent.
    ResponseComplete,
    /// The request panicked.
    Panic,
}

impl AuditStage {
    const ALL: [AuditStage; 4] = [
        AuditStage::RequestReceived,
        AuditStage::ResponseStarted,
        AuditStage::ResponseComplete,
        AuditStage::Panic,
    ];

    /// As in an audit policy and in events.
    pub fn as_str(self) -> &'static str {
        match self {
            AuditStage::RequestReceived => "RequestReceived",
            AuditStage::ResponseStarted => "ResponseStarted",
            AuditStage::ResponseComplete => "ResponseComplete",
            AuditStage::Panic => "Panic",
        }
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    fn with(self, stage: AuditStage) -> Stages {
        Stages(self.0 | 1 << stage as u8)
    }

    /// Whether the set contains a stage.
    pub fn has(self, stage: AuditStage) -> bool {
        self.0 & (1 << stage as u8) != 0
    }

    fn and(self, others: Stages) -> Stages {
        Stages(self.0 | others.0)
    }
}

/// What is recorded of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestAuditConfig {
    /// How much is recorded.
    pub level: AuditLevel,
    /// Stages without events.
    pub omit_stages: Stages,
    /// Whether `managedFields` are omitted from objects.
    pub omit_managed_fields: bool,
}

/// Why a policy cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The file is not a valid policy.
    #[error("{0}")]
    Invalid(String),
}

const KIND: ConfigKind = ConfigKind { kind: "Policy", versions: &["audit.k8s.io/v1"] };

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PolicyFile {
    #[serde(rename = "metadata")]
    _metadata: IgnoredAny,
    rules: Vec<RuleEntry>,
    omit_stages: Vec<String>,
    omit_managed_fields: bool,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuleEntry {
    level: String,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    #[serde(rename = "nonResourceURLs")]
    non_resource_urls: Vec<String>,
    omit_stages: Vec<String>,
    omit_managed_fields: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    #[serde(rename = "resourceNames")]
    names: Vec<String>,
}

#[derive(Debug)]
struct AuditRule {
    config: RequestAuditConfig,
    users: Vec<String>,
    groups: Vec<String>,
    verbs: Vec<String>,
    namespaces: Vec<String>,
    resources: Vec<GroupResources>,
    paths: Vec<String>,
}

/// A policy. Immutable.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<AuditRule>,
    default: RequestAuditConfig,
}

/// The attributes of a request that rules match.
#[derive(Clone, Copy, Debug)]
pub struct PolicyAttributes<'a> {
    /// The user; none when authentication failed.
    pub user: Option<&'a User>,
    /// What the request's path was parsed to.
    pub route: &'a Route,
    /// The verb, in lower case.
    pub verb: &'a str,
}

impl Policy {
    /// Loads a file.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn read(path: &Path) -> Result<Policy, PolicyError> {
        Policy::parse(&std::fs::read(path)?)
    }

    /// Parses a policy. Unknown and duplicate fields are ignored with a warning, as upstream does.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn parse(text: &[u8]) -> Result<Policy, PolicyError> {
        let file = match decode_config(text, KIND) {
            Err(error @ ConfigDecodeError::Strict(_)) => {
                tracing::warn!(%error, "audit policy contains errors, falling back to lenient decoding");
                parse_config(text, Strictness::Lenient)
                    .and_then(|tree| decode_config_tree(&tree, KIND, Strictness::Lenient))
            }
            decoded => decoded,
        };
        let file: PolicyFile = file.map_err(|error| {
            PolicyError::Invalid(match error {
                ConfigDecodeError::Kind { kind, version, .. } => {
                    format!("unknown group version field {version}, Kind={kind} in policy")
                }
                error => error.to_string(),
            })
        })?;
        if file.rules.is_empty() {
            return Err(PolicyError::Invalid("loaded illegal policy with 0 rules".into()));
        }
        let everywhere = stages(&file.omit_stages, "omitStages")?;
        let omit_managed_fields = file.omit_managed_fields;
        let mut rules = Vec::new();
        for (i, entry) in file.rules.into_iter().enumerate() {
            // omitManagedFields of the policy is the default of rules.
            let omits = entry.omit_managed_fields.unwrap_or(omit_managed_fields);
            let mut rule = AuditRule::new(entry, &format!("rules[{i}]"))?;
            // Omitted stages of the policy are added to those of each rule.
            rule.config.omit_stages = rule.config.omit_stages.and(everywhere);
            rule.config.omit_managed_fields = omits;
            rules.push(rule);
        }
        let default =
            RequestAuditConfig { level: AuditLevel::None, omit_stages: everywhere, omit_managed_fields };
        Ok(Policy { rules, default })
    }

    /// The configuration for a request: that of the first matching rule.
    pub fn config(&self, attributes: &PolicyAttributes<'_>) -> RequestAuditConfig {
        self.rules.iter().find(|rule| rule.matches(attributes)).map_or(self.default, |rule| rule.config)
    }
}

fn stages(words: &[String], path: &str) -> Result<Stages, PolicyError> {
    let mut stages = Stages::default();
    for (i, word) in words.iter().enumerate() {
        match AuditStage::ALL.into_iter().find(|stage| stage.as_str() == word) {
            Some(stage) => stages = stages.with(stage),
            None => {
                return Err(PolicyError::Invalid(format!(
                    "{path}[{i}]: Invalid value: {word:?}: allowed stages are \
                        RequestReceived,ResponseStarted,ResponseComplete,Panic"
                )));
            }
        }
    }
    Ok(stages)
}

impl AuditRule {
    fn new(entry: RuleEntry, path: &str) -> Result<AuditRule, PolicyError> {
        let invalid = |field: &str, what: &str| Err(PolicyError::Invalid(format!("{path}.{field}: {what}")));
        let level = match entry.level.as_str() {
            "" => return invalid("level", "Required value"),
            word => match AuditLevel::parse(word) {
                Some(level) => level,
                None => {
                    let words = "\"None\", \"Metadata\", \"Request\", \"RequestResponse\"";
                    return invalid(
                        "level",
                        &format!("Unsupported value: {word:?}: supported values: {words}"),
                    );
                }
            },
        };
        let paths = entry.non_resource_urls;
        for (i, url) in paths.iter().enumerate().filter(|(_, url)| *url != "*") {
            let field = format!("nonResourceURLs[{i}]");
            if !url.starts_with('/') {
                let why = "non-resource URL rules must begin with a '/' character";
                return invalid(&field, &format!("Invalid value: {url:?}: {why}"));
            }
            if url.strip_suffix('*').unwrap_or(url).contains('*') {
                let why = "non-resource URL wildcards '*' must be the final character of the rule";
                return invalid(&field, &format!("Invalid value: {url:?}: {why}"));
            }
        }
        for GroupResources { group, resources, names } in &entry.resources {
            if !matches!(group.as_str(), "" | "*")
                && !plinth_codec::names::dns1123_subdomain_errors(group).is_empty()
            {
                return invalid(
                    "resources.group",
                    &format!(
                        "Invalid value: {group:?}: a lowercase RFC 1123 \
                    subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
                    start and end with an alphanumeric character"
                    ),
                );
            }
            if resources.is_empty() && !names.is_empty() {
                return invalid(
                    "resources.resourceNames",
                    "Invalid value: using resourceNames requires at least one resource",
                );
            }
        }
        if !paths.is_empty() && (!entry.resources.is_empty() || !entry.namespaces.is_empty()) {
            return invalid(
                "nonResourceURLs",
                "Invalid value: rules cannot apply to both regular resources and non-resource URLs",
            );
        }
        let omit_stages = stages(&entry.omit_stages, &format!("{path}.omitStages"))?;
        Ok(AuditRule {
            config: RequestAuditConfig { level, omit_stages, omit_managed_fields: false },
            users: entry.users,
            groups: entry.user_groups,
            verbs: entry.verbs,
            namespaces: entry.namespaces,
            resources: entry.resources,
            paths,
        })
    }

    fn matches(&self, attributes: &PolicyAttributes<'_>) -> bool {
        let has = |list: &[String], word: &str| list.iter().any(|item| item == word);
        let of_user = match attributes.user {
            Some(user) => {
                (self.users.is_empty() || has(&self.users, &user.name))
                    && (self.groups.is_empty() || user.groups.iter().any(|group| has(&self.groups, group)))
            }
            None => self.users.is_empty() && self.groups.is_empty(),
        };
        if !of_user || !(self.verbs.is_empty() || has(&self.verbs, attributes.verb)) {
            return false;
        }
        let about_resources = !self.namespaces.is_empty() || !self.resources.is_empty();
        match attributes.route {
            _ if !about_resources && self.paths.is_empty() => true,
            Route::Resource(info) => {
                about_resources
                    && (self.namespaces.is_empty() || has(&self.namespaces, &info.namespace))
                    && (self.resources.is_empty() || self.resources.iter().any(|r| r.matches(info)))
            }
            Route::NonResource(path) => self.paths.iter().any(|rule| is_path(rule, path)),
        }
    }
}

/// Matches a path with that of a rule, which may end with `*`.
fn is_path(rule: &str, path: &str) -> bool {
    rule == path || rule.strip_suffix('*').is_some_and(|start| path.starts_with(start))
}

impl GroupResources {
    fn matches(&self, info: &RequestInfo) -> bool {
        if self.group != "*" && self.group != info.group {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        if !self.names.is_empty() && !self.names.contains(&info.name) {
            return false;
        }
        self.resources.iter().any(|rule| match rule.split_once('/') {
            _ if rule == "*" => true,
            None => info.subresource.is_empty() && *rule == info.resource,
            Some((resource, "*")) => resource == info.resource,
            Some((resource, subresource)) => {
                subresource == info.subresource
                    && !subresource.is_empty()
                    && (resource == "*" || resource == info.resource)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::parse_route;

    fn policy(rules: &str) -> Policy {
        Policy::parse(format!("kind: Policy\napiVersion: audit.k8s.io/v1\n{rules}").as_bytes()).unwrap()
    }

    fn config(policy: &Policy, user: &User, method: &str, uri: &str) -> RequestAuditConfig {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        let route = parse_route(&method.parse().unwrap(), path, query).unwrap();
        let lower = method.to_ascii_lowercase();
        let verb = match &route {
            Route::Resource(info) => info.verb.as_str(),
            Route::NonResource(_) => &lower,
        };
        policy.config(&PolicyAttributes { user: Some(user), route: &route, verb })
    }

    /// A rule, a request, and whether the rule matches.
    #[test]
    fn a_rule_matches_what_upstreams_does() {
        let (pods, status) = ("/api/v1/namespaces/n/pods/x", "/api/v1/namespaces/n/pods/x/status");
        let rows = [
            ("{level: Request}", "GET", pods, true),
            ("{level: Request}", "GET", "/healthz", true),
            ("{level: Request, users: [jane]}", "GET", pods, true),
            ("{level: Request, users: [joe]}", "GET", pods, false),
            ("{level: Request, userGroups: [team, other]}", "GET", pods, true),
            ("{level: Request, userGroups: [other]}", "GET", pods, false),
            ("{level: Request, verbs: [get, list]}", "GET", pods, true),
            ("{level: Request, verbs: [list]}", "GET", pods, false),
            ("{level: Request, verbs: [watch]}", "GET", "/api/v1/pods?watch=1", true),
            ("{level: Request, verbs: [deletecollection]}", "DELETE", "/api/v1/namespaces/n/pods", true),
            ("{level: Request, namespaces: ['n']}", "GET", pods, true),
            ("{level: Request, namespaces: ['m']}", "GET", pods, false),
            ("{level: Request, namespaces: ['']}", "GET", "/api/v1/nodes/x", true),
            ("{level: Request, namespaces: ['n']}", "GET", "/healthz", false),
            ("{level: Request, resources: [{group: ''}]}", "GET", pods, true),
            ("{level: Request, resources: [{group: apps}]}", "GET", pods, false),
            ("{level: Request, resources: [{group: '*', resources: [pods]}]}", "GET", pods, true),
            ("{level: Request, resources: [{group: '', resources: [pods]}]}", "GET", status, false),
            ("{level: Request, resources: [{group: '', resources: [pods/status]}]}", "GET", status, true),
            ("{level: Request, resources: [{group: '', resources: ['pods/*']}]}", "GET", status, true),
            ("{level: Request, resources: [{group: '', resources: ['pods/*']}]}", "GET", pods, true),
            ("{level: Request, resources: [{group: '', resources: ['*/status']}]}", "GET", status, true),
            ("{level: Request, resources: [{group: '', resources: ['*/status']}]}", "GET", pods, false),
            ("{level: Request, resources: [{group: '', resources: ['*']}]}", "GET", status, true),
            (
                "{level: Request, resources: [{group: '', resources: [pods], resourceNames: [x]}]}",
                "GET",
                pods,
                true,
            ),
            (
                "{level: Request, resources: [{group: '', resources: [pods], resourceNames: ['y']}]}",
                "GET",
                pods,
                false,
            ),
            ("{level: Request, nonResourceURLs: ['/healthz*']}", "GET", "/healthz/ping", true),
            ("{level: Request, nonResourceURLs: ['/healthz']}", "GET", "/healthz/ping", false),
            ("{level: Request, nonResourceURLs: ['*']}", "GET", "/version", true),
            ("{level: Request, nonResourceURLs: ['*']}", "GET", pods, false),
        ];
        let groups = vec!["team".to_owned(), "system:authenticated".to_owned()];
        let jane = User { name: "jane".into(), groups, ..User::default() };
        for (rule, method, uri, expected) in rows {
            let policy = policy(&format!("rules: [{rule}]\n"));
            let level = config(&policy, &jane, method, uri).level;
            assert_eq!(level == AuditLevel::Request, expected, "{rule} {method} {uri}");
        }
    }

    #[test]
    fn the_first_rule_counts_and_omissions_add_up() {
        let policy = policy(
            "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n\
             - {level: None, users: [jane]}\n\
             - {level: RequestResponse, verbs: [get], omitStages: [Panic], omitManagedFields: false}\n\
             - {level: Metadata}\n",
        );
        let user = |name: &str| User { name: name.into(), ..User::default() };
        assert_eq!(config(&policy, &user("jane"), "GET", "/api/v1/pods/x").level, AuditLevel::None);
        let get = config(&policy, &user("joe"), "GET", "/api/v1/nodes/x");
        assert_eq!((get.level, get.omit_managed_fields), (AuditLevel::RequestResponse, false));
        assert!(get.omit_stages.has(AuditStage::RequestReceived) && get.omit_stages.has(AuditStage::Panic));
        let create = config(&policy, &user("joe"), "POST", "/api/v1/nodes");
        assert_eq!((create.level, create.omit_managed_fields), (AuditLevel::Metadata, true));
        assert!(!create.omit_stages.has(AuditStage::Panic));
    }

    #[test]
    fn what_is_no_policy_is_refused() {
        let head = "kind: Policy\napiVersion: audit.k8s.io/v1\n";
        for (text, expected) in [
            ("kind: Pod\napiVersion: v1\nrules: [{level: None}]", "unknown group version"),
            (&format!("{head}rules: []"), "policy with 0 rules"),
            (&format!("{head}rules: [{{}}]"), "rules[0].level: Required value"),
            (&format!("{head}rules: [{{level: All}}]"), "Unsupported value: \"All\""),
            (&format!("{head}omitStages: [End]\nrules: [{{level: None}}]"), "allowed stages are"),
            (&format!("{head}rules: [{{level: None, nonResourceURLs: [x]}}]"), "must begin with a '/'"),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: ['/a*b']}}]"),
                "must be the final character",
            ),
            (
                &format!("{head}rules: [{{level: None, nonResourceURLs: [/a], namespaces: ['n']}}]"),
                "both regular resources and non-resource URLs",
            ),
            (
                &format!("{head}rules: [{{level: None, resources: [{{group: '', resourceNames: [x]}}]}}]"),
                "requires at least one resource",
            ),
            (
                &format!("{head}rules: [{{level: None, resources: [{{group: 'a/v1'}}]}}]"),
                "RFC 1123 subdomain",
            ),
        ] {
            let error = Policy::parse(text.as_bytes()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
