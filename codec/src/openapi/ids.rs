//! Operation ids and tags: generated clients name their methods by them.

/// The tag of a group or group version: `core_v1`, `rbacAuthorization_v1`, `policy`.
pub(super) fn tag(group: &str, version: Option<&str>) -> String {
    let group = match group.is_empty() {
        true => "core",
        false => group.strip_suffix(".k8s.io").unwrap_or(group),
    };
    let group = identifier(group, false);
    match version {
        Some(version) => format!("{group}_{}", identifier(version, false)),
        None => group,
    }
}

/// Group and version within an operation id: `CoreV1`, `RbacAuthorizationV1`.
pub(super) fn operation_version(group: &str, version: &str) -> String {
    capitalized(&tag(group, None)) + &identifier(version, true)
}

/// Letters, digits and `_` of a name; what follows anything else is capitalized (k8s.io/apiserver,
/// `endpoints/openapi`).
fn identifier(name: &str, mut capitalize: bool) -> String {
    let mut result = String::with_capacity(name.len());
    for (i, c) in name.char_indices() {
        if c.is_alphabetic() || c == '_' || (i > 0 && c.is_numeric()) {
            match capitalize {
                true => result.extend(c.to_uppercase()),
                false => result.push(c),
            }
            capitalize = false;
        } else {
            capitalize = true;
        }
    }
    result
}

/// The name with its first letter in upper case.
pub(super) fn capitalized(name: &str) -> String {
    let mut chars = name.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_tags_follow_the_group() {
        assert_eq!(tag("", Some("v1")), "core_v1");
        assert_eq!(tag("flowcontrol.apiserver.k8s.io", Some("v1")), "flowcontrolApiserver_v1");
        assert_eq!(tag("stable.example-corp.com", None), "stableExampleCorpCom");
        assert_eq!(operation_version("rbac.authorization.k8s.io", "v1beta1"), "RbacAuthorizationV1beta1");
    }
}
