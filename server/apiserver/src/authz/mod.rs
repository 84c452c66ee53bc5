//! Who may do what.
//!
//! [`Attributes`] say what is asked, [`Decision`] what is answered. [`Authorizer`] asks a chain, in the order of
//! `--authorization-mode`, until one allows or denies; `system:masters` may do everything before anybody is asked.
//!
//! | module | subject |
//! |---|---|
//! | [`attributes`] | the question |
//! | [`authorized`] | what was allowed, which is all that a handler acts on |
//! | [`decision`] | the answer |
//! | [`options`] | flags |
//! | [`plinth_storage::follow`] | state in memory that follows the store |
//! | [`node`] | kubelets: what their pods need |
//! | [`rbac`] | roles and bindings |
//! | [`webhook`] | a service elsewhere |
//! | [`config`] | the chain as a file |
//! | [`simple`] | `system:masters`, AlwaysAllow, AlwaysDeny |

pub mod attributes;
pub mod authorized;
pub mod config;
pub mod decision;
pub mod node;
pub mod options;
pub mod rbac;
pub mod simple;
pub mod webhook;

pub use attributes::{Attributes, RequestAttributes, ResourceTarget, Selectors, Target};
pub use authorized::{Authorized, AuthorizedPath};
pub use decision::{Decision, Reason, Verdict};
pub use options::{AuthorizationOptions, Mode};

use std::path::Path;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::outward::Service;
use crate::reload::Watched;
use config::{Configured, Kind, SetupError};
use node::NodeAuthorizer;
use plinth_api::api_error::ApiError;
use plinth_api::user::User;
use plinth_storage::Store;
use rbac::rules::PolicyRule;
use rbac::Rbac;
use webhook::Webhook;

/// One link of the chain.
enum Link {
    Node(Arc<NodeAuthorizer>),
    Rbac,
    Webhook(Box<Webhook>),
    AlwaysAllow,
    AlwaysDeny,
}

/// The chain of authorizers. It is replaced as a whole when its file changes; the lock is held to copy a reference, and each
/// link locks for itself.
pub struct Authorizer {
    links: RwLock<Arc<Vec<Link>>>,
    /// There in every mode: what roles grant limits what may be put into them.
    rbac: Rbac,
    /// Kept when the chain is replaced; `None` when there was none at start.
    nodes: Option<Arc<NodeAuthorizer>>,
    /// What the chain had at start besides webhooks; these stay in it.
    at_start: Vec<&'static str>,
}

impl Authorizer {
    /// The chain that the flags ask for.
    ///
    /// # Errors
    /// When the flags contradict themselves or a file that they name cannot be used.
    pub fn new(options: &AuthorizationOptions, store: Store) -> Result<Authorizer, SetupError> {
        let configured = options.configured()?;
        let asks_nodes = configured.iter().any(|c| matches!(c.kind, Kind::Node));
        let nodes = asks_nodes.then(|| Arc::new(NodeAuthorizer::new(store.clone())));
        let at_start = configured.iter().map(|c| c.kind.name()).filter(|name| *name != "Webhook").collect();
        let links = RwLock::new(Arc::new(links(configured, nodes.as_ref())?));
        Ok(Authorizer { links, rbac: Rbac::new(store), nodes, at_start })
    }

    /// Puts the chain of a changed file in place (kubernetes `pkg/kubeapiserver/authorizer/reload.go`).
    ///
    /// # Errors
    /// When the file cannot be used; the chain stays as it is then.
    pub fn reload(&self, path: &Path) -> Result<(), SetupError> {
        let error = |what: String| SetupError::Config { path: path.to_owned(), what };
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

    /// Asks the chain (k8s.io/apiserver `pkg/authorization/union`): the first that allows or denies decides; the
    /// reasons of those that did not are told together.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        for first in [simple::masters(attributes), simple::reserved(attributes)] {
            if first.verdict != Verdict::NoOpinion {
                return first;
            }
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for link in self.links().iter() {
            let decision = self.ask(link, attributes).await;
            if decision.verdict != Verdict::NoOpinion {
                return decision;
            }
            reasons.extend(Some(decision.reason.to_string()).filter(|reason| !reason.is_empty()));
            errors.extend(decision.error);
        }
        let error = (!errors.is_empty()).then(|| aggregate(&errors));
        Decision { error, ..Decision::no_opinion(reasons.join("\n")) }
    }

    async fn ask(&self, link: &Link, attributes: &Attributes<'_>) -> Decision {
        match link {
            Link::Node(nodes) => Box::pin(nodes.authorize(attributes)).await,
            Link::Rbac => self.rbac.authorize(attributes).await,
            Link::Webhook(webhook) => Box::pin(webhook.authorize(attributes)).await,
            Link::AlwaysAllow => simple::always_allow(attributes),
            Link::AlwaysDeny => simple::always_deny(),
        }
    }

    /// Every rule that the chain knows to hold for a user in a namespace.
    pub async fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        let mut rules = Rules::default();
        let mut errors = Vec::new();
        for link in self.links().iter() {
            match link {
                Link::Rbac => match self.rbac.rules_for(user, namespace).await {
                    Ok((found, unresolved)) => {
                        if !rules.extend(&found) {
                            errors.push("the rules of the user are too many to be listed".into());
                        }
                        errors.extend((!unresolved.is_empty()).then(|| aggregate(&unresolved)));
                    }
                    Err(error) => errors.push(error.message),
                },
                Link::Node(_) if node::identity(user).is_some() => {
                    rules.incomplete = true;
                    errors.push("node authorizer does not support user rule resolution".into());
                }
                Link::Webhook(_) => {
                    rules.incomplete = true;
                    errors.push("webhook authorizer does not support user rule resolution".into());
                }
                Link::AlwaysAllow => rules.rules.extend(simple::everything()),
                Link::Node(_) | Link::AlwaysDeny => {}
            }
        }
        rules.error = (!errors.is_empty()).then(|| aggregate(&errors));
        rules
    }

    /// Roles and bindings, whether or not they are asked.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// Whether a request goes on.
    ///
    /// # Errors
    /// 403 in upstream's words; 500 when nobody could decide.
    pub async fn require(&self, attributes: &Attributes<'_>) -> Result<Decision, ApiError> {
        let decision = self.authorize(attributes).await;
        settle(&decision, attributes).map(|()| decision)
    }
}

/// The links of a configuration.
fn links(configured: Vec<Configured>, nodes: Option<&Arc<NodeAuthorizer>>) -> Result<Vec<Link>, SetupError> {
    let mut links = Vec::with_capacity(configured.len());
    for configured in configured {
        links.extend(match configured.kind {
            Kind::Node => nodes.cloned().map(Link::Node),
            Kind::Rbac => Some(Link::Rbac),
            Kind::AlwaysAllow => Some(Link::AlwaysAllow),
            Kind::AlwaysDeny => Some(Link::AlwaysDeny),
            Kind::Webhook { kubeconfig, timeout, settings, conditions } => {
                let service = Service::from_kubeconfig(&kubeconfig, timeout)?;
                let webhook = Webhook::new(service, settings).where_holds(conditions);
                Some(Link::Webhook(Box::new(webhook)))
            }
        });
    }
    Ok(links)
}

/// The files that the options name and that are read again when they change.
pub fn watched(authorizer: &Arc<Authorizer>, options: &AuthorizationOptions) -> Vec<Watched> {
    let watch = |file: &std::path::PathBuf| {
        let (authorizer, file) = (authorizer.clone(), file.clone());
        Watched::new("authorization configuration", vec![file.clone()], move || authorizer.reload(&file))
    };
    options.authorization_config.iter().map(watch).collect()
}

/// What a decision means for the request that it is about.
///
/// # Errors
/// 403 in upstream's words; 500 when nobody could decide.
pub fn settle(decision: &Decision, attributes: &Attributes<'_>) -> Result<(), ApiError> {
    match (&decision.error, decision.allowed()) {
        (_, true) => Ok(()),
        (Some(error), _) => Err(ApiError::internal(error)),
        (None, _) => Err(denied(attributes, &decision.reason)),
    }
}

/// The values of RBAC rules that are listed: some megabytes. A namespace's administrators can bind a user to one large role any
/// number of times.
const MAX_LISTED_VALUES: usize = 100_000;

/// What a user may do, as far as it can be listed.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// The rules.
    pub rules: Vec<PolicyRule>,
    /// Whether there may be more.
    pub incomplete: bool,
    /// What could not be resolved.
    pub error: Option<String>,
}

impl Rules {
    /// Adds the rules of bindings, as many as can be listed. Whether that was all of them.
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

/// The 403 of a question that was not allowed.
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

/// Several errors as one text (k8s.io/apimachinery `pkg/util/errors`, `Aggregate`): one alone is itself, more stand in
/// brackets, each once.
pub fn aggregate<T: AsRef<str>>(errors: &[T]) -> String {
    let mut told: Vec<&str> = Vec::with_capacity(errors.len());
    for error in errors.iter().map(AsRef::as_ref) {
        if !told.contains(&error) {
            told.push(error);
        }
    }
    match told.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
mod tests;
