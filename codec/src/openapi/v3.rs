//! OpenAPI 3.0: a document for each group version, and the index of them.

use smol_str::SmolStr;

use super::operations::{self, Content, Parameter, PathItem, PathOperation};
use super::schemas::Definitions;
use super::writer::JsonWriter;
use super::{custom, versions_of, Descriptions, Edition, PublishedResource, API_VERSION};
use crate::schema::Schema;

/// The document of a group version: its `resources`, with every definition that they refer to. `schema` is
/// the one of the built-in kinds, from which custom resources take their metadata.
pub fn version(
    schema: &Schema,
    group: &str,
    version: &str,
    resources: &[PublishedResource],
    descriptions: &dyn Descriptions,
) -> Vec<u8> {
    let mut versions = versions_of(resources);
    if versions.is_empty() {
        versions.push((group.into(), version.into()));
    }
    let mut definitions = Definitions::new(Edition::V3, schema, descriptions, &versions);
    document(
        &mut definitions,
        |definitions, w| {
            // Upstream's documents of custom resources do not have it.
            if resources.iter().all(|published| published.custom.is_none()) {
                path_item(w, definitions, &operations::of_version(group, version));
            }
            for published in resources {
                let names = published.names(schema);
                for item in operations::of_resource(schema, published.resource, &names) {
                    path_item(w, definitions, &item);
                }
            }
        },
        |definitions, w| {
            for published in resources {
                custom::definitions(w, definitions, published);
            }
        },
    )
}

/// The document of `/apis/G`.
pub fn group(schema: &Schema, group: &str, descriptions: &dyn Descriptions) -> Vec<u8> {
    small(schema, &operations::of_group(group), descriptions)
}

/// The document of `/api`, `/apis` or `/version`, by the path without its slash.
pub fn root(schema: &Schema, path: &str, descriptions: &dyn Descriptions) -> Option<Vec<u8>> {
    let items = operations::of_roots();
    let item = items.iter().find(|item| item.path.trim_matches('/') == path)?;
    Some(small(schema, item, descriptions))
}

/// `/openapi/v3`: for each document its path (`apis/apps/v1`) and its URL, with the hash of its content.
/// Clients cache documents until that changes.
pub fn index(documents: impl IntoIterator<Item = (String, String)>) -> Vec<u8> {
    let mut w = JsonWriter::new();
    w.object(|w| {
        w.key("paths").object(|w| {
            for (path, url) in documents {
                w.key(&path).object(|w| {
                    w.key("serverRelativeURL").string(&url);
                });
            }
        });
    });
    w.into_bytes()
}

fn small(schema: &Schema, item: &PathItem, descriptions: &dyn Descriptions) -> Vec<u8> {
    let mut definitions = Definitions::new(Edition::V3, schema, descriptions, &[]);
    document(&mut definitions, |definitions, w| path_item(w, definitions, item), |_, _| {})
}

/// A whole document; `paths` and `own_definitions` write members.
fn document<'a>(
    definitions: &mut Definitions<'a>,
    paths: impl FnOnce(&mut Definitions<'a>, &mut JsonWriter),
    own_definitions: impl FnOnce(&mut Definitions<'a>, &mut JsonWriter),
) -> Vec<u8> {
    let mut w = JsonWriter::new();
    w.object(|w| {
        w.key("openapi").string("3.0.0");
        w.key("info").object(|w| {
            w.key("title").string("Kubernetes");
            w.key("version").string(API_VERSION);
        });
        w.key("paths").object(|w| paths(definitions, w));
        w.key("components").object(|w| {
            w.key("schemas").object(|w| {
                own_definitions(definitions, w);
                definitions.write_wanted(w);
            });
            w.key("securitySchemes").object(|w| {
                w.key("BearerToken").object(|w| {
                    w.key("type").string("apiKey");
                    w.key("name").string("authorization");
                    w.key("in").string("header");
                });
            });
        });
    });
    w.into_bytes()
}

fn path_item(w: &mut JsonWriter, definitions: &mut Definitions, item: &PathItem) {
    w.key(&item.path).object(|w| {
        parameters(w, &item.parameters);
        for operation in &item.operations {
            w.key(operation.method).object(|w| self::operation(w, definitions, operation));
        }
    });
}

fn operation(w: &mut JsonWriter, definitions: &mut Definitions, operation: &PathOperation) {
    w.key("tags").strings([&operation.tag]);
    w.key("operationId").string(&operation.id);
    parameters(w, &operation.parameters);
    if let Some(body) = &operation.body {
        // A body is decoded by its Content-Type; only patches, whose type depends on it, list media types.
        w.key("requestBody").object(|w| {
            content(w, definitions, operation.consumes, &Content::Named(body.content.clone()));
            if body.required {
                w.key("required").bool(true);
            }
        });
    }
    operation.write_responses(w, |w, what| content(w, definitions, operation.produces, what));
}

fn content(w: &mut JsonWriter, definitions: &mut Definitions, types: &[&str], what: &Content) {
    w.key("content").object(|w| {
        for media_type in types {
            w.key(media_type).object(|w| {
                w.key("schema");
                match what {
                    Content::Named(name) => definitions.reference(w, name),
                    Content::Text => w.object(|w| w.key("type").string("string")),
                }
            });
        }
    });
}

fn parameters(w: &mut JsonWriter, parameters: &[Parameter]) {
    if parameters.is_empty() {
        return;
    }
    w.key("parameters").array(|w| {
        for parameter in parameters {
            w.object(|w| {
                w.key("name").string(&parameter.name);
                w.key("in").string(if parameter.in_path { "path" } else { "query" });
                if parameter.in_path {
                    w.key("required").bool(true);
                }
                w.key("schema").object(|w| {
                    w.key("type").string(parameter.kind);
                    w.key("uniqueItems").bool(true);
                });
            });
        }
    });
}

/// The paths of the documents for a set of group versions, in the order of the index: the roots, then each
/// group and its versions.
pub fn document_paths(versions: &[(SmolStr, SmolStr)]) -> Vec<String> {
    let mut paths: Vec<String> = ["api", "apis", "version"].map(String::from).into();
    for (group, version) in versions {
        match group.is_empty() {
            true => paths.push(format!("api/{version}")),
            false => paths.extend([format!("apis/{group}"), format!("apis/{group}/{version}")]),
        }
    }
    paths.sort();
    paths.dedup();
    paths
}
