//! Grace periods of pods (kubernetes `pkg/registry/core/pod/strategy.go`, `CheckGracefulDelete`).

use std::time::{Duration, SystemTime};

use plinth_api::is_deleting;
use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use crate::deletion::{
    grace_period, has_grace_left, set_deletion_time, start_deletion, Deletion, DeletionRequest,
};

/// A pod that is bound to a node and runs is deleted after its grace period, by the kubelet.
pub(super) const DELETION: Deletion =
    Deletion { keeps_finalizers: is_pending, mark, is_held: has_grace_left, is_always_marked_first: false };

/// Whether a grace period is running that the request does not shorten.
fn is_pending(pod: &Value, request: &DeletionRequest) -> bool {
    let pending = grace_period(pod);
    let shorter = request.grace_period_seconds.is_some_and(|requested| requested < pending);
    is_deleting(pod) && pending > 0 && !shorter
}

/// Sets the grace period of a running, bound pod; returns whether it has to be kept.
fn mark(pod: &mut Value, request: &DeletionRequest) -> bool {
    let requested = request.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if is_deleting(pod) {
        let pending = grace_period(pod);
        return match requested {
            _ if pending == 0 => false,
            // A grace period can only be shortened.
            Some(requested) if requested < pending => {
                shorten(pod, pending, requested, request.now);
                requested > 0
            }
            _ => true,
        };
    }
    let wanted =
        requested.or_else(|| pod.at(&["spec", "terminationGracePeriodSeconds"]).and_then(Value::as_int));
    let is_bound = pod.str_at(&["spec", "nodeName"]).is_some_and(|node| !node.is_empty());
    let has_ended = matches!(pod.str_at(&["status", "phase"]), Some("Succeeded" | "Failed"));
    let grace = match wanted {
        _ if !is_bound || has_ended => 0,
        Some(seconds) if seconds < 0 => 1,
        Some(seconds) => seconds,
        None => 0,
    };
    let until = request.now.checked_add(Duration::from_secs(grace.unsigned_abs()));
    start_deletion(pod, until.unwrap_or(request.now), Some(grace));
    grace > 0
}

/// Brings the end of a grace period forward, but not into the past.
fn shorten(pod: &mut Value, pending: i64, requested: i64, now: SystemTime) {
    let set = pod.str_at(&["metadata", "deletionTimestamp"]).and_then(parse_time);
    let moved = set
        .and_then(|time| time.checked_sub(Duration::from_secs(pending.unsigned_abs())))
        .and_then(|time| time.checked_add(Duration::from_secs(requested.unsigned_abs())))
        .unwrap_or(now);
    let grace = if moved < now && requested != 0 { 1 } else { requested };
    set_deletion_time(pod, moved.max(now), Some(grace));
}

fn parse_time(text: &str) -> Option<SystemTime> {
    let seconds = Timestamp::parse(text).ok()?.seconds;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    /// Deletes a pod of that grace period, node and phase; returns whether it is kept, and its grace period.
    fn deleted(spec: &str, status: &str, grace_period_seconds: Option<i64>) -> (bool, i64) {
        let text = format!(r#"{{"metadata":{{"name":"p"}},"spec":{spec},"status":{status}}}"#);
        let mut pod = json::parse(text.as_bytes()).unwrap();
        let request = DeletionRequest { grace_period_seconds, now: SystemTime::now() };
        let kept = mark(&mut pod, &request);
        (kept, grace_period(&pod))
    }

    #[test]
    fn only_bound_running_pods_have_a_grace_period() {
        const BOUND: &str = r#"{"nodeName":"n","terminationGracePeriodSeconds":30}"#;
        assert_eq!(deleted(BOUND, "{}", None), (true, 30));
        assert_eq!(deleted(BOUND, "{}", Some(5)), (true, 5));
        assert_eq!(deleted(BOUND, "{}", Some(-3)), (true, 1));
        assert_eq!(deleted(BOUND, "{}", Some(0)), (false, 0));
        assert_eq!(deleted(BOUND, r#"{"phase":"Failed"}"#, None), (false, 0));
        assert_eq!(deleted(r#"{"terminationGracePeriodSeconds":30}"#, "{}", None), (false, 0));
    }

    #[test]
    fn a_running_grace_period_is_only_shortened() {
        let text = br#"{"metadata":{"name":"p"},"spec":{"nodeName":"n"}}"#;
        let mut pod = json::parse(text).unwrap();
        let now = SystemTime::now();
        let request = |seconds| DeletionRequest { grace_period_seconds: Some(seconds), now };
        assert!(mark(&mut pod, &request(60)));
        let set = pod.at(&["metadata", "deletionTimestamp"]).cloned();
        assert!(mark(&mut pod, &request(90)) && is_pending(&pod, &request(90)));
        assert_eq!((grace_period(&pod), pod.at(&["metadata", "deletionTimestamp"]).cloned()), (60, set));
        assert!(!is_pending(&pod, &request(10)) && mark(&mut pod, &request(10)));
        assert_eq!(grace_period(&pod), 10);
        assert!(!mark(&mut pod, &request(0)));
        assert_eq!(grace_period(&pod), 0);
    }
}
