//! Claims of service account tokens (kubernetes `pkg/serviceaccount/claims.go` and `legacy.go`).

use serde::{Deserialize, Serialize};

use plinth_api::{service_account_groups, service_account_name, split_service_account, User};
use plinth_pki::RegisteredClaims;

/// The issuer of tokens in Secrets.
pub(crate) const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";

/// All claims of a bound token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct BoundClaims {
    /// Issuer, audience, times.
    #[serde(flatten)]
    pub registered: RegisteredClaims,
    /// The account and the objects that the token is bound to.
    #[serde(rename = "kubernetes.io", default)]
    pub kubernetes: Kubernetes,
}

/// The claim `kubernetes.io`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Kubernetes {
    /// Namespace of the account, and of the pod or Secret.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The node that the token is bound to, or that its pod runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    /// The pod that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    /// The Secret that the token is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    /// The service account that the token is for.
    #[serde(default)]
    pub serviceaccount: Reference,
    /// Time from which the use of an extended token is reported, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    /// Name of the object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// UID; empty for a node that did not exist when the token was issued.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl Reference {
    /// An object by name and UID.
    pub fn new(name: &str, uid: &str) -> Reference {
        Reference { name: name.to_owned(), uid: uid.to_owned() }
    }
}

/// All claims of a token in a Secret. It has no expiration and no audience.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct LegacyClaims {
    /// Issuer and subject.
    #[serde(flatten)]
    pub registered: RegisteredClaims,
    /// Namespace of the account and the Secret.
    #[serde(rename = "kubernetes.io/serviceaccount/namespace", default)]
    pub namespace: String,
    /// Name of the Secret.
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name", default)]
    pub secret_name: String,
    /// Name of the account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name", default)]
    pub account_name: String,
    /// UID of the account.
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid", default)]
    pub account_uid: String,
}

/// A required claim of a legacy token is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MissingClaim(&'static str);

impl LegacyClaims {
    /// The claims of the token in a Secret.
    pub(crate) fn new(namespace: &str, account: &Reference, secret: &str) -> LegacyClaims {
        let sub = service_account_name(namespace, &account.name);
        LegacyClaims {
            registered: RegisteredClaims {
                iss: LEGACY_ISSUER.to_owned(),
                sub,
                ..RegisteredClaims::default()
            },
            namespace: namespace.to_owned(),
            secret_name: secret.to_owned(),
            account_name: account.name.clone(),
            account_uid: account.uid.clone(),
        }
    }

    /// Checks that the claims are complete and consistent.
    ///
    /// # Errors
    /// [`MissingClaim`] with upstream's message.
    pub(crate) fn check(&self) -> Result<(), MissingClaim> {
        let needed = [
            (&self.registered.sub, "sub claim is missing"),
            (&self.namespace, "namespace claim is missing"),
            (&self.secret_name, "secretName claim is missing"),
            (&self.account_name, "serviceAccountName claim is missing"),
            (&self.account_uid, "serviceAccountUID claim is missing"),
        ];
        if let Some((_, error)) = needed.iter().find(|(claim, _)| claim.is_empty()) {
            return Err(MissingClaim(error));
        }
        let subject = split_service_account(&self.registered.sub);
        match subject == Some((self.namespace.as_str(), self.account_name.as_str())) {
            true => Ok(()),
            false => Err(MissingClaim("sub claim is invalid")),
        }
    }
}

/// The user of a bound token (k8s.io/apiserver `pkg/authentication/serviceaccount`).
pub(crate) fn bound_user(claims: &BoundClaims) -> User {
    const PREFIX: &str = "authentication.kubernetes.io";
    let kubernetes = &claims.kubernetes;
    let mut user = account_user(&kubernetes.namespace, &kubernetes.serviceaccount);
    let mut extra = |key: &str, value: &str| {
        if !value.is_empty() {
            user.extra.insert(format!("{PREFIX}/{key}"), vec![value.to_owned()]);
        }
    };
    if let Some(pod) = kubernetes.pod.as_ref().filter(|pod| !pod.name.is_empty() && !pod.uid.is_empty()) {
        extra("pod-name", &pod.name);
        extra("pod-uid", &pod.uid);
    }
    if let Some(node) = kubernetes.node.as_ref().filter(|node| !node.name.is_empty()) {
        extra("node-name", &node.name);
        extra("node-uid", &node.uid);
    }
    if !claims.registered.jti.is_empty() {
        extra("credential-id", &format!("JTI={}", claims.registered.jti));
    }
    user
}

/// The user of a service account.
pub(crate) fn account_user(namespace: &str, account: &Reference) -> User {
    User {
        name: service_account_name(namespace, &account.name),
        uid: account.uid.clone(),
        groups: service_account_groups(namespace),
        ..User::default()
    }
    .authenticated()
}
