//! Assertions about error answers: clients match on code, reason and details.

use kube::core::Status;

/// The Status of a refused request; panics when it was not refused by the server.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        Err(other) => panic!("expected a Status of the server, got {other:?}"),
        Ok(value) => panic!("expected a refusal, got {value:?}"),
    }
}

/// Checks code, reason, and the details' kind and name.
#[track_caller]
pub fn assert_refusal(status: &Status, code: u16, reason: &str, kind: &str, name: &str) {
    let details = status.details.as_ref();
    let got = (
        status.code,
        status.reason.as_str(),
        details.map_or("", |d| d.kind.as_str()),
        details.map_or("", |d| d.name.as_str()),
    );
    assert_eq!(got, (code, reason, kind, name), "{status:?}");
    assert!(status.is_failure(), "{status:?}");
    assert!(!status.message.is_empty(), "{status:?}");
}
