//! `PodTolerationRestriction`: annotations of a namespace, or the configuration, define default tolerations
//! of its pods and a whitelist. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/podtolerationrestriction`.

use plinth_codec::{json, tree, Value};
use serde::de::IgnoredAny;
use serde::Deserialize;

use super::call::Call;
use super::namespace::namespace_of;
use super::section::decode_section;
use super::tolerations::{covers, merge, normal};
use plinth_api::{ApiError, ConfigKind, Reason};
use plinth_apiserver::context::Operation;
use plinth_kinds::quality_of_service;
use plinth_kinds::validate_tolerations;

pub(super) const NAME: &str = "PodTolerationRestriction";
const DEFAULT: &str = "scheduler.alpha.kubernetes.io/defaultTolerations";
const ALLOWED: &str = "scheduler.alpha.kubernetes.io/tolerationsWhitelist";

const KIND: ConfigKind =
    ConfigKind { kind: "Configuration", versions: &["podtolerationrestriction.admission.k8s.io/v1alpha1"] };

/// The section of the configuration file; its tolerations are those of pods, and validated as such.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Configuration {
    #[serde(rename = "default")]
    _default: Vec<IgnoredAny>,
    #[serde(rename = "whitelist")]
    _whitelist: Vec<IgnoredAny>,
}

/// Tolerations of namespaces without annotations.
#[derive(Debug, Default)]
pub(super) struct Tolerations {
    /// Default tolerations.
    default: Vec<Value>,
    /// Allowed tolerations; empty allows everything.
    allowed: Vec<Value>,
}

impl Tolerations {
    /// Loads the configuration.
    ///
    /// # Errors
    /// Another kind, unknown members, invalid tolerations.
    pub(super) fn read(part: &Value) -> Result<Tolerations, String> {
        decode_section::<Configuration>(part, KIND)?;
        let list = |key: &str| {
            let given = part.list_at(&[key]);
            let mut errors = Vec::new();
            let holder = tree!({ "tolerations": given.to_vec() });
            validate_tolerations(&holder, format_args!("podtolerationrestriction.{key}."), &mut errors);
            match errors.first() {
                None => Ok(given.iter().map(normal).collect()),
                Some(error) => Err(format!("invalid config: {}: {}", error.field, error.message)),
            }
        };
        Ok(Tolerations { default: list("default")?, allowed: list("whitelist")? })
    }
}

/// The tolerations in an annotation of a namespace; `None` if it is absent.
fn annotated(namespace: Option<&Value>, key: &str) -> Result<Option<Vec<Value>>, ApiError> {
    let Some(text) = namespace.and_then(|n| n.str_at(&["metadata", "annotations", key])) else {
        return Ok(None);
    };
    if text.is_empty() {
        return Ok(Some(Vec::new()));
    }
    let bad = |why: String| ApiError::new(500, Reason::Unknown, why);
    let parsed = json::parse(text.as_bytes()).map_err(|error| bad(error.to_string()))?;
    match &parsed {
        Value::Null => Ok(None),
        Value::Array(list) => Ok(Some(list.iter().map(normal).collect())),
        _ => Err(bad(format!("{key}: not a list of tolerations"))),
    }
}

fn of_pod(pod: &Value) -> &[Value] {
    pod.list_at(&["spec", "tolerations"])
}

/// Adds the namespace's default tolerations, and a toleration of memory pressure unless the pod is
/// best-effort.
///
/// # Errors
/// As [`validate`].
pub(super) async fn admit(call: &Call<'_>, settings: &Tolerations, pod: &mut Value) -> Result<(), ApiError> {
    let mut more = match call.operation {
        Operation::Create => {
            let namespace = namespace_of(call).await?;
            annotated(namespace.as_ref(), DEFAULT)?.unwrap_or_else(|| settings.default.clone())
        }
        _ => Vec::new(),
    };
    if quality_of_service(pod) != "BestEffort" {
        let short = tree!({
            "effect": "NoSchedule",
            "key": "node.kubernetes.io/memory-pressure",
            "operator": "Exists",
        });
        more.push(short);
    }
    if !more.is_empty() {
        let given: Vec<Value> = of_pod(pod).iter().map(normal).collect();
        let merged = merge(&given, &more);
        if let Some(spec) = pod.object_at_mut(&["spec"]) {
            spec.insert("tolerations", merged);
        }
    }
    validate(call, settings, pod).await
}

/// Denies a pod with tolerations that are not allowed.
///
/// # Errors
/// 500 as upstream answers, also for invalid annotations.
pub(super) async fn validate(call: &Call<'_>, settings: &Tolerations, pod: &Value) -> Result<(), ApiError> {
    let given = of_pod(pod);
    if given.is_empty() {
        return Ok(());
    }
    let namespace = namespace_of(call).await?;
    let own = annotated(namespace.as_ref(), ALLOWED)?;
    let (allowed, scope) = match &own {
        Some(own) => (own, "namespace"),
        None => (&settings.allowed, "cluster"),
    };
    let is_allowed = |toleration: &Value| allowed.iter().any(|wide| covers(wide, &normal(toleration)));
    if allowed.is_empty() || given.iter().all(is_allowed) {
        return Ok(());
    }
    let why = format!(
        "pod tolerations (possibly merged with namespace default tolerations) conflict with its {scope} whitelist"
    );
    Err(ApiError::new(500, Reason::Unknown, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_by_table() {
        const HEAD: &str =
            r#""apiVersion":"podtolerationrestriction.admission.k8s.io/v1alpha1","kind":"Configuration""#;
        let read = |members: &str| {
            let text = format!("{{{HEAD}{members}}}");
            Tolerations::read(&json::parse(text.as_bytes()).unwrap())
        };
        let good = read(r#","default":[{"key":"a","operator":"Exists"}],"whitelist":[]"#).unwrap();
        assert_eq!((good.default.len(), good.allowed.len()), (1, 0));
        assert!(read(r#","defaults":[]"#).unwrap_err().contains("unknown field"));
        assert!(read(r#","default":[{"key":"a b"}]"#).unwrap_err().starts_with("invalid config: "));
    }
}
