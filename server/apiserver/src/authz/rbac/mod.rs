//! Role-based access control: roles contain rules, bindings assign them to subjects.
//!
//! Roles and bindings are held in memory ([`index`]) and follow the engine's feed
//! ([`plinth_storage::Informer`]): a check observes every write that was acknowledged before it.
//!
//! | module | subject |
//! |---|---|
//! | [`rules`] | policy rules: matching and formatting |
//! | [`coverage`] | which permissions of some rules are not covered by others |
//! | [`index`] | roles and bindings by subject |
//! | [`escalation`] | privilege escalation checks |
//! | [`bootstrap`] | default roles and bindings |

pub mod bootstrap;
pub mod coverage;
pub mod escalation;
pub mod index;
pub mod rules;

use std::sync::Arc;

use super::{aggregate, Attributes, Decision, Reason, Target, Verdict};
use index::{Index, RoleKey};
use plinth_api::{ApiError, User};
use plinth_registry::{resource_prefix, split_key};
use plinth_storage::{Informer, InformerChange, InformerView, Store};
use rules::PolicyRule;

pub use rules::GROUP;

/// The four resources: plural, whether namespaced, whether it is a binding.
const RESOURCES: [(&str, bool, bool); 4] = [
    ("clusterroles", false, false),
    ("clusterrolebindings", false, true),
    ("roles", true, false),
    ("rolebindings", true, true),
];

/// The RBAC authorizer. Its index is behind a read-write lock, which is write-locked for one change at a
/// time.
pub struct Rbac {
    index: Informer<Index>,
}

impl InformerView for Index {
    // Roles and bindings only add permissions, so unreadable ones can be ignored.
    const SKIPS_UNDECRYPTABLE: bool = true;

    fn empty(&self) -> Index {
        Index::default()
    }

    fn prefixes(&self) -> Vec<String> {
        // One range for the four resources, so that their events arrive in order.
        vec![format!("{GROUP}/")]
    }

    fn change(&mut self, change: InformerChange<'_>) -> Result<(), ApiError> {
        for (plural, namespaced, is_binding) in RESOURCES {
            let prefix = resource_prefix(GROUP, plural);
            let Some((namespace, name)) = split_key(&prefix, namespaced, change.key) else { continue };
            let role_key = RoleKey { namespace: namespace.into(), name: name.into() };
            match (change.object()?, is_binding) {
                (Some(object), true) => self.set_binding(role_key, &object),
                (None, true) => self.remove_binding(&role_key),
                (object, false) => self.set_role(role_key, object.map(|o| PolicyRule::all_of(&o))),
            }
            return Ok(());
        }
        Ok(())
    }
}

impl Rbac {
    /// Loads roles and bindings from that store at the first check.
    pub fn new(store: Store) -> Rbac {
        Rbac { index: Informer::new(store, Index::default()) }
    }

    /// Decides. Costs a look-up for the user and each group, and a comparison for each of their rules.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        let namespace = match attributes.target {
            Target::Resource(resource) => resource.namespace,
            Target::Path(_) => "",
        };
        let allows = |rule: &PolicyRule| rule.allows(attributes.verb, &attributes.target);
        let outcome = self.index.read(|index| index.allowing(attributes.user, namespace, allows)).await;
        match outcome {
            Ok(Ok(grant)) => {
                Decision { verdict: Verdict::Allow, reason: Reason::Lazy(Arc::new(grant)), error: None }
            }
            Ok(Err(errors)) if errors.is_empty() => Decision::NO_OPINION,
            Ok(Err(errors)) => Decision::no_opinion(format!("RBAC: {}", aggregate(&errors))),
            Err(error) => Decision { error: Some(error.message), ..Decision::NO_OPINION },
        }
    }

    /// The rules of each of a user's bindings in a namespace (empty: ClusterRoleBindings only), and errors of
    /// unresolved roles.
    ///
    /// # Errors
    /// When roles and bindings cannot be read.
    pub(crate) async fn rules_for(
        &self,
        user: &User,
        namespace: &str,
    ) -> Result<(Vec<Arc<[PolicyRule]>>, Vec<String>), ApiError> {
        self.index.read(|index| index.rules_for(user, namespace)).await
    }

    /// The rules of a role; `None` when it does not exist.
    ///
    /// # Errors
    /// When roles and bindings cannot be read.
    pub(crate) async fn rules_of(&self, key: &RoleKey) -> Result<Option<Arc<[PolicyRule]>>, ApiError> {
        self.index.read(|index| index.rules_of(key)).await
    }
}
