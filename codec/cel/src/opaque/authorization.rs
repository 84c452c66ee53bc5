//! Authorization checks and their decisions.

use smol_str::SmolStr;

/// The user of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Principal {
    /// The user who sent the request.
    Requester,
    /// A service account.
    ServiceAccount {
        /// Namespace of the service account.
        namespace: SmolStr,
        /// Name of the service account.
        name: SmolStr,
    },
}

/// An authorization check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AuthorizationRequest {
    /// Whose permission is asked for.
    pub principal: Principal,
    /// Verb of the request, lower case.
    pub verb: SmolStr,
    /// What the request would be for.
    pub target: AuthorizationTarget,
}

/// The target of an authorization check.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AuthorizationTarget {
    /// A non-resource path.
    Path(SmolStr),
    /// An object or collection of the API.
    Resource(ResourceAttributes),
}

/// The resource of an authorization check. Empty strings are unset.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ResourceAttributes {
    /// API group.
    pub group: SmolStr,
    /// Plural resource.
    pub resource: SmolStr,
    /// Empty for the resource itself.
    pub subresource: SmolStr,
    /// Empty for cluster-scoped resources and for all namespaces.
    pub namespace: SmolStr,
    /// Name of an object.
    pub name: SmolStr,
    /// Text of a field selector.
    pub field_selector: SmolStr,
    /// Text of a label selector.
    pub label_selector: SmolStr,
}

/// The authorizer's decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizationDecision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// The authorizer's reason, possibly empty.
    pub reason: String,
    /// An error of the authorizer.
    pub error: Option<String>,
}
