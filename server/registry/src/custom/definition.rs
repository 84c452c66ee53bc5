//! A CustomResourceDefinition, as far as serving its objects needs it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use plinth_codec::schema::GVK;
use plinth_codec::Value;
use sha2::{Digest, Sha256};
use smol_str::SmolStr;

use super::schema::{SchemaText, VersionSchema};
use plinth_api::is_condition_true;

/// Group, version and plural of the definitions themselves.
pub const DEFINITION_RESOURCE: (&str, &str, &str) =
    ("apiextensions.k8s.io", "v1", "customresourcedefinitions");

/// A definition. Immutable but for one flag; shared by the rows of all its versions.
#[derive(Debug)]
pub struct Definition {
    /// `plural.group`.
    pub name: SmolStr,
    /// The API group.
    pub group: SmolStr,
    /// The accepted names.
    pub names: DefinitionNames,
    /// Whether objects are namespaced.
    pub namespaced: bool,
    /// Versions in the order of the definition.
    pub versions: Vec<DefinitionVersion>,
    /// How objects are converted between versions.
    pub conversion: ConversionStrategy,
    /// Whether unknown fields are preserved (`spec.preserveUnknownFields`, of v1beta1).
    pub preserves_unknown: bool,
    /// Whether the definition is being deleted, so that no more objects are created. The only state that
    /// changes while it is served; a flag and not another registry, because watches continue until the
    /// objects are deleted.
    terminating: AtomicBool,
}

/// `spec.names` and `status.acceptedNames`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefinitionNames {
    /// `crontabs`
    pub plural: SmolStr,
    /// `crontab`
    pub singular: SmolStr,
    /// `CronTab`
    pub kind: SmolStr,
    /// `CronTabList`
    pub list_kind: SmolStr,
    /// `ct`
    pub short_names: Vec<SmolStr>,
    /// `all`
    pub categories: Vec<SmolStr>,
}

/// One of `spec.versions`.
#[derive(Debug)]
pub struct DefinitionVersion {
    /// `v1`
    pub name: SmolStr,
    /// Whether the version is served.
    pub served: bool,
    /// The warning for clients; `None` when it is not deprecated.
    pub deprecation: Option<String>,
    /// Whether it has the subresource `status`.
    pub has_status: bool,
    /// The paths of the subresource `scale`.
    pub scale: Option<ScalePaths>,
    /// `additionalPrinterColumns`.
    pub columns: Vec<Value>,
    /// The JSON paths of `selectableFields`, as given.
    pub selectable: Vec<SmolStr>,
    /// The schema of objects.
    pub schema: VersionSchema,
}

/// `subresources.scale`: JSON paths in dot notation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScalePaths {
    /// Path of the desired number of replicas.
    pub spec: JsonPath,
    /// Path of the observed number of replicas.
    pub status: JsonPath,
    /// Path of the label selector, a string.
    pub selector: Option<JsonPath>,
}

/// A simple JSON path like `.spec.replicas`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath {
    /// The path as in the definition.
    pub text: SmolStr,
}

/// `spec.conversion`.
#[derive(Debug)]
pub enum ConversionStrategy {
    /// Only `apiVersion` changes.
    None,
    /// A webhook converts.
    Webhook(Arc<ConversionWebhook>),
}

/// Supported versions of ConversionReview.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// The conversion webhook of a definition. Immutable.
#[derive(Debug)]
pub struct ConversionWebhook {
    /// `clientConfig`.
    pub config: Value,
    /// `v1` or `v1beta1`; `None` when the definition lists neither.
    pub review_version: Option<&'static str>,
}

impl ConversionWebhook {
    /// Reads `spec.conversion.webhook`.
    pub fn new(definition: &Value) -> ConversionWebhook {
        let webhook = definition.at(&["spec", "conversion", "webhook"]);
        let get = |key: &str| webhook.and_then(|webhook| webhook.get(key));
        let versions = get("conversionReviewVersions").and_then(Value::as_array).unwrap_or_default();
        let known = |v: &Value| REVIEW_VERSIONS.iter().find(|known| v.as_str() == Some(known)).copied();
        ConversionWebhook {
            config: get("clientConfig").cloned().unwrap_or_default(),
            review_version: versions.iter().find_map(known),
        }
    }
}

impl JsonPath {
    fn new(text: &str) -> JsonPath {
        JsonPath { text: text.into() }
    }

    /// The field names along the path.
    pub fn steps(&self) -> Vec<&str> {
        self.text.strip_prefix('.').unwrap_or(&self.text).split('.').collect()
    }
}

fn texts(value: Option<&Value>) -> Vec<SmolStr> {
    let list = value.and_then(Value::as_array).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(SmolStr::new).collect()
}

impl DefinitionNames {
    /// Reads `spec.names` or `status.acceptedNames`.
    pub fn of(value: Option<&Value>) -> DefinitionNames {
        let text = |key: &str| SmolStr::from(value.and_then(|v| v.str_at(&[key])).unwrap_or_default());
        let list = |key: &str| texts(value.and_then(|v| v.get(key)));
        DefinitionNames {
            plural: text("plural"),
            singular: text("singular"),
            kind: text("kind"),
            list_kind: text("listKind"),
            short_names: list("shortNames"),
            categories: list("categories"),
        }
    }

    /// As in the status: empty lists and strings are omitted, except for the two that upstream always writes.
    pub fn to_value(&self) -> Value {
        let mut map = plinth_codec::Map::new();
        map.insert("plural", self.plural.clone());
        map.insert("kind", self.kind.clone());
        for (key, text) in [("singular", &self.singular), ("listKind", &self.list_kind)] {
            if !text.is_empty() {
                map.insert(key, text.clone());
            }
        }
        for (key, list) in [("shortNames", &self.short_names), ("categories", &self.categories)] {
            if !list.is_empty() {
                map.insert(key, list.iter().cloned().map(Value::String).collect::<Vec<_>>());
            }
        }
        Value::Object(map)
    }

    /// Whether the names that are required to serve are set.
    pub fn is_complete(&self) -> bool {
        [&self.plural, &self.singular, &self.kind, &self.list_kind].iter().all(|name| !name.is_empty())
    }
}

impl Definition {
    /// Reads a definition whose schemas have been removed by [`take_schemas`]. `accepted` are its accepted
    /// names.
    pub fn new(tree: &Value, schemas: &[SchemaText], accepted: DefinitionNames) -> Definition {
        let null = Value::Null;
        let spec = tree.get("spec").unwrap_or(&null);
        let group = SmolStr::from(spec.str_at(&["group"]).unwrap_or_default());
        let list = spec.list_at(&["versions"]);
        let conversion = match spec.str_at(&["conversion", "strategy"]) {
            Some("Webhook") => ConversionStrategy::Webhook(Arc::new(ConversionWebhook::new(tree))),
            _ => ConversionStrategy::None,
        };
        let preserves_unknown = spec.get("preserveUnknownFields").and_then(Value::as_bool) == Some(true);
        let kind = accepted.kind.clone();
        Definition {
            name: tree.str_at(&["metadata", "name"]).unwrap_or_default().into(),
            versions: list
                .iter()
                .zip(schemas)
                .map(|(v, s)| DefinitionVersion::new(v, s, list, &group, &kind))
                .collect(),
            namespaced: spec.str_at(&["scope"]) == Some("Namespaced"),
            conversion,
            preserves_unknown,
            names: accepted,
            group,
            terminating: AtomicBool::new(is_condition_true(tree, "Terminating")),
        }
    }

    /// Whether the definition is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.terminating.load(Ordering::Relaxed)
    }

    /// Marks the definition as being deleted.
    pub fn set_terminating(&self) {
        self.terminating.store(true, Ordering::Relaxed);
    }

    /// Index of a version.
    pub fn position(&self, version: &str) -> Option<usize> {
        self.versions.iter().position(|v| v.name == version)
    }
}

/// Removes the schemas from a definition and returns them compressed, one per version: as trees they are most
/// of the memory of a definition.
pub fn take_schemas(tree: &mut Value) -> Vec<SchemaText> {
    let Some(spec) = tree.object_at_mut(&["spec"]) else { return Vec::new() };
    let preserves_unknown = spec.get("preserveUnknownFields").and_then(Value::as_bool) == Some(true);
    let versions = spec.get_mut("versions").and_then(Value::as_array_mut);
    let take = |version: &mut Value| {
        let schema = version.as_object_mut().and_then(|version| version.remove("schema"));
        let schema = schema.as_ref().and_then(|schema| schema.get("openAPIV3Schema"));
        SchemaText::new(schema, selectable(version), preserves_unknown)
    };
    versions.into_iter().flatten().map(take).collect()
}

/// The paths of `selectableFields` of a version.
fn selectable(version: &Value) -> impl Iterator<Item = &str> {
    let fields = version.list_at(&["selectableFields"]);
    fields.iter().filter_map(|field| field.str_at(&["jsonPath"]))
}

/// Hash of the UID and `spec` of a definition.
pub fn definition_spec_digest(tree: &Value) -> [u8; 32] {
    let mut text = Vec::with_capacity(4096);
    plinth_codec::json::write_untyped(tree.get("spec").unwrap_or(&Value::Null), &mut text);
    text.extend_from_slice(tree.str_at(&["metadata", "uid"]).unwrap_or_default().as_bytes());
    Sha256::digest(&text).into()
}

/// Hash of the UID, `spec` and accepted names of a definition.
pub fn definition_fingerprint(spec_digest: &[u8; 32], accepted: &DefinitionNames) -> [u8; 32] {
    let mut text = spec_digest.to_vec();
    plinth_codec::json::write_untyped(&accepted.to_value(), &mut text);
    Sha256::digest(&text).into()
}

impl DefinitionVersion {
    fn new(
        version: &Value,
        schema: &SchemaText,
        all: &[Value],
        group: &str,
        kind: &str,
    ) -> DefinitionVersion {
        let flag = |key: &str| version.get(key).and_then(Value::as_bool) == Some(true);
        let name = version.str_at(&["name"]).unwrap_or_default();
        let list = |key: &str| version.list_at(&[key]);
        let scale = version.at(&["subresources", "scale"]).filter(|s| s.as_object().is_some());
        let path =
            |scale: &Value, key: &str| scale.str_at(&[key]).filter(|p| !p.is_empty()).map(JsonPath::new);
        let deprecation = flag("deprecated").then(|| match version.str_at(&["deprecationWarning"]) {
            Some(warning) => warning.to_owned(),
            None => default_warning(group, kind, name, all),
        });
        DefinitionVersion {
            name: name.into(),
            served: flag("served"),
            deprecation,
            has_status: version.at(&["subresources", "status"]).is_some_and(|s| !s.is_null()),
            scale: scale.and_then(|s| {
                Some(ScalePaths {
                    spec: path(s, "specReplicasPath")?,
                    status: path(s, "statusReplicasPath")?,
                    selector: path(s, "labelSelectorPath"),
                })
            }),
            columns: list("additionalPrinterColumns").to_vec(),
            schema: VersionSchema::new(GVK::new(group, name, kind), schema.clone()),
            selectable: selectable(version).map(SmolStr::new).collect(),
        }
    }
}

/// Upstream's default warning for a deprecated version: it names the best version that is newer.
fn default_warning(group: &str, kind: &str, version: &str, all: &[Value]) -> String {
    use crate::discovery::compare_versions;
    let is = |v: &Value, key: &str| v.get(key).and_then(Value::as_bool) == Some(true);
    let newer = all
        .iter()
        .filter(|v| is(v, "served") && !is(v, "deprecated"))
        .filter_map(|v| v.str_at(&["name"]))
        .filter(|other| compare_versions(version, other).is_lt())
        .max_by(|a, b| compare_versions(a, b));
    match newer {
        Some(newer) => format!("{group}/{version} {kind} is deprecated; use {group}/{newer} {kind}"),
        None => format!("{group}/{version} {kind} is deprecated"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn definition(text: &str) -> Definition {
        let mut tree = json::parse(text.as_bytes()).unwrap();
        let schemas = take_schemas(&mut tree);
        Definition::new(&tree, &schemas, DefinitionNames::of(tree.at(&["spec", "names"])))
    }

    const SAMPLE: &str = r#"{"metadata":{"name":"crontabs.example.com","uid":"u"},"spec":{"group":"example.com",
        "scope":"Namespaced","names":{"plural":"crontabs","singular":"crontab","kind":"CronTab",
        "listKind":"CronTabList","shortNames":["ct"]},"versions":[
        {"name":"v1beta1","served":true,"storage":false,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object"}}},
        {"name":"v1","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object"}},
         "subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}}},
        {"name":"v2","served":true,"storage":true,"selectableFields":[{"jsonPath":".spec.color"}],
         "schema":{"openAPIV3Schema":{"type":"object"}}}]}}"#;

    #[test]
    fn a_definition_is_read() {
        let definition = definition(SAMPLE);
        assert!(definition.namespaced && definition.names.is_complete());
        assert_eq!(definition.position("v1"), Some(1));
        let [beta, v1, v2] = &definition.versions[..] else { panic!("three versions") };
        assert_eq!(
            beta.deprecation.as_deref(),
            Some("example.com/v1beta1 CronTab is deprecated; use example.com/v2 CronTab")
        );
        assert!(v1.has_status && !v2.has_status);
        assert_eq!(v1.scale.as_ref().map(|s| s.spec.steps()), Some(vec!["spec", "n"]));
        assert_eq!(v2.selectable, [".spec.color"]);
        assert_eq!(beta.schema.stamp(), v1.schema.stamp(), "equal schemas are the same");
        assert_ne!(v1.schema.stamp(), v2.schema.stamp(), "selectable fields are part of what is stored");
    }

    #[test]
    fn the_fingerprint_follows_the_spec_and_not_the_status() {
        let other = SAMPLE.replace("\"ct\"", "\"cr\"");
        let status = SAMPLE.replacen('{', r#"{"status":{"storedVersions":["v2"]},"#, 1);
        let of = |text: &str| {
            let tree = json::parse(text.as_bytes()).unwrap();
            definition_fingerprint(
                &definition_spec_digest(&tree),
                &DefinitionNames::of(tree.at(&["spec", "names"])),
            )
        };
        assert_ne!(of(SAMPLE), of(&other));
        assert_eq!(of(SAMPLE), of(&status));
    }
}
