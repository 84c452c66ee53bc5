//! The corpus' vocabulary: requests whose parts may refer to earlier answers, and pseudo-random numbers.
//!
//! `${NAME.PATH}` in a path, header or body stands for the value at the dotted `PATH` of the JSON answer
//! captured as `NAME`, so one script serves both servers although their UIDs, revisions and tokens differ.

use http::Method;
use serde_json::Value;

/// Media types that the corpus uses often.
pub(crate) const JSON: &str = "application/json";
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub(crate) const YAML: &str = "application/yaml";
pub(crate) const CBOR: &str = "application/cbor";
pub(crate) const TABLE: &str = "application/json;as=Table;g=meta.k8s.io;v=v1";
pub(crate) const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
pub(crate) const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
pub(crate) const JSON_PATCH: &str = "application/json-patch+json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";
pub(crate) const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub(crate) const APPLY_PATCH: &str = "application/apply-patch+yaml";

/// The body of a request.
#[derive(Debug, Clone)]
pub(crate) enum Body {
    /// The request has no body.
    Empty,
    /// Text with references to captured answers.
    Template(String),
    /// Bytes as they are.
    Bytes(Vec<u8>),
    /// A captured JSON object after a merge patch.
    Changed(String, Value),
    /// A captured body, byte for byte.
    Captured(String),
}

/// Whose credentials a request carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Requester {
    /// The client certificate of the administrator.
    Administrator,
    /// No client certificate; an `Authorization` header makes it a token's user.
    Unauthenticated,
}

/// One request of the corpus.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub verb: &'static str,
    pub method: Method,
    pub path: String,
    pub headers: Vec<(&'static str, String)>,
    pub body: Body,
    pub requester: Requester,
    /// The name under which the answer is kept for later requests.
    pub capture: Option<String>,
    /// Whether it is sent over HTTP/2.
    pub http2: bool,
}

impl Request {
    pub(crate) fn new(verb: &'static str, method: Method, path: impl Into<String>) -> Request {
        Request {
            verb,
            method,
            path: path.into(),
            headers: vec![("accept", JSON.to_owned())],
            body: Body::Empty,
            requester: Requester::Administrator,
            capture: None,
            http2: false,
        }
    }

    pub(crate) fn get(path: impl Into<String>) -> Request {
        Request::new("get", Method::GET, path)
    }

    pub(crate) fn list(path: impl Into<String>) -> Request {
        Request::new("list", Method::GET, path)
    }

    pub(crate) fn create(path: impl Into<String>, object: &Value) -> Request {
        Request::new("create", Method::POST, path).body(JSON, Body::Template(object.to_string()))
    }

    pub(crate) fn update(path: impl Into<String>, body: Body) -> Request {
        Request::new("update", Method::PUT, path).body(JSON, body)
    }

    pub(crate) fn patch(path: impl Into<String>, media_type: &str, patch: impl ToString) -> Request {
        let verb = match media_type {
            JSON_PATCH => "patch (JSON)",
            MERGE_PATCH => "patch (merge)",
            STRATEGIC_PATCH => "patch (strategic)",
            APPLY_PATCH => "apply",
            _ => "patch (other)",
        };
        Request::new(verb, Method::PATCH, path).body(media_type, Body::Template(patch.to_string()))
    }

    pub(crate) fn delete(path: impl Into<String>) -> Request {
        Request::new("delete", Method::DELETE, path)
    }

    pub(crate) fn verb(self, verb: &'static str) -> Request {
        Request { verb, ..self }
    }

    pub(crate) fn body(self, media_type: &str, body: Body) -> Request {
        Request { body, ..self }.header("content-type", media_type)
    }

    pub(crate) fn accept(self, media_types: &str) -> Request {
        self.header("accept", media_types)
    }

    /// Sets a header; an empty value removes it.
    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Request {
        self.headers.retain(|(existing, _)| *existing != name);
        if !value.is_empty() {
            self.headers.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn capture(self, name: &str) -> Request {
        Request { capture: Some(name.to_owned()), ..self }
    }

    pub(crate) fn unauthenticated(self) -> Request {
        Request { requester: Requester::Unauthenticated, ..self }
    }
}

/// One step of the corpus.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A request whose answers are compared.
    Compare(Box<Request>),
    /// Waits until background work has stopped changing the object at this path.
    Settle(String),
}

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub steps: Vec<Step>,
}

impl Script {
    pub(crate) fn push(&mut self, request: Request) {
        self.steps.push(Step::Compare(Box::new(request)));
    }

    pub(crate) fn settle(&mut self, path: &str) {
        self.steps.push(Step::Settle(path.to_owned()));
    }

    pub(crate) fn requests(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Compare(_))).count()
    }
}

/// SplitMix64: the same numbers from the same seed, on every machine and for ever.
#[derive(Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A number below `end`, which is not 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    pub(crate) fn choose<'a, T>(&mut self, values: &'a [T]) -> &'a T {
        &values[self.below(values.len())]
    }
}

/// Applies a JSON merge patch (RFC 7386).
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Some(object) = target.as_object_mut() else { return };
    for (name, value) in members {
        if value.is_null() {
            object.remove(name);
        } else {
            merge(object.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
