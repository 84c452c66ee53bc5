//! The users as which controllers write: those of kube-controller-manager, which has an account for each of
//! its controllers. Admission knows them by these names.
//!
//! Upstream: kubernetes `cmd/kube-controller-manager/app`; the names are those of the bootstrap policy.

use std::sync::Arc;

use plinth_api::{service_account_groups, service_account_name, ApiError, User, Verb, AUTHENTICATED_GROUP};
use plinth_apiserver::context::{Context, Server};

const NAMESPACE: &str = "kube-system";

/// A user as which a controller writes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Account {
    /// A service account of `kube-system`.
    Service(&'static str),
    /// kube-controller-manager itself, which creates the tokens of all others.
    Manager,
}

pub(super) const CERTIFICATES: Account = Account::Service("certificate-controller");
pub(super) const CLASS_PROTECTION: Account = Account::Service("volumeattributesclass-protection-controller");
pub(super) const CLAIM_PROTECTION: Account = Account::Service("pvc-protection-controller");
pub(super) const GARBAGE_COLLECTOR: Account = Account::Service("generic-garbage-collector");
pub(super) const LEGACY_TOKENS: Account = Account::Service("legacy-service-account-token-cleaner");
pub(super) const NAMESPACES: Account = Account::Service("namespace-controller");
pub(super) const ROLE_AGGREGATION: Account = Account::Service("clusterrole-aggregation-controller");
pub(super) const ROOT_CA: Account = Account::Service("root-ca-cert-publisher");
pub(super) const SERVICE_ACCOUNTS: Account = Account::Service("service-account-controller");
pub(super) const VOLUME_PROTECTION: Account = Account::Service("pv-protection-controller");

impl Account {
    /// The user, in the groups that its token would show.
    pub(super) fn user(self) -> User {
        match self {
            Account::Service(name) => User {
                name: service_account_name(NAMESPACE, name),
                groups: service_account_groups(NAMESPACE),
                ..User::default()
            }
            .authenticated(),
            Account::Manager => User::new("system:kube-controller-manager", &[AUTHENTICATED_GROUP]),
        }
    }

    /// A request of the server's own as this user.
    ///
    /// # Errors
    /// When the resource is not served; a programming error.
    pub(super) fn request(
        self,
        server: &Arc<Server>,
        resource: (&str, &str, &str),
        namespace: &str,
        name: &str,
        verb: Verb,
    ) -> Result<Context, ApiError> {
        Ok(Context::internal(server, resource, namespace, name, verb)?.acting_as(self.user()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_apiserver::authz::rbac::bootstrap::objects;
    use plinth_apiserver::feature_gates::FeatureGates;

    #[test]
    fn accounts_are_those_of_the_bootstrap_policy() {
        let objects = objects(&FeatureGates::default());
        let accounts = [
            CERTIFICATES,
            CLAIM_PROTECTION,
            CLASS_PROTECTION,
            GARBAGE_COLLECTOR,
            LEGACY_TOKENS,
            NAMESPACES,
            ROLE_AGGREGATION,
            ROOT_CA,
            SERVICE_ACCOUNTS,
            VOLUME_PROTECTION,
        ];
        for account in accounts {
            let Account::Service(name) = account else { panic!("{account:?}") };
            let binding = format!("system:controller:{name}");
            let binding = objects.iter().find(|o| o.plural == "clusterrolebindings" && o.name == binding);
            let subject = binding.and_then(|binding| binding.object.list_at(&["subjects"]).first());
            let text = |key: &str| subject.and_then(|subject| subject.str_at(&[key]));
            assert_eq!((text("namespace"), text("name")), (Some(NAMESPACE), Some(name)));
        }
        let user = NAMESPACES.user();
        assert_eq!(user.name, "system:serviceaccount:kube-system:namespace-controller");
        let groups = ["system:serviceaccounts", "system:serviceaccounts:kube-system", AUTHENTICATED_GROUP];
        assert_eq!(user.groups, groups);
    }
}
