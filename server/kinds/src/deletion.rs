//! How objects are deleted: at once or in two steps, and what holds them between the two.
//!
//! The steps that all kinds have, preconditions and finalizers, are those of the request path.

use std::time::SystemTime;

use plinth_api::{finalizers, is_deleting};
use plinth_codec::time::Timestamp;
use plinth_codec::Value;

/// A request to delete an object.
#[derive(Clone, Copy, Debug)]
pub struct DeletionRequest {
    /// The grace period that it gives, in seconds.
    pub grace_period_seconds: Option<i64>,
    /// The time of the request.
    pub now: SystemTime,
}

/// How the objects of a kind are deleted.
#[derive(Debug)]
pub struct Deletion {
    /// Whether the finalizers of the garbage collector stay as an earlier request has set them.
    pub keeps_finalizers: fn(object: &Value, request: &DeletionRequest) -> bool,
    /// Marks the object as being deleted, if it cannot be deleted at once; returns whether it cannot, for
    /// another reason than finalizers.
    pub mark: fn(object: &mut Value, request: &DeletionRequest) -> bool,
    /// Whether anything but finalizers still holds an object that is being deleted.
    pub is_held: fn(object: &Value) -> bool,
    /// Whether the first request only marks an object, whatever its options are.
    pub is_always_marked_first: bool,
}

/// Deletes an object at once, unless it has finalizers.
pub(crate) const AT_ONCE: Deletion = Deletion {
    keeps_finalizers: |_, _| false,
    mark: |object, request| {
        if !finalizers(object).is_empty() && !is_deleting(object) {
            start_deletion(object, request.now, Some(0));
        }
        false
    },
    is_held: has_grace_left,
    is_always_marked_first: false,
};

/// Whether a grace period is set that no request has ended.
pub(crate) fn has_grace_left(object: &Value) -> bool {
    grace_period(object) != 0
}

/// `metadata.deletionGracePeriodSeconds`; 0 without one.
pub(crate) fn grace_period(object: &Value) -> i64 {
    object.at(&["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_int).unwrap_or(0)
}

/// Sets the time of deletion and, if given, the grace period.
pub(crate) fn set_deletion_time(object: &mut Value, when: SystemTime, grace: Option<i64>) {
    let Some(metadata) = object.object_at_mut(&["metadata"]) else { return };
    metadata.insert("deletionTimestamp", Timestamp::from(when).to_rfc3339());
    if let Some(grace) = grace {
        metadata.insert("deletionGracePeriodSeconds", grace);
    }
}

/// The same of an object that was not being deleted, which counts as a change of the desired state.
pub(crate) fn start_deletion(object: &mut Value, when: SystemTime, grace: Option<i64>) {
    set_deletion_time(object, when, grace);
    let Some(metadata) = object.object_at_mut(&["metadata"]) else { return };
    if let Some(generation) = metadata.get("generation").and_then(Value::as_int).filter(|g| *g > 0) {
        metadata.insert("generation", generation.saturating_add(1));
    }
}
