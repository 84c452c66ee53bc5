//! `PodNodeSelector`: a namespace's annotation, or the configuration, restricts the nodes of its pods. Off by
//! default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/podnodeselector`.

use std::collections::BTreeMap;

use plinth_codec::{names, Value};
use serde::Deserialize;

use super::call::Call;
use super::namespace::namespace_of;
use plinth_api::{decode_config_part, metadata_text, ApiError, Reason, Strictness};

pub(super) const NAME: &str = "PodNodeSelector";
/// The member of a configuration file without a kind that has its part.
pub(super) const PART_WITHOUT_KIND: &str = "podNodeSelectorPluginConfig";
const ANNOTATION: &str = "scheduler.alpha.kubernetes.io/node-selector";
/// Key of the selector of namespaces without an annotation.
const DEFAULT: &str = "clusterDefaultNodeSelector";

type Labels = BTreeMap<String, String>;

#[derive(Default, Deserialize)]
#[serde(default)]
struct PluginConfig {
    #[serde(rename = "podNodeSelectorPluginConfig")]
    selectors: BTreeMap<String, String>,
}

/// Configured selectors: the default, and by namespace the selectors that its pods may have.
#[derive(Debug, Default)]
pub(super) struct Selectors(BTreeMap<String, String>);

impl Selectors {
    /// Loads the configuration. Selectors are parsed when a pod is created, as upstream does.
    ///
    /// # Errors
    /// Entries that are not strings.
    pub(super) fn read(part: &Value) -> Result<Selectors, String> {
        // Other members are ignored, as upstream does.
        let config = decode_config_part(part, Strictness::Lenient);
        config.map(|PluginConfig { selectors }| Selectors(selectors)).map_err(|error| error.to_string())
    }

    fn get(&self, key: &str) -> Result<Labels, ApiError> {
        labels(self.0.get(key).map(String::as_str).unwrap_or_default())
    }
}

/// Parses a selector of the form `a=b,c=d`.
fn labels(selector: &str) -> Result<Labels, ApiError> {
    let bad = |why: String| ApiError::new(500, Reason::Unknown, why);
    let mut out = Labels::new();
    for part in selector.split(',').filter(|_| !selector.is_empty()) {
        let sides: Vec<&str> = part.split('=').collect();
        let [key, value] = sides.as_slice() else {
            return Err(bad(format!("invalid selector: [{}]", sides.join(" "))));
        };
        let (key, value) = (key.trim(), value.trim());
        if let Some(why) = names::qualified_name_errors(key).first() {
            return Err(bad(format!("<nil>: Invalid value: {key:?}: {why}")));
        }
        if let Some(why) = names::label_value_errors(value).first() {
            return Err(bad(format!("[{key}]: Invalid value: {value:?}: {why}")));
        }
        out.insert(key.to_owned(), value.to_owned());
    }
    Ok(out)
}

fn of_pod(pod: &Value) -> Labels {
    let given = pod.at(&["spec", "nodeSelector"]).and_then(Value::as_object);
    let all = given.into_iter().flat_map(|given| given.iter());
    all.map(|(key, value)| (key.to_string(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Conflicts of the pod's selector with that of its namespace and with the allowed one; an empty allowed
/// selector allows everything.
fn error(pod: &Labels, namespace: &Labels, most: &Labels) -> Option<&'static str> {
    let differs = |(key, value): (&String, &String)| namespace.get(key).is_some_and(|other| other != value);
    if pod.iter().any(differs) {
        return Some("pod node label selector conflicts with its namespace node label selector");
    }
    let is_in = |(key, value): (&String, &String)| most.get(key) == Some(value);
    match most.is_empty() || pod.iter().all(is_in) {
        true => None,
        false => Some("pod node label selector labels conflict with its namespace whitelist"),
    }
}

async fn of_namespace(call: &Call<'_>, selectors: &Selectors) -> Result<Labels, ApiError> {
    let namespace = namespace_of(call).await?;
    match namespace.as_ref().and_then(|n| n.str_at(&["metadata", "annotations", ANNOTATION])) {
        Some(selector) => labels(selector),
        None => selectors.get(DEFAULT),
    }
}

/// Adds the namespace's selector to the pod's.
///
/// # Errors
/// 403 for a conflicting pod, 500 for an invalid selector.
pub(super) async fn admit(call: &Call<'_>, selectors: &Selectors, pod: &mut Value) -> Result<(), ApiError> {
    let namespace = of_namespace(call, selectors).await?;
    let given = of_pod(pod);
    check(call, pod, &given, &namespace, &Labels::new())?;
    let missing: Vec<(&String, &String)> =
        namespace.iter().filter(|(key, _)| !given.contains_key(*key)).collect();
    if !missing.is_empty() {
        if let Some(selector) = pod.object_at_mut(&["spec", "nodeSelector"]) {
            for (key, value) in missing {
                selector.insert(key.as_str(), value.as_str());
            }
        }
    }
    validate(call, selectors, pod).await
}

/// Denies a pod whose selector its namespace does not allow.
///
/// # Errors
/// As [`admit`].
pub(super) async fn validate(call: &Call<'_>, selectors: &Selectors, pod: &Value) -> Result<(), ApiError> {
    let namespace = of_namespace(call, selectors).await?;
    let most = selectors.get(call.namespace)?;
    check(call, pod, &of_pod(pod), &namespace, &most)
}

fn check(
    call: &Call<'_>,
    pod: &Value,
    given: &Labels,
    namespace: &Labels,
    most: &Labels,
) -> Result<(), ApiError> {
    match error(given, namespace, most) {
        None => Ok(()),
        Some(why) => {
            let resource = &call.cx.resource;
            Err(ApiError::forbidden(resource.group(), resource.plural(), metadata_text(pod, "name"), why))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_read_and_compared() {
        let read = |text: &str| labels(text).map_err(|error| error.message);
        assert_eq!(read("").unwrap().len(), 0);
        assert_eq!(read("a=b, c = d").unwrap().get("c").map(String::as_str), Some("d"));
        assert_eq!(read("a").unwrap_err(), "invalid selector: [a]");
        assert!(read("a b=c").unwrap_err().starts_with("<nil>: Invalid value: \"a b\""));
        assert!(read("a=-").unwrap_err().starts_with("[a]: Invalid value: \"-\""));
        // pod, namespace, what it may select, which words the error ends with
        let rows = [
            ("a=b", "a=b", "", None),
            ("a=b", "a=c", "", Some("namespace node label selector")),
            ("a=b", "c=d", "a=b", None),
            ("a=b", "", "a=c", Some("whitelist")),
            ("a=b", "", "c=d", Some("whitelist")),
            ("", "", "c=d", None),
        ];
        for (pod, namespace, most, end) in rows {
            let [pod, namespace, most] = [pod, namespace, most].map(|text| labels(text).unwrap());
            let found = error(&pod, &namespace, &most);
            assert_eq!(found.is_some(), end.is_some(), "{pod:?}");
            assert!(end.is_none_or(|end| found.unwrap().ends_with(end)), "{found:?}");
        }
    }
}
