//! Errors as clients see them: `metav1.Status`, made in this one place.
//!
//! Codes, reasons and message forms are those of k8s.io/apimachinery `pkg/api/errors`, because clients
//! match on them.

use std::collections::HashSet;
use std::fmt::Write as _;

use plinth_codec::{tree, Map, Value};
use plinth_engine::Error as EngineError;

/// Maximum number of errors reported for one object; a body of 3 MiB can have a million.
pub const MOST_ERRORS: usize = 1000;

/// Defines the enum of reasons, whose variant names are the words on the wire.
macro_rules! reasons {
    ($($reason:ident)+) => {
        /// `metav1.StatusReason`: the machine-readable reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // the variants are upstream's reasons, word for word
        pub enum Reason {
            /// No reason at all: upstream sends some errors without one.
            Unknown,
            $($reason,)+
        }

        impl Reason {
            /// Parses a reason; [`Reason::Unknown`] for one that upstream does not have.
            pub fn parse(text: &str) -> Reason {
                match text {
                    $(stringify!($reason) => Reason::$reason,)+
                    _ => Reason::Unknown,
                }
            }

            /// The word on the wire; empty for [`Reason::Unknown`].
            pub fn as_str(self) -> &'static str {
                match self {
                    Reason::Unknown => "",
                    $(Reason::$reason => stringify!($reason),)+
                }
            }
        }
    };
}

reasons! {
    Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid ServerTimeout Timeout TooManyRequests
    BadRequest MethodNotAllowed NotAcceptable RequestEntityTooLarge UnsupportedMediaType InternalError Expired
    ServiceUnavailable StoreReadError
}

/// One entry of `details.causes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cause {
    /// `metav1.CauseType`, like `FieldValueInvalid`.
    pub reason: &'static str,
    /// Human-readable description.
    pub message: String,
    /// Path of the field, like `spec.containers[0].name`; empty when the cause concerns no field.
    pub field: String,
}

/// `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// API group of the object.
    pub group: String,
    /// What upstream puts in `kind`: mostly the plural resource, for Invalid the kind.
    pub kind: String,
    /// UID of the object.
    pub uid: String,
    /// One cause per error.
    pub causes: Vec<Cause>,
    /// Seconds after which a retry makes sense; 0 for none.
    pub retry_after_seconds: u32,
}

/// An error that is sent to the client.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status, 400 and up.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: Reason,
    /// For people; clients match on parts of it.
    pub message: String,
    /// The object concerned; boxed because errors travel in every `Result` of the request path.
    pub details: Option<Box<Details>>,
    /// The Status in which a webhook refused: its reason and details, which may be of any kind, are sent as
    /// they are.
    given: Option<Box<Value>>,
    /// `metadata.continue`: only the Expired answer to a continue token has one.
    pub continue_token: Option<String>,
    /// Whether an authorizer denied the request: the message then contains text of the request, and the
    /// response has `X-Content-Type-Options: nosniff`.
    pub denied: bool,
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> ApiError {
        let (details, given, continue_token) = (None, None, None);
        let message = message.into();
        ApiError { code, reason, message, details, given, continue_token, denied: false }
    }

    /// An error with the reason and the details of a Status that a webhook has given (k8s.io/apiserver
    /// `pkg/admission/plugin/webhook/errors`).
    pub fn of_status(code: u16, message: impl Into<String>, given: Value) -> ApiError {
        let reason = Reason::parse(given.str_at(&["reason"]).unwrap_or_default());
        let seconds = given.at(&["details", "retryAfterSeconds"]).and_then(Value::as_int);
        let mut error = ApiError::new(code, reason, message);
        if let Some(seconds) = seconds.and_then(|seconds| u32::try_from(seconds).ok()) {
            error = error.retry_after(seconds);
        }
        error.given = Some(Box::new(given));
        error
    }

    /// Whether this server has found that something is not there. A webhook may refuse with any code and
    /// reason: what it reports of an object is not known to be so.
    pub fn is_not_found(&self) -> bool {
        self.code == 404 && self.given.is_none()
    }

    /// Whether this server has found that something is another one than was expected, or there already.
    pub fn is_conflict(&self) -> bool {
        self.code == 409 && self.given.is_none()
    }

    /// Whether this server has found that an object is gone, or another one than was expected.
    pub fn has_changed(&self) -> bool {
        self.is_not_found() || self.is_conflict()
    }

    /// Whether this server has found that the object is there already.
    pub fn is_already_exists(&self) -> bool {
        self.is_conflict() && self.reason == Reason::AlreadyExists
    }

    /// Adds empty details, as upstream does for errors of its router.
    pub fn with_empty_details(mut self) -> ApiError {
        self.details.get_or_insert_with(Box::default);
        self
    }

    /// Names the object that is concerned; `kind` is upstream's, mostly the plural resource.
    pub fn about(mut self, group: &str, kind: &str, name: &str) -> ApiError {
        let details = self.details.get_or_insert_with(Box::default);
        details.group = group.into();
        details.kind = kind.into();
        details.name = name.into();
        self
    }

    /// Adds causes.
    pub fn with_causes(mut self, causes: Vec<Cause>) -> ApiError {
        self.details.get_or_insert_with(Box::default).causes = causes;
        self
    }

    /// Sets the number of seconds after which the client should retry (also sent as `Retry-After`).
    pub fn retry_after(mut self, seconds: u32) -> ApiError {
        self.details.get_or_insert_with(Box::default).retry_after_seconds = seconds;
        self
    }

    /// 400 with the given message.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, Reason::BadRequest, message)
    }

    /// 401: the request has no valid credentials.
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, Reason::Unauthorized, "Unauthorized")
    }

    /// 403 by an authorizer or an admission plugin: `pods "x" is forbidden: why`.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> ApiError {
        let what = qualified(group, resource);
        let message = match (what.is_empty(), name.is_empty()) {
            (true, _) => format!("forbidden: {why}"),
            (_, true) => format!("{what} is forbidden: {why}"),
            _ => format!("{what} {name:?} is forbidden: {why}"),
        };
        ApiError::new(403, Reason::Forbidden, message).about(group, resource, name)
    }

    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> ApiError {
        let message = format!("{} {name:?} not found", qualified(group, resource));
        ApiError::new(404, Reason::NotFound, message).about(group, resource, name)
    }

    /// 404 for a path under a served group version: upstream answers with empty details.
    pub fn no_such_resource() -> ApiError {
        let mut e = ApiError::new(404, Reason::NotFound, "the server could not find the requested resource");
        e.details = Some(Box::default());
        e
    }

    /// 405: the resource does not have the verb.
    pub fn method_not_allowed() -> ApiError {
        let mut e = ApiError::new(
            405,
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource",
        );
        e.details = Some(Box::default());
        e
    }

    /// 409 for a create of an existing object.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> ApiError {
        let message = format!("{} {name:?} already exists", qualified(group, resource));
        ApiError::new(409, Reason::AlreadyExists, message).about(group, resource, name)
    }

    /// 409 for a failed precondition or lost race.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> ApiError {
        let message =
            format!("Operation cannot be fulfilled on {} {name:?}: {why}", qualified(group, resource));
        ApiError::new(409, Reason::Conflict, message).about(group, resource, name)
    }

    /// 409 for an update of an outdated version.
    pub fn modified(group: &str, resource: &str, name: &str) -> ApiError {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(group, resource, name, why)
    }

    /// 422 with a cause per error, at most [`MOST_ERRORS`]; `kind` is the kind without its version, as
    /// kubectl expects.
    pub fn invalid(group: &str, kind: &str, name: &str, mut causes: Vec<Cause>) -> ApiError {
        causes.truncate(MOST_ERRORS);
        let mut what = kind.to_owned();
        if !group.is_empty() {
            let _ = write!(what, ".{group}");
        }
        let mut errors: Vec<String> = Vec::with_capacity(causes.len());
        let mut listed = HashSet::with_capacity(causes.len());
        for cause in &causes {
            let error = match cause.field.is_empty() {
                true => cause.message.clone(),
                false => format!("{}: {}", cause.field, cause.message),
            };
            // A field that violates two rules in the same way is listed once.
            if listed.insert(error.clone()) {
                errors.push(error);
            }
        }
        let message = match errors.len() {
            0 => format!("{what} {name:?} is invalid"),
            1 => format!("{what} {name:?} is invalid: {}", errors[0]),
            _ => format!("{what} {name:?} is invalid: [{}]", errors.join(", ")),
        };
        ApiError::new(422, Reason::Invalid, message).about(group, kind, name).with_causes(causes)
    }

    /// 410 for a compacted revision.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, Reason::Expired, message)
    }

    /// 413: the body is longer than the limit.
    pub fn too_large(limit: usize) -> ApiError {
        ApiError::new(
            413,
            Reason::RequestEntityTooLarge,
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 504 for a request that took longer than `--request-timeout` or its own `timeout`.
    pub fn timeout() -> ApiError {
        let message = "Timeout: request did not complete within the allotted timeout";
        let mut error = ApiError::new(504, Reason::Timeout, message);
        error.details = Some(Box::default());
        error
    }

    /// 504 for a write that may have been made, and may be made later. kube-apiserver answers so when its own
    /// deadline ends a write; with etcd's error for it (`etcdserver: request timed out`) it answers 500 with
    /// no reason, by which no client knows what it means. No Retry-After: clients that follow it could do the
    /// same thing twice.
    fn unknown_outcome(error: &EngineError) -> ApiError {
        let message = format!("Timeout: {error}; read the object before trying again");
        let mut error = ApiError::new(504, Reason::Timeout, message);
        error.details = Some(Box::default());
        error
    }

    /// 503 for a write of a replica whose journal does not answer, or refuses, for that reason.
    pub fn journal_unavailable(refusal: Option<&str>) -> ApiError {
        ApiError::of_journal(refusal, "nothing was written")
    }

    /// The same for a request that writes nothing.
    pub fn most_recent_unknown(refusal: Option<&str>) -> ApiError {
        ApiError::of_journal(refusal, "the most recent state is not known")
    }

    fn of_journal(refusal: Option<&str>, outcome: &str) -> ApiError {
        let problem = match refusal {
            None => "does not answer".to_owned(),
            Some(reason) => format!("refuses ({reason})"),
        };
        let message = format!(
            "the journal of the replicas {problem}, {outcome}; watches and reads with resourceVersion=0 go on"
        );
        ApiError::new(503, Reason::ServiceUnavailable, message).retry_after(1)
    }

    /// 500; the message names the failed operation, never the contents of an object.
    pub fn internal(what: impl std::fmt::Display) -> ApiError {
        ApiError::new(500, Reason::InternalError, format!("Internal error occurred: {what}"))
            .with_causes(vec![Cause { reason: "", message: what.to_string(), field: String::new() }])
    }

    /// 504 for a revision in the future, with the cause that client-go recognises.
    pub fn too_large_resource_version(requested: u64, current: u64) -> ApiError {
        let cause = Cause {
            reason: "ResourceVersionTooLarge",
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        ApiError::new(504, Reason::Timeout, message).with_causes(vec![cause]).retry_after(1)
    }

    /// The Status object.
    pub fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue", token.as_str());
        }
        let mut status = tree!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": shortened(&self.message),
            "code": i64::from(self.code),
        });
        if let Value::Object(map) = &mut status {
            let given = |key: &str| self.given.as_deref().and_then(|given| given.get(key)).cloned();
            let reason = (self.reason != Reason::Unknown).then(|| Value::from(self.reason.as_str()));
            let details = self.details.as_ref().map(|details| Value::from(details.to_value()));
            for (key, own) in [("reason", reason), ("details", details)] {
                if let Some(value) = given(key).or(own).filter(|value| !value.is_null()) {
                    map.insert(key, value);
                }
            }
        }
        status
    }
}

/// A message, cut where it is far longer than anything to read: some repeat what was sent, escaped.
fn shortened(message: &str) -> &str {
    const LONGEST: usize = 256 << 10;
    message.get(..message.floor_char_boundary(LONGEST)).unwrap_or(message)
}

/// The Status of a success; what some say beside it (`code`, `details`) is added by who answers.
pub fn success_status() -> Map {
    let mut status = Map::new();
    status.insert("kind", "Status");
    status.insert("apiVersion", "v1");
    status.insert("metadata", Map::new());
    status.insert("status", "Success");
    status
}

impl Details {
    fn to_value(&self) -> Map {
        let mut map = Map::new();
        let texts = [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)];
        for (key, text) in texts {
            if !text.is_empty() {
                map.insert(key, text.as_str());
            }
        }
        if !self.causes.is_empty() {
            let causes: Vec<Value> = self.causes.iter().map(Cause::to_value).collect();
            map.insert("causes", causes);
        }
        if self.retry_after_seconds > 0 {
            map.insert("retryAfterSeconds", i64::from(self.retry_after_seconds));
        }
        map
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (key, text) in [("reason", self.reason), ("message", &self.message), ("field", &self.field)] {
            if !text.is_empty() {
                map.insert(key, text);
            }
        }
        Value::Object(map)
    }
}

/// `GroupResource.String()`: `deployments.apps`, `pods`.
pub(crate) fn qualified(group: &str, resource: &str) -> String {
    match group.is_empty() {
        true => resource.to_owned(),
        false => format!("{resource}.{group}"),
    }
}

impl From<EngineError> for ApiError {
    fn from(e: EngineError) -> ApiError {
        match e {
            EngineError::Compacted { requested, oldest } => ApiError::expired(format!(
                "The resourceVersion for the provided watch is too old: {requested} (oldest retained: {oldest})."
            )),
            EngineError::Future { requested, current } => {
                ApiError::too_large_resource_version(requested.get(), current.get())
            }
            // Nothing was written and reads still work, so clients may retry later.
            EngineError::OutOfSpace { .. } => ApiError::new(
                503,
                Reason::ServiceUnavailable,
                "the server's disk or quota is full, nothing was written; reads go on",
            )
            .retry_after(5),
            // Nothing was written here either; writes work again after a restart.
            error @ EngineError::Poisoned { .. } => {
                ApiError::new(503, Reason::ServiceUnavailable, error.to_string()).retry_after(5)
            }
            // As of a server that stops. A write that has this error was not begun.
            EngineError::Closed => {
                let message = "the server is shutting down";
                ApiError::new(503, Reason::ServiceUnavailable, message).retry_after(1)
            }
            // The stored form of a body may be larger than the body. Upstream answers 500 with etcd's text;
            // here it is an error of the request.
            error @ EngineError::TooLarge { .. } => {
                ApiError::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {error}"))
            }
            error @ EngineError::OutcomeUnknown { .. } => ApiError::unknown_outcome(&error),
            other => ApiError::internal(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_messages_are_cut_between_characters() {
        let length = |text: &str| {
            let status = ApiError::bad_request(text).to_status();
            status.get("message").and_then(Value::as_str).map(str::len)
        };
        assert_eq!(length("short"), Some(5));
        assert_eq!(length(&format!("a{}", "é".repeat(1 << 20))), Some((256 << 10) - 1));
    }

    #[test]
    fn clients_are_advised_to_retry_only_what_was_not_written() {
        let cause = || "IO error".to_owned();
        for (error, code, retry) in [
            (EngineError::OutOfSpace { message: cause() }, 503, true),
            (EngineError::Poisoned { message: cause() }, 503, true),
            (EngineError::Closed, 503, true),
            (EngineError::OutcomeUnknown { message: cause() }, 504, false),
        ] {
            let answer = ApiError::from(error.clone());
            let message = answer.message;
            assert_eq!(
                (answer.code, answer.details.is_some_and(|details| details.retry_after_seconds > 0)),
                (code, retry),
                "{error}"
            );
            assert_eq!(message.contains("unknown"), !retry, "{message}");
        }
    }

    #[test]
    fn what_a_webhook_says_was_not_found_here() {
        let taken = ApiError::already_exists("", "pods", "p");
        assert!(taken.is_already_exists() && taken.is_conflict() && !taken.is_not_found());
        assert!(ApiError::not_found("", "pods", "p").is_not_found());
        let given = |code, reason| ApiError::of_status(code, "no", tree!({ "reason": reason }));
        assert!(!given(404, "NotFound").is_not_found());
        let taken = given(409, "AlreadyExists");
        assert!(!taken.is_already_exists() && !taken.is_conflict());
    }

    #[test]
    fn what_does_not_fit_into_the_storage_is_the_requests_error() {
        let answer = ApiError::from(EngineError::TooLarge { what: "value", size: 9, limit: 8 });
        assert_eq!((answer.code, answer.reason), (413, Reason::RequestEntityTooLarge));
        assert_eq!(answer.message, "Request entity too large: value has 9 bytes, the limit is 8");
    }

    #[test]
    fn messages_have_upstreams_form() {
        let e = ApiError::not_found("apps", "deployments", "web");
        assert_eq!(e.message, "deployments.apps \"web\" not found");
        let cause = |field: &str, message: &str| Cause {
            reason: "FieldValueRequired",
            message: message.into(),
            field: field.into(),
        };
        let e = ApiError::invalid("", "Pod", "x", vec![cause("spec.containers", "Required value")]);
        assert_eq!(e.message, "Pod \"x\" is invalid: spec.containers: Required value");
        let e = ApiError::invalid("", "Pod", "x", vec![cause("a", "b"), cause("c", "d")]);
        assert_eq!(e.message, "Pod \"x\" is invalid: [a: b, c: d]");
        assert_eq!(e.to_status().at(&["details", "kind"]).and_then(Value::as_str), Some("Pod"));
    }
}
