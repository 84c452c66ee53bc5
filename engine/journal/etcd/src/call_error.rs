//! [`CallError`]: why a call of etcd failed, and what a status means for a request.

use std::fmt;

use plinth_etcd_wire::call::describe;
use plinth_journal::Error;
use tonic::{Code, ConnectError, Status};

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The request did not reach etcd, or etcd has refused it before it did anything: it has changed nothing.
    NotMade(String),
    /// This member cannot be used as long as it, or the options, are what they are. Nothing was made there.
    Unusable(String),
    /// Nothing is known of its outcome.
    Unknown(String),
    /// The user may not do this, or is not the one that it claims to be. Nothing was made.
    Denied(String),
    /// etcd will not do this as long as it, or the options, are what they are.
    Refused(String),
    /// etcd has no space for what a request puts. Nothing is known of its outcome.
    NoSpace(String),
    /// The request is too large for etcd.
    TooLarge,
    /// The revision that was asked for is compacted.
    Compacted,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CallError::NotMade(text)
            | CallError::Unusable(text)
            | CallError::Unknown(text)
            | CallError::Denied(text)
            | CallError::NoSpace(text)
            | CallError::Refused(text) => f.write_str(text),
            CallError::TooLarge => f.write_str("the request is too large"),
            CallError::Compacted => f.write_str("the revision is compacted"),
        }
    }
}

impl CallError {
    /// As the error of a call that reads.
    pub(crate) fn of_reading(self) -> Error {
        match self {
            CallError::NotMade(message)
            | CallError::Unusable(message)
            | CallError::NoSpace(message)
            | CallError::Unknown(message) => Error::Unavailable { message },
            CallError::Denied(message) => Error::Denied { message },
            CallError::Refused(message) => Error::Refused { message },
            CallError::TooLarge => unexpected("a reading request is too large"),
            CallError::Compacted => unexpected("the revision was compacted meanwhile"),
        }
    }
}

fn unexpected(message: &str) -> Error {
    Error::Unavailable { message: message.to_owned() }
}

/// Messages that tell apart what one code of gRPC stands for: etcd's `api/v3rpc/rpctypes/error.go`, and
/// gRPC's own for the last one. Each is a whole message, or all of one behind its prefix.
pub(crate) mod message {
    pub(crate) const AUTH_NOT_ENABLED: &str = "authentication is not enabled";
    pub(crate) const USER_EMPTY: &str = "user name is empty";
    pub(crate) const AUTH_FAILED: &str = "authentication failed, invalid user ID or password";
    pub(crate) const OLD_AUTH_REVISION: &str = "revision of auth store is old";
    pub(crate) const INVALID_TOKEN: &str = "etcdserver: invalid auth token";
    pub(crate) const REQUEST_TOO_LARGE: &str = "request is too large";
    pub(crate) const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
    pub(crate) const TOO_MANY_REQUESTS: &str = "etcdserver: too many requests";
    pub(crate) const PERMISSION_DENIED: &str = "etcdserver: permission denied";
    pub(crate) const COMPACTED: &str = "required revision has been compacted";
    pub(crate) const FUTURE_REVISION: &str = "required revision is a future revision";
    pub(crate) const LEARNER: &str = "rpc not supported for learner";
    pub(crate) const MESSAGE_TOO_LARGE: &str = "received message larger than max";
}

/// How a connection ends whose client the member has sent away in the handshake, and why it has: no request
/// of it was read. Only words are left of it: the layers between keep no error of TLS.
const ALERT: &str = "received fatal alert: ";
const CERTIFICATE_ALERTS: [&str; 8] = [
    "CertificateRequired",
    "BadCertificate",
    "UnsupportedCertificate",
    "CertificateRevoked",
    "CertificateExpired",
    "CertificateUnknown",
    "UnknownCA",
    "AccessDenied",
];

/// Whether a new token is needed: the old one has expired, or users have changed. Only etcd's own answers
/// count: after one of something between, nothing is known of the request.
pub(crate) fn is_token_old(status: &Status) -> bool {
    [message::INVALID_TOKEN, message::OLD_AUTH_REVISION].iter().any(|old| status.message().ends_with(old))
}

/// What a status means for the request. That it changed nothing is believed of messages that etcd answers
/// with before it hands a request to its log, or applies it; any other answer may come from behind that, or
/// from something between. So "database space exceeded" leaves the outcome open: a member answers with it
/// before the request is in the log, and after it was applied (etcd's `quotaApplierV3`).
pub(crate) fn classify(status: &Status, address: &str) -> CallError {
    let text = format!("{address}: {}", describe(status));
    if let Some(connect) = source::<ConnectError>(status) {
        return match source::<rustls::Error>(connect) {
            Some(_) => CallError::Unusable(format!("TLS with {text}")),
            None => CallError::NotMade(text),
        };
    }
    if let Some(alert) = text.split_once(ALERT).and_then(|(_, rest)| rest.split([':', ' ']).next()) {
        if CERTIFICATE_ALERTS.contains(&alert) {
            return CallError::Unusable(format!(
                "TLS with {text}: it does not accept the client certificate: set clientCertificateFile and \
                 clientKeyFile in --journal-config to one that it does"
            ));
        }
    }
    let is = |message| status.message().ends_with(message);
    match status.code() {
        Code::InvalidArgument if is(message::REQUEST_TOO_LARGE) => CallError::TooLarge,
        Code::ResourceExhausted if status.message().contains(message::MESSAGE_TOO_LARGE) => {
            CallError::TooLarge
        }
        Code::OutOfRange if is(message::COMPACTED) => CallError::Compacted,
        Code::ResourceExhausted if is(message::TOO_MANY_REQUESTS) => CallError::NotMade(text),
        Code::ResourceExhausted if is(message::NO_SPACE) => CallError::NoSpace(format!(
            "{text}: etcdctl defrag at each member gives back what was trimmed, and etcdctl alarm disarm ends it"
        )),
        Code::Unauthenticated if is(message::INVALID_TOKEN) => CallError::NotMade(text),
        Code::InvalidArgument if is(message::OLD_AUTH_REVISION) => CallError::NotMade(text),
        Code::PermissionDenied if is(message::PERMISSION_DENIED) => {
            CallError::Denied(format!("{text}: give the user in --journal-config the role root"))
        }
        // Another etcd's users may be asked for; where all members answer so, the options are wrong.
        Code::InvalidArgument if is(message::AUTH_FAILED) => {
            CallError::Unusable(format!("{text}: correct user and passwordFile in --journal-config"))
        }
        Code::InvalidArgument if is(message::USER_EMPTY) => {
            CallError::Unusable(format!("{text}: set user and passwordFile in --journal-config"))
        }
        // A member that has not all of what the others have, or another program at its address.
        Code::Unimplemented => CallError::Unusable(text),
        Code::FailedPrecondition if is(message::LEARNER) => CallError::Unusable(text),
        Code::InvalidArgument | Code::FailedPrecondition => CallError::Refused(text),
        // Of another member's numbering.
        Code::OutOfRange if is(message::FUTURE_REVISION) => CallError::Unknown(text),
        _ => CallError::Unknown(text),
    }
}

/// The first error of a type among the causes of an error.
fn source<'a, T: std::error::Error + 'static>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        // An error of the operating system's kind hides the one that it was made of.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: Code, message: &str) -> &'static str {
        match classify(&Status::new(code, message), "member") {
            CallError::NotMade(_) => "not made",
            CallError::Unusable(_) => "unusable",
            CallError::Unknown(_) => "unknown",
            CallError::NoSpace(_) => "no space",
            CallError::Denied(_) => "denied",
            CallError::Refused(_) => "refused",
            CallError::TooLarge => "too large",
            CallError::Compacted => "compacted",
        }
    }

    #[test]
    fn statuses_say_whether_a_request_was_made() {
        for (code, message, expected) in [
            (Code::InvalidArgument, "etcdserver: request is too large", "too large"),
            (Code::ResourceExhausted, "grpc: received message larger than max (9 vs. 8)", "too large"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", "compacted"),
            // It may be applied all the same.
            (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded", "no space"),
            (Code::ResourceExhausted, "etcdserver: too many requests", "not made"),
            (Code::ResourceExhausted, "of something between", "unknown"),
            (Code::PermissionDenied, "etcdserver: permission denied", "denied"),
            (Code::PermissionDenied, "of something between", "unknown"),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "unusable",
            ),
            (Code::Unauthenticated, "etcdserver: invalid auth token", "not made"),
            (Code::Unauthenticated, "of something between", "unknown"),
            (Code::InvalidArgument, "etcdserver: revision of auth store is old", "not made"),
            (Code::InvalidArgument, "etcdserver: user name is empty", "unusable"),
            (Code::InvalidArgument, "etcdserver: key is not provided", "refused"),
            (Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", "unknown"),
            (Code::Unimplemented, "unknown service etcdserverpb.KV", "unusable"),
            (Code::FailedPrecondition, "etcdserver: rpc not supported for learner", "unusable"),
            (
                Code::OutOfRange,
                "Error, decoded message length too large: found 9, the limit is: 8",
                "unknown",
            ),
            (Code::DataLoss, "etcdserver: corrupt cluster", "unknown"),
            (Code::Unavailable, "etcdserver: request timed out", "unknown"),
            (Code::Unavailable, "etcdserver: no leader", "unknown"),
            (Code::Unknown, "raft proposal dropped", "unknown"),
            (Code::Cancelled, "", "unknown"),
            (Code::Unknown, "connection error: received fatal alert: CertificateRequired", "unusable"),
            (Code::Unknown, "connection error: received fatal alert: InternalError", "unknown"),
        ] {
            assert_eq!(kind(code, message), expected, "{message}");
        }
    }
}
