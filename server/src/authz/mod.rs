//! Who may do what.
//!
//! Roles come with their own issue; until then there are two modes, and `RBAC` grants what upstream grants
//! before any role is looked at: everything to `system:masters`, health and version to everybody.

use crate::authn::User;
use crate::request_info::{RequestInfo, Verb};
use crate::status::ApiError;

/// What a question to the authorizer is about.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Verb; `*` for all.
    pub verb: &'a str,
    /// Plural resource; `*` for all.
    pub resource: &'a str,
}

/// Decides each request. Immutable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorizer {
    /// Members of `system:masters` may do everything, others nothing but health and version.
    Masters,
    /// Every authenticated user may do everything: for experiments.
    AlwaysAllow,
}

/// The paths that everybody may read (`system:public-info-viewer`).
pub const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version"];

impl Authorizer {
    /// Whether nothing is denied to that user.
    pub fn allows_everything(self, user: &User) -> bool {
        match self {
            Authorizer::Masters => user.is_in("system:masters"),
            Authorizer::AlwaysAllow => user.is_in("system:authenticated"),
        }
    }

    /// Whether a request for a resource would go on; what the two modes know does not depend on which one.
    pub fn allows(self, user: &User, _attributes: &Attributes<'_>) -> bool {
        self.allows_everything(user)
    }

    /// Whether a path that is no resource can be read.
    pub fn allows_path(self, user: &User, path: &str) -> bool {
        let is_public =
            |p: &&str| path == *p || path.strip_prefix(*p).is_some_and(|rest| rest.starts_with('/'));
        PUBLIC.iter().any(is_public) || self.allows_everything(user)
    }

    /// Whether a request for a resource goes on.
    ///
    /// # Errors
    /// 403 in upstream's words.
    pub fn authorize_resource(self, user: &User, info: &RequestInfo) -> Result<(), ApiError> {
        if self.allows_everything(user) {
            return Ok(());
        }
        let resource = match info.subresource.is_empty() {
            true => info.resource.clone(),
            false => format!("{}/{}", info.resource, info.subresource),
        };
        let scope = match info.namespace.is_empty() {
            true => "at the cluster scope".to_owned(),
            false => format!("in the namespace {:?}", info.namespace),
        };
        let why = format!(
            "User {:?} cannot {} resource {resource:?} in API group {:?} {scope}",
            user.name,
            info.verb.as_str(),
            info.group
        );
        Err(ApiError::forbidden(&info.group, &info.resource, &info.name, &why))
    }

    /// Whether a request for another path goes on.
    ///
    /// # Errors
    /// 403 in upstream's words.
    pub fn authorize_path(self, user: &User, verb: Verb, path: &str) -> Result<(), ApiError> {
        let public =
            PUBLIC.iter().any(|p| path == *p || path.strip_prefix(p).is_some_and(|r| r.starts_with('/')));
        if public || self.allows_everything(user) {
            return Ok(());
        }
        let why = format!("User {:?} cannot {} path {path:?}", user.name, verb.as_str());
        let mut error = ApiError::forbidden("", "", "", &why);
        error.details = Some(Box::default());
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_reads_health_and_nothing_else() {
        let anonymous = User::anonymous();
        for (path, allowed) in [
            ("/livez", true),
            ("/livez/ping", true),
            ("/version", true),
            ("/livezx", false),
            ("/metrics", false),
            ("/api", false),
        ] {
            for mode in [Authorizer::Masters, Authorizer::AlwaysAllow] {
                assert_eq!(mode.authorize_path(&anonymous, Verb::Get, path).is_ok(), allowed, "{path}");
            }
        }
    }

    #[test]
    fn the_denial_is_upstreams() {
        let user = User::new("jane", &["system:authenticated"]);
        let info = RequestInfo {
            group: "apps".into(),
            version: "v1".into(),
            namespace: "default".into(),
            resource: "deployments".into(),
            subresource: "scale".into(),
            name: "web".into(),
            rest: vec![],
            verb: Verb::Patch,
        };
        let e = Authorizer::Masters.authorize_resource(&user, &info).unwrap_err();
        assert_eq!(
            e.message,
            "deployments.apps \"web\" is forbidden: User \"jane\" cannot patch resource \"deployments/scale\" in API group \"apps\" in the namespace \"default\""
        );
    }
}
