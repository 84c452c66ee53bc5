//! The attributes of an authorization check.

use std::borrow::Cow;

use hyper::Method;
use plinth_codec::error::quoted;
use plinth_codec::names;
use plinth_codec::selector::{FieldRequirement, FieldSelector, LabelSelector, Requirement};

use plinth_api::{query_parameter, RequestInfo, User, Verb};

/// `authorizer.Attributes` of k8s.io/apiserver: user, verb and target. Borrows the request; cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// The user that sends the request.
    pub user: &'a User,
    /// The verb; for non-resource paths the HTTP method in lower case.
    pub verb: &'a str,
    /// What the request is for.
    pub target: Target<'a>,
}

/// The target of a request.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// An object or collection of the API.
    Resource(ResourceTarget<'a>),
    /// A non-resource path.
    Path(&'a str),
}

/// A resource, a subresource, or one object of them. Empty strings mean "none", and in a collection "all".
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceTarget<'a> {
    /// API group; empty for core.
    pub group: &'a str,
    /// API version.
    pub version: &'a str,
    /// Plural resource.
    pub resource: &'a str,
    /// Empty for the resource itself.
    pub subresource: &'a str,
    /// Name of the object.
    pub name: &'a str,
    /// Namespace; empty for cluster-scoped requests and requests over all namespaces.
    pub namespace: &'a str,
    /// The selectors of a list, watch or collection delete.
    pub selectors: Option<&'a Selectors>,
}

/// The selectors of a request, for authorizers. An invalid one is ignored: it restricts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Requirements of the field selector.
    pub fields: Vec<FieldRequirement>,
    /// Requirements of the label selector.
    pub labels: Vec<Requirement>,
}

impl<'a> ResourceTarget<'a> {
    /// The target of a request, without its selectors.
    pub fn of(info: &'a RequestInfo) -> ResourceTarget<'a> {
        ResourceTarget {
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            name: &info.name,
            namespace: &info.namespace,
            selectors: None,
        }
    }
}

impl Selectors {
    /// The selectors of a raw query; `None` without valid ones.
    pub fn of_query(query: &str) -> Option<Selectors> {
        let fields =
            query_parameter(query, "fieldSelector").and_then(|text| FieldSelector::parse(&text).ok());
        let labels =
            query_parameter(query, "labelSelector").and_then(|text| LabelSelector::parse(&text).ok());
        let selectors = Selectors {
            fields: fields.map(|s| s.requirements().to_vec()).unwrap_or_default(),
            labels: labels.map(|s| s.requirements().to_vec()).unwrap_or_default(),
        };
        (!selectors.fields.is_empty() || !selectors.labels.is_empty()).then_some(selectors)
    }

    /// The value that the selector requires a field to have, if any.
    pub(crate) fn exact_field(&self, field: &str) -> Option<&str> {
        self.fields.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }
}

/// Attributes of a request in addition to its request info; owns what [`Attributes`] borrows.
#[derive(Clone, Debug)]
pub struct RequestAttributes {
    selectors: Option<Selectors>,
    /// Whether a field selector can replace a name in the path.
    narrows: bool,
    method: Cow<'static, str>,
}

impl RequestAttributes {
    /// Reads what the request info does not contain: selectors and method. `info` is that of a resource.
    /// Where the verb is part of the path, selectors are ignored, as upstream.
    pub fn read(method: &Method, info: Option<&RequestInfo>, query: Option<&str>) -> RequestAttributes {
        let verb = info.filter(|info| !info.verb_in_path).map(|info| info.verb);
        let selects = matches!(verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection));
        let method = match *method {
            Method::GET => Cow::Borrowed("get"),
            Method::POST => Cow::Borrowed("post"),
            _ => Cow::Owned(method.as_str().to_ascii_lowercase()),
        };
        RequestAttributes {
            selectors: query.filter(|_| selects).and_then(Selectors::of_query),
            narrows: matches!(verb, Some(Verb::List | Verb::Watch)),
            method,
        }
    }

    /// The attributes of a request for a resource. A list or watch restricted to one name is authorized for
    /// that object (k8s.io/apiserver `pkg/endpoints/request/requestinfo.go`), so that a rule with resource
    /// names can allow it.
    pub fn of_resource<'a>(&'a self, user: &'a User, info: &'a RequestInfo) -> Attributes<'a> {
        let selectors = self.selectors.as_ref();
        let target = ResourceTarget { name: self.name(info), selectors, ..ResourceTarget::of(info) };
        Attributes { user, verb: info.verb.authorized_as(), target: Target::Resource(target) }
    }

    /// The name of the object: from the path, or from the field selector.
    pub fn name<'a>(&'a self, info: &'a RequestInfo) -> &'a str {
        let selectors = self.selectors.as_ref().filter(|_| self.narrows);
        let selected = selectors.and_then(|s| s.exact_field("metadata.name"));
        let selected = selected.filter(|name| names::path_segment_errors(name).is_empty());
        if info.name.is_empty() {
            selected.unwrap_or_default()
        } else {
            &info.name
        }
    }

    /// The attributes of a request for a non-resource path.
    pub(crate) fn of_path<'a>(&'a self, user: &'a User, path: &'a str) -> Attributes<'a> {
        Attributes { user, verb: &self.method, target: Target::Path(path) }
    }
}

impl<'a> Attributes<'a> {
    /// Attributes of a resource.
    pub fn resource(user: &'a User, verb: &'a str, target: ResourceTarget<'a>) -> Attributes<'a> {
        Attributes { user, verb, target: Target::Resource(target) }
    }

    /// Attributes of a non-resource path.
    pub fn path(user: &'a User, verb: &'a str, path: &'a str) -> Attributes<'a> {
        Attributes { user, verb, target: Target::Path(path) }
    }

    /// Upstream's message for a denied request (k8s.io/apiserver
    /// `pkg/endpoints/handlers/responsewriters/errors.go`), HTML-escaped.
    pub fn denial(&self) -> String {
        let (user, verb) = (quoted(&self.user.name), self.verb);
        let text = match self.target {
            Target::Path(path) => format!("User {user} cannot {verb} path {}", quoted(path)),
            Target::Resource(r) => {
                let resource = match r.subresource.is_empty() {
                    true => Cow::Borrowed(r.resource),
                    false => Cow::Owned(format!("{}/{}", r.resource, r.subresource)),
                };
                let scope = match r.namespace.is_empty() {
                    true => "at the cluster scope".to_owned(),
                    false => format!("in the namespace {}", quoted(r.namespace)),
                };
                format!(
                    "User {user} cannot {verb} resource {} in API group {} {scope}",
                    quoted(&resource),
                    quoted(r.group)
                )
            }
        };
        text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
    }
}
