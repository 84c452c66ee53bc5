//! State of a definition: whether it is served, its rows, its status.

use std::sync::Arc;

use plinth_codec::{tree, Map, Value};
use plinth_engine::Revision;

use plinth_api::{finalizers, is_condition_true, is_deleting, metadata_text, set_condition, ApiError};
use plinth_apiserver::egress::webhook::is_ca_bundle;
use plinth_kinds::custom_resource_definition::FINALIZER;
use plinth_registry::{
    custom_rows, definition_approval, definition_fingerprint, definition_spec_digest, is_protected_group,
    take_schemas, Approval, CustomRows, Definition, DefinitionNames, NameConflict, SchemaText,
};
use plinth_storage::Stored;

/// A stored definition.
pub(super) struct StoredDefinition {
    /// Without the schemas of its versions.
    pub(super) tree: Value,
    /// The schemas, in the order of the versions.
    schemas: Vec<SchemaText>,
    pub(super) revision: Revision,
    /// Hash of the UID and the spec.
    spec_digest: [u8; 32],
}

impl StoredDefinition {
    pub(super) fn new(mut tree: Value, revision: Revision) -> StoredDefinition {
        StoredDefinition {
            spec_digest: definition_spec_digest(&tree),
            schemas: take_schemas(&mut tree),
            revision,
            tree,
        }
    }

    /// Parses a stored value.
    pub(super) fn parse(value: &[u8], revision: Revision) -> Result<StoredDefinition, ApiError> {
        let stored = Stored::parse(value).map_err(ApiError::internal)?;
        let mut tree = plinth_codec::json::parse(stored.body()).map_err(ApiError::internal)?;
        if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
            metadata.insert("resourceVersion", revision.to_string());
        }
        Ok(StoredDefinition::new(tree, revision))
    }
}

/// A definition, and the state derived from it.
pub(super) struct DefinitionState {
    pub(super) stored: StoredDefinition,
    /// The accepted names.
    pub(super) accepted: DefinitionNames,
    pub(super) conflict: Option<NameConflict>,
    fingerprint: [u8; 32],
    /// None when it cannot be served.
    pub(super) rows: Option<(Arc<Definition>, CustomRows)>,
}

pub(super) fn group_of(tree: &Value) -> &str {
    tree.str_at(&["spec", "group"]).unwrap_or_default()
}

impl DefinitionState {
    pub(super) fn new(stored: StoredDefinition) -> DefinitionState {
        DefinitionState {
            accepted: DefinitionNames::of(stored.tree.at(&["status", "acceptedNames"])),
            conflict: None,
            fingerprint: [0; 32],
            rows: None,
            stored,
        }
    }

    /// Updates the state with a new version of the definition.
    pub(super) fn update(&mut self, stored: StoredDefinition) {
        // If the definition was recreated between two events the old state does not apply.
        if metadata_text(&self.stored.tree, "uid") != metadata_text(&stored.tree, "uid") {
            self.accepted = DefinitionNames::default();
        }
        self.stored = stored;
    }

    fn storage_version(&self) -> Option<&str> {
        let versions = self.stored.tree.at(&["spec", "versions"]).and_then(Value::as_array)?;
        let stored = versions.iter().find(|v| v.get("storage").and_then(Value::as_bool) == Some(true));
        stored?.str_at(&["name"])
    }

    /// Whether the definition is being deleted, and its objects are to be deleted before.
    pub(super) fn is_removed(&self) -> bool {
        let tree = &self.stored.tree;
        is_deleting(tree) && finalizers(tree).contains(&FINALIZER)
    }

    pub(super) fn is_established(&self) -> bool {
        is_condition_true(&self.stored.tree, "Established")
    }

    /// Whether it is served: accepted names are kept in spite of later conflicts.
    fn is_served(&self) -> bool {
        let was_established = self.is_established();
        self.accepted.is_complete() && (was_established || self.conflict.is_none()) && !self.has_bad_bundle()
    }

    /// Whether the webhook's CA bundle is invalid, which prevents the condition Established.
    fn has_bad_bundle(&self) -> bool {
        let bundle = self.stored.tree.str_at(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]);
        !self.is_established() && bundle.is_some_and(|bundle| !is_ca_bundle(bundle))
    }

    /// Updates the rows; returns whether they changed.
    pub(super) fn update_rows(&mut self) -> bool {
        if !self.is_served() {
            return self.rows.take().is_some();
        }
        let fingerprint = definition_fingerprint(&self.stored.spec_digest, &self.accepted);
        if self.rows.is_some() && fingerprint == self.fingerprint {
            return false;
        }
        let names = self.accepted.clone();
        let definition = Arc::new(Definition::new(&self.stored.tree, &self.stored.schemas, names));
        if let Some((old, _)) = &self.rows {
            for version in &definition.versions {
                let before = old.position(&version.name).and_then(|i| old.versions.get(i));
                if let Some(before) = before {
                    version.schema.share(&before.schema);
                }
            }
        }
        let made = self.storage_version().and_then(|storage| custom_rows(&definition, storage));
        self.fingerprint = fingerprint;
        self.rows = made.map(|rows| (definition, rows));
        true
    }

    /// The desired status of the definition.
    pub(super) fn status(&self) -> Value {
        let status =
            self.stored.tree.get("status").and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        let mut object = tree!({ "status": status });
        if let Some(status) = object.object_at_mut(&["status"]) {
            status.insert("acceptedNames", self.accepted.to_value());
        }
        let mut set = |kind: &str, (status, reason, message): (&str, &str, &str)| {
            set_condition(&mut object, kind, status, reason, message);
        };
        set(
            "NamesAccepted",
            match &self.conflict {
                Some(conflict) => ("False", conflict.reason, &conflict.message),
                None => ("True", "NoConflicts", "no conflicts found"),
            },
        );
        if !self.is_established() {
            let established = match (self.conflict.is_some(), self.has_bad_bundle()) {
                (true, _) => ("False", "NotAccepted", "not all names are accepted"),
                (_, true) => ("False", "InvalidCABundle", "The conversion webhook CABundle is invalid"),
                _ => ("True", "InitialNamesAccepted", "the initial names have been accepted"),
            };
            set("Established", established);
        }
        if is_protected_group(group_of(&self.stored.tree)) {
            let (state, why) = definition_approval(&self.stored.tree);
            let (status, reason) = match state {
                Approval::Invalid => ("False", "InvalidAnnotation"),
                Approval::Missing => ("False", "MissingAnnotation"),
                Approval::Approved => ("True", "ApprovedAnnotation"),
                Approval::Bypassed => ("False", "UnapprovedAnnotation"),
            };
            set("KubernetesAPIApprovalPolicyConformant", (status, reason, &why));
        }
        object.get("status").cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::find_condition;

    fn state(text: &str) -> DefinitionState {
        let tree = plinth_codec::json::parse(text.as_bytes()).unwrap();
        let accepted = DefinitionNames::of(tree.at(&["spec", "names"]));
        DefinitionState { accepted, ..DefinitionState::new(StoredDefinition::new(tree, Revision::ZERO)) }
    }

    const SAMPLE: &str = r#"{"metadata":{"name":"cars.example.com"},"spec":{"group":"example.com","scope":"Cluster",
        "names":{"plural":"cars","singular":"car","kind":"Car","listKind":"CarList"},
        "versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]},
        "status":{"storedVersions":["v1"]}}"#;

    #[test]
    fn conditions_follow_the_state() {
        let of = |state: &DefinitionState, kind: &str| {
            let tree = tree!({ "status": state.status() });
            let c = find_condition(&tree, kind).cloned().unwrap_or_default();
            let text = |key: &str| c.str_at(&[key]).unwrap_or_default().to_owned();
            (text("status"), text("reason"))
        };
        let mut car = state(SAMPLE);
        assert_eq!(of(&car, "NamesAccepted"), ("True".into(), "NoConflicts".into()));
        assert_eq!(of(&car, "Established"), ("True".into(), "InitialNamesAccepted".into()));
        car.conflict = Some(NameConflict { reason: "PluralConflict", message: String::new() });
        assert_eq!(of(&car, "NamesAccepted"), ("False".into(), "PluralConflict".into()));
        assert_eq!(of(&car, "Established"), ("False".into(), "NotAccepted".into()));
        let broken = SAMPLE.replacen(
            "\"spec\":{",
            r#""spec":{"conversion":{"strategy":"Webhook","webhook":{"clientConfig":{"caBundle":"eA=="}}},"#,
            1,
        );
        assert_eq!(of(&state(&broken), "Established"), ("False".into(), "InvalidCABundle".into()));
        let community = SAMPLE.replace("example.com", "x.k8s.io");
        let (status, reason) = of(&state(&community), "KubernetesAPIApprovalPolicyConformant");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "MissingAnnotation"));
    }

    #[test]
    fn rows_are_rebuilt_only_when_the_spec_changes() {
        let mut car = state(SAMPLE);
        assert!(car.update_rows());
        assert!(!car.update_rows());
        let mut change = |from: &str, to: &str| {
            let tree = plinth_codec::json::parse(SAMPLE.replace(from, to).as_bytes()).unwrap();
            car.stored = StoredDefinition::new(tree, Revision::ZERO);
            car.update_rows()
        };
        assert!(!change("[\"v1\"]", "[\"v0\",\"v1\"]"), "the status has nothing to do with them");
        assert!(change("Cluster", "Namespaced"));
    }
}
