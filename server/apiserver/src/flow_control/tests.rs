//! Admission as a whole: seats are released, floods are refused, other flows are served.

use super::*;
use plinth_api::{parse_route, User};

fn options(most: u32, fair: bool) -> FlowControlOptions {
    FlowControlOptions {
        max_requests_inflight: most,
        max_mutating_requests_inflight: most,
        enable_priority_and_fairness: fair,
        // The longest time in queue is a quarter of it.
        request_timeout: Duration::from_millis(4),
    }
}

async fn ask(control: &FlowControl, user: &User, uri: &str) -> Result<Seat, Refused> {
    let route = parse_route(&hyper::Method::GET, uri, None).unwrap();
    let digest = RequestDigest::new(user, &route, "get");
    let mut class = None;
    control.admit(&digest, &route, None, false, &mut class).await
}

#[tokio::test]
async fn a_full_server_refuses_all_but_administrators() {
    for fair in [false, true] {
        let (control, _levels) = FlowControl::new(&options(1, fair), &prometheus::Registry::new()).unwrap();
        let groups = vec!["system:authenticated".to_owned()];
        let jane = User { name: "jane".into(), groups, ..User::default() };
        let groups = vec!["system:masters".to_owned()];
        let admin = User { name: "admin".into(), groups, ..User::default() };
        let mut held = Vec::new();
        // Only catch-all exists before the objects have been read: it has all the seats and no queue.
        let seats = if fair { 2 } else { 1 };
        for _ in 0..seats {
            held.push(ask(&control, &jane, "/api/v1/pods").await.unwrap());
        }
        let refused = ask(&control, &jane, "/api/v1/pods").await.err().unwrap().response();
        assert_eq!(refused.status(), 429);
        assert_eq!(refused.headers()[RETRY_AFTER], "1");
        assert!(ask(&control, &admin, "/api/v1/pods").await.is_ok());
        assert!(ask(&control, &jane, "/api/v1/namespaces/n/pods/x/log").await.is_ok(), "it runs long");
        held.pop();
        assert!(ask(&control, &jane, "/api/v1/pods").await.is_ok());
    }
}

#[test]
fn a_request_may_ask_for_less_time_and_not_for_more() {
    let (control, _levels) = FlowControl::new(&options(1, false), &prometheus::Registry::new()).unwrap();
    let all = control.request_timeout;
    for (query, expected) in [
        (None, Ok(all)),
        (Some("timeout=1ms"), Ok(Duration::from_millis(1))),
        (Some("timeout=1h"), Ok(all)),
        (Some("timeout=0s"), Ok(all)),
        (Some("timeout="), Ok(all)),
        (Some("a=b&timeout=soon"), Err(400)),
    ] {
        assert_eq!(control.limit(query).map_err(|e| e.code), expected, "{query:?}");
    }
}
