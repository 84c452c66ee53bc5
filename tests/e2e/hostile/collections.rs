//! Requests that concern many large objects: they are read one after the other, and never held all at once.

use http::{Method, StatusCode};
use plinth_benches::api::client::{Call, Connection, Protocol, JSON};
use serde_json::{json, Value};

use super::{resident_peak, Target};

/// Objects, and bytes of each.
const OBJECTS: usize = 400;
const BYTES: usize = 200 << 10;
/// What one request may add to the memory, in bytes: a quarter of what the objects have.
const GROWTH: u64 = 20 << 20;

async fn fill(admin: &mut Connection, path: &str, object: impl Fn(usize) -> Value) {
    for n in 0..OBJECTS {
        let call = Call::new(Method::POST, path).body(JSON, object(n).to_string());
        admin.must(&call).await.expect(path);
    }
}

/// Sends a request twice, the first time for what it allocates once (threads, blocks of tables).
async fn grows(target: &Target, admin: &mut Connection, calls: [Call; 2]) -> (u64, String) {
    let [warm, call] = calls;
    let reply = admin.call(&warm).await.expect("an answer");
    assert!(reply.status.is_success(), "{}", reply.text());
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let reply = admin.call(&call).await.expect("an answer");
    assert!(reply.status.is_success(), "{}", reply.text());
    let warnings = reply.headers.get("warning").map(|text| text.to_str().expect("text").to_owned());
    (resident_peak(target.pid).saturating_sub(before), warnings.unwrap_or_default())
}

#[tokio::test]
async fn large_collections_are_not_held_in_memory() {
    let target = Target::start().await;
    let mut admin = target.server.connect(Protocol::Http2).await;
    let text = "x".repeat(BYTES);
    let pods = "/api/v1/namespaces/default/pods";
    fill(&mut admin, pods, |n| {
        json!({
            "metadata": {"name": format!("pod-{n}"), "annotations": {"large": text}},
            "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "x"}]},
        })
    })
    .await;

    // A level of Pod Security that existing pods are compared with.
    let level = |level: &str| {
        let labels = json!({"pod-security.kubernetes.io/enforce": level});
        let patch = json!({"metadata": {"labels": labels}}).to_string();
        Call::new(Method::PATCH, "/api/v1/namespaces/default?dryRun=All")
            .body("application/merge-patch+json", patch)
    };
    let (more, warning) = grows(&target, &mut admin, [level("baseline"), level("restricted")]).await;
    assert!(warning.contains("existing pods"), "{warning}");
    assert!(more < GROWTH, "a label of the namespace: {} MiB", more >> 20);

    // A claim that no pod uses.
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let claim = json!({
        "metadata": {"name": "unused"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    admin.must(&Call::new(Method::POST, claims).body(JSON, claim.to_string())).await.expect("a claim");
    let path = format!("{claims}/unused");
    admin.must(&Call::new(Method::DELETE, path.as_str())).await.expect("its deletion");
    for _ in 0..500 {
        if admin.call(&Call::get(path.as_str())).await.expect("an answer").status == StatusCode::NOT_FOUND {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let gone = admin.call(&Call::get(path.as_str())).await.expect("an answer");
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    let more = resident_peak(target.pid).saturating_sub(before);
    assert!(more < GROWTH, "the deletion of a claim: {} MiB", more >> 20);

    // The whole collection: the answer has the objects as they were.
    let immediately = format!("{pods}?gracePeriodSeconds=0");
    resident_peak(target.pid);
    let before = resident_peak(target.pid);
    let mut body = admin.open(&Call::new(Method::DELETE, immediately)).await.expect("an answer").into_body();
    let mut bytes = 0;
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        bytes += frame.expect("the whole list").into_data().map_or(0, |data| data.len());
    }
    assert!(bytes > OBJECTS * BYTES, "{bytes} bytes of objects");
    let more = resident_peak(target.pid).saturating_sub(before);
    // Deleting them is writing: that fills buffers of the store, which are bounded, too. Held until the
    // answer they were in memory twice, and those buffers beside them.
    assert!(more < (OBJECTS * BYTES) as u64, "the deletion of a collection: {} MiB", more >> 20);
    let left = admin.must(&Call::get(pods)).await.expect("a list").text();
    assert_eq!(serde_json::from_str::<Value>(&left).expect("JSON")["items"], json!([]));
}
