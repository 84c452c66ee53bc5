//! Objects in versions of the API that are not served any more, as etcd may have them.
//!
//! kube-apiserver reads every version that it knows and converts it. Here a version is imported where the
//! fields of the object are the same in the stored version: a tree that has another field is refused with the
//! field's path. CustomResourceDefinitions, which kube-apiserver stores as `v1beta1` to this day, have a
//! conversion of their own.

use plinth_codec::json::{self, DecodeOptions};
use plinth_codec::{Map, Value};
use plinth_registry::{ResourceType, StorageForm};

use crate::refusal::Refusal;

/// Fields of `spec` in `v1beta1` that stand for those of each version that has none, by their names in a
/// version.
const PER_VERSION: [(&str, &str); 4] = [
    ("validation", "schema"),
    ("subresources", "subresources"),
    ("additionalPrinterColumns", "additionalPrinterColumns"),
    ("selectableFields", "selectableFields"),
];

/// The tree of an object in the storage version of its resource.
pub(crate) fn convert(
    mut tree: Value,
    api_version: &str,
    resource: &ResourceType,
    form: &StorageForm,
) -> Result<Value, Refusal> {
    if api_version == "apiextensions.k8s.io/v1beta1" {
        convert_definition(&mut tree);
    }
    let options = DecodeOptions { strict: true };
    let decoded = json::conform(tree, resource.schema, form.root, &options)
        .map_err(|error| Refusal::Decode(error.to_string()))?;
    match decoded.strict.first() {
        None => Ok(decoded.value),
        Some(error) => Err(Refusal::Version { version: api_version.to_owned(), error: error.to_string() }),
    }
}

/// A CustomResourceDefinition of `v1beta1` as `v1` has it (k8s.io/apiextensions-apiserver
/// `pkg/apis/apiextensions`, the conversions of both versions).
fn convert_definition(tree: &mut Value) {
    let Some(spec) = tree.object_at_mut(&["spec"]) else { return };
    let version = spec.remove("version");
    let has_versions = spec.get("versions").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if let (false, Some(Value::String(name))) = (has_versions, version) {
        let mut only = Map::new();
        only.insert("name", name);
        only.insert("served", true);
        only.insert("storage", true);
        spec.insert("versions", vec![Value::Object(only)]);
    }
    let general: Vec<(&str, Option<Value>)> =
        PER_VERSION.iter().map(|(from, to)| (*to, spec.remove(from))).collect();
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for (field, value) in &general {
            if let (Some(value), None | Some(Value::Null)) = (value, version.get(field)) {
                version.insert(*field, value.clone());
            }
        }
        let columns = version.get_mut("additionalPrinterColumns").and_then(Value::as_array_mut);
        for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
            if let Some(path) = column.remove("JSONPath") {
                column.insert("jsonPath", path);
            }
        }
    }
    let Some(conversion) = spec.get_mut("conversion").and_then(Value::as_object_mut) else { return };
    let (config, reviews) =
        (conversion.remove("webhookClientConfig"), conversion.remove("conversionReviewVersions"));
    if conversion.get("strategy").and_then(Value::as_str) == Some("Webhook") {
        let mut webhook = Map::new();
        for (field, value) in [("clientConfig", config), ("conversionReviewVersions", reviews)] {
            if let Some(value) = value {
                webhook.insert(field, value);
            }
        }
        conversion.insert("webhook", Value::Object(webhook));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_registry::Registry;

    fn converted(api_version: &str, plural: (&str, &str), text: &str) -> Result<String, Refusal> {
        let registry = Registry::builtin();
        let resource = registry.get(plural.0, "v1", plural.1).unwrap().clone();
        let form = resource.storage.as_ref().unwrap();
        let tree = json::parse(text.as_bytes()).unwrap();
        let tree = convert(tree, api_version, &resource, form)?;
        let mut out = Vec::new();
        json::write_untyped(tree.get("spec").unwrap(), &mut out);
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn a_definition_of_v1beta1_is_one_of_v1() {
        let definition = ("apiextensions.k8s.io", "customresourcedefinitions");
        let old = r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"a.b"},
            "spec":{"group":"b","version":"v1","names":{"plural":"a","kind":"A"},"scope":"Cluster","preserveUnknownFields":false,
            "validation":{"openAPIV3Schema":{"type":"object"}},"subresources":{"status":{}},
            "versions":[{"name":"v1","served":true,"storage":true},{"name":"v2","served":true,"storage":false,"subresources":{}}],
            "additionalPrinterColumns":[{"name":"Age","type":"date","JSONPath":".metadata.creationTimestamp"}],
            "conversion":{"strategy":"Webhook","webhookClientConfig":{"url":"https://x"},"conversionReviewVersions":["v1"]}}}"#;
        let spec = converted("apiextensions.k8s.io/v1beta1", definition, old).unwrap();
        for expected in [
            r#""webhook":{"clientConfig":{"url":"https://x"},"conversionReviewVersions":["v1"]}"#,
            r#""jsonPath":".metadata.creationTimestamp""#,
            r#""schema":{"openAPIV3Schema":{"type":"object"}}"#,
            r#""subresources":{"status":{}}"#,
        ] {
            assert!(spec.contains(expected), "{expected} in {spec}");
        }
        assert!(!spec.contains("validation") && !spec.contains(r#""version":"#), "{spec}");
        let oldest = r#"{"metadata":{"name":"a.b"},"spec":{"group":"b","version":"v3","names":{"plural":"a","kind":"A"},"scope":"Cluster"}}"#;
        let spec = converted("apiextensions.k8s.io/v1beta1", definition, oldest).unwrap();
        assert!(spec.contains(r#"[{"name":"v3","served":true,"storage":true}]"#), "{spec}");
    }

    #[test]
    fn a_version_with_the_same_fields_is_taken_and_another_one_named() {
        let policy = ("admissionregistration.k8s.io", "validatingadmissionpolicies");
        let text = r#"{"metadata":{"name":"p"},"spec":{"failurePolicy":"Fail","validations":[{"expression":"true"}]}}"#;
        assert!(converted("admissionregistration.k8s.io/v1beta1", policy, text).is_ok());
        let class = ("resource.k8s.io", "deviceclasses");
        let text = r#"{"metadata":{"name":"c"},"spec":{"selectors":[],"suitableNodes":{}}}"#;
        let error = converted("resource.k8s.io/v1alpha3", class, text).unwrap_err().to_string();
        assert!(error.contains("suitableNodes") && error.contains("v1alpha3"), "{error}");
    }
}
