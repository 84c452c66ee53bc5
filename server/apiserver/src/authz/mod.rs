//! Authorization.
//!
//! [`Attributes`] describe a request, [`Decision`] is the outcome. [`Authorizer`] runs a chain, in the order
//! of `--authorization-mode`, until one allows or denies; `system:masters` is allowed everything before that.
//!
//! | module | subject |
//! |---|---|
//! | [`attributes`] | attributes of a request |
//! | [`authorized`] | the authorized request, the only input of a handler |
//! | [`decision`] | the outcome |
//! | [`options`] | flags |
//! | [`plinth_storage::Informer`] | in-memory state that follows the store |
//! | [`node`] | kubelets: access to what their pods need |
//! | [`rbac`] | roles and bindings |
//! | [`webhook`] | an external service |
//! | [`config`] | the configuration file |
//! | [`simple`] | `system:masters`, AlwaysAllow, AlwaysDeny |

pub mod attributes;
pub mod authorized;
pub mod config;
pub mod decision;
pub mod node;
pub mod options;
pub mod rbac;
pub mod signers;
pub mod simple;
pub mod webhook;

pub use attributes::{Attributes, RequestAttributes, ResourceTarget, Selectors, Target};
pub use authorized::{Authorized, AuthorizedPath, ObjectKey};
pub use decision::{aggregate, Decision, Reason, Verdict};
pub use options::{AuthorizationOptions, Mode};

use std::path::Path;
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;
use prometheus::IntCounter;

use crate::egress::Service;
use crate::feature_gates::FeatureGates;
use crate::metrics::{AuthorizationWebhookMetrics, IdentityMetrics, ReloadMetrics, ReloadedConfig};
use crate::reload::WatchedFiles;
use config::{AuthorizationSetupError, AuthorizerConfig, AuthorizerKind};
use node::NodeAuthorizer;
use plinth_api::{ApiError, User};
use plinth_storage::Store;
use rbac::rules::PolicyRule;
use rbac::Rbac;
use webhook::{Counted, WebhookAuthorizer};

/// An authorizer of the chain, and what its metrics are called.
struct Link {
    authorizer: LinkAuthorizer,
    /// Upstream's name of the type.
    kind: &'static str,
    name: String,
    /// Decisions that allow, and that deny. Looked up at the first one.
    decisions: OnceLock<[IntCounter; 2]>,
}

enum LinkAuthorizer {
    Node(Arc<NodeAuthorizer>),
    Rbac,
    Webhook(Box<WebhookAuthorizer>),
    AlwaysAllow,
    AlwaysDeny,
}

/// The chain of authorizers. It is replaced as a whole when its file changes; the lock is held to clone the
/// reference, and each authorizer has its own lock.
pub struct Authorizer {
    links: RwLock<Arc<Vec<Link>>>,
    /// Present in every mode: escalation checks need the user's roles.
    rbac: Rbac,
    /// Reused when the chain is replaced; `None` when mode Node was not enabled at start.
    nodes: Option<Arc<NodeAuthorizer>>,
    /// Authorizers other than webhooks enabled at start; a reload must keep them.
    at_start: Vec<&'static str>,
    metrics: Option<(Arc<IdentityMetrics>, Arc<AuthorizationWebhookMetrics>)>,
}

impl Authorizer {
    /// Sets up the authorizers of the flags.
    ///
    /// # Errors
    /// When flags contradict each other or a file cannot be used.
    pub fn new(
        options: &AuthorizationOptions,
        store: Store,
        gates: &FeatureGates,
    ) -> Result<Authorizer, AuthorizationSetupError> {
        let configured = options.configured()?;
        let asks_nodes = configured.iter().any(|c| matches!(c.kind, AuthorizerKind::Node));
        let nodes = asks_nodes.then(|| Arc::new(NodeAuthorizer::new(store.clone(), gates.clone())));
        let at_start = configured.iter().map(|c| c.kind.name()).filter(|name| *name != "Webhook").collect();
        let links = RwLock::new(Arc::new(links(configured, nodes.as_ref())?));
        Ok(Authorizer { links, rbac: Rbac::new(store), nodes, at_start, metrics: None })
    }

    /// Counts the decisions, and the calls of webhooks.
    pub fn with_metrics(
        self,
        decisions: Arc<IdentityMetrics>,
        webhooks: Arc<AuthorizationWebhookMetrics>,
    ) -> Authorizer {
        Authorizer { metrics: Some((decisions, webhooks)), ..self }
    }

    /// Replaces the chain after its file has changed (kubernetes `pkg/kubeapiserver/authorizer/reload.go`).
    ///
    /// # Errors
    /// When the file cannot be used; the previous chain stays in use.
    pub fn reload(&self, path: &Path) -> Result<(), AuthorizationSetupError> {
        let error = |what: String| AuthorizationSetupError::Config { path: path.to_owned(), what };
        let configured = config::read(path)?;
        let has = |name: &str| configured.iter().any(|c| c.kind.name() == name);
        let missing: Vec<&str> = self.at_start.iter().copied().filter(|name| !has(name)).collect();
        if !missing.is_empty() {
            return Err(error(format!("missing required types: [{}]", missing.join(" "))));
        }
        for name in ["Node", "RBAC"] {
            if has(name) && !self.at_start.contains(&name) {
                return Err(error(format!(
                    "authorizer type {name} is not allowed if it was not enabled at initial server startup"
                )));
            }
        }
        let links = links(configured, self.nodes.as_ref())?;
        *self.links.write() = Arc::new(links);
        Ok(())
    }

    fn links(&self) -> Arc<Vec<Link>> {
        self.links.read().clone()
    }

    /// Runs the chain (k8s.io/apiserver `pkg/authorization/union`): the first authorizer that allows or
    /// denies decides; the reasons of those without an opinion are joined.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        for first in [simple::masters(attributes), simple::reserved(attributes), simple::joining(attributes)]
        {
            if first.verdict != Verdict::NoOpinion {
                return first;
            }
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for link in self.links().iter() {
            let decision = self.call(link, attributes).await;
            if decision.verdict != Verdict::NoOpinion {
                self.count(link, &decision);
                return decision;
            }
            reasons.extend(Some(decision.reason.to_string()).filter(|reason| !reason.is_empty()));
            errors.extend(decision.error);
        }
        let error = (!errors.is_empty()).then(|| aggregate(&errors));
        Decision { error, ..Decision::no_opinion(reasons.join("\n")) }
    }

    fn count(&self, link: &Link, decision: &Decision) {
        let Some((metrics, _)) = &self.metrics else { return };
        let [allowed, denied] = link.decisions.get_or_init(|| metrics.decisions_of(link.kind, &link.name));
        if decision.allowed() { allowed } else { denied }.inc();
    }

    async fn call(&self, link: &Link, attributes: &Attributes<'_>) -> Decision {
        match &link.authorizer {
            LinkAuthorizer::Node(nodes) => Box::pin(nodes.authorize(attributes)).await,
            LinkAuthorizer::Rbac => self.rbac.authorize(attributes).await,
            LinkAuthorizer::Webhook(webhook) => {
                let webhooks = self.metrics.as_ref().map(|(_, webhooks)| webhooks);
                let counted = webhooks.map(|metrics| Counted { metrics, name: &link.name });
                Box::pin(webhook.authorize(attributes, counted)).await
            }
            LinkAuthorizer::AlwaysAllow => simple::always_allow(attributes),
            LinkAuthorizer::AlwaysDeny => simple::always_deny(),
        }
    }

    /// All rules that the authorizers can list for a user in a namespace.
    pub(crate) async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let mut rules = UserRules::default();
        let mut errors = Vec::new();
        for link in self.links().iter() {
            match &link.authorizer {
                LinkAuthorizer::Rbac => match self.rbac.rules_for(user, namespace).await {
                    Ok((found, unresolved)) => {
                        if !rules.extend(&found) {
                            errors.push("the rules of the user are too many to be listed".into());
                        }
                        errors.extend((!unresolved.is_empty()).then(|| aggregate(&unresolved)));
                    }
                    Err(error) => errors.push(error.message),
                },
                LinkAuthorizer::Node(_) if node::identity(user).is_some() => {
                    rules.incomplete = true;
                    errors.push("node authorizer does not support user rule resolution".into());
                }
                LinkAuthorizer::Webhook(_) => {
                    rules.incomplete = true;
                    errors.push("webhook authorizer does not support user rule resolution".into());
                }
                LinkAuthorizer::AlwaysAllow => rules.rules.extend(PolicyRule::everything()),
                LinkAuthorizer::Node(_) | LinkAuthorizer::AlwaysDeny => {}
            }
        }
        rules.error = (!errors.is_empty()).then(|| aggregate(&errors));
        rules
    }

    /// Roles and bindings, whether or not mode RBAC is enabled.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// Requires that a request is allowed.
    ///
    /// # Errors
    /// 403 with upstream's message; 500 when authorizers failed.
    pub async fn require(&self, attributes: &Attributes<'_>) -> Result<Decision, ApiError> {
        let decision = self.authorize(attributes).await;
        require_allowed(&decision, attributes).map(|()| decision)
    }
}

/// The chain of a configuration.
fn links(
    configured: Vec<AuthorizerConfig>,
    nodes: Option<&Arc<NodeAuthorizer>>,
) -> Result<Vec<Link>, AuthorizationSetupError> {
    let mut links = Vec::with_capacity(configured.len());
    for configured in configured {
        let (kind, name) = (configured.kind.name(), configured.name);
        let authorizer = match configured.kind {
            AuthorizerKind::Node => nodes.cloned().map(LinkAuthorizer::Node),
            AuthorizerKind::Rbac => Some(LinkAuthorizer::Rbac),
            AuthorizerKind::AlwaysAllow => Some(LinkAuthorizer::AlwaysAllow),
            AuthorizerKind::AlwaysDeny => Some(LinkAuthorizer::AlwaysDeny),
            AuthorizerKind::Webhook { kubeconfig, timeout, settings, conditions } => {
                let service = Service::from_kubeconfig(&kubeconfig, timeout)?;
                let webhook = WebhookAuthorizer::new(service, settings).with_conditions(conditions);
                Some(LinkAuthorizer::Webhook(Box::new(webhook)))
            }
        };
        links.extend(authorizer.map(|authorizer| Link {
            authorizer,
            kind,
            name,
            decisions: OnceLock::new(),
        }));
    }
    Ok(links)
}

/// The files of the options that are reloaded when they change.
pub fn watched_files(
    authorizer: &Arc<Authorizer>,
    options: &AuthorizationOptions,
    metrics: &Arc<ReloadMetrics>,
) -> Vec<WatchedFiles> {
    let watch = |file: &std::path::PathBuf| {
        let (authorizer, file) = (authorizer.clone(), file.clone());
        WatchedFiles::new("authorization configuration", vec![file.clone()], move || authorizer.reload(&file))
            .counted(metrics, ReloadedConfig::Authorization)
    };
    options.authorization_config.iter().map(watch).collect()
}

/// Converts a decision to the result of its request.
///
/// # Errors
/// 403 with upstream's message; 500 when authorizers failed.
pub(crate) fn require_allowed(decision: &Decision, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    match (&decision.error, decision.allowed()) {
        (_, true) => Ok(()),
        (Some(error), _) => Err(ApiError::internal(error)),
        (None, _) => Err(denied(attributes, &decision.reason)),
    }
}

/// Values of RBAC rules that are listed: some megabytes. A namespace's administrator can bind a user to one
/// large role any number of times.
const MAX_LISTED_VALUES: usize = 100_000;

/// The rules of a user, as far as they can be listed.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    /// Rules that apply to the user.
    pub rules: Vec<PolicyRule>,
    /// Whether there may be more rules.
    pub incomplete: bool,
    /// Errors of rules that could not be resolved.
    pub error: Option<String>,
}

impl UserRules {
    /// Adds rules of bindings up to the limit; returns whether all were added.
    fn extend(&mut self, bound: &[Arc<[PolicyRule]>]) -> bool {
        let mut left = MAX_LISTED_VALUES;
        for rule in bound.iter().flat_map(|rules| rules.iter()) {
            let Some(rest) = left.checked_sub(rule.len()) else {
                self.incomplete = true;
                return false;
            };
            left = rest;
            self.rules.push(rule.clone());
        }
        true
    }
}

/// The 403 of a denied request.
pub fn denied(attributes: &Attributes<'_>, reason: &Reason) -> ApiError {
    let mut why = attributes.denial();
    let reason = reason.to_string();
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    let mut error = match attributes.target {
        Target::Resource(r) => ApiError::forbidden(r.group, r.resource, r.name, &why),
        Target::Path(_) => {
            let mut error = ApiError::forbidden("", "", "", &why);
            error.details = Some(Box::default());
            error
        }
    };
    error.denied = true;
    error
}

#[cfg(test)]
mod tests;
