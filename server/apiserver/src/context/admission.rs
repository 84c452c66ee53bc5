//! Admission as handlers see it: one write on its way through it, and what plugins want written with it.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use parking_lot::Mutex;
use plinth_codec::{Map, Value};
use plinth_engine::Condition;

use super::{key_namespace, Context, TransactionParts};
use plinth_api::{metadata_text, ApiError};

/// What a request does to the object, in the words of `AdmissionReview`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object, or a POST to a subresource.
    Create,
    /// PUT, PATCH and apply of an object that exists.
    Update,
    /// DELETE, of one object or of each of a collection.
    Delete,
    /// A connection through the server: exec, attach, port-forward, proxy.
    Connect,
}

impl Operation {
    /// The word in `AdmissionReview`.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// What an admission answers.
pub type Outcome<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

/// Who fills in and refuses what is around the object of a write.
pub trait Admission: Send + Sync {
    /// Runs the halves that may change the object; true when it may have been changed. A deletion has no new
    /// object: then it is null.
    fn mutate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a mut Value) -> Outcome<'a, bool>;

    /// Runs the halves that may refuse it.
    fn validate<'a>(&'a self, request: &'a AdmissionRequest<'a>, object: &'a Value) -> Outcome<'a, ()>;
}

/// One write on its way through admission. It belongs to one request; the lock is held for the moment of
/// adding alone.
pub struct AdmissionRequest<'a> {
    /// The request: who asks, for what, and the server.
    pub cx: &'a Context,
    /// What the request does with the object; `Connect` and creates of subresources included.
    pub operation: Operation,
    /// Name of the object; empty at create while the server has not generated it.
    pub name: &'a str,
    /// Namespace of the object; empty for cluster-scoped ones.
    pub namespace: &'a str,
    /// The object as it is stored; `None` at create.
    pub old: Option<&'a Value>,
    /// Whether nothing is to be kept of what this request does.
    pub dry_run: bool,
    /// Members of the options that are not in the query alone: those of a deletion.
    pub options: Map,
    parts: Mutex<TransactionParts>,
}

impl<'a> AdmissionRequest<'a> {
    /// A request about the object that the request names.
    pub fn new(cx: &'a Context, operation: Operation, old: Option<&'a Value>) -> AdmissionRequest<'a> {
        AdmissionRequest {
            cx,
            operation,
            name: &cx.info.name,
            namespace: key_namespace(cx),
            old,
            dry_run: cx.query.is_dry_run(),
            options: Map::new(),
            parts: Mutex::default(),
        }
    }

    /// The name as webhooks and policies see it: empty when the server has not generated it yet.
    pub fn object_name<'v>(&'v self, object: &'v Value) -> &'v str {
        match metadata_text(object, "name") {
            "" => self.name,
            name => name,
        }
    }

    /// Whether the request is about a namespace.
    pub fn is_about_namespace(&self) -> bool {
        self.cx.resource.strategy.is_namespace_of_itself
    }

    /// The namespace as webhooks and policies see it: a namespace is in itself.
    pub fn request_namespace<'v>(&'v self, object: &'v Value) -> &'v str {
        match self.is_about_namespace() {
            true => self.object_name(object),
            false => self.namespace,
        }
    }

    /// Adds a write to the transaction: the value as it is stored (`Store::seal`) at the key, on that
    /// condition.
    pub fn write(&self, condition: Condition, key: Bytes, value: Bytes) {
        let mut parts = self.parts.lock();
        parts.require(condition);
        parts.put(key, value);
    }

    /// The writes that plugins have added; taken once, after the validating halves.
    pub fn into_parts(self) -> TransactionParts {
        self.parts.into_inner()
    }

    /// 403 in upstream's words: `pods "x" is forbidden: why`.
    pub fn forbidden(&self, object: &Value, why: &str) -> ApiError {
        let given = metadata_text(object, "name");
        let prefix = metadata_text(object, "generateName");
        // The path has it before the body: an eviction may name another pod.
        let name = match (self.name, given, prefix) {
            ("", "", prefix) => prefix,
            ("", given, _) => given,
            (name, ..) => name,
        };
        ApiError::forbidden(self.cx.resource.group(), self.cx.resource.plural(), name, why)
    }
}
