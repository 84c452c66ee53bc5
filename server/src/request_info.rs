//! What a request asks for: group, version, resource, subresource, namespace, name and verb.
//!
//! The rules are those of k8s.io/apiserver `pkg/endpoints/request` (`RequestInfoFactory`). Parsed once per
//! request; every later step reads this struct and never the URL again.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::query::parameter;

/// The verb that a request means, as authorization and metrics name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the field's own words
pub enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// A method that no resource has (HEAD, OPTIONS, ...).
    Other,
}

impl Verb {
    /// The word in RBAC rules and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Other => "other",
        }
    }

    /// Whether it can change anything.
    pub fn mutates(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete | Verb::DeleteCollection)
    }
}

/// A request for a resource, decoded from its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// API group; empty for core.
    pub group: String,
    /// API version.
    pub version: String,
    /// Namespace; empty for cluster-scoped requests and requests over all namespaces.
    pub namespace: String,
    /// Plural resource.
    pub resource: String,
    /// Subresource; empty for none.
    pub subresource: String,
    /// Object name; empty for a collection.
    pub name: String,
    /// Path segments after the subresource (`proxy/a/b`).
    pub rest: Vec<String>,
    /// What is to be done.
    pub verb: Verb,
}

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource or subresource.
    Resource(RequestInfo),
    /// Anything else: health, version, discovery, OpenAPI, metrics.
    NonResource,
}

/// Splits a path into a [`Route`]. `query` is the raw query string: `watch=1` turns list into watch.
/// Empty segments are dropped, as upstream does, so `//api/v1/pods` is `/api/v1/pods`.
pub fn route(method: &Method, path: &str, query: Option<&str>) -> Route {
    let mut segments = path.split('/').filter(|s| !s.is_empty());
    let group = match segments.next() {
        Some("api") => Cow::Borrowed(""),
        Some("apis") => match segments.next() {
            Some(group) => decode(group),
            None => return Route::NonResource,
        },
        _ => return Route::NonResource,
    };
    let Some(version) = segments.next() else { return Route::NonResource };
    let mut rest: Vec<String> = segments.map(|s| decode(s).into_owned()).collect();
    if rest.is_empty() {
        return Route::NonResource;
    }
    // The old form /api/v1/watch/... is still served upstream.
    let watch = query.is_some_and(asks_for_watch);
    let mut watch_of_old = false;
    if rest[0] == "watch" && rest.len() > 1 {
        rest.remove(0);
        watch_of_old = true;
    }
    let mut namespace = String::new();
    // /namespaces/NAME and /namespaces/NAME/{status,finalize} are the namespace itself.
    if rest[0] == "namespaces" && rest.len() > 1 {
        let names_itself = rest.len() == 2 || matches!(rest[2].as_str(), "status" | "finalize");
        if names_itself {
            namespace.clone_from(&rest[1]);
        } else {
            namespace = rest.remove(1);
            rest.remove(0);
        }
    }
    let mut parts = rest.into_iter();
    let resource = parts.next().unwrap_or_default();
    let name = parts.next().unwrap_or_default();
    let subresource = parts.next().unwrap_or_default();
    let rest: Vec<String> = parts.collect();
    let verb = match *method {
        // `watch` on the path of an object is ignored, as upstream does.
        Method::GET if watch_of_old || (watch && name.is_empty()) => Verb::Watch,
        Method::GET if name.is_empty() => Verb::List,
        Method::GET => Verb::Get,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if name.is_empty() => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    };
    Route::Resource(RequestInfo {
        group: group.into_owned(),
        version: decode(version).into_owned(),
        namespace,
        resource,
        subresource,
        name,
        rest,
        verb,
    })
}

fn asks_for_watch(query: &str) -> bool {
    parameter(query, "watch").is_some_and(|value| !matches!(&*value, "false" | "0"))
}

fn decode(segment: &str) -> Cow<'_, str> {
    percent_decode_str(segment).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        match route(&method, path, query) {
            Route::Resource(info) => info,
            Route::NonResource => panic!("{uri} is no resource"),
        }
    }

    #[test]
    fn paths_become_request_info() {
        // uri, namespace, resource, name, subresource, verb
        let rows = [
            ("/api/v1/pods", "", "pods", "", "", Verb::List),
            ("/api/v1/pods?watch=true", "", "pods", "", "", Verb::Watch),
            ("/api/v1/pods?watch=0", "", "pods", "", "", Verb::List),
            ("/api/v1/watch/pods", "", "pods", "", "", Verb::Watch),
            ("/api/v1/watch/namespaces/a/pods/b", "a", "pods", "b", "", Verb::Watch),
            ("/api/v1/namespaces/a/pods/b?watch=1", "a", "pods", "b", "", Verb::Get),
            ("//api/v1//namespaces/a/pods/b", "a", "pods", "b", "", Verb::Get),
            ("/api/v1/namespaces/a/pods/b/log", "a", "pods", "b", "log", Verb::Get),
            ("/api/v1/namespaces", "", "namespaces", "", "", Verb::List),
            ("/api/v1/namespaces/a", "a", "namespaces", "a", "", Verb::Get),
            ("/api/v1/namespaces/a/status", "a", "namespaces", "a", "status", Verb::Get),
            ("/apis/apps/v1/namespaces/a/deployments", "a", "deployments", "", "", Verb::List),
            ("/apis/apps/v1/namespaces/a/deployments/b%2Fc", "a", "deployments", "b/c", "", Verb::Get),
        ];
        for (uri, namespace, name_of_resource, name, subresource, verb) in rows {
            let info = resource(Method::GET, uri);
            assert_eq!(
                (info.namespace.as_str(), info.resource.as_str(), info.name.as_str()),
                (namespace, name_of_resource, name),
                "{uri}"
            );
            assert_eq!((info.subresource.as_str(), info.verb), (subresource, verb), "{uri}");
        }
    }

    #[test]
    fn what_is_not_a_resource() {
        for path in ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/version"] {
            assert_eq!(route(&Method::GET, path, None), Route::NonResource, "{path}");
        }
    }
}
