//! Objects that two groups serve have the fields of the group that is asked.

use http::Method;
use plinth_tests::requests::call;
use plinth_tests::server::{namespace, shared};
use serde_json::json;

#[tokio::test]
async fn an_event_has_the_fields_of_the_group_that_is_asked() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "events").await;
    let core = format!("/api/v1/namespaces/{namespace}/events");
    let newer = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
    let old = json!({"metadata": {"name": "old"}, "message": "m",
        "involvedObject": {"kind": "Pod", "name": "web", "namespace": namespace}});
    let new = json!({"metadata": {"name": "new"}, "reason": "Started", "action": "Start", "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "example.com/c", "reportingInstance": "i",
        "regarding": {"kind": "Pod", "name": "web", "namespace": namespace}});
    for (path, event) in [(&core, &old), (&newer, &new)] {
        let (code, answer) = call(&client, Method::POST, path, Some(event)).await;
        assert_eq!(code, 201, "{answer}");
    }
    // Empty strings are there in one group and left out in the other, in single objects and in lists.
    for (path, index) in [(&core, false), (&newer, true)] {
        let one = call(&client, Method::GET, &format!("{path}/old"), None).await.1;
        let list =
            call(&client, Method::GET, &format!("{path}?fieldSelector=metadata.name=old"), None).await.1;
        for event in [&one, &list["items"][0]] {
            let field = |name: &str| event.get(name).cloned();
            let (controller, empty) = (field("reportingController"), (!index).then(|| json!("")));
            assert_eq!((controller, field("reportingComponent")), (None, empty.clone()), "{event}");
            assert_eq!(field("reportingInstance"), empty, "{event}");
            assert_eq!(field(if index { "note" } else { "message" }), Some(json!("m")), "{event}");
        }
        let event = call(&client, Method::GET, &format!("{path}/new"), None).await.1;
        let controller = if index { "reportingController" } else { "reportingComponent" };
        assert_eq!(event[controller], "example.com/c", "{event}");
        assert_eq!(event["reportingInstance"], "i", "{event}");
    }
}
