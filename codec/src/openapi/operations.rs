//! The paths and operations of a resource, common to both versions of OpenAPI.

use std::collections::BTreeMap;

use smol_str::{format_smolstr, SmolStr};

use super::edition::VERSION_INFO;
use super::ids::{capitalized, operation_version, tag};
use super::schemas::kind_object;
use super::writer::JsonWriter;
use crate::negotiate::{MEDIA_TYPES, OBJECT_MEDIA_TYPES};
use crate::resources::{Resource, Subresource};
use crate::schema::{Scalar, Schema, StructType, Type, GVK};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// The media types of objects.
const OBJECT_TYPES: &[&str] = MEDIA_TYPES.split_at(OBJECT_MEDIA_TYPES).0;
/// The media types of lists and watches.
const STREAM_TYPES: &[&str] = MEDIA_TYPES;
/// The same for objects without a protobuf form.
const CUSTOM_TYPES: &[&str] = &["application/json", "application/yaml"];
const PATCH_TYPES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/apply-patch+cbor",
];
const CUSTOM_PATCH_TYPES: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const TEXT_TYPES: &[&str] = &[
    "text/plain",
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
];
const LEGACY_TYPES: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const ANY_TYPE: &[&str] = &["*/*"];
const JSON_TYPE: &[&str] = &["application/json"];

/// A path and its operations.
#[derive(Debug)]
pub(super) struct PathItem {
    pub path: String,
    /// Parameters of every operation here, sorted by name.
    pub parameters: Vec<Parameter>,
    pub operations: Vec<PathOperation>,
}

/// The operation of a method at a path.
#[derive(Debug)]
pub(super) struct PathOperation {
    /// HTTP method in lower case.
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    /// `x-kubernetes-action`.
    pub action: Option<&'static str>,
    /// `x-kubernetes-group-version-kind`: the kind acted upon.
    pub kind: Option<GVK>,
    /// Parameters that not every operation at the path has, sorted by name.
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub consumes: &'static [&'static str],
    pub produces: &'static [&'static str],
    /// Status codes of success with their content.
    pub responses: Vec<(u16, Content)>,
}

impl PathOperation {
    /// Writes the responses, each with what `content` makes of it, and what upstream adds to OpenAPI.
    pub(super) fn write_responses(
        &self,
        w: &mut JsonWriter,
        mut content: impl FnMut(&mut JsonWriter, &Content),
    ) {
        w.key("responses").object(|w| {
            for (code, what) in &self.responses {
                w.key(&code.to_string()).object(|w| {
                    w.key("description").string(reason(*code));
                    content(w, what);
                });
            }
            w.key("401").object(|w| w.key("description").string(reason(401)));
        });
        if let Some(action) = self.action {
            w.key("x-kubernetes-action").string(action);
        }
        if let Some(kind) = &self.kind {
            w.key("x-kubernetes-group-version-kind");
            kind_object(w, kind);
        }
    }
}

fn reason(code: u16) -> &'static str {
    match code {
        201 => "Created",
        202 => "Accepted",
        401 => "Unauthorized",
        _ => "OK",
    }
}

/// A request body.
#[derive(Debug)]
pub(super) struct Body {
    /// Definition of its content.
    pub content: SmolStr,
    pub required: bool,
}

/// The content of a response.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The definition of that name.
    Named(SmolStr),
    /// Text without a schema.
    Text,
}

/// A parameter in the path or the query; all are single values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parameter {
    pub name: SmolStr,
    pub in_path: bool,
    /// JSON Schema's name of its type.
    pub kind: &'static str,
}

impl Parameter {
    fn in_path(name: &'static str) -> Parameter {
        Parameter { name: name.into(), in_path: true, kind: "string" }
    }

    fn pretty() -> Parameter {
        Parameter { name: "pretty".into(), in_path: false, kind: "string" }
    }
}

/// The definition names of a resource's objects.
pub(super) struct Names {
    pub object: SmolStr,
    pub list: SmolStr,
    /// Whether the resource is a custom one: no protobuf, no watch paths of the old form.
    pub custom: bool,
    /// Whether a deletion returns the object, not a Status.
    pub deletion_returns_object: bool,
}

/// Every path of a resource.
pub(super) fn of_resource(schema: &Schema, resource: &Resource, names: &Names) -> Vec<PathItem> {
    Builder { schema, resource, names }.paths()
}

struct Builder<'a> {
    schema: &'a Schema,
    resource: &'a Resource,
    names: &'a Names,
}

/// The path of an operation.
#[derive(Clone, Copy)]
struct OperationPath<'a> {
    path: &'a str,
    /// Suffix of the kind in operation ids: the subresource, capitalized.
    suffix: &'a str,
}

impl Builder<'_> {
    fn paths(&self) -> Vec<PathItem> {
        let r = self.resource;
        let base = version_path(&r.group, &r.version);
        let across = format!("{base}/{}", r.plural);
        let collection = match r.namespaced {
            true => format!("{base}/namespaces/{{namespace}}/{}", r.plural),
            false => across.clone(),
        };
        let mut paths = Vec::new();
        if r.namespaced && r.has_verb("list") {
            let place = OperationPath { path: &across, suffix: "ForAllNamespaces" };
            paths.push(item(&across, vec![self.list(place, "list", "list")]));
        }
        self.collection(&collection, &mut paths);
        let object = format!("{collection}/{{name}}");
        self.object(&object, &mut paths);
        for subresource in &r.subresources {
            self.subresource(&format!("{object}/{}", subresource.name), subresource, &mut paths);
        }
        if r.has_verb("watch") && !self.names.custom {
            self.watches(&base, &mut paths);
        }
        paths
    }

    fn collection(&self, path: &str, paths: &mut Vec<PathItem>) {
        let r = self.resource;
        let place = OperationPath { path, suffix: "" };
        let mut operations = Vec::new();
        if r.has_verb("list") {
            operations.push(self.list(place, "list", "list"));
        }
        if r.has_verb("create") {
            operations.push(self.write("post", place, r.gvk(), &self.names.object));
        }
        if r.has_verb("deletecollection") {
            operations.push(self.delete(place, true));
        }
        paths.extend(non_empty(path, operations));
    }

    fn object(&self, path: &str, paths: &mut Vec<PathItem>) {
        let r = self.resource;
        let place = OperationPath { path, suffix: "" };
        let mut operations = Vec::new();
        if r.has_verb("get") {
            operations.push(self.read(place, r.gvk(), &self.names.object));
        }
        if r.has_verb("update") {
            operations.push(self.write("put", place, r.gvk(), &self.names.object));
        }
        if r.has_verb("patch") {
            operations.push(self.patch(place, r.gvk(), &self.names.object));
        }
        if r.has_verb("delete") {
            operations.push(self.delete(place, false));
        }
        paths.extend(non_empty(path, operations));
    }

    fn subresource(&self, path: &str, subresource: &Subresource, paths: &mut Vec<PathItem>) {
        let suffix = capitalized(&subresource.name);
        let place = OperationPath { path, suffix: &suffix };
        let gvk = &subresource.gvk;
        // A connection takes its options from the query, so its kind is one of options.
        if gvk.kind.ends_with("Options") {
            return self.connections(path, subresource, &suffix, paths);
        }
        let content = match gvk == &self.resource.gvk() {
            true => self.names.object.clone(),
            false => self.type_name(gvk),
        };
        let mut operations = Vec::new();
        for verb in &subresource.verbs {
            operations.push(match (verb.as_str(), &subresource.text_options) {
                ("get", Some(options)) => self.read_text(place, options),
                ("get", None) => self.read(place, gvk.clone(), &content),
                ("update", _) => self.write("put", place, gvk.clone(), &content),
                ("patch", _) => self.patch(place, gvk.clone(), &content),
                ("create", _) => self.write("post", place, gvk.clone(), &content),
                _ => continue,
            });
        }
        paths.extend(non_empty(path, operations));
    }

    fn watches(&self, base: &str, paths: &mut Vec<PathItem>) {
        let r = self.resource;
        let across = format!("{base}/watch/{}", r.plural);
        let (suffix, collection) = match r.namespaced {
            true => ("ListForAllNamespaces", format!("{base}/watch/namespaces/{{namespace}}/{}", r.plural)),
            false => ("List", across.clone()),
        };
        let place = OperationPath { path: &across, suffix };
        paths.push(item(&across, vec![self.list(place, "watch", "watchlist")]));
        if r.namespaced {
            let place = OperationPath { path: &collection, suffix: "List" };
            paths.push(item(&collection, vec![self.list(place, "watch", "watchlist")]));
        }
        if r.has_verb("get") {
            let path = format!("{collection}/{{name}}");
            let place = OperationPath { path: &path, suffix: "" };
            paths.push(item(&path, vec![self.list(place, "watch", "watch")]));
        }
    }

    /// An operation without parameters, body or responses.
    fn operation(&self, method: &'static str, verb: &str, place: OperationPath, kind: GVK) -> PathOperation {
        let r = self.resource;
        // Across all namespaces, "Namespaced" is left out.
        let scope = match place.path.contains("{namespace}") {
            true => "Namespaced",
            false => "",
        };
        // "deletecollection" is the verb "delete" of a "Collection", "connectget" is to "connect" by "Get".
        let (verb, rest) = match verb {
            "deletecollection" => ("delete", "Collection".to_owned()),
            _ => match verb.strip_prefix("connect") {
                Some(method) => ("connect", capitalized(method)),
                None => (verb, String::new()),
            },
        };
        let version = operation_version(&r.group, &r.version);
        let mut parameters = vec![];
        if place.path.contains("{name}") {
            parameters.push(Parameter::in_path("name"));
        }
        if place.path.contains("{namespace}") {
            parameters.push(Parameter::in_path("namespace"));
        }
        if place.path.ends_with("{path}") {
            parameters.push(Parameter::in_path("path"));
        }
        PathOperation {
            method,
            id: format!("{verb}{version}{rest}{scope}{}{}", r.kind, place.suffix),
            tag: tag(&r.group, Some(&r.version)),
            action: None,
            kind: Some(kind),
            parameters,
            body: None,
            consumes: if self.names.custom { CUSTOM_TYPES } else { ANY_TYPE },
            produces: if self.names.custom { CUSTOM_TYPES } else { OBJECT_TYPES },
            responses: Vec::new(),
        }
    }

    fn list(&self, place: OperationPath, verb: &str, action: &'static str) -> PathOperation {
        let mut operation = self.operation("get", verb, place, self.resource.gvk());
        operation.action = Some(action);
        self.options(&mut operation, &["ListOptions"], &[]);
        if !self.names.custom {
            operation.produces = STREAM_TYPES;
        }
        let content = match verb {
            "watch" => format_smolstr!("{META}.WatchEvent"),
            _ => self.names.list.clone(),
        };
        operation.responses = vec![(200, Content::Named(content))];
        operation
    }

    fn read(&self, place: OperationPath, kind: GVK, content: &SmolStr) -> PathOperation {
        let mut operation = self.operation("get", "read", place, kind);
        operation.action = Some("get");
        operation.parameters.push(Parameter::pretty());
        if self.names.custom {
            self.options(&mut operation, &["GetOptions"], &[]);
        }
        operation.responses = vec![(200, Content::Named(content.clone()))];
        operation
    }

    fn read_text(&self, place: OperationPath, options: &GVK) -> PathOperation {
        let mut operation = self.operation("get", "read", place, self.resource.gvk());
        operation.action = Some("get");
        operation.parameters.push(Parameter::pretty());
        self.query_of(&mut operation, self.schema.kind(options), &[]);
        operation.produces = TEXT_TYPES;
        operation.responses = vec![(200, Content::Text)];
        operation
    }

    /// Create and replace.
    fn write(
        &self,
        method: &'static str,
        place: OperationPath,
        kind: GVK,
        content: &SmolStr,
    ) -> PathOperation {
        let (verb, options, codes): (_, _, &[u16]) = match method {
            "post" => ("create", "CreateOptions", &[200, 201, 202]),
            _ => ("replace", "UpdateOptions", &[200, 201]),
        };
        let mut operation = self.operation(method, verb, place, kind);
        operation.action = Some(method);
        self.options(&mut operation, &[options], &[]);
        operation.body = Some(Body { content: content.clone(), required: true });
        operation.responses = codes.iter().map(|code| (*code, Content::Named(content.clone()))).collect();
        operation
    }

    fn patch(&self, place: OperationPath, kind: GVK, content: &SmolStr) -> PathOperation {
        let mut operation = self.operation("patch", "patch", place, kind);
        operation.action = Some("patch");
        self.options(&mut operation, &["PatchOptions"], &[]);
        operation.body = Some(Body { content: format_smolstr!("{META}.Patch"), required: true });
        operation.consumes = if self.names.custom { CUSTOM_PATCH_TYPES } else { PATCH_TYPES };
        let codes: &[u16] = if self.names.custom { &[200] } else { &[200, 201] };
        operation.responses = codes.iter().map(|code| (*code, Content::Named(content.clone()))).collect();
        operation
    }

    fn delete(&self, place: OperationPath, collection: bool) -> PathOperation {
        let (verb, codes): (_, &[u16]) = match collection {
            true => ("deletecollection", &[200]),
            false => ("delete", &[200, 202]),
        };
        let mut operation = self.operation("delete", verb, place, self.resource.gvk());
        operation.action = Some(verb);
        match (collection, self.names.custom) {
            (false, _) => self.options(&mut operation, &["DeleteOptions"], &[]),
            (true, true) => self.options(&mut operation, &["ListOptions"], &[]),
            (true, false) => self.options(
                &mut operation,
                &["DeleteOptions", "ListOptions"],
                &["watch", "allowWatchBookmarks"],
            ),
        }
        if !(collection && self.names.custom) {
            operation.body = Some(Body { content: format_smolstr!("{META}.DeleteOptions"), required: false });
        }
        let content = Content::Named(match self.names.deletion_returns_object && !collection {
            true => self.names.object.clone(),
            false => format_smolstr!("{META}.Status"),
        });
        operation.responses = codes.iter().map(|code| (*code, content.clone())).collect();
        operation
    }

    /// Subresources that proxy the request to another server.
    fn connections(&self, path: &str, sub: &Subresource, suffix: &str, paths: &mut Vec<PathItem>) {
        let mut methods: Vec<&'static str> = Vec::new();
        for verb in &sub.verbs {
            methods.push(match verb.as_str() {
                "get" => "get",
                "create" => "post",
                "update" => "put",
                "patch" => "patch",
                "delete" => "delete",
                _ => continue,
            });
        }
        let proxy = sub.name == "proxy";
        if proxy {
            methods.extend(["head", "options"]);
        }
        let mut add = |path: &str, suffix: &str| {
            let operations = methods.iter().map(|method| {
                let verb = format!("connect{method}");
                let mut operation =
                    self.operation(method, &verb, OperationPath { path, suffix }, sub.gvk.clone());
                operation.action = Some("connect");
                self.query_of(&mut operation, self.schema.kind(&sub.gvk), &[]);
                operation.produces = ANY_TYPE;
                operation.responses = vec![(200, Content::Text)];
                operation
            });
            paths.extend(non_empty(path, operations.collect()));
        };
        add(path, suffix);
        if proxy {
            add(&format!("{path}/{{path}}"), &format!("{suffix}WithPath"));
        }
    }

    /// Adds the query parameters of kinds of meta/v1, and `pretty`.
    fn options(&self, operation: &mut PathOperation, kinds: &[&str], without: &[&str]) {
        operation.parameters.push(Parameter::pretty());
        for kind in kinds {
            self.query_of(operation, self.schema.named(&format_smolstr!("{META}.{kind}")), without);
        }
        // Several kinds of options share fields.
        operation.parameters.sort_by(|a, b| a.name.cmp(&b.name));
        operation.parameters.dedup();
    }

    fn query_of(
        &self,
        operation: &mut PathOperation,
        options: Option<crate::schema::TypeId>,
        without: &[&str],
    ) {
        let Some(options) = options.and_then(|id| self.schema.structure(id)) else {
            return;
        };
        let known: Vec<SmolStr> = operation.parameters.iter().map(|p| p.name.clone()).collect();
        let new = query_parameters(self.schema, options)
            .filter(|p| !without.contains(&p.name.as_str()))
            // `{path}` is a path parameter, the option `path` a query parameter.
            .filter(|p| p.name == "path" || !known.contains(&p.name));
        operation.parameters.extend(new);
    }

    fn type_name(&self, gvk: &GVK) -> SmolStr {
        let found = self.schema.kind(gvk).and_then(|id| self.schema.structure(id));
        found.map(|s| s.name.clone()).unwrap_or_default()
    }
}

/// The fields of an options kind that can stand in a query: single values and lists of them.
fn query_parameters<'a>(schema: &'a Schema, options: &'a StructType) -> impl Iterator<Item = Parameter> + 'a {
    let fields = options.fields.iter().filter(|f| f.name != "kind" && f.name != "apiVersion");
    fields.filter_map(move |field| {
        let scalar = match schema.get(field.type_id) {
            Type::Scalar(scalar) => scalar,
            Type::List { element, .. } => match schema.get(*element) {
                Type::Scalar(scalar) => scalar,
                _ => return None,
            },
            _ => return None,
        };
        let kind = match scalar {
            Scalar::Bool => "boolean",
            Scalar::Int32 | Scalar::Int64 => "integer",
            Scalar::Double => "number",
            Scalar::String { .. } => "string",
            _ => return None,
        };
        Some(Parameter { name: field.name.clone(), in_path: false, kind })
    })
}

fn non_empty(path: &str, operations: Vec<PathOperation>) -> Option<PathItem> {
    (!operations.is_empty()).then(|| item(path, operations))
}

/// Moves the parameters that all operations share to the path.
fn item(path: &str, mut operations: Vec<PathOperation>) -> PathItem {
    // Of parameters with one name, the one in the path comes first.
    let key = |p: &Parameter| (p.name.clone(), !p.in_path);
    let mut uses: BTreeMap<(SmolStr, bool), (usize, Parameter)> = BTreeMap::new();
    for parameter in operations.iter().flat_map(|o| &o.parameters) {
        let entry = uses.entry(key(parameter));
        entry.or_insert((0, parameter.clone())).0 += 1;
    }
    uses.retain(|_, (count, _)| *count == operations.len());
    for operation in &mut operations {
        operation.parameters.retain(|p| !uses.contains_key(&key(p)));
        operation.parameters.sort_by(|a, b| a.name.cmp(&b.name));
    }
    let parameters = uses.into_values().map(|(_, parameter)| parameter).collect();
    PathItem { path: path.to_owned(), parameters, operations }
}

/// A document of discovery or the like: one `GET` without parameters.
fn fixed(
    path: String,
    id: String,
    tag: String,
    content: SmolStr,
    types: &'static [&'static str],
) -> PathItem {
    let operation = PathOperation {
        method: "get",
        id,
        tag,
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        consumes: types,
        produces: types,
        responses: vec![(200, Content::Named(content))],
    };
    PathItem { path, parameters: Vec::new(), operations: vec![operation] }
}

/// The list of resources of a group version.
pub(super) fn of_version(group: &str, version: &str) -> PathItem {
    fixed(
        format!("{}/", version_path(group, version)),
        format!("get{}APIResources", operation_version(group, version)),
        tag(group, Some(version)),
        format_smolstr!("{META}.APIResourceList"),
        OBJECT_TYPES,
    )
}

/// `/apis/G/`.
pub(super) fn of_group(group: &str) -> PathItem {
    fixed(
        format!("/apis/{group}/"),
        format!("get{}APIGroup", capitalized(&tag(group, None))),
        tag(group, None),
        format_smolstr!("{META}.APIGroup"),
        LEGACY_TYPES,
    )
}

/// `/api/`, `/apis/` and `/version/`.
pub(super) fn of_roots() -> [PathItem; 3] {
    let fixed = |name: &str, id: &str, tag: &str, content: String, types| {
        fixed(format!("/{name}/"), id.into(), tag.into(), content.into(), types)
    };
    [
        fixed("api", "getCoreAPIVersions", "core", format!("{META}.APIVersions"), LEGACY_TYPES),
        fixed("apis", "getAPIVersions", "apis", format!("{META}.APIGroupList"), LEGACY_TYPES),
        fixed("version", "getCodeVersion", "version", VERSION_INFO.into(), JSON_TYPE),
    ]
}

fn version_path(group: &str, version: &str) -> String {
    match group.is_empty() {
        true => format!("/api/{version}"),
        false => format!("/apis/{group}/{version}"),
    }
}
