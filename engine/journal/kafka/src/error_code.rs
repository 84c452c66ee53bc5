//! Error codes of Kafka's protocol (`Errors.java`).

use plinth_journal::Error;

/// The codes that are handled differently from each other.
pub(crate) mod code {
    pub(crate) const NONE: i16 = 0;
    pub(crate) const OFFSET_OUT_OF_RANGE: i16 = 1;
    pub(crate) const CORRUPT_MESSAGE: i16 = 2;
    pub(crate) const UNKNOWN_TOPIC_OR_PARTITION: i16 = 3;
    pub(crate) const REQUEST_TIMED_OUT: i16 = 7;
    pub(crate) const MESSAGE_TOO_LARGE: i16 = 10;
    pub(crate) const RECORD_LIST_TOO_LARGE: i16 = 18;
    pub(crate) const NOT_ENOUGH_REPLICAS: i16 = 19;
    pub(crate) const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
    pub(crate) const CLUSTER_AUTHORIZATION_FAILED: i16 = 31;
    pub(crate) const UNSUPPORTED_SASL_MECHANISM: i16 = 33;
    pub(crate) const ILLEGAL_SASL_STATE: i16 = 34;
    pub(crate) const TOPIC_ALREADY_EXISTS: i16 = 36;
    pub(crate) const INVALID_REPLICATION_FACTOR: i16 = 38;
    pub(crate) const INVALID_CONFIG: i16 = 40;
    pub(crate) const INVALID_REQUEST: i16 = 42;
    pub(crate) const POLICY_VIOLATION: i16 = 44;
    pub(crate) const SASL_AUTHENTICATION_FAILED: i16 = 58;
    pub(crate) const INVALID_RECORD: i16 = 87;
    pub(crate) const UNKNOWN_TOPIC_ID: i16 = 100;
    pub(crate) const INCONSISTENT_TOPIC_ID: i16 = 103;
}

/// The error of a call that a broker has answered with a code: it may pass, or somebody has to grant a right.
pub(crate) fn error_of(error: i16, message: String) -> Error {
    match error {
        code::TOPIC_AUTHORIZATION_FAILED | code::CLUSTER_AUTHORIZATION_FAILED => denied(&message),
        _ => Error::Unavailable { message },
    }
}

/// The error of a user that lacks a right: which one it is no broker names.
pub(crate) fn denied(message: &str) -> Error {
    let message =
        format!("{message}: give the user READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS and DELETE on the topic");
    Error::Denied { message }
}

/// Names of error codes, for messages.
pub(crate) fn error_name(error: i16) -> String {
    let name = match error {
        code::OFFSET_OUT_OF_RANGE => "OFFSET_OUT_OF_RANGE",
        code::CORRUPT_MESSAGE => "CORRUPT_MESSAGE",
        code::UNKNOWN_TOPIC_OR_PARTITION => "UNKNOWN_TOPIC_OR_PARTITION",
        5 => "LEADER_NOT_AVAILABLE",
        6 => "NOT_LEADER_OR_FOLLOWER",
        code::REQUEST_TIMED_OUT => "REQUEST_TIMED_OUT",
        8 => "BROKER_NOT_AVAILABLE",
        code::MESSAGE_TOO_LARGE => "MESSAGE_TOO_LARGE",
        code::RECORD_LIST_TOO_LARGE => "RECORD_LIST_TOO_LARGE",
        code::NOT_ENOUGH_REPLICAS => "NOT_ENOUGH_REPLICAS",
        20 => "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        code::TOPIC_AUTHORIZATION_FAILED => "TOPIC_AUTHORIZATION_FAILED",
        code::CLUSTER_AUTHORIZATION_FAILED => "CLUSTER_AUTHORIZATION_FAILED",
        code::UNSUPPORTED_SASL_MECHANISM => "UNSUPPORTED_SASL_MECHANISM",
        code::ILLEGAL_SASL_STATE => "ILLEGAL_SASL_STATE",
        code::TOPIC_ALREADY_EXISTS => "TOPIC_ALREADY_EXISTS",
        code::INVALID_REPLICATION_FACTOR => "INVALID_REPLICATION_FACTOR",
        code::INVALID_CONFIG => "INVALID_CONFIG",
        code::INVALID_REQUEST => "INVALID_REQUEST",
        code::POLICY_VIOLATION => "POLICY_VIOLATION",
        56 => "KAFKA_STORAGE_ERROR",
        code::SASL_AUTHENTICATION_FAILED => "SASL_AUTHENTICATION_FAILED",
        74 => "FENCED_LEADER_EPOCH",
        76 => "UNKNOWN_LEADER_EPOCH",
        78 => "OFFSET_NOT_AVAILABLE",
        code::INVALID_RECORD => "INVALID_RECORD",
        code::UNKNOWN_TOPIC_ID => "UNKNOWN_TOPIC_ID",
        code::INCONSISTENT_TOPIC_ID => "INCONSISTENT_TOPIC_ID",
        other => return format!("error code {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::CallError;

    #[test]
    fn what_needs_a_right_is_no_outage() {
        for (error, is_denied) in
            [(code::TOPIC_AUTHORIZATION_FAILED, true), (code::CLUSTER_AUTHORIZATION_FAILED, true), (6, false)]
        {
            let error = error_of(error, "why".to_owned());
            assert_eq!(matches!(error, Error::Denied { .. }), is_denied, "{error}");
            assert!(error.is_transient(), "it is waited for");
        }
        let refused = CallError::Denied("the password is another one".to_owned()).of_reading();
        assert!(refused.refusal().is_some(), "{refused}");
        assert!(CallError::Refused("a certificate".to_owned()).of_reading().refusal().is_none());
    }
}
