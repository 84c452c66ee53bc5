//! Prints an OpenAPI document of the built-in kinds, or of a CustomResourceDefinition given as JSON:
//!
//! ```sh
//! cargo run --release -p plinth-codec --example openapi -- v3 apps v1
//! cargo run --release -p plinth-codec --example openapi -- v2 protobuf > openapi.pb
//! kubectl get crd NAME -o json | cargo run --release -p plinth-codec --example openapi -- custom v1
//! ```
//!
//! Deletions return a Status here: which kinds return the object instead is part of their strategies.

use std::error::Error;
use std::io::Write;

use plinth_codec::openapi::{descriptions, gnostic, v2, v3, CustomSchema, PublishedResource};
use plinth_codec::resources::{self, Resource, Subresource};
use plinth_codec::schema::{self, GVK};
use plinth_codec::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (args, protobuf) = match args.as_slice() {
        [args @ .., "protobuf"] => (args, true),
        args => (args, false),
    };
    let texts = descriptions::bundled();
    let rows = || resources::builtin().resources.iter();
    let json = match args {
        ["v2"] => {
            let all: Vec<PublishedResource> = rows().map(PublishedResource::builtin).collect();
            v2::document(schema::builtin(), &all, &*texts)
        }
        ["v3", group, version] => {
            let group = if *group == "core" { "" } else { *group };
            let some = rows().filter(|r| r.group == group && r.version == *version);
            let some: Vec<PublishedResource> = some.map(PublishedResource::builtin).collect();
            v3::version(schema::builtin(), group, version, &some, &*texts)
        }
        ["custom", version] => {
            let definition = value(serde_json::from_reader(std::io::stdin())?);
            let resource =
                row(&definition, version).ok_or("no CustomResourceDefinition with that version")?;
            let schema = version_of(&definition, version).and_then(|v| v.at(&["schema", "openAPIV3Schema"]));
            let custom = CustomSchema { schema, preserve_unknown_fields: false, selectable_fields: &[] };
            let published = [PublishedResource::custom(&resource, custom)];
            v3::version(schema::builtin(), &resource.group, version, &published, &*texts)
        }
        _ => {
            return Err(
                "arguments: v2, v3 GROUP|core VERSION, or custom VERSION; then protobuf or nothing".into()
            )
        }
    };
    let bytes = match (protobuf, args[0]) {
        (false, _) => json,
        (true, "v2") => gnostic::v2(&json)?,
        (true, _) => gnostic::v3(&json)?,
    };
    std::io::stdout().write_all(&bytes)?;
    Ok(())
}

fn version_of<'a>(definition: &'a Value, version: &str) -> Option<&'a Value> {
    let versions = definition.at(&["spec", "versions"])?.as_array()?;
    versions.iter().find(|v| v.str_at(&["name"]) == Some(version))
}

/// The resource of a definition, as far as OpenAPI needs it.
fn row(definition: &Value, version: &str) -> Option<Resource> {
    let subresources = version_of(definition, version)?.get("subresources");
    let name = |field| definition.str_at(&["spec", "names", field]).map(smol_str::SmolStr::from);
    let group = definition.str_at(&["spec", "group"])?;
    let kind = name("kind")?;
    let served =
        ["scale", "status"].into_iter().filter(|s| subresources.is_some_and(|all| all.get(s).is_some()));
    let subresources = served.map(|sub| Subresource {
        name: sub.into(),
        gvk: match sub {
            "scale" => GVK::new("autoscaling", "v1", "Scale"),
            _ => GVK::new(group, version, kind.clone()),
        },
        verbs: ["get", "patch", "update"].map(Into::into).to_vec(),
        text_options: None,
    });
    Some(Resource {
        group: group.into(),
        version: version.into(),
        plural: name("plural")?,
        singular: name("singular").unwrap_or_default(),
        list_kind: name("listKind").unwrap_or_else(|| format!("{kind}List").into()),
        subresources: subresources.collect(),
        kind,
        short_names: vec![],
        categories: vec![],
        namespaced: definition.str_at(&["spec", "scope"]) == Some("Namespaced"),
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(Into::into)
            .to_vec(),
        storage: None,
    })
}

fn value(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(b) => b.into(),
        serde_json::Value::Number(n) => match n.as_i64() {
            Some(n) => n.into(),
            None => Value::Float(n.as_f64().unwrap_or_default()),
        },
        serde_json::Value::String(s) => s.into(),
        serde_json::Value::Array(items) => Value::Array(items.into_iter().map(value).collect()),
        serde_json::Value::Object(map) => {
            Value::Object(map.into_iter().map(|(k, v)| (k.into(), value(v))).collect())
        }
    }
}
