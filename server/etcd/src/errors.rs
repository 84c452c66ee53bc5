//! Errors as etcd reports them: clients match on code and text (etcd's `api/v3rpc/rpctypes/error.go`).

use plinth_engine::Error;
use tonic::{Code, Status};

macro_rules! errors {
    ($($name:ident = $code:ident, $text:literal;)*) => {
        $(pub(crate) fn $name() -> Status {
            Status::new(Code::$code, $text)
        })*
    };
}

errors! {
    empty_key = InvalidArgument, "etcdserver: key is not provided";
    key_not_found = InvalidArgument, "etcdserver: key not found";
    value_provided = InvalidArgument, "etcdserver: value is provided";
    lease_provided = InvalidArgument, "etcdserver: lease is provided";
    too_many_operations = InvalidArgument, "etcdserver: too many operations in txn request";
    duplicate_key = InvalidArgument, "etcdserver: duplicate key given in txn request";
    invalid_sort_option = InvalidArgument, "etcdserver: invalid sort option";
    compacted = OutOfRange, "etcdserver: mvcc: required revision has been compacted";
    future_revision = OutOfRange, "etcdserver: mvcc: required revision is a future revision";
    no_space = ResourceExhausted, "etcdserver: mvcc: database space exceeded";
    too_many_requests = ResourceExhausted, "etcdserver: too many requests";
    lease_not_found = NotFound, "etcdserver: requested lease not found";
    lease_exists = FailedPrecondition, "etcdserver: lease already exists";
    lease_ttl_too_large = OutOfRange, "etcdserver: too large lease TTL";
    request_too_large = InvalidArgument, "etcdserver: request is too large";
    member_not_found = NotFound, "etcdserver: member not found";
    member_not_learner = FailedPrecondition, "etcdserver: can only promote a learner member";
    members_not_started =
        FailedPrecondition, "etcdserver: re-configuration failed due to not enough started members";
    bad_transferee = FailedPrecondition, "etcdserver: bad leader transferee";
    root_user_missing = FailedPrecondition, "etcdserver: root user does not exist";
    root_role_missing = FailedPrecondition, "etcdserver: root user does not have root role";
    user_exists = FailedPrecondition, "etcdserver: user name already exists";
    user_empty = InvalidArgument, "etcdserver: user name is empty";
    user_not_found = FailedPrecondition, "etcdserver: user name not found";
    role_exists = FailedPrecondition, "etcdserver: role name already exists";
    role_empty = InvalidArgument, "etcdserver: role name is empty";
    role_not_found = FailedPrecondition, "etcdserver: role name not found";
    role_not_granted = FailedPrecondition, "etcdserver: role is not granted to the user";
    permission_not_given = InvalidArgument, "etcdserver: permission not given";
    permission_not_granted = FailedPrecondition, "etcdserver: permission is not granted to the role";
    permission_denied = PermissionDenied, "etcdserver: permission denied";
    auth_failed = InvalidArgument, "etcdserver: authentication failed, invalid user ID or password";
    no_password_user = Unknown, "auth: authentication failed, password was given for no password user";
    verify_only = Unknown, "auth: token signing attempted with verify-only key";
    password_too_long = Unknown, "bcrypt: password length exceeds 72 bytes";
    auth_not_enabled = FailedPrecondition, "etcdserver: authentication is not enabled";
    invalid_token = Unauthenticated, "etcdserver: invalid auth token";
    invalid_auth_management = InvalidArgument, "etcdserver: invalid auth management";
    old_auth_revision = InvalidArgument, "etcdserver: revision of auth store is old";
    bad_downgrade_version = InvalidArgument, "etcdserver: wrong downgrade target version format";
    bad_downgrade_target = InvalidArgument, "etcdserver: invalid downgrade target version";
    unknown_method = Unknown, "etcdserver: unknown method";
    corrupt = DataLoss, "etcdserver: corrupt cluster";
    session_expired = Unknown, "mutex: session is expired";
    no_leader_key = Unknown, "\"leader\" field must be provided";
    not_leader = Unknown, "election: not leader";
    no_leader = Unknown, "election: no leader";
    stopped = Unavailable, "etcdserver: server stopped";
    timed_out = Unavailable, "etcdserver: request timed out";
}

/// The error of a call that this server does not offer, in our words.
pub(crate) fn unsupported(what: &str) -> Status {
    Status::unimplemented(format!("plinth etcd: {what}"))
}

/// An error of the engine. A conflict is none that a client sees: transactions are then evaluated again.
pub(crate) fn from_engine(error: &Error) -> Status {
    match error {
        Error::Compacted { .. } => compacted(),
        Error::Future { .. } => future_revision(),
        Error::TooLarge { .. } => request_too_large(),
        Error::InvalidTransaction { .. } => too_many_operations(),
        Error::OutOfSpace { .. } => no_space(),
        Error::Closed | Error::Poisoned { .. } => stopped(),
        // The outcome is unknown: clients treat it like a request that timed out.
        Error::OutcomeUnknown { .. } => timed_out(),
        Error::Corrupt { .. } => {
            tracing::error!(error = %error, "record is damaged; stop the server and run plinth verify");
            corrupt()
        }
        error => Status::unknown(error.to_string()),
    }
}

/// A task of the server did not end: it panicked, or the runtime is shutting down.
pub(crate) fn from_task(_: tokio::task::JoinError) -> Status {
    stopped()
}
