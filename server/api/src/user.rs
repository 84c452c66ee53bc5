//! The user of a request.

use std::collections::BTreeMap;

use plinth_codec::{Map, Value};

/// Group of all users whose credentials were accepted.
pub const AUTHENTICATED_GROUP: &str = "system:authenticated";
/// Group of all other users.
pub const UNAUTHENTICATED_GROUP: &str = "system:unauthenticated";
/// Name of the user of requests without credentials.
pub const ANONYMOUS_USER: &str = "system:anonymous";
/// Name of the user of the server's own requests.
pub const SERVER_USER: &str = "system:apiserver";
/// Group that is allowed everything, in every mode.
pub const MASTERS_GROUP: &str = "system:masters";
/// Group of all nodes.
pub const NODES_GROUP: &str = "system:nodes";
/// Prefix of the user names of nodes.
pub const NODE_USER_PREFIX: &str = "system:node:";
/// Prefix of the user names of service accounts.
const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";
/// Group of all service accounts.
pub const SERVICE_ACCOUNTS_GROUP: &str = "system:serviceaccounts";
/// The key in `extra` of the credential's ID, for audit: `X509SHA256=…`, `JTI=…`.
pub const CREDENTIAL_ID_KEY: &str = "authentication.kubernetes.io/credential-id";

/// `user.Info` of k8s.io/apiserver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Unique name among all users at a time.
    pub name: String,
    /// Unique across time, unlike the name; empty when the authenticator has none.
    pub uid: String,
    /// Groups, `system:authenticated` or `system:unauthenticated` included.
    pub groups: Vec<String>,
    /// Additional information of the authenticator, for authorizers and audit.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The user of a request without credentials.
    pub fn anonymous() -> User {
        User { name: ANONYMOUS_USER.into(), groups: vec![UNAUTHENTICATED_GROUP.into()], ..User::default() }
    }

    /// A user with the given name and groups.
    pub fn new(name: impl Into<String>, groups: &[&str]) -> User {
        let groups = groups.iter().map(|group| (*group).to_owned()).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    /// Whether the user is a member of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Adds a group, once.
    pub fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// Marks a user whose credentials were accepted (k8s.io/apiserver `pkg/authentication/group`).
    pub fn authenticated(mut self) -> User {
        if self.name != ANONYMOUS_USER && !self.is_in(UNAUTHENTICATED_GROUP) {
            self.join(AUTHENTICATED_GROUP);
        }
        self
    }

    /// ID of the credentials of the request, for audit; never a secret.
    pub fn credential_id(&self) -> Option<&str> {
        self.extra.get(CREDENTIAL_ID_KEY)?.first().map(String::as_str)
    }

    /// The value of an extra key that has exactly one.
    pub fn extra_value(&self, key: &str) -> Option<&str> {
        match self.extra.get(key)?.as_slice() {
            [value] => Some(value),
            _ => None,
        }
    }

    /// `authentication.k8s.io/v1` UserInfo.
    pub fn to_user_info(&self) -> Value {
        let texts = |list: &[String]| list.iter().map(|t| Value::from(t.as_str())).collect::<Vec<_>>();
        let mut info = Map::new();
        for (key, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                info.insert(key, text.as_str());
            }
        }
        if !self.groups.is_empty() {
            info.insert("groups", texts(&self.groups));
        }
        if !self.extra.is_empty() {
            let extra: Vec<_> =
                self.extra.iter().map(|(k, v)| (k.as_str().into(), texts(v).into())).collect();
            info.insert("extra", Map::from_members(extra).0);
        }
        Value::Object(info)
    }
}

/// The user name of a service account.
pub fn service_account_name(namespace: &str, name: &str) -> String {
    format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}")
}

/// The groups of a namespace's service accounts.
pub fn service_account_groups(namespace: &str) -> Vec<String> {
    vec![SERVICE_ACCOUNTS_GROUP.to_owned(), format!("{SERVICE_ACCOUNTS_GROUP}:{namespace}")]
}

/// Namespace and name of the service account of a user name
/// (k8s.io/apiserver `pkg/authentication/serviceaccount`).
pub fn split_service_account(user: &str) -> Option<(&str, &str)> {
    use plinth_codec::names;
    let (namespace, name) = user.strip_prefix(SERVICE_ACCOUNT_PREFIX)?.split_once(':')?;
    let fits =
        names::dns1123_label_errors(namespace).is_empty() && names::dns1123_subdomain_errors(name).is_empty();
    fits.then_some((namespace, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_account_names_by_table() {
        let rows = [
            ("system:serviceaccount:ns:name", Some(("ns", "name"))),
            ("system:serviceaccount:ns:a.b", Some(("ns", "a.b"))),
            ("system:serviceaccount:ns", None),
            ("system:serviceaccount::name", None),
            ("system:serviceaccount:ns:", None),
            ("system:serviceaccount:ns:a:b", None),
            ("system:serviceaccount:n.s:a", None),
            ("system:serviceaccounts:ns:a", None),
            ("ns:name", None),
        ];
        for (user, parts) in rows {
            assert_eq!(split_service_account(user), parts, "{user}");
        }
        assert_eq!(split_service_account(&service_account_name("a", "b")), Some(("a", "b")));
    }

    #[test]
    fn accepted_credentials_are_marked_once() {
        assert_eq!(User::new("jane", &["dev"]).authenticated().groups, ["dev", AUTHENTICATED_GROUP]);
        assert_eq!(User::new("jane", &[AUTHENTICATED_GROUP]).authenticated().groups, [AUTHENTICATED_GROUP]);
        assert_eq!(
            User::new("jane", &[UNAUTHENTICATED_GROUP]).authenticated().groups,
            [UNAUTHENTICATED_GROUP]
        );
        assert_eq!(User::anonymous().authenticated(), User::anonymous());
    }
}
