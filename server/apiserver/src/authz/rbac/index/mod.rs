//! Index of roles and bindings by subject.
//!
//! A decision looks up the user and each of its groups, takes their bindings of the whole cluster and of the
//! request's namespace, and evaluates the rules of their roles: the cost grows with the bindings of the user,
//! not with the total number of roles and bindings.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::RwLock;
use plinth_codec::error::quoted;
use plinth_codec::Value;
use smol_str::{format_smolstr, SmolStr};

use super::rules::PolicyRule;
use plinth_api::User;

/// A Role, or a ClusterRole when the namespace is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RoleKey {
    /// Namespace; empty for cluster roles.
    pub namespace: SmolStr,
    /// Name of the role.
    pub name: SmolStr,
}

impl RoleKey {
    /// `kind` of the role in a roleRef.
    pub fn kind(&self) -> &'static str {
        match self.namespace.is_empty() {
            true => "ClusterRole",
            false => "Role",
        }
    }
}

/// The rules of a role, if it exists. Shared by all bindings that reference it, so that a change of the role
/// is one assignment.
#[derive(Debug)]
pub struct Role {
    key: RoleKey,
    rules: RwLock<Option<Arc<[PolicyRule]>>>,
}

impl Role {
    /// The rules; `None` when the role does not exist.
    pub fn rules(&self) -> Option<Arc<[PolicyRule]>> {
        self.rules.read().clone()
    }

    /// The error of upstream's lister for a missing role.
    pub fn not_found(&self) -> String {
        let kind = self.key.kind().to_lowercase();
        format!("{kind}.{} {} not found", super::rules::GROUP, quoted(&self.key.name))
    }
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user of that name.
    User(SmolStr),
    /// All members of a group.
    Group(SmolStr),
    /// A service account: namespace and name.
    ServiceAccount(SmolStr, SmolStr),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::User(name) => write!(f, "User {}", quoted(name)),
            Subject::Group(name) => write!(f, "Group {}", quoted(name)),
            Subject::ServiceAccount(namespace, name) => {
                write!(f, "ServiceAccount {}", quoted(&format!("{name}/{namespace}")))
            }
        }
    }
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug)]
pub struct Binding {
    /// Namespace; empty for cluster role bindings.
    pub namespace: SmolStr,
    /// Name of the binding.
    pub name: SmolStr,
    /// The role; `None` for an invalid kind of role.
    pub role: Option<Arc<Role>>,
    /// Kind and name of the role as in the binding.
    role_ref: (SmolStr, SmolStr),
    subjects: Vec<Subject>,
}

impl Binding {
    /// The error of a binding whose role does not exist.
    fn error(&self) -> String {
        match &self.role {
            Some(role) => role.not_found(),
            None => format!("unsupported role reference kind: {}", quoted(&self.role_ref.0)),
        }
    }

    /// Position of the first subject that matches the user.
    fn subject_of(&self, user: &User) -> Option<usize> {
        self.subjects.iter().position(|subject| match subject {
            Subject::User(name) => *name == user.name,
            Subject::Group(name) => user.is_in(name),
            Subject::ServiceAccount(namespace, name) => {
                user.name.strip_prefix(ACCOUNT).and_then(|rest| rest.split_once(':'))
                    == Some((namespace.as_str(), name.as_str()))
            }
        })
    }
}

/// The reason of an allowed request: `RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "y" to Group
/// "z"`.
#[derive(Debug)]
pub struct Grant {
    binding: Arc<Binding>,
    /// Position of the subject that matched the user.
    subject: Option<usize>,
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = &self.binding;
        let (kind, name) = match binding.namespace.is_empty() {
            true => ("ClusterRoleBinding", binding.name.clone()),
            false => ("RoleBinding", format_smolstr!("{}/{}", binding.name, binding.namespace)),
        };
        let (role_kind, role) = &binding.role_ref;
        write!(f, "RBAC: allowed by {kind} {} of {role_kind} {} to ", quoted(&name), quoted(role))?;
        self.subject.and_then(|at| binding.subjects.get(at)).map_or(Ok(()), |subject| subject.fmt(f))
    }
}

const ACCOUNT: &str = "system:serviceaccount:";

/// The bindings of one subject, sorted by name so that reasons are deterministic.
#[derive(Debug, Default)]
struct Grants {
    cluster: Vec<Arc<Binding>>,
    namespaces: HashMap<SmolStr, Vec<Arc<Binding>>>,
}

/// Bindings by subject: users (including service accounts) and groups.
#[derive(Debug, Default)]
struct Subjects {
    users: HashMap<SmolStr, Grants>,
    groups: HashMap<SmolStr, Grants>,
}

impl Subjects {
    /// Map and key of a subject.
    fn entry(&mut self, subject: &Subject) -> (&mut HashMap<SmolStr, Grants>, SmolStr) {
        match subject {
            Subject::User(name) => (&mut self.users, name.clone()),
            Subject::Group(name) => (&mut self.groups, name.clone()),
            Subject::ServiceAccount(namespace, name) => {
                (&mut self.users, format_smolstr!("{ACCOUNT}{namespace}:{name}"))
            }
        }
    }

    fn add(&mut self, binding: &Arc<Binding>) {
        for subject in &binding.subjects {
            let (map, key) = self.entry(subject);
            let grants = map.entry(key).or_default();
            let list = match binding.namespace.is_empty() {
                true => &mut grants.cluster,
                false => grants.namespaces.entry(binding.namespace.clone()).or_default(),
            };
            // A binding may contain a subject twice.
            if let Err(at) = list.binary_search_by(|b| b.name.cmp(&binding.name)) {
                list.insert(at, binding.clone());
            }
        }
    }

    fn remove(&mut self, binding: &Binding) {
        for subject in &binding.subjects {
            let (map, key) = self.entry(subject);
            let Some(grants) = map.get_mut(&key) else { continue };
            let take = |list: &mut Vec<Arc<Binding>>| {
                if let Ok(at) = list.binary_search_by(|b| b.name.cmp(&binding.name)) {
                    list.remove(at);
                }
                list.is_empty()
            };
            if binding.namespace.is_empty() {
                take(&mut grants.cluster);
            } else if grants.namespaces.get_mut(&binding.namespace).is_some_and(take) {
                grants.namespaces.remove(&binding.namespace);
            }
            if grants.cluster.is_empty() && grants.namespaces.is_empty() {
                map.remove(&key);
            }
        }
    }
}

/// The index. Protected by one lock, see [`super::Rbac`].
#[derive(Debug, Default)]
pub struct Index {
    roles: HashMap<RoleKey, Arc<Role>>,
    /// By namespace (empty for ClusterRoleBindings) and name.
    bindings: HashMap<RoleKey, Arc<Binding>>,
    subjects: Subjects,
}

impl Index {
    /// Inserts a role, or removes it when `rules` is `None`.
    pub(crate) fn set_role(&mut self, key: RoleKey, rules: Option<Vec<PolicyRule>>) {
        let role = self.role(key.clone());
        *role.rules.write() = rules.map(Arc::from);
        drop(role);
        self.remove_unused_role(&key);
    }

    /// The entry of a role, which may not exist.
    fn role(&mut self, key: RoleKey) -> Arc<Role> {
        let new = || Arc::new(Role { key: key.clone(), rules: RwLock::default() });
        self.roles.entry(key.clone()).or_insert_with(new).clone()
    }

    /// Removes the entry of a role that neither exists nor is referenced by a binding.
    fn remove_unused_role(&mut self, key: &RoleKey) {
        let unused = |role: &Arc<Role>| Arc::strong_count(role) == 1 && role.rules.read().is_none();
        if self.roles.get(key).is_some_and(unused) {
            self.roles.remove(key);
        }
    }

    /// The rules of a role; `None` when it does not exist.
    pub(crate) fn rules_of(&self, key: &RoleKey) -> Option<Arc<[PolicyRule]>> {
        self.roles.get(key)?.rules()
    }

    /// Inserts or replaces a binding.
    pub(crate) fn set_binding(&mut self, key: RoleKey, object: &Value) {
        self.remove_binding(&key);
        let text = |member: &str| object.str_at(&["roleRef", member]).unwrap_or_default();
        let role_ref = (SmolStr::new(text("kind")), SmolStr::new(text("name")));
        let role_namespace = match role_ref.0.as_str() {
            "ClusterRole" => Some(SmolStr::default()),
            "Role" if !key.namespace.is_empty() => Some(key.namespace.clone()),
            _ => None,
        };
        let role = role_namespace.map(|namespace| self.role(RoleKey { namespace, name: role_ref.1.clone() }));
        let list = object.list_at(&["subjects"]);
        let subjects = list.iter().filter_map(|s| subject_of(s, &key.namespace)).collect();
        let RoleKey { namespace, name } = key.clone();
        let binding = Arc::new(Binding { namespace, name, role, role_ref, subjects });
        self.subjects.add(&binding);
        self.bindings.insert(key, binding);
    }

    /// Removes a binding.
    pub(crate) fn remove_binding(&mut self, key: &RoleKey) {
        let Some(binding) = self.bindings.remove(key) else { return };
        self.subjects.remove(&binding);
        let role = binding.role.as_ref().map(|role| role.key.clone());
        drop(binding);
        if let Some(role) = role {
            self.remove_unused_role(&role);
        }
    }

    /// Calls `visit` with every binding of the user, those of the cluster first, then those of the namespace
    /// (none when it is empty), until it returns `Some`. A binding that matches the user twice is visited
    /// twice.
    pub fn visit<T>(
        &self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(&Arc<Binding>) -> Option<T>,
    ) -> Option<T> {
        let grants = || {
            let groups = user.groups.iter().filter_map(|group| self.subjects.groups.get(group.as_str()));
            self.subjects.users.get(user.name.as_str()).into_iter().chain(groups)
        };
        for binding in grants().flat_map(|g| &g.cluster) {
            let answer = visit(binding);
            if answer.is_some() {
                return answer;
            }
        }
        if namespace.is_empty() {
            return None;
        }
        let in_namespace = grants().filter_map(|g| g.namespaces.get(namespace)).flatten();
        for binding in in_namespace {
            let answer = visit(binding);
            if answer.is_some() {
                return answer;
            }
        }
        None
    }

    /// The rules of a user in a namespace, each binding's once, and errors of unresolved roles. They are
    /// shared, not copied: a role of megabytes may have thousands of bindings.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Arc<[PolicyRule]>>, Vec<String>) {
        let (mut rules, mut errors, mut seen) = (Vec::new(), Vec::new(), std::collections::HashSet::new());
        self.visit(user, namespace, |binding| {
            if seen.insert(Arc::as_ptr(binding)) {
                match binding.role.as_ref().and_then(|role| role.rules()) {
                    Some(found) => rules.push(found),
                    None => errors.push(binding.error()),
                }
            }
            None::<()>
        });
        (rules, errors)
    }

    /// The binding that allows a request, or errors of unresolved roles.
    pub(crate) fn allowing(
        &self,
        user: &User,
        namespace: &str,
        mut allows: impl FnMut(&PolicyRule) -> bool,
    ) -> Result<Grant, Vec<String>> {
        let mut errors = Vec::new();
        let found = self.visit(user, namespace, |binding| {
            let allowed = binding
                .role
                .as_ref()
                .and_then(|role| role.rules.read().as_ref().map(|rules| rules.iter().any(&mut allows)));
            match allowed {
                Some(true) => return Some(binding.clone()),
                Some(false) => {}
                None => errors.push(binding.error()),
            }
            None
        });
        found.map(|binding| Grant { subject: binding.subject_of(user), binding }).ok_or(errors)
    }
}

/// Parses a subject of a binding in a namespace (empty for ClusterRoleBindings): a service account without a
/// namespace is in the binding's.
fn subject_of(subject: &Value, namespace: &str) -> Option<Subject> {
    let text = |member: &str| subject.str_at(&[member]).unwrap_or_default();
    let name = SmolStr::new(text("name"));
    match text("kind") {
        "User" => Some(Subject::User(name)),
        "Group" => Some(Subject::Group(name)),
        "ServiceAccount" => {
            let given = text("namespace");
            let namespace = if given.is_empty() { namespace } else { given };
            (!namespace.is_empty()).then(|| Subject::ServiceAccount(namespace.into(), name))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
