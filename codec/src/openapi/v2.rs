//! OpenAPI 2.0 (Swagger): one document for everything. kubectl up to 1.26 uses it for everything, later
//! versions only if OpenAPI 3.0 is not available.

use std::collections::BTreeMap;

use smol_str::{format_smolstr, SmolStr};

use super::operations::{self, Content, Parameter, PathItem, PathOperation};
use super::schemas::Definitions;
use super::writer::JsonWriter;
use super::{custom, versions_of, Descriptions, Edition, PublishedResource, API_VERSION};
use crate::schema::Schema;

/// Parameters that older clients expect in the operation itself, not as a reference.
const NEVER_SHARED: [&str; 2] = ["dryRun", "fieldValidation"];

/// The document of all `resources`. `schema` is the one of the built-in kinds.
pub fn document(
    schema: &Schema,
    resources: &[PublishedResource],
    descriptions: &dyn Descriptions,
) -> Vec<u8> {
    let versions = versions_of(resources);
    let definitions = Definitions::new(Edition::V2, schema, descriptions, &versions);
    let mut writer = Paths { definitions, shared: BTreeMap::new() };
    let mut w = JsonWriter::new();
    w.object(|w| {
        w.key("swagger").string("2.0");
        w.key("info").object(|w| {
            w.key("title").string("Kubernetes");
            w.key("version").string(API_VERSION);
        });
        w.key("paths").object(|w| {
            operations::of_roots().iter().for_each(|item| writer.item(w, item));
            let mut last_group = SmolStr::default();
            for (group, version) in &versions {
                if *group != last_group {
                    writer.item(w, &operations::of_group(group));
                    last_group = group.clone();
                }
                writer.item(w, &operations::of_version(group, version));
            }
            for published in resources {
                let names = published.names(schema);
                for item in operations::of_resource(schema, published.resource, &names) {
                    writer.item(w, &item);
                }
            }
        });
        let Paths { mut definitions, shared } = writer;
        w.key("definitions").object(|w| {
            for published in resources {
                custom::definitions(w, &mut definitions, published);
            }
            definitions.write_wanted(w);
        });
        w.key("parameters").object(|w| {
            for (name, parameter) in &shared {
                w.key(name);
                self::parameter(w, parameter);
            }
        });
        w.key("securityDefinitions").object(|w| {
            w.key("BearerToken").object(|w| {
                w.key("type").string("apiKey");
                w.key("name").string("authorization");
                w.key("in").string("header");
            });
        });
        w.key("security").array(|w| w.object(|w| w.key("BearerToken").array(|_| {})));
    });
    w.into_bytes()
}

struct Paths<'a> {
    definitions: Definitions<'a>,
    /// Parameters that operations refer to, by their name in the document.
    shared: BTreeMap<SmolStr, Parameter>,
}

impl Paths<'_> {
    fn item(&mut self, w: &mut JsonWriter, item: &PathItem) {
        w.key(&item.path).object(|w| {
            if !item.parameters.is_empty() {
                w.key("parameters").array(|w| self.parameters(w, &item.parameters));
            }
            for operation in &item.operations {
                w.key(operation.method).object(|w| self.operation(w, operation));
            }
        });
    }

    fn operation(&mut self, w: &mut JsonWriter, operation: &PathOperation) {
        w.key("tags").strings([&operation.tag]);
        w.key("operationId").string(&operation.id);
        w.key("schemes").strings(["https"]);
        w.key("consumes").strings(operation.consumes);
        w.key("produces").strings(operation.produces);
        if operation.body.is_some() || !operation.parameters.is_empty() {
            w.key("parameters").array(|w| {
                if let Some(body) = &operation.body {
                    w.object(|w| {
                        w.key("name").string("body");
                        w.key("in").string("body");
                        if body.required {
                            w.key("required").bool(true);
                        }
                        w.key("schema");
                        self.definitions.reference(w, &body.content);
                    });
                }
                self.parameters(w, &operation.parameters);
            });
        }
        operation.write_responses(w, |w, content| {
            w.key("schema");
            match content {
                Content::Named(name) => self.definitions.reference(w, name),
                Content::Text => w.object(|w| w.key("type").string("string")),
            }
        });
    }

    fn parameters(&mut self, w: &mut JsonWriter, parameters: &[Parameter]) {
        for item in parameters {
            if NEVER_SHARED.contains(&item.name.as_str()) {
                parameter(w, item);
                continue;
            }
            let place = if item.in_path { "path" } else { "query" };
            let name = format_smolstr!("{}-{place}-{}", item.name, item.kind);
            w.object(|w| w.key("$ref").string(&format!("#/parameters/{name}")));
            self.shared.entry(name).or_insert_with(|| item.clone());
        }
    }
}

fn parameter(w: &mut JsonWriter, parameter: &Parameter) {
    w.object(|w| {
        w.key("name").string(&parameter.name);
        w.key("in").string(if parameter.in_path { "path" } else { "query" });
        if parameter.in_path {
            w.key("required").bool(true);
        }
        w.key("type").string(parameter.kind);
        w.key("uniqueItems").bool(true);
    });
}
