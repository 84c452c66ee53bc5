//! Definitions of real projects: they are valid, compile, and are small.

use std::path::{Path, PathBuf};

use plinth_codec::schema::{self, GVK};
use plinth_codec::value::Value;
use plinth_codec::{json, yaml};

use crate::{definition, StructuralSchema};

/// The folder of published manifests; `None` (with a note) if it does not exist.
fn manifests() -> Option<PathBuf> {
    let root = std::env::var_os("PLINTH_FIXTURES").map(PathBuf::from);
    let root = root.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures"));
    let folder = root.join("manifests");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("no fixtures in {}: set PLINTH_FIXTURES", folder.display());
    None
}

/// Each definition with its name, decoded as a server decodes it.
pub(super) fn definitions() -> Vec<(String, Value)> {
    let gvk = GVK::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let root = schema::builtin().kind(&gvk).unwrap();
    let mut all = Vec::new();
    let Some(folder) = manifests() else { return all };
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for document in text.split("\n---") {
                if !document.contains("kind: CustomResourceDefinition") {
                    continue;
                }
                let Ok((tree, _)) = yaml::to_value(document.as_bytes()) else { continue };
                if tree.str_at(&["kind"]) != Some("CustomResourceDefinition") {
                    continue;
                }
                let decoded = json::conform(tree, schema::builtin(), root, &Default::default()).unwrap();
                let name = decoded.value.str_at(&["metadata", "name"]).unwrap().to_owned();
                all.push((name, decoded.value));
            }
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

/// As the server's defaults leave a definition.
fn defaulted(mut definition: Value) -> Value {
    let storage = definition.at(&["spec", "versions"]).and_then(Value::as_array).unwrap();
    let storage: Vec<Value> = storage
        .iter()
        .filter(|v| v.get("storage") == Some(&true.into()))
        .filter_map(|v| v.get("name").cloned())
        .collect();
    definition.object_at_mut(&["status"]).unwrap().insert("storedVersions", storage);
    let names = definition.object_at_mut(&["spec", "names"]).unwrap();
    let kind = names.get("kind").and_then(Value::as_str).unwrap().to_owned();
    for (key, value) in [("listKind", format!("{kind}List")), ("singular", kind.to_lowercase())] {
        if !names.contains(key) {
            names.insert(key, value);
        }
    }
    definition
}

#[test]
fn definitions_of_real_projects_are_valid_and_compile() {
    let all = definitions();
    for (name, definition) in &all {
        let definition = defaulted(definition.clone());
        assert_eq!(definition::validate(&definition), [], "{name}");
        assert_eq!(definition::validate_update(&definition, &definition), [], "{name}");
        assert_eq!(definition::warnings(&definition, Some(&definition)), [""; 0]);
        for version in definition.at(&["spec", "versions"]).and_then(Value::as_array).unwrap() {
            let Some(schema) = version.at(&["schema", "openAPIV3Schema"]) else { continue };
            let compiled = StructuralSchema::compile(schema).unwrap();
            let kind = GVK::new("g", "v", definition.str_at(&["spec", "names", "kind"]).unwrap());
            let model = compiled.model(kind.clone());
            assert!(
                model.structure(model.kind(&kind).unwrap()).unwrap().field("spec").is_some()
                    || name.contains("referencegrant"),
                "{name}"
            );
        }
    }
    println!("{} definitions", all.len());
}
