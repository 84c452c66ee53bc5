//! Impersonation: the headers `Impersonate-User`, `-Uid`, `-Group` and `-Extra-…` (k8s.io/apiserver
//! `pkg/endpoints/filters/impersonation`).
//!
//! There are two forms of permission. The constrained modes are tried first, each for the users that it
//! covers: a permission to make *this* request as such a user (`impersonate-on:MODE:VERB`), and one to act as
//! that user (`impersonate:MODE`). The legacy verb `impersonate`, which allows every request, is tried last.
//! A denial carries the message of the first mode that applied. Nothing is cached: the authorizer answers
//! within microseconds.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use hyper::header::{HeaderMap, HeaderValue};
use plinth_codec::error::quoted;
use plinth_codec::names;

use super::request_header::extra_key;
use crate::authz::{denied, Attributes, Authorizer, Reason, ResourceTarget, Target};
use plinth_api::{
    service_account_groups, split_service_account, ApiError, User, ANONYMOUS_USER, AUTHENTICATED_GROUP,
    MASTERS_GROUP, NODES_GROUP, NODE_USER_PREFIX, UNAUTHENTICATED_GROUP,
};

const USER: &str = "impersonate-user";
const UID: &str = "impersonate-uid";
const GROUP: &str = "impersonate-group";
const EXTRA_PREFIX: &str = "impersonate-extra-";
/// API group of UIDs, extra values and the users of the constrained modes.
const AUTHENTICATION: &str = "authentication.k8s.io";
/// From this many groups or extra values on, the constrained modes first check access to all of them at once.
const BULK_CHECK_MIN: usize = 4;

/// Checks access; a trait, so that tests can replace the authorizer.
pub trait AccessChecker: Sync {
    /// Returns an error unless the request is allowed.
    ///
    /// # Errors
    /// The 403, where it is denied.
    fn require(&self, attributes: &Attributes<'_>) -> impl Future<Output = Result<(), ApiError>> + Send;
}

impl AccessChecker for Authorizer {
    async fn require(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        Authorizer::require(self, attributes).await.map(|_| ())
    }
}

/// The user that a request's headers name; `None` without such headers.
///
/// # Errors
/// 400 for headers without a user, and for values that are not UTF-8: ignoring them would make the request as
/// its sender.
pub fn requested(headers: &HeaderMap) -> Result<Option<User>, ApiError> {
    let text = |name: &str, value: &HeaderValue| {
        let no_text = |_| ApiError::bad_request(format!("{name}: no UTF-8"));
        std::str::from_utf8(value.as_bytes()).map(str::to_owned).map_err(no_text)
    };
    // Upstream uses the first value. If it is empty, ignoring a later one would make the request as its
    // sender.
    let first = |name: &str| {
        let first = headers.get(name).map_or(Ok(String::new()), |value| text(name, value))?;
        match first.is_empty() && headers.get_all(name).iter().any(|value| !value.is_empty()) {
            true => Err(ApiError::bad_request(format!("{name}: several values, the first of them empty"))),
            false => Ok(first),
        }
    };
    let mut user = User { name: first(USER)?, uid: first(UID)?, ..User::default() };
    user.groups = headers.get_all(GROUP).iter().map(|value| text(GROUP, value)).collect::<Result<_, _>>()?;
    for (name, value) in headers {
        if let Some(key) = name.as_str().strip_prefix(EXTRA_PREFIX) {
            user.extra.entry(extra_key(key)).or_default().push(text(name.as_str(), value)?);
        }
    }
    match (user.name.is_empty(), user == User::default()) {
        (true, true) => Ok(None),
        (true, false) => Err(ApiError::bad_request(format!(
            "requested {} without impersonating a user name",
            go_syntax(&user)
        ))),
        _ => Ok(Some(user)),
    }
}

/// The user in Go syntax, as upstream's message shows it.
fn go_syntax(user: &User) -> String {
    let list = |texts: &[String]| {
        let texts: Vec<String> = texts.iter().map(|t| quoted(t)).collect();
        format!("[]string{{{}}}", texts.join(", "))
    };
    let groups = if user.groups.is_empty() { "[]string(nil)".to_owned() } else { list(&user.groups) };
    let extra = match user.extra.is_empty() {
        true => "map[string][]string(nil)".to_owned(),
        false => {
            let members: Vec<String> =
                user.extra.iter().map(|(k, v)| format!("{}:{}", quoted(k), list(v))).collect();
            format!("map[string][]string{{{}}}", members.join(", "))
        }
    };
    let (name, uid) = (quoted(&user.name), quoted(&user.uid));
    format!("&user.DefaultInfo{{Name:{name}, UID:{uid}, Groups:{groups}, Extra:{extra}}}")
}

/// The result of impersonation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Impersonated {
    /// The user that the request acts as.
    pub user: Arc<User>,
    /// The verb of the constrained permission that allowed it; empty for the legacy one. For audit.
    pub constraint: String,
}

/// Authorizes the impersonation of a user. `attributes` are those of the request with its original sender.
///
/// # Errors
/// 403 with upstream's message, 500 when the authorizer fails.
pub async fn impersonate<J: AccessChecker>(
    checker: &J,
    attributes: &Attributes<'_>,
    wanted: &User,
) -> Result<Impersonated, ApiError> {
    let mut denial = None;
    for mode in MODES.iter().filter(|mode| (mode.applies)(wanted, attributes.user)) {
        match mode.check(checker, attributes, wanted).await {
            Ok(user) => {
                let constraint = match mode.name {
                    "" => String::new(),
                    name => format!("impersonate:{name}"),
                };
                return Ok(Impersonated { user: Arc::new(user), constraint });
            }
            Err(error) => {
                denial.get_or_insert(error);
            }
        }
    }
    Err(denial.unwrap_or_else(|| ApiError::internal("all impersonation modes failed")))
}

/// A mode of impersonation.
struct Mode {
    /// Its name in verbs; empty for the legacy mode.
    name: &'static str,
    /// Whether it covers that user and sender.
    applies: fn(wanted: &User, sender: &User) -> bool,
}

const MODES: &[Mode] = &[
    Mode {
        name: "associated-node",
        applies: |wanted, sender| is_name_alone(wanted) && runs_on_node(sender, wanted),
    },
    Mode {
        name: "arbitrary-node",
        applies: |wanted, _| is_name_alone(wanted) && node(&wanted.name).is_some(),
    },
    Mode {
        name: "serviceaccount",
        applies: |wanted, _| is_name_alone(wanted) && split_service_account(&wanted.name).is_some(),
    },
    Mode {
        name: "user-info",
        applies: |wanted, _| node(&wanted.name).is_none() && split_service_account(&wanted.name).is_none(),
    },
    Mode { name: "", applies: |_, _| true },
];

fn is_name_alone(wanted: &User) -> bool {
    wanted.uid.is_empty() && wanted.groups.is_empty() && wanted.extra.is_empty()
}

/// The node name in a user name.
fn node(name: &str) -> Option<&str> {
    let node = name.strip_prefix(NODE_USER_PREFIX)?;
    names::dns1123_subdomain_errors(node).is_empty().then_some(node)
}

/// Whether the sender is a service account whose token is bound to the requested node.
fn runs_on_node(sender: &User, wanted: &User) -> bool {
    let runs_on = sender.extra_value("authentication.kubernetes.io/node-name");
    let wanted = node(&wanted.name);
    wanted.is_some() && split_service_account(&sender.name).is_some() && runs_on == wanted
}

impl Mode {
    fn is_constrained(&self) -> bool {
        !self.name.is_empty()
    }

    async fn check<J: AccessChecker>(
        &self,
        checker: &J,
        attributes: &Attributes<'_>,
        wanted: &User,
    ) -> Result<User, ApiError> {
        // The sender's extra values contain its node and pod; the check is about the account on any node.
        let anywhere;
        let mut attributes = *attributes;
        if self.name == "associated-node" {
            let keys = attributes.user.extra.keys().cloned().collect();
            let extra = [("authentication.kubernetes.io/associated-node-keys".to_owned(), keys)];
            anywhere = User { extra: BTreeMap::from(extra), ..attributes.user.clone() };
            attributes.user = &anywhere;
        }
        let verb = match self.is_constrained() {
            true => {
                let verb = format!("impersonate-on:{}:{}", self.name, attributes.verb);
                checker.require(&Attributes { verb: &verb, ..attributes }).await?;
                format!("impersonate:{}", self.name)
            }
            false => "impersonate".to_owned(),
        };
        let checks = AccessChecks { checker, sender: attributes.user, verb: &verb, mode: self };
        let mut user = wanted.clone();
        checks.user_name(wanted, &mut user).await?;
        if !wanted.uid.is_empty() {
            checks
                .resource(ResourceTarget {
                    group: AUTHENTICATION,
                    version: "v1",
                    resource: "uids",
                    name: &wanted.uid,
                    ..ResourceTarget::default()
                })
                .await?;
        }
        checks.groups(&wanted.groups).await?;
        checks.extra(&wanted.extra).await?;
        if user.name == ANONYMOUS_USER {
            user.join(UNAUTHENTICATED_GROUP);
        } else if !user.is_in(UNAUTHENTICATED_GROUP) {
            user.join(AUTHENTICATED_GROUP);
        }
        Ok(user)
    }
}

/// The access checks of one mode for one sender.
struct AccessChecks<'a, J> {
    checker: &'a J,
    sender: &'a User,
    verb: &'a str,
    mode: &'a Mode,
}

impl<J: AccessChecker> AccessChecks<'_, J> {
    async fn resource(&self, target: ResourceTarget<'_>) -> Result<(), ApiError> {
        self.checker.require(&Attributes::resource(self.sender, self.verb, target)).await
    }

    /// A denial that is made here rather than by an authorizer.
    fn refuse(&self, target: ResourceTarget<'_>, why: String) -> ApiError {
        let attributes = Attributes { user: self.sender, verb: self.verb, target: Target::Resource(target) };
        denied(&attributes, &Reason::Text(why.into()))
    }

    /// The API group of users and groups.
    fn target(&self, resource: &'static str) -> ResourceTarget<'static> {
        let group = if self.mode.is_constrained() { AUTHENTICATION } else { "" };
        ResourceTarget { group, version: "v1", resource, ..ResourceTarget::default() }
    }

    async fn user_name(&self, wanted: &User, user: &mut User) -> Result<(), ApiError> {
        let mut target = ResourceTarget { name: &wanted.name, ..self.target("users") };
        if let Some(node) = node(&wanted.name).filter(|_| self.mode.is_constrained()) {
            target = ResourceTarget { resource: "nodes", name: node, ..target };
            if self.mode.name == "associated-node" {
                target.name = "*";
            }
            user.groups = vec![NODES_GROUP.to_owned()];
        }
        if let Some((namespace, name)) = split_service_account(&wanted.name) {
            target = ResourceTarget { resource: "serviceaccounts", namespace, name, ..target };
            if wanted.groups.is_empty() {
                user.groups = service_account_groups(namespace);
            }
        }
        self.resource(target).await
    }

    async fn groups(&self, groups: &[String]) -> Result<(), ApiError> {
        let target = self.target("groups");
        if self.mode.is_constrained() {
            if groups.iter().any(String::is_empty) {
                return Err(self.refuse(target, "impersonating the empty string group is not allowed".into()));
            }
            if groups.iter().any(|group| group == MASTERS_GROUP) {
                let target = ResourceTarget { name: MASTERS_GROUP, ..target };
                let why = "impersonating the system:masters group is not allowed";
                return Err(self.refuse(target, why.into()));
            }
            let all = ResourceTarget { name: "*", ..target };
            if groups.len() >= BULK_CHECK_MIN && self.resource(all).await.is_ok() {
                return Ok(());
            }
        }
        for group in groups {
            self.resource(ResourceTarget { name: group, ..target }).await?;
        }
        Ok(())
    }

    async fn extra(&self, extra: &BTreeMap<String, Vec<String>>) -> Result<(), ApiError> {
        let target = ResourceTarget {
            group: AUTHENTICATION,
            version: "v1",
            resource: "userextras",
            ..ResourceTarget::default()
        };
        if self.mode.is_constrained() {
            if let Some(why) = extra_error(extra) {
                return Err(self.refuse(target, why));
            }
            let values: usize = extra.values().map(Vec::len).sum();
            let all = ResourceTarget { subresource: "*", name: "*", ..target };
            if values.max(extra.len()) >= BULK_CHECK_MIN && self.resource(all).await.is_ok() {
                return Ok(());
            }
        }
        for (key, values) in extra {
            for value in values {
                self.resource(ResourceTarget { subresource: key, name: value, ..target }).await?;
            }
        }
        Ok(())
    }
}

/// What the constrained modes refuse in extra keys and values.
fn extra_error(extra: &BTreeMap<String, Vec<String>>) -> Option<String> {
    for (key, values) in extra {
        if key.is_empty() {
            return Some("impersonating the empty string key in extra is not allowed".into());
        }
        if let Some(why) = domain_prefixed_path_error("extra.key", key) {
            return Some(format!("impersonating an invalid key in extra is not allowed: {why}"));
        }
        if values.iter().any(String::is_empty) {
            return Some("impersonating the empty string value in extra is not allowed".into());
        }
    }
    None
}

/// Validates a key of extra values, which must be like `acme.io/foo` (k8s.io/apimachinery
/// `pkg/util/validation`, `IsDomainPrefixedPath`).
pub(crate) fn domain_prefixed_path_error(field: &str, key: &str) -> Option<String> {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    let invalid = |value: &str, why: &str| Some(format!("{field}: Invalid value: {}: {why}", quoted(value)));
    let (host, path) = match key.split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => (host, path),
        _ => return invalid(key, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    };
    if let Some(why) = names::dns1123_subdomain_errors(host).first() {
        return invalid(host, why);
    }
    let fits = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    match path.bytes().all(fits) {
        true => None,
        false => invalid(path, &format!("Invalid path (regex used for validation is '{PATH}')")),
    }
}

#[cfg(test)]
mod tests;
