//! Request info: group, version, resource, subresource, namespace, name and verb.
//!
//! The rules are those of k8s.io/apiserver `pkg/endpoints/request` (`RequestInfoFactory`). Parsed once per
//! request; every later step reads this struct, not the URL.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

use crate::query::{parse_boolean, query_parameter, OptionsOf};

/// The verb of a request, as authorization and metrics name it.
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
    /// Only in paths (`/api/v1/proxy/...`), which are not served.
    Proxy,
    /// A method without a verb (OPTIONS, TRACE, ...).
    Other,
}

impl Verb {
    /// The verb's name in RBAC rules and metrics.
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
            Verb::Proxy => "proxy",
            Verb::Other => "other",
        }
    }

    /// The verb that authorizers see: empty for a method without one, which no rule matches.
    pub fn authorized_as(self) -> &'static str {
        match self {
            Verb::Other => "",
            verb => verb.as_str(),
        }
    }

    /// Whether the request may change an object.
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
    /// The path after the subresource, escaped as it was sent and with its leading slash (`/a/b`); may be
    /// empty.
    pub tail: String,
    /// As it is authorized, derived from method, name and `watch`.
    pub verb: Verb,
    /// Whether the verb is part of the path (`/api/v1/watch/pods`). A field selector on the name does not set
    /// `name` then.
    pub verb_in_path: bool,
    /// Whether a segment before the tail is empty: such a path is authorized as if it had no empty segments,
    /// and answered with 404.
    pub has_empty_segment: bool,
    /// Whether the path has `namespaces/NAME/` before the resource; not set for a Namespace itself.
    pub is_below_namespace: bool,
}

impl RequestInfo {
    /// The options that the query of the request has.
    pub fn options_of(&self) -> OptionsOf {
        match self.verb {
            _ if self.subresource == "proxy" => OptionsOf::Other,
            Verb::List | Verb::Watch => OptionsOf::List,
            Verb::Delete => OptionsOf::Delete,
            Verb::DeleteCollection => OptionsOf::DeleteCollection,
            _ => OptionsOf::Other,
        }
    }

    /// Whether anything but slashes follows the subresource.
    pub fn has_tail(&self) -> bool {
        percent_decode_str(&self.tail).any(|byte| byte != b'/')
    }
}

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource or subresource.
    Resource(RequestInfo),
    /// Anything else (health, version, discovery, OpenAPI, metrics), with its unescaped path.
    NonResource(String),
}

/// A path that is rejected before authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// A `%` without two hexadecimal digits (Go's `net/http` answers 400).
    #[error("invalid URL escape")]
    BadEscape,
    /// `/api/v1/watch` or `/api/v1/proxy` without a resource (upstream answers 500).
    #[error("unable to determine kind and namespace from url")]
    NothingBehindVerb,
}

/// Splits a path into a [`Route`]. `query` is the raw query string: `watch=1` turns list into watch.
///
/// The path is unescaped first and split then, as upstream does: `%2F` separates segments. Slashes at both
/// ends are dropped, empty segments between others are not.
///
/// # Errors
/// [`PathError`].
pub fn parse_route(method: &Method, path: &str, query: Option<&str>) -> Result<Route, PathError> {
    let decoded = unescape_path(path)?;
    let segments: Vec<&str> = match decoded.trim_matches('/') {
        "" => Vec::new(),
        trimmed => trimmed.split('/').collect(),
    };
    // Prefix and version, with the group between them; then at least a resource.
    let (group, mut at) = match segments.as_slice() {
        ["api", _, _, ..] => ("", 1),
        ["apis", group, _, _, ..] => (*group, 2),
        _ => return Ok(Route::NonResource(decoded.into_owned())),
    };
    let version = segments[at];
    at += 1;
    let verb_in_path = match segments[at] {
        "watch" => Some(Verb::Watch),
        "proxy" => Some(Verb::Proxy),
        _ => None,
    };
    if verb_in_path.is_some() {
        at += 1;
        if at == segments.len() {
            return Err(PathError::NothingBehindVerb);
        }
    }
    let (mut namespace, mut is_below_namespace) = ("", false);
    if segments[at] == "namespaces" {
        if let Some(named) = segments.get(at + 1) {
            namespace = named;
            // /namespaces/NAME and /namespaces/NAME/{status,finalize} are the namespace itself.
            let is_of_namespace = |part: &&&str| !matches!(**part, "status" | "finalize");
            if segments.get(at + 2).filter(is_of_namespace).is_some() {
                at += 2;
                is_below_namespace = true;
            }
        }
    }
    let part = |n: usize| segments.get(at + n).copied().unwrap_or_default();
    let (resource, name) = (part(0), part(1));
    // The verb proxy has no subresources.
    let subresource = if verb_in_path == Some(Verb::Proxy) { "" } else { part(2) };
    let parts = if subresource.is_empty() { 2 } else { 3 };
    let before_tail = segments.len().min(at + parts);
    let verb = verb_in_path.unwrap_or_else(|| match *method {
        // `watch` on the path of an object is ignored, as upstream does.
        Method::GET | Method::HEAD if !name.is_empty() => Verb::Get,
        Method::GET | Method::HEAD if query.is_some_and(asks_for_watch) => Verb::Watch,
        Method::GET | Method::HEAD => Verb::List,
        Method::POST => Verb::Create,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if name.is_empty() => Verb::DeleteCollection,
        Method::DELETE => Verb::Delete,
        _ => Verb::Other,
    });
    Ok(Route::Resource(RequestInfo {
        group: group.to_owned(),
        version: version.to_owned(),
        namespace: namespace.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        name: name.to_owned(),
        tail: raw_tail(path, before_tail),
        verb,
        verb_in_path: verb_in_path.is_some(),
        has_empty_segment: decoded.starts_with("//") || segments[..before_tail].contains(&""),
        is_below_namespace,
    }))
}

/// The escaped path after `segments` segments, from its slash on. Counts the same separators as
/// [`parse_route`], which splits the unescaped path: an escaped slash is one.
fn raw_tail(path: &str, segments: usize) -> String {
    let bytes = path.as_bytes();
    let is_slash = |at: usize| match bytes.get(at) {
        Some(b'/') => Some(1),
        Some(b'%') if bytes[at + 1..].starts_with(b"2F") || bytes[at + 1..].starts_with(b"2f") => Some(3),
        _ => None,
    };
    let mut at = 0;
    while let Some(length) = is_slash(at) {
        at += length;
    }
    for _ in 0..segments {
        while at < bytes.len() && is_slash(at).is_none() {
            at += 1;
        }
        if at == bytes.len() {
            return String::new();
        }
        at += is_slash(at).unwrap_or(1);
    }
    format!("/{}", path.get(at..).unwrap_or_default())
}

/// Whether `watch` is given and true.
fn asks_for_watch(query: &str) -> bool {
    query_parameter(query, "watch").is_some_and(|value| parse_boolean(&value))
}

/// Unescapes a path. Invalid UTF-8 becomes U+FFFD, as in upstream's JSON.
///
/// # Errors
/// [`PathError::BadEscape`].
pub fn unescape_path(path: &str) -> Result<Cow<'_, str>, PathError> {
    let bytes = path.as_bytes();
    let is_escape = |at: usize| {
        let digits = bytes.get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    match memchr::memchr_iter(b'%', bytes).all(is_escape) {
        true => Ok(percent_decode_str(path).decode_utf8_lossy()),
        false => Err(PathError::BadEscape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(method: Method, uri: &str) -> RequestInfo {
        let (path, query) = uri.split_once('?').map_or((uri, None), |(p, q)| (p, Some(q)));
        match parse_route(&method, path, query) {
            Ok(Route::Resource(info)) => info,
            other => panic!("{uri} is no resource: {other:?}"),
        }
    }

    #[test]
    fn paths_become_request_info() {
        // uri, namespace, resource, name, subresource, verb
        let rows = [
            ("/api/v1/pods", "", "pods", "", "", Verb::List),
            ("/api/v1/pods?watch=true", "", "pods", "", "", Verb::Watch),
            ("/api/v1/pods?watch=0", "", "pods", "", "", Verb::List),
            ("/api/v1/pods?watch=False", "", "pods", "", "", Verb::List),
            ("/api/v1/watch/pods", "", "pods", "", "", Verb::Watch),
            ("/api/v1/watch/namespaces/a/pods/b", "a", "pods", "b", "", Verb::Watch),
            ("/api/v1/proxy/namespaces/a/pods/b/c", "a", "pods", "b", "", Verb::Proxy),
            ("/api/v1/namespaces/a/pods/b?watch=1", "a", "pods", "b", "", Verb::Get),
            ("/api/v1/namespaces/a/pods/b/log", "a", "pods", "b", "log", Verb::Get),
            ("/api/v1/namespaces", "", "namespaces", "", "", Verb::List),
            ("/api/v1/namespaces/a", "a", "namespaces", "a", "", Verb::Get),
            ("/api/v1/namespaces/a/", "a", "namespaces", "a", "", Verb::Get),
            ("/api/v1/namespaces/a/status", "a", "namespaces", "a", "status", Verb::Get),
            ("/api/v1/namespaces/a/namespaces/b", "a", "namespaces", "b", "", Verb::Get),
            ("/api/v1/namespaces/a/namespaces", "a", "namespaces", "", "", Verb::List),
            ("/apis/apps/v1/namespaces/a/deployments", "a", "deployments", "", "", Verb::List),
            // Unescaped before it is split.
            (
                "/apis/apps/v1/namespaces/a/deployments/b%2Fstatus",
                "a",
                "deployments",
                "b",
                "status",
                Verb::Get,
            ),
            ("/api/v1/namespaces/a%2Fpods%2fb", "a", "pods", "b", "", Verb::Get),
            ("/api/v1/name%73paces/a", "a", "namespaces", "a", "", Verb::Get),
            // Dots are names.
            ("/api/v1/namespaces/../pods", "..", "pods", "", "", Verb::List),
        ];
        for (uri, namespace, name_of_resource, name, subresource, verb) in rows {
            let info = resource(Method::GET, uri);
            assert_eq!(
                (info.namespace.as_str(), info.resource.as_str(), info.name.as_str()),
                (namespace, name_of_resource, name),
                "{uri}"
            );
            assert_eq!((info.subresource.as_str(), info.verb), (subresource, verb), "{uri}");
            assert!(!info.has_empty_segment, "{uri}");
        }
    }

    #[test]
    fn methods_become_verbs() {
        let rows = [
            (Method::HEAD, "/api/v1/pods", Verb::List),
            (Method::HEAD, "/api/v1/pods?watch=1", Verb::Watch),
            (Method::HEAD, "/api/v1/nodes/a", Verb::Get),
            (Method::DELETE, "/api/v1/pods", Verb::DeleteCollection),
            (Method::POST, "/api/v1/watch/pods", Verb::Watch),
            (Method::OPTIONS, "/api/v1/pods", Verb::Other),
        ];
        for (method, uri, verb) in rows {
            assert_eq!(resource(method.clone(), uri).verb, verb, "{method} {uri}");
        }
    }

    #[test]
    fn what_follows_the_subresource_is_kept_as_it_was_sent() {
        // path, what is passed on, whether a segment before it is empty
        let rows = [
            ("/api/v1/namespaces/n/services/s:80/proxy", "", false),
            ("/api/v1/namespaces/n/services/s:80/proxy/", "/", false),
            ("/api/v1/nodes/a/proxy/logs/x%2Fy/", "/logs/x%2Fy/", false),
            ("/api/v1/nodes/a/proxy%2Flogs", "/logs", false),
            ("/api/v1/nodes/proxy/proxy/logs", "/logs", false),
            ("/api/v1/namespaces/proxy/pods/proxy/proxy/proxy/x", "/proxy/x", false),
            ("/api/v1/namespaces/proxy/pods/p/proxy", "", false),
            ("/api/v1/namespaces/n%2Fpods/p/proxy/x", "/x", false),
            ("/api/v1/namespaces/n/pods/p/proxy//etc//passwd", "//etc//passwd", false),
            ("/api/v1/namespaces/n/pods/p/proxy/../../x", "/../../x", false),
            ("/api/v1/namespaces/n/pods/p/log/x", "/x", false),
            ("/api/v1//namespaces/n/pods/p/log", "", true),
            ("//api/v1/namespaces/n/pods/p/log", "", true),
            ("/api/v1/namespaces//pods", "", true),
        ];
        for (path, tail, is_empty) in rows {
            let info = resource(Method::GET, path);
            assert_eq!(info.has_empty_segment, is_empty, "{path}");
            if !is_empty {
                assert_eq!(info.tail, tail, "{path}");
            }
        }
    }

    #[test]
    fn what_is_not_a_resource() {
        for path in ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz", "/%76ersion"]
        {
            let decoded = path.replace("%76", "v");
            assert_eq!(parse_route(&Method::GET, path, None), Ok(Route::NonResource(decoded)), "{path}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused() {
        for path in ["/api/v1/pods%", "/api/v1/%zz/a", "/%2", "/version%+1"] {
            assert_eq!(parse_route(&Method::GET, path, None), Err(PathError::BadEscape), "{path}");
        }
        for path in ["/api/v1/watch", "/apis/apps/v1/proxy/"] {
            assert_eq!(parse_route(&Method::GET, path, None), Err(PathError::NothingBehindVerb), "{path}");
        }
    }
}
