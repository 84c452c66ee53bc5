//! Families of a Service, and their policy.
//!
//! Upstream: kubernetes `pkg/registry/core/service/storage/alloc.go` (`initIPFamilyFields`).

use std::collections::HashSet;

use plinth_api::Cause;
use plinth_codec::Value;

use super::addresses::{
    addresses, cluster_ips, family, is_headless, keep_assigned, needs_address, text, texts, FAMILIES, NONE,
};
use super::ip_families::validate_families;
use crate::checks::{address, ErrorList, Part};

/// Defaults `clusterIP`, `clusterIPs`, `ipFamilies` and `ipFamilyPolicy` from each other, from the old
/// Service, and from the families of the cluster (`cluster`, primary first).
pub fn set_families(service: &mut Value, old: Option<&Value>, cluster: &[&str]) -> Vec<Cause> {
    let old = old.filter(|old| needs_address(old));
    let keeps_preference = old.is_some_and(|old| is_unchanged_preference(service, old));
    if let Some(old) = old {
        keep_assigned(service, old);
    }
    if !needs_address(service) {
        return Vec::new();
    }
    let ip = text(service, "clusterIP").to_owned();
    let old_ip = old.map(|old| text(old, "clusterIP"));
    let stale = old.is_some_and(|old| texts(old, "clusterIPs") == texts(service, "clusterIPs"));
    let Some(spec) = service.object_at_mut(&["spec"]) else { return Vec::new() };
    let has_list = spec.get("clusterIPs").and_then(Value::as_array).is_some_and(|l| !l.is_empty());
    if !ip.is_empty() && (!has_list || (stale && old_ip != Some(ip.as_str()))) {
        spec.insert("clusterIPs", vec![Value::from(ip)]);
    }
    let errors = ErrorList::of(service, |service| {
        malformed(service, old);
        validate_families(service);
    });
    if !errors.is_empty() {
        return errors;
    }
    let same_addresses = old.is_some_and(|old| texts(old, "clusterIPs") == texts(service, "clusterIPs"));
    if keeps_preference && same_addresses {
        return Vec::new();
    }
    let errors = old.map(|old| release_secondary(service, old)).unwrap_or_default();
    choose_families(service, cluster, errors)
}

/// Whether a Service that prefers both families is to stay as it is: it does not follow a cluster that gains
/// or loses a family (kubernetes `isMatchingPreferDualStackClusterIPFields`).
fn is_unchanged_preference(service: &Value, old: &Value) -> bool {
    const PREFERS: &str = "PreferDualStack";
    text(service, "ipFamilyPolicy") == PREFERS
        && matches!(text(old, "ipFamilyPolicy"), "" | PREFERS)
        && text(service, "type") == text(old, "type")
        && texts(service, "ipFamilies") == texts(old, "ipFamilies")
}

/// Drops the second address and family of a Service that becomes one of a single family and does not change
/// them; of others none can be dropped.
fn release_secondary(service: &mut Value, old: &Value) -> Vec<Cause> {
    const LISTS: [(&str, &str); 2] =
        [("clusterIPs", "secondary cluster IP"), ("ipFamilies", "secondary IP family")];
    let policy = text(service, "ipFamilyPolicy").to_owned();
    let mut errors = Vec::new();
    for (key, what) in LISTS {
        let (new, before) = (texts(service, key), texts(old, key));
        let (is_same, is_reduced) = (new == before, !new.is_empty() && new.len() < before.len());
        if policy != "SingleStack" && is_reduced {
            let why = format!("must be 'SingleStack' to release the {what}");
            errors.push(Cause::invalid("spec.ipFamilyPolicy", policy.as_str(), &why));
        }
        let list = service.object_at_mut(&["spec"]).and_then(|spec| spec.get_mut(key)?.as_array_mut());
        if let Some(list) = list.filter(|_| policy == "SingleStack" && is_same) {
            list.truncate(1);
        }
    }
    errors
}

/// Errors of the requested cluster IPs; those of the old Service are accepted (kubernetes
/// `ValidateServiceClusterIPsRelatedFields`).
fn malformed(service: &Part<'_>, old: Option<&Value>) {
    const PATH: &str = "spec.clusterIPs";
    const MAX: usize = 2;
    let (first, all) = (service.text("spec.clusterIP"), service.texts(PATH));
    let refuse = |why: &str| service.invalid(PATH, cluster_ips(service.value()), why);
    match all.first() {
        Some(_) if first.is_empty() => refuse("must be empty when `clusterIP` is not specified"),
        Some(same) if *same != first => refuse("first value must match `clusterIP`"),
        _ => {}
    }
    if all.len() > 1 && all.first() == Some(&NONE) {
        refuse("'None' must be the first and only value");
    }
    if all.len() > MAX {
        refuse(&format!("may only hold up to {MAX} values"));
        return;
    }
    let before = old.map(|old| texts(old, "clusterIPs")).unwrap_or_default();
    let before_errors = service.errors();
    for (i, ip) in service.each(PATH).enumerate() {
        if (i > 0 || ip.text("") != NONE) && !before.contains(&ip.text("")) {
            ip.apply("", address::legacy);
        }
    }
    if service.errors() != before_errors || all.first() == Some(&NONE) {
        return;
    }
    let found: Vec<&str> = addresses(service.value()).into_iter().map(family).collect();
    if found.iter().collect::<HashSet<_>>().len() < all.len() {
        refuse("may specify no more than one IP for each IP family");
    }
    let named = service.texts("spec.ipFamilies");
    for (i, (ip, (found, named))) in all.iter().zip(found.iter().zip(&named)).enumerate() {
        if found != named && FAMILIES.contains(named) {
            let why = format!("expected an {named} value as indicated by `ipFamilies[{i}]`");
            service.invalid(format!("{PATH}[{i}]"), *ip, &why);
        }
    }
}

fn choose_families(service: &mut Value, cluster: &[&str], mut errors: Vec<Cause>) -> Vec<Cause> {
    let selects = service.at(&["spec", "selector"]).and_then(Value::as_object).is_some_and(|s| !s.is_empty());
    let free = is_headless(service) && !selects;
    let policy = match text(service, "ipFamilyPolicy") {
        "" if free => "RequireDualStack",
        "" => "SingleStack",
        given => given,
    }
    .to_owned();
    let mut families: Vec<String> = texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
    let named: Vec<&str> = addresses(service).into_iter().map(family).collect();
    if policy == "SingleStack" {
        let counts = [(named.len(), "cluster IPs"), (families.len(), "IP families")];
        for (_, what) in counts.into_iter().filter(|(count, _)| *count > 1) {
            let why =
                format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.push(Cause::invalid("spec.ipFamilyPolicy", policy.as_str(), &why));
        }
    }
    for (i, name) in named.iter().enumerate().skip(families.len()) {
        match cluster.contains(name) {
            true => families.push((*name).to_owned()),
            false => {
                let why = format!("{name} is not configured on this cluster");
                errors.push(Cause::invalid(format!("spec.clusterIPs[{i}]"), cluster_ips(service), &why));
            }
        }
    }
    if !errors.is_empty() {
        return errors;
    }
    if !free {
        if policy == "RequireDualStack" && cluster.len() < 2 {
            let why = "this cluster is not configured for dual-stack services";
            errors.push(Cause::invalid("spec.ipFamilyPolicy", policy.as_str(), why));
        }
        let strange = families.iter().enumerate().filter(|(_, name)| !cluster.contains(&name.as_str()));
        let why = "not configured on this cluster";
        errors.extend(
            strange.map(|(i, name)| Cause::invalid(format!("spec.ipFamilies[{i}]"), name.as_str(), why)),
        );
    }
    if !errors.is_empty() {
        return errors;
    }
    if families.is_empty() {
        families.extend(cluster.first().map(|primary| (*primary).to_owned()));
    }
    if policy != "SingleStack" && families.len() == 1 && (free || cluster.len() == 2) {
        let other = FAMILIES.iter().find(|name| families.first().is_some_and(|first| first != *name));
        families.extend(other.map(|name| (*name).to_owned()));
    }
    if let Some(spec) = service.object_at_mut(&["spec"]) {
        spec.insert("ipFamilies", families.into_iter().map(Value::from).collect::<Vec<_>>());
        spec.insert("ipFamilyPolicy", policy);
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn families_and_policy() {
        let dual: &[&str] = &["IPv4", "IPv6"];
        let single: &[&str] = &["IPv4"];
        // spec, cluster, families and policy, or the path of the error
        let rows = [
            (r#"{"type":"ClusterIP"}"#, single, Ok((vec!["IPv4"], "SingleStack"))),
            (
                r#"{"type":"ClusterIP","clusterIP":"None"}"#,
                single,
                Ok((vec!["IPv4", "IPv6"], "RequireDualStack")),
            ),
            (
                r#"{"type":"ClusterIP","clusterIP":"None","selector":{"a":"b"}}"#,
                single,
                Ok((vec!["IPv4"], "SingleStack")),
            ),
            (
                r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#,
                single,
                Ok((vec!["IPv4"], "PreferDualStack")),
            ),
            (
                r#"{"type":"ClusterIP","ipFamilyPolicy":"PreferDualStack"}"#,
                dual,
                Ok((vec!["IPv4", "IPv6"], "PreferDualStack")),
            ),
            (r#"{"type":"ClusterIP","ipFamilies":["IPv6"]}"#, dual, Ok((vec!["IPv6"], "SingleStack"))),
            (r#"{"type":"ClusterIP","clusterIP":"fd00::1"}"#, dual, Ok((vec!["IPv6"], "SingleStack"))),
            (
                r#"{"type":"ClusterIP","ipFamilyPolicy":"RequireDualStack"}"#,
                single,
                Err("spec.ipFamilyPolicy"),
            ),
            (r#"{"type":"ClusterIP","ipFamilies":["IPv6"]}"#, single, Err("spec.ipFamilies[0]")),
            (r#"{"type":"ClusterIP","clusterIP":"abc"}"#, single, Err("spec.clusterIPs[0]")),
            (r#"{"type":"ClusterIP","ipFamilies":["IPv4","IPv6"]}"#, dual, Err("spec.ipFamilyPolicy")),
        ];
        for (spec, cluster, expected) in rows {
            let mut service = parse(&format!(r#"{{"spec":{spec}}}"#));
            let errors = set_families(&mut service, None, cluster);
            match expected {
                Ok((families, policy)) => {
                    assert_eq!(errors, [], "{spec}");
                    assert_eq!(texts(&service, "ipFamilies"), families, "{spec}");
                    assert_eq!(text(&service, "ipFamilyPolicy"), policy, "{spec}");
                }
                Err(path) => assert_eq!(errors.first().map(|f| f.field.as_str()), Some(path), "{spec}"),
            }
        }
    }

    #[test]
    fn a_second_family_is_released_and_gained_by_the_policy() {
        const BOTH: &str = r#""type":"ClusterIP","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9","fd00::9"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"PreferDualStack""#;
        const ONE: &str = r#""type":"ClusterIP","clusterIP":"10.0.0.9","clusterIPs":["10.0.0.9"],"ipFamilies":["IPv4"],"ipFamilyPolicy":"PreferDualStack""#;
        let dual: &[&str] = &["IPv4", "IPv6"];
        // before, what the update changes, families of the cluster, addresses and families or the first error
        let rows: [(&str, &str, &[&str], Result<(usize, usize), &str>); 10] = [
            (BOTH, r#"{"ipFamilyPolicy":"SingleStack"}"#, dual, Ok((1, 1))),
            (BOTH, r#"{"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv4"]}"#, dual, Ok((1, 1))),
            (
                BOTH,
                r#"{"ipFamilyPolicy":"SingleStack","ipFamilies":null,"clusterIPs":null}"#,
                dual,
                Ok((1, 1)),
            ),
            (
                BOTH,
                r#"{"ipFamilyPolicy":"SingleStack","ipFamilies":["IPv6","IPv4"]}"#,
                dual,
                Err("expected an IPv6 value"),
            ),
            (
                BOTH,
                r#"{"clusterIPs":["10.0.0.9"]}"#,
                dual,
                Err("must be 'SingleStack' to release the secondary cluster IP"),
            ),
            (
                BOTH,
                r#"{"ipFamilies":["IPv4"]}"#,
                dual,
                Err("must be 'SingleStack' to release the secondary IP family"),
            ),
            // What is preferred does not follow the cluster, but what is required.
            (BOTH, "{}", &["IPv4"], Ok((2, 2))),
            (ONE, "{}", dual, Ok((1, 1))),
            (ONE, r#"{"ipFamilyPolicy":"RequireDualStack"}"#, dual, Ok((1, 2))),
            (ONE, r#"{"ipFamilies":["IPv4","IPv6"]}"#, dual, Ok((1, 2))),
        ];
        for (before, change, cluster, expected) in rows {
            let old = parse(&format!(r#"{{"spec":{{{before}}}}}"#));
            let mut new = old.clone();
            for (key, value) in parse(change).as_object().unwrap().iter() {
                new.object_at_mut(&["spec"]).unwrap().insert(key.as_str(), value.clone());
            }
            let errors = set_families(&mut new, Some(&old), cluster);
            match expected {
                Ok(counts) => {
                    assert_eq!(errors, [], "{change}");
                    let found = (texts(&new, "clusterIPs").len(), texts(&new, "ipFamilies").len());
                    assert_eq!(found, counts, "{change}");
                }
                Err(why) => {
                    assert!(errors.first().is_some_and(|e| e.message.contains(why)), "{change}: {errors:?}")
                }
            }
        }
    }
}
