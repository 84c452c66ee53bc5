//! The user of a request.

use std::borrow::Cow;
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

    /// The name under which what the user takes of a limit is counted. The service accounts of a namespace
    /// are one: whoever may create one may create as many as they like. Those of the system's namespace are
    /// not: who may there is an administrator, and its controllers are many.
    pub fn counted_as(&self) -> Cow<'_, str> {
        match split_service_account(&self.name) {
            Some((namespace, _)) if namespace != "kube-system" => {
                Cow::Owned(format!("{SERVICE_ACCOUNTS_GROUP}:{namespace}"))
            }
            _ => Cow::Borrowed(&self.name),
        }
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
        let mut info = Map::new();
        self.insert_into(&mut info, UserFields::USER_INFO);
        Value::Object(info)
    }

    /// The user that is a UserInfo, or is described by members of an object. What has another type is
    /// ignored.
    pub fn of(object: &Value, fields: UserFields) -> User {
        let text = |key: &str| object.str_at(&[key]).unwrap_or_default().to_owned();
        let extra = object.get("extra").and_then(Value::as_object).into_iter().flat_map(Map::iter);
        User {
            name: text(fields.name),
            uid: text("uid"),
            groups: object.texts_at(&[fields.groups]),
            extra: extra.map(|(key, values)| (key.to_string(), values.texts_at(&[]))).collect(),
        }
    }

    /// Adds the user to an object; what is empty is omitted.
    pub fn insert_into(&self, object: &mut Map, fields: UserFields) {
        self.insert_members(object, fields, |is_empty| !is_empty);
    }

    /// As [`User::insert_into`], with what is empty: CEL has no absent fields of a user.
    pub fn insert_all_into(&self, object: &mut Map, fields: UserFields) {
        self.insert_members(object, fields, |_| true);
    }

    fn insert_members(&self, object: &mut Map, fields: UserFields, is_shown: fn(bool) -> bool) {
        let texts = |list: &[String]| list.iter().map(|t| Value::from(t.as_str())).collect::<Vec<_>>();
        for (key, text) in [(fields.name, &self.name), ("uid", &self.uid)] {
            if is_shown(text.is_empty()) {
                object.insert(key, text.as_str());
            }
        }
        if is_shown(self.groups.is_empty()) {
            object.insert(fields.groups, texts(&self.groups));
        }
        if is_shown(self.extra.is_empty()) {
            let extra = self.extra.iter().map(|(k, v)| (k.as_str().into(), texts(v).into())).collect();
            object.insert("extra", Map::from_members(extra).0);
        }
    }
}

/// The names of those members of a user that are not called the same in every kind; `uid` and `extra` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserFields {
    name: &'static str,
    groups: &'static str,
}

impl UserFields {
    /// UserInfo, and the spec of a CertificateSigningRequest.
    pub const USER_INFO: UserFields = UserFields { name: "username", groups: "groups" };
    /// The spec of a SubjectAccessReview.
    pub const ACCESS_REVIEW: UserFields = UserFields { name: "user", groups: "groups" };
    /// The spec of a SubjectAccessReview of v1beta1.
    pub const ACCESS_REVIEW_V1BETA1: UserFields = UserFields { name: "user", groups: "group" };

    /// The members as properties of a JSON schema, without the braces around them.
    pub fn schema(self) -> String {
        let UserFields { name, groups } = self;
        let texts = r#"{"type":"array","items":{"type":"string"}}"#;
        [
            format!(r#""{name}":{{"type":"string"}}"#),
            r#""uid":{"type":"string"}"#.to_owned(),
            format!(r#""{groups}":{texts}"#),
            format!(r#""extra":{{"type":"object","additionalProperties":{texts}}}"#),
        ]
        .join(",")
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
    fn the_service_accounts_of_a_namespace_are_counted_as_one() {
        let rows = [
            ("jane", "jane"),
            ("system:serviceaccount:ns:a", "system:serviceaccounts:ns"),
            ("system:serviceaccount:ns:b", "system:serviceaccounts:ns"),
            ("system:serviceaccount:kube-system:a", "system:serviceaccount:kube-system:a"),
        ];
        for (name, counted_as) in rows {
            assert_eq!(User::new(name, &[]).counted_as(), counted_as);
        }
    }

    #[test]
    fn a_user_is_read_as_it_was_written() {
        let mut user = User::new("jane", &["a", "b"]);
        user.uid = "u".to_owned();
        user.extra = [("k".to_owned(), vec!["v".to_owned()]), ("none".to_owned(), Vec::new())].into();
        let shapes = [UserFields::USER_INFO, UserFields::ACCESS_REVIEW, UserFields::ACCESS_REVIEW_V1BETA1];
        for user in [user.clone(), User::default()] {
            for fields in shapes {
                let (mut some, mut all) = (Map::new(), Map::new());
                user.insert_into(&mut some, fields);
                user.insert_all_into(&mut all, fields);
                assert_eq!(all.len(), 4);
                assert_eq!(some.is_empty(), user == User::default());
                for object in [some, all] {
                    assert_eq!(User::of(&Value::Object(object), fields), user, "{fields:?}");
                }
            }
        }
        let old = {
            let mut old = Map::new();
            user.insert_into(&mut old, UserFields::ACCESS_REVIEW_V1BETA1);
            Value::Object(old)
        };
        let text = r#"{"extra":{"k":["v"],"none":[]},"group":["a","b"],"uid":"u","user":"jane"}"#;
        assert_eq!(old, plinth_codec::json::parse(text.as_bytes()).unwrap());
    }

    #[test]
    fn what_is_no_text_is_no_part_of_a_user() {
        let text = r#"{"username":1,"uid":null,"groups":["a",2,null],"extra":{"k":"v","l":["x",3]}}"#;
        let user = User::of(&plinth_codec::json::parse(text.as_bytes()).unwrap(), UserFields::USER_INFO);
        let extra = [("k".to_owned(), Vec::new()), ("l".to_owned(), vec!["x".to_owned()])].into();
        assert_eq!(user, User { extra, ..User::new("", &["a"]) });
        assert_eq!(User::of(&Value::Null, UserFields::USER_INFO), User::default());
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
