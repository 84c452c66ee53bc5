//! Classifies requests into flow schemas and flows.
//!
//! Upstream: k8s.io/apiserver `pkg/util/flowcontrol/rule.go`.

use plinth_codec::Value;

use plinth_api::{RequestInfo, Route, User, Verb};

/// The attributes of a request that classification uses.
#[derive(Clone, Copy, Debug)]
pub struct RequestDigest<'a> {
    /// Who sent the request.
    pub user: &'a User,
    /// What it is for.
    pub target: RequestTarget<'a>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub enum RequestTarget<'a> {
    /// An object or collection of the API.
    Resource(&'a RequestInfo),
    /// A non-resource path, preceded by the verb in lower case.
    Path(&'a str, &'a str),
}

impl<'a> RequestDigest<'a> {
    /// The digest of a request. `verb` is that of a non-resource request.
    pub fn new(user: &'a User, route: &'a Route, verb: &'a str) -> RequestDigest<'a> {
        let target = match route {
            Route::Resource(info) => RequestTarget::Resource(info),
            Route::NonResource(path) => RequestTarget::Path(verb, path),
        };
        RequestDigest { user, target }
    }

    /// Its namespace; empty for none.
    pub fn namespace(&self) -> &'a str {
        match self.target {
            RequestTarget::Resource(info) => &info.namespace,
            RequestTarget::Path(..) => "",
        }
    }

    /// Its verb, if it is a resource request.
    pub fn verb(&self) -> Option<Verb> {
        match self.target {
            RequestTarget::Resource(info) => Some(info.verb),
            RequestTarget::Path(..) => None,
        }
    }
}

/// A list of names in a rule; a single `*` matches all.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    These(Vec<String>),
}

impl Names {
    fn read(rule: &Value, key: &str) -> Names {
        let names: Vec<String> =
            rule.list_at(&[key]).iter().filter_map(|name| name.as_str().map(str::to_owned)).collect();
        match names.as_slice() {
            [one] if one == "*" => Names::All,
            _ => Names::These(names),
        }
    }

    fn has(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::These(names) => names.iter().any(|n| n == name),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FlowSubject {
    AnyUser,
    User(String),
    AnyGroup,
    Group(String),
    /// All service accounts of a namespace, as a prefix of their user names.
    ServiceAccounts(String),
}

impl FlowSubject {
    fn read(subject: &Value) -> Option<FlowSubject> {
        let text = |path: &[&str]| subject.str_at(path).map(str::to_owned);
        Some(match subject.str_at(&["kind"])? {
            "User" => match text(&["user", "name"])? {
                name if name == "*" => FlowSubject::AnyUser,
                name => FlowSubject::User(name),
            },
            "Group" => match text(&["group", "name"])? {
                name if name == "*" => FlowSubject::AnyGroup,
                name => FlowSubject::Group(name),
            },
            "ServiceAccount" => {
                let namespace = text(&["serviceAccount", "namespace"])?;
                match text(&["serviceAccount", "name"])? {
                    name if name == "*" => {
                        FlowSubject::ServiceAccounts(format!("system:serviceaccount:{namespace}:"))
                    }
                    name => FlowSubject::User(format!("system:serviceaccount:{namespace}:{name}")),
                }
            }
            _ => return None,
        })
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            FlowSubject::AnyUser | FlowSubject::AnyGroup => true,
            FlowSubject::User(name) => user.name == *name,
            FlowSubject::Group(name) => user.is_in(name),
            FlowSubject::ServiceAccounts(prefix) => user.name.starts_with(prefix.as_str()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

impl ResourceRule {
    fn read(rule: &Value) -> ResourceRule {
        ResourceRule {
            verbs: Names::read(rule, "verbs"),
            groups: Names::read(rule, "apiGroups"),
            resources: Names::read(rule, "resources"),
            namespaces: Names::read(rule, "namespaces"),
            cluster_scope: rule.get("clusterScope").and_then(Value::as_bool).unwrap_or(false),
        }
    }

    fn matches(&self, info: &RequestInfo) -> bool {
        let has_resource = match (&self.resources, info.subresource.is_empty()) {
            (Names::All, _) => true,
            (names, true) => names.has(&info.resource),
            (Names::These(names), false) => names.iter().any(|name| {
                name.split_once('/').is_some_and(|(r, s)| r == info.resource && s == info.subresource)
            }),
        };
        has_resource
            && self.verbs.has(info.verb.as_str())
            && self.groups.has(&info.group)
            && match info.namespace.is_empty() {
                true => self.cluster_scope,
                false => self.namespaces.has(&info.namespace),
            }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathRule {
    verbs: Names,
    paths: Names,
}

impl PathRule {
    fn read(rule: &Value) -> PathRule {
        PathRule { verbs: Names::read(rule, "verbs"), paths: Names::read(rule, "nonResourceURLs") }
    }

    fn matches(&self, verb: &str, path: &str) -> bool {
        self.verbs.has(verb)
            && match &self.paths {
                Names::All => true,
                Names::These(paths) => paths.iter().any(|rule| is_below(rule, path)),
            }
    }
}

/// Whether a path equals that of a rule or is below it, with or without a trailing `*` in the rule.
fn is_below(rule: &str, path: &str) -> bool {
    let prefix = rule.strip_suffix('*').unwrap_or(rule);
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    rule == "*" || rule == path || path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct FlowSchemaRule {
    subjects: Vec<FlowSubject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

impl FlowSchemaRule {
    fn read(rule: &Value) -> FlowSchemaRule {
        fn list<'v>(rule: &'v Value, key: &str) -> &'v [Value] {
            rule.list_at(&[key])
        }
        FlowSchemaRule {
            subjects: list(rule, "subjects").iter().filter_map(FlowSubject::read).collect(),
            resources: list(rule, "resourceRules").iter().map(ResourceRule::read).collect(),
            paths: list(rule, "nonResourceRules").iter().map(PathRule::read).collect(),
        }
    }

    fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        self.subjects.iter().any(|subject| subject.matches(digest.user))
            && match digest.target {
                RequestTarget::Resource(info) => self.resources.iter().any(|rule| rule.matches(info)),
                RequestTarget::Path(verb, path) => self.paths.iter().any(|rule| rule.matches(verb, path)),
            }
    }
}

/// What distinguishes the flows of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distinguisher {
    /// All requests belong to one flow.
    None,
    /// The user's name.
    ByUser,
    /// The namespace of the request.
    ByNamespace,
}

impl Distinguisher {
    /// The flow distinguisher of a request.
    pub fn of<'a>(self, digest: &RequestDigest<'a>) -> &'a str {
        match self {
            Distinguisher::None => "",
            Distinguisher::ByUser => &digest.user.name,
            Distinguisher::ByNamespace => digest.namespace(),
        }
    }
}

/// The rules of a FlowSchema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowSchemaRules {
    /// What distinguishes its flows.
    pub distinguisher: Distinguisher,
    rules: Vec<FlowSchemaRule>,
}

impl FlowSchemaRules {
    /// Parses the `spec` of a FlowSchema, which has been validated; absent parts match nothing.
    pub(super) fn read(spec: &Value) -> FlowSchemaRules {
        let rules = spec.list_at(&["rules"]);
        FlowSchemaRules {
            distinguisher: match spec.str_at(&["distinguisherMethod", "type"]) {
                Some("ByUser") => Distinguisher::ByUser,
                Some("ByNamespace") => Distinguisher::ByNamespace,
                _ => Distinguisher::None,
            },
            rules: rules.iter().map(FlowSchemaRule::read).collect(),
        }
    }

    /// Whether a request matches the schema.
    pub(super) fn matches(&self, digest: &RequestDigest<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(digest))
    }
}
