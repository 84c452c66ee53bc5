//! Resources that are not used without a quota for them: `limitedResources` of the plugin's configuration.
//!
//! Upstream: k8s.io/apiserver `pkg/admission/plugin/resourcequota` (`config.go`, `CheckRequest`).

use std::collections::BTreeSet;
use std::sync::Arc;

use plinth_codec::Value;
use serde::Deserialize;

use super::super::section::decode_section;
use super::change::Change;
use super::usage::{scope_terms, ScopeTerm};
use plinth_api::ConfigKind;

const KIND: ConfigKind =
    ConfigKind { kind: "ResourceQuotaConfiguration", versions: &["apiserver.config.k8s.io/v1"] };
/// The kind before.
const OLD_KIND: ConfigKind = ConfigKind {
    kind: "Configuration",
    versions: &["resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1"],
};

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Configuration {
    limited_resources: Vec<LimitedResource>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LimitedResource {
    api_group: String,
    resource: String,
    match_contains: Vec<String>,
    match_scopes: Vec<MatchScope>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MatchScope {
    scope_name: String,
    operator: String,
    values: Vec<String>,
}

impl MatchScope {
    fn term(&self) -> ScopeTerm<'_> {
        let values = self.values.iter().map(String::as_str).collect();
        ScopeTerm { scope: &self.scope_name, operator: &self.operator, values }
    }
}

/// Resources whose use is limited to namespaces with a quota for them.
#[derive(Debug, Default)]
pub(in crate::admission) struct LimitedResources(Vec<LimitedResource>);

impl LimitedResources {
    /// Loads the plugin's section.
    ///
    /// # Errors
    /// Another kind, unknown members, a resource without a name, scopes that cannot be matched.
    pub(in crate::admission) fn read(part: &Value) -> Result<LimitedResources, String> {
        let kind = if part.str_at(&["kind"]) == Some(OLD_KIND.kind) { OLD_KIND } else { KIND };
        let config: Configuration = decode_section(part, kind)?;
        for (i, limited) in config.limited_resources.iter().enumerate() {
            let at = format!("limitedResources[{i}]");
            if limited.resource.is_empty() {
                return Err(format!("{at}.resource: Required value"));
            }
            // Upstream takes these, and applies no quota at all then.
            for (i, scope) in limited.match_scopes.iter().enumerate() {
                if let Err(why) = scope.term().selector() {
                    return Err(format!("{at}.matchScopes[{i}]: Invalid value: {:?}: {why}", scope.operator));
                }
            }
        }
        Ok(LimitedResources(config.limited_resources))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Why the change is refused: it uses what no quota covers.
    pub(super) fn uncovered_names(&self, change: &Change<'_>, covered: &BTreeSet<&str>) -> Option<String> {
        let (group, plural) = change.counted.names();
        let limited =
            self.0.iter().filter(|limited| limited.api_group == group && limited.resource == plural);
        let parts: Vec<&String> = limited.flat_map(|limited| &limited.match_contains).collect();
        let used =
            change.used.0.iter().filter(|(_, amount)| amount.sign() > 0).map(|(name, _)| name.as_str());
        let limited = used.filter(|name| parts.iter().any(|part| name.contains(part.as_str())));
        let uncovered: Vec<&str> = limited.filter(|name| !covered.contains(name)).collect();
        (!uncovered.is_empty()).then(|| format!("insufficient quota to consume: {}", uncovered.join(",")))
    }

    /// Why the change is refused: it is in scopes that no quota has which matches it.
    pub(super) fn uncovered_scopes(&self, change: &Change<'_>, quotas: &[Arc<Value>]) -> Option<String> {
        let matches = |term: &ScopeTerm<'_>| term.matches(change.counted, change.object);
        // Whatever resource they are listed for, as upstream.
        let limited = self.0.iter().flat_map(|limited| &limited.match_scopes).map(MatchScope::term);
        let limited: Vec<ScopeTerm<'_>> = limited.filter(matches).collect();
        if limited.is_empty() {
            return None;
        }
        let covered = quotas.iter().flat_map(|quota| scope_terms(quota)).filter(matches);
        let covered: BTreeSet<&str> = covered.map(|term| term.scope).collect();
        let uncovered = limited.iter().filter(|term| !covered.contains(term.scope));
        let uncovered: Vec<String> = uncovered.map(|term| term.to_string()).collect();
        (!uncovered.is_empty())
            .then(|| format!("insufficient quota to match these scopes: [{}]", uncovered.join(" ")))
    }
}

#[cfg(test)]
mod tests {
    use super::super::usage::Counted;
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn read(resources: &str) -> Result<LimitedResources, String> {
        LimitedResources::read(&parse(&format!(
            r#"{{"apiVersion":"apiserver.config.k8s.io/v1","kind":"ResourceQuotaConfiguration","limitedResources":{resources}}}"#
        )))
    }

    #[test]
    fn sections_by_table() {
        let rows = [
            ("[]", None),
            (r#"[{"resource":"pods","matchContains":["cpu"]}]"#, None),
            (r#"[{"apiGroup":"apps"}]"#, Some("limitedResources[0].resource: Required value")),
            (
                r#"[{"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"Is"}]}]"#,
                Some("limitedResources[0].matchScopes[0]: Invalid value: \"Is\": "),
            ),
            (
                r#"[{"resource":"pods","matchScopes":[{"scopeName":"PriorityClass","operator":"In"}]}]"#,
                Some("limitedResources[0].matchScopes[0]: Invalid value: \"In\": "),
            ),
            (
                r#"[{"resources":"pods"}]"#,
                Some("strict decoding error: unknown field \"limitedResources[0].resources\""),
            ),
        ];
        for (resources, error) in rows {
            match (read(resources), error) {
                (Ok(_), None) => {}
                (Err(found), Some(error)) => assert!(found.starts_with(error), "{found}"),
                (found, error) => panic!("{resources}: {found:?}, not {error:?}"),
            }
        }
        for version in OLD_KIND.versions {
            let old = parse(&format!(r#"{{"apiVersion":"{version}","kind":"Configuration"}}"#));
            assert!(LimitedResources::read(&old).is_ok_and(|limited| limited.is_empty()));
        }
    }

    #[test]
    fn what_needs_a_quota_and_has_none() {
        const SCOPES: &str = r#"[{"resource":"pods","matchScopes":[
            {"scopeName":"PriorityClass","operator":"In","values":["high","higher"]},
            {"scopeName":"CrossNamespacePodAffinity","operator":"Exists"}]}]"#;
        const HIGH: &str = r#"{"spec":{"priorityClassName":"high"}}"#;
        let limited = read(SCOPES).unwrap();
        let pods = Counted::of_builtin("", "pods");
        let quota = |scopes: &str| {
            Arc::new(parse(&format!(r#"{{"spec":{{"scopeSelector":{{"matchExpressions":[{scopes}]}}}}}}"#)))
        };
        let of = |class: &str| {
            quota(&format!(r#"{{"scopeName":"PriorityClass","operator":"In","values":["{class}"]}}"#))
        };
        let why = "insufficient quota to match these scopes: [{PriorityClass In [high higher]}]";
        // pod, quotas, why it is refused
        let rows: [(&str, &[Arc<Value>], Option<&str>); 5] = [
            ("{}", &[], None),
            (HIGH, &[], Some(why)),
            (HIGH, &[of("low")], Some(why)),
            (HIGH, &[of("low"), of("high")], None),
            (HIGH, &[quota(r#"{"scopeName":"PriorityClass","operator":"Exists"}"#)], None),
        ];
        for (pod, quotas, expected) in rows {
            let pod = parse(pod);
            let change = Change::new(pods, &pod, None);
            assert_eq!(limited.uncovered_scopes(&change, quotas).as_deref(), expected, "{pod:?}");
            assert_eq!(limited.uncovered_names(&change, &BTreeSet::new()), None);
        }
        let limited = read(r#"[{"resource":"pods","matchContains":["cpu","pods"]},{"resource":"services","matchContains":["x"]}]"#).unwrap();
        let pod = parse(r#"{"spec":{"containers":[{"resources":{"requests":{"cpu":"1","memory":"1"}}}]}}"#);
        let change = Change::new(pods, &pod, None);
        let found = limited.uncovered_names(&change, &["pods", "cpu"].into());
        assert_eq!(found.as_deref(), Some("insufficient quota to consume: count/pods,requests.cpu"));
    }
}
