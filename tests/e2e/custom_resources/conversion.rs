//! Definitions whose versions a webhook converts: objects are seen in each version whatever they were written
//! in, and a webhook that fails, returns wrong objects or hangs fails one request and changes nothing that is
//! stored.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{Engine as _, BASE64_STANDARD};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, WatchEvent, WatchParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use plinth_benches::api::client::{Call, Protocol};
use plinth_tests::definitions::{establish, with_versions};
use plinth_tests::https::HttpsServer;
use plinth_tests::requests::{call, call_with};
use plinth_tests::server::{shared_with_apis, unique};
use serde_json::{json, Value};
use tokio::sync::Barrier;

use crate::monitoring::Scrape;

/// How the webhook answers at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behavior {
    Honest,
    /// Reports a failure.
    Fails,
    /// Answers with the UID of another review.
    OtherUid,
    /// Loses an object.
    Loses,
    /// Returns the objects unconverted.
    Keeps,
    /// Gives the object another name.
    Renames,
    /// Gives the object another identity.
    OtherObject,
    /// Gives nothing for the object.
    Null,
    /// Returns labels that are not strings.
    Labels,
    /// Redirects to another address.
    Redirects,
    /// Breaks off.
    Truncates,
    /// Answers without end.
    Floods,
    NoJson,
    Status500,
    /// Never answers.
    Hangs,
    /// Answers when [`TOGETHER`] reviews are there.
    Together,
}

/// More than the threads that the server lets wait for remote services.
const TOGETHER: usize = 40;

/// A webhook, and the number of its calls.
struct Converter {
    server: HttpsServer,
    behavior: Arc<Mutex<Behavior>>,
    calls: Arc<AtomicUsize>,
}

impl Converter {
    async fn start() -> Converter {
        let (behavior, calls) = (Arc::new(Mutex::new(Behavior::Honest)), Arc::new(AtomicUsize::new(0)));
        let (its_behavior, its_calls) = (behavior.clone(), calls.clone());
        let together = Arc::new(Barrier::new(TOGETHER));
        let server = HttpsServer::start(move |request: Request<Incoming>| {
            let behavior = *its_behavior.lock();
            its_calls.fetch_add(1, Ordering::Relaxed);
            let together = together.clone();
            async move {
                if behavior == Behavior::Together {
                    together.wait().await;
                }
                answer(request, behavior).await
            }
        })
        .await;
        Converter { server, behavior, calls }
    }

    fn is(&self, behavior: Behavior) {
        *self.behavior.lock() = behavior;
    }

    /// The definition of `Box`: `size: 3x4` in v1, `width` and `height` in v2, which is stored.
    fn definition(&self, group: &str) -> Value {
        let version = |name: &str, storage: bool, fields: Value| {
            json!({"name": name, "served": true, "storage": storage, "subresources": {"status": {}},
                   "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                       "spec": {"type": "object", "properties": fields}}}}})
        };
        let versions = json!([
            version(
                "v1",
                false,
                json!({"size": {"type": "string", "pattern": "^[0-9]+x[0-9]+$"}, "colour": {"type": "string", "default": "red"}})
            ),
            version(
                "v2",
                true,
                json!({"width": {"type": "integer", "maximum": 100}, "height": {"type": "integer"}, "colour": {"type": "string"}})
            ),
        ]);
        let mut definition = with_versions(group, "Box", "Namespaced", versions);
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook": {
            "conversionReviewVersions": ["v1"],
            "clientConfig": {
                "url": format!("https://localhost:{}/convert", self.server.port),
                "caBundle": BASE64_STANDARD.encode(&self.server.certificate),
            },
        }});
        definition
    }
}

async fn answer(request: Request<Incoming>, behavior: Behavior) -> Response<Full<Bytes>> {
    let body = request.into_body().collect().await.expect("body").to_bytes();
    let review: Value = serde_json::from_slice(&body).expect("a review");
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap_or_default();
    let mut converted: Vec<Value> =
        review["request"]["objects"].as_array().into_iter().flatten().map(|o| converted(o, wanted)).collect();
    let mut uid = review["request"]["uid"].clone();
    let mut result = json!({"status": "Success"});
    match behavior {
        Behavior::Honest | Behavior::Together => {}
        Behavior::Fails => {
            result = json!({"status": "Failure", "message": "boxes cannot be converted today"})
        }
        Behavior::OtherUid => uid = json!("other"),
        Behavior::Loses => drop(converted.pop()),
        Behavior::Keeps => converted = review["request"]["objects"].as_array().cloned().unwrap_or_default(),
        Behavior::Renames => converted.iter_mut().for_each(|o| o["metadata"]["name"] = json!("other")),
        Behavior::OtherObject => converted.iter_mut().for_each(|o| o["metadata"]["uid"] = json!("other")),
        Behavior::Null => converted.iter_mut().for_each(|o| *o = Value::Null),
        Behavior::Labels => converted.iter_mut().for_each(|o| o["metadata"]["labels"] = json!({"a": 1})),
        Behavior::Redirects => {
            let mut response = Response::new(Full::new(Bytes::new()));
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", http::HeaderValue::from_static("https://localhost:1/"));
            return response;
        }
        Behavior::Truncates => {
            return Response::new(Full::new(Bytes::from(
                r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"Conv"#,
            )))
        }
        Behavior::Floods => return Response::new(Full::new(Bytes::from(vec![b' '; 100 << 20]))),
        Behavior::NoJson => return Response::new(Full::new(Bytes::from("nonsense"))),
        Behavior::Status500 => {
            let mut response = Response::new(Full::new(Bytes::new()));
            *response.status_mut() = http::StatusCode::INTERNAL_SERVER_ERROR;
            return response;
        }
        Behavior::Hangs => std::future::pending().await,
    }
    let review = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "response": {"uid": uid, "convertedObjects": converted, "result": result}});
    Response::new(Full::new(Bytes::from(review.to_string())))
}

fn converted(object: &Value, wanted: &str) -> Value {
    let mut new = object.clone();
    new["apiVersion"] = json!(wanted);
    let spec = &object["spec"];
    let mut made = json!({"colour": spec["colour"]});
    if wanted.ends_with("/v2") {
        let (width, height) = spec["size"].as_str().and_then(|s| s.split_once('x')).unwrap_or(("0", "0"));
        made["width"] = json!(width.parse::<i64>().unwrap_or_default());
        made["height"] = json!(height.parse::<i64>().unwrap_or_default());
    } else {
        made["size"] = json!(format!("{}x{}", spec["width"], spec["height"]));
    }
    new["spec"] = made;
    // Metadata are the server's; of what a webhook changes there only labels and annotations count.
    new["metadata"]["labels"] = json!({"converted-to": wanted.rsplit('/').next()});
    new["metadata"]["finalizers"] = json!(["never.example.com/kept"]);
    new
}

struct Boxes {
    client: Client,
    converter: Converter,
    group: String,
}

impl Boxes {
    async fn established(prefix: &str) -> Boxes {
        let client = shared_with_apis().await.client().await;
        let converter = Converter::start().await;
        let group = format!("{}.example.com", unique(prefix));
        establish(&client, &converter.definition(&group)).await;
        Boxes { client, converter, group }
    }

    fn path(&self, version: &str) -> String {
        format!("/apis/{}/{version}/namespaces/default/boxs", self.group)
    }

    fn object(&self, version: &str, name: &str, spec: Value) -> Value {
        json!({"apiVersion": format!("{}/{version}", self.group), "kind": "Box", "metadata": {"name": name}, "spec": spec})
    }

    async fn get(&self, version: &str, name: &str) -> (u16, Value) {
        call(&self.client, Method::GET, &format!("{}/{name}", self.path(version)), None).await
    }

    async fn post(&self, version: &str, object: &Value) -> (u16, Value) {
        call(&self.client, Method::POST, &self.path(version), Some(object)).await
    }

    fn api(&self, version: &str) -> Api<DynamicObject> {
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&self.group, version, "Box"));
        resource.plural = "boxs".to_owned();
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }
}

#[tokio::test]
async fn objects_are_seen_in_each_version() {
    let boxes = Boxes::established("round").await;
    let (code, made) = boxes.post("v1", &boxes.object("v1", "a", json!({"size": "3x4"}))).await;
    // The default of the version that it was written in comes before the conversion.
    assert_eq!((code, &made["spec"]), (201, &json!({"size": "3x4", "colour": "red"})), "{made}");
    assert_eq!(made["metadata"].get("finalizers"), None, "{made}");
    let (_, stored) = boxes.get("v2", "a").await;
    assert_eq!(stored["spec"], json!({"width": 3, "height": 4, "colour": "red"}));
    assert_eq!(stored["apiVersion"], json!(format!("{}/v2", boxes.group)));
    let calls = boxes.converter.calls.load(Ordering::Relaxed);
    boxes.get("v2", "a").await;
    assert_eq!(boxes.converter.calls.load(Ordering::Relaxed), calls, "what is stored needs no conversion");
    let (code, made) = boxes.post("v2", &boxes.object("v2", "b", json!({"width": 5, "height": 6}))).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(boxes.get("v1", "b").await.1["spec"]["size"], "5x6");
    // One review for a whole list.
    let calls = boxes.converter.calls.load(Ordering::Relaxed);
    let (_, list) = call(&boxes.client, Method::GET, &boxes.path("v1"), None).await;
    let sizes: Vec<&str> =
        list["items"].as_array().into_iter().flatten().filter_map(|i| i["spec"]["size"].as_str()).collect();
    assert_eq!(sizes, ["3x4", "5x6"], "{list}");
    assert_eq!(boxes.converter.calls.load(Ordering::Relaxed), calls + 1);
    // Changes through the version that is not stored.
    let path = format!("{}/b", boxes.path("v1"));
    let patch = json!({"spec": {"size": "7x8"}}).to_string();
    let (code, patched) =
        call_with(&boxes.client, Method::PATCH, &path, "application/merge-patch+json", patch).await;
    assert_eq!((code, &patched["spec"]["size"]), (200, &json!("7x8")), "{patched}");
    assert_eq!(boxes.get("v2", "b").await.1["spec"]["width"], 7);
    let applied = boxes.object("v1", "c", json!({"size": "1x1"}));
    let path = format!("{}/c?fieldManager=m", boxes.path("v1"));
    for code in [201, 200] {
        let (found, answer) = call_with(
            &boxes.client,
            Method::PATCH,
            &path,
            "application/apply-patch+yaml",
            applied.to_string(),
        )
        .await;
        assert_eq!(found, code, "{answer}");
    }
    // The rules of the version that it was written in count.
    let (code, refused) = boxes.post("v1", &boxes.object("v1", "d", json!({"size": "large"}))).await;
    assert_eq!(code, 422, "{refused}");
    assert_eq!(call(&boxes.client, Method::DELETE, &format!("{}/a", boxes.path("v1")), None).await.0, 200);
    let scrape = Scrape::of(&mut shared_with_apis().await.connect(Protocol::Http1).await, "/metrics").await;
    let definition = format!("crd_name=\"boxs.{}\"", boxes.group);
    for [from, to] in [["v1", "v2"], ["v2", "v1"]] {
        let [from, to] = [format!("from_version=\"{from}\""), format!("to_version=\"{to}\"")];
        let labels = [definition.as_str(), &from, &to, "succeeded=\"true\""];
        let count = scrape.value("apiserver_crd_conversion_webhook_duration_seconds_count", &labels);
        assert!(count > 0.0, "{labels:?}");
    }
    let succeeded = ["failure_type=\"\"", "result=\"success\""];
    assert!(scrape.value("apiserver_conversion_webhook_request_total", &succeeded) > 0.0);
}

/// However many changes wait for the webhook at once, each converts what managers of another version own: no
/// thread waits with them, and nobody's fields are forgotten.
#[tokio::test]
async fn owners_in_another_version_stay_owners_beside_many_that_wait() {
    let boxes = Boxes::established("owned").await;
    let path = format!("{}?fieldManager=first", boxes.path("v1"));
    for n in 0..TOGETHER {
        let object = boxes.object("v1", &format!("box-{n}"), json!({"size": "1x2", "colour": "blue"}));
        assert_eq!(call(&boxes.client, Method::POST, &path, Some(&object)).await.0, 201);
    }
    boxes.converter.is(Behavior::Together);
    let patch = |n: usize| {
        let path = format!("{}/box-{n}?fieldManager=second", boxes.path("v2"));
        let (client, patch) = (&boxes.client, json!({"spec": {"height": 9}}).to_string());
        async move { call_with(client, Method::PATCH, &path, "application/merge-patch+json", patch).await }
    };
    for (code, patched) in futures::future::join_all((0..TOGETHER).map(patch)).await {
        assert_eq!(code, 200, "{patched}");
        let entries = patched["metadata"]["managedFields"].as_array().expect("managed fields");
        let of = |manager: &str| {
            let entry = entries.iter().find(|entry| entry["manager"] == manager);
            let entry = entry.unwrap_or_else(|| panic!("no entry of {manager}: {patched}"));
            (entry["apiVersion"].clone(), entry["fieldsV1"].clone())
        };
        // The change of the height is one of the size, which its first owner has lost.
        let owned = json!({"f:spec": {".": {}, "f:colour": {}}});
        assert_eq!(of("first"), (json!(format!("{}/v1", boxes.group)), owned));
        let owned = json!({"f:spec": {"f:height": {}}});
        assert_eq!(of("second"), (json!(format!("{}/v2", boxes.group)), owned));
    }
}

/// Without the webhook's answer nobody knows what others own: an apply takes nothing from them.
#[tokio::test]
async fn an_apply_fails_while_what_others_own_cannot_be_converted() {
    let boxes = Boxes::established("taken").await;
    let apply = async |version: &str, manager: &str, spec: Value| {
        let path = format!("{}/a?fieldManager={manager}", boxes.path(version));
        let object = boxes.object(version, "a", spec).to_string();
        call_with(&boxes.client, Method::PATCH, &path, "application/apply-patch+yaml", object).await
    };
    let (code, made) = apply("v1", "first", json!({"size": "1x2", "colour": "blue"})).await;
    assert_eq!(code, 201, "{made}");
    let other = json!({"colour": "green"});
    boxes.converter.is(Behavior::Fails);
    let (code, refused) = apply("v2", "second", other.clone()).await;
    assert_eq!(code, 500, "{refused}");
    assert!(refused.to_string().contains("boxes cannot be converted today"), "{refused}");
    boxes.converter.is(Behavior::Honest);
    let (code, refused) = apply("v2", "second", other).await;
    assert_eq!((code, &refused["reason"]), (409, &json!("Conflict")), "{refused}");
    assert_eq!(boxes.get("v2", "a").await.1["spec"]["colour"], "blue");
}

#[tokio::test]
async fn watches_deliver_changes_in_their_own_version() {
    let boxes = Boxes::established("watched").await;
    assert_eq!(boxes.post("v2", &boxes.object("v2", "a", json!({"width": 1, "height": 2}))).await.0, 201);
    let mut events = boxes.api("v1").watch(&WatchParams::default(), "0").await.expect("a watch").boxed();
    let mut next = async || loop {
        let event = tokio::time::timeout(Duration::from_secs(60), events.try_next()).await;
        let size = |object: DynamicObject| object.data["spec"]["size"].clone();
        match event.expect("an event in time").expect("no error").expect("no end") {
            WatchEvent::Added(object) => break ("ADDED", size(object)),
            WatchEvent::Modified(object) => break ("MODIFIED", size(object)),
            WatchEvent::Deleted(object) => break ("DELETED", size(object)),
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(error) => panic!("{error:?}"),
        }
    };
    assert_eq!(next().await, ("ADDED", json!("1x2")));
    assert_eq!(boxes.post("v2", &boxes.object("v2", "b", json!({"width": 3, "height": 4}))).await.0, 201);
    assert_eq!(next().await, ("ADDED", json!("3x4")));
    let path = format!("{}/b", boxes.path("v2"));
    let patch = json!({"spec": {"width": 9}}).to_string();
    let (code, _) =
        call_with(&boxes.client, Method::PATCH, &path, "application/merge-patch+json", patch).await;
    assert_eq!(code, 200);
    assert_eq!(next().await, ("MODIFIED", json!("9x4")));
    assert_eq!(call(&boxes.client, Method::DELETE, &path, None).await.0, 200);
    assert_eq!(next().await, ("DELETED", json!("9x4")));
}

/// A message with REVIEW in place of the review's UID, which is random.
fn without_review(message: &str) -> String {
    let is_uid = |text: &&str| text.len() == 36 && text.split('-').count() == 5;
    match message.split('"').find(is_uid) {
        Some(uid) => message.replacen(uid, "REVIEW", 1),
        None => message.to_owned(),
    }
}

#[tokio::test]
async fn a_bad_webhook_spoils_one_answer_and_nothing_stored() {
    let boxes = Boxes::established("lying").await;
    let original = boxes.object("v2", "a", json!({"width": 1, "height": 2}));
    assert_eq!(boxes.post("v2", &original).await.0, 201);
    let of_webhook = format!("conversion webhook for {}/v2, Kind=Box", boxes.group);
    let failed = |why: &str| format!("{of_webhook} failed: {why}");
    let url = format!("https://localhost:{}/convert?timeout=30s", boxes.converter.server.port);
    let broke = |why: &str| failed(&format!("Post {url:?}: {why}"));
    let no_json = |why: &str| failed(&format!("couldn't get version/kind; json parse error: {why}"));
    let lied = |why: &str| format!("{of_webhook} returned invalid {why}");
    let version = |received: &str| {
        let expected = format!("{}/v1", boxes.group);
        lied(&format!("object at index 0: invalid groupVersion (expected {expected}, received {received})"))
    };
    let uid = boxes.get("v2", "a").await.1["metadata"]["uid"].as_str().expect("a UID").to_owned();
    // behavior, the message to a reader; REVIEW is the UID of the review
    let rows = [
        (Behavior::Fails, failed("boxes cannot be converted today")),
        (Behavior::OtherUid, failed("expected response.uid=\"REVIEW\", got \"other\"")),
        (Behavior::Loses, format!("{of_webhook} returned 0 objects, expected 1")),
        (Behavior::Keeps, version(&format!("{}/v2", boxes.group))),
        (Behavior::Renames, lied("object: must have the same name: a != other")),
        (Behavior::OtherObject, lied(&format!("object: must have the same UID: {uid} != other"))),
        (Behavior::Null, version("")),
        (
            Behavior::Labels,
            lied("metadata: metadata.labels[a] must be a string, but is int64 in converted object"),
        ),
        (Behavior::Redirects, broke("the server answered 302 Found")),
        (Behavior::Truncates, no_json("unexpected end of JSON input")),
        (Behavior::Floods, broke("the answer is longer than 67108864 bytes or broke off")),
        (Behavior::NoJson, no_json("invalid character 'o' in literal null (expecting 'u')")),
        (Behavior::Status500, broke("the server answered 500 Internal Server Error")),
    ];
    for (behavior, expected) in rows {
        boxes.converter.is(behavior);
        for path in [format!("{}/a", boxes.path("v1")), boxes.path("v1")] {
            let (code, answer) = call(&boxes.client, Method::GET, &path, None).await;
            let message = answer["message"].as_str().unwrap_or_default();
            let message = match behavior {
                Behavior::OtherUid => without_review(message),
                _ => message.to_owned(),
            };
            assert_eq!((code, message), (500, expected.clone()), "{behavior:?} {path}: {answer}");
        }
        let new = boxes.object("v1", "new", json!({"size": "1x1"}));
        let (code, answer) = boxes.post("v1", &new).await;
        assert_eq!(code, 500, "{behavior:?}: {answer}");
        let patch = json!({"spec": {"size": "9x9"}}).to_string();
        let path = format!("{}/a", boxes.path("v1"));
        let (code, answer) =
            call_with(&boxes.client, Method::PATCH, &path, "application/merge-patch+json", patch).await;
        assert_eq!(code, 500, "{behavior:?}: {answer}");
        // The version that is stored needs no webhook, and has what it had.
        assert_eq!(boxes.get("v2", "new").await.0, 404, "{behavior:?}");
        assert_eq!(boxes.get("v2", "a").await.1["spec"], original["spec"], "{behavior:?}");
    }
    let scrape = Scrape::of(&mut shared_with_apis().await.connect(Protocol::Http1).await, "/metrics").await;
    for failure in ["call", "malformed_response", "partial_response", "invalid_converted_object"] {
        let failure = format!("failure_type=\"conversion_webhook_{failure}_failure\"");
        for name in ["request_total", "duration_seconds_count"] {
            let name = format!("apiserver_conversion_webhook_{name}");
            assert!(scrape.value(&name, &[&failure, "result=\"failure\""]) > 0.0, "{name} {failure}");
        }
    }
    // A request that gives itself a second gets its answer, however long the webhook takes. (The client of
    // the other requests would ask again and again.)
    boxes.converter.is(Behavior::Hangs);
    let mut connection = shared_with_apis().await.connect(Protocol::Http1).await;
    let new = boxes.object("v1", "new", json!({"size": "1x1"}));
    let slow = [
        Call::get(format!("{}/a?timeout=1s", boxes.path("v1"))),
        Call::new(Method::POST, format!("{}?timeout=1s", boxes.path("v1")))
            .body("application/json", new.to_string()),
    ];
    for call in slow {
        let reply = connection.call(&call).await.expect("an answer");
        assert_eq!(reply.status, 504, "{}", reply.text());
    }
    assert_eq!(boxes.get("v2", "new").await.0, 404);

    boxes.converter.is(Behavior::Honest);
    assert_eq!(boxes.get("v1", "a").await.1["spec"]["size"], "1x2");
    assert_eq!(boxes.post("v1", &new).await.0, 201);
}

/// Policies name versions, as those that operators install do; requests in another version are converted for
/// them, by the webhook of the definition or without one.
#[tokio::test]
async fn policies_get_custom_resources_in_the_version_that_they_name() {
    let converter = Converter::start().await;
    let client = shared_with_apis().await.client().await;
    let converted = unique("by-webhook.example.com").replace('_', "-");
    establish(&client, &converter.definition(&converted)).await;
    let renamed = unique("by-name.example.com").replace('_', "-");
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "string"}, "colour": {"type": "string"}}}}});
    let versions = ["v1", "v2"].map(|name| {
        json!({"name": name, "served": true, "storage": name == "v2", "schema": {"openAPIV3Schema": schema}})
    });
    establish(&client, &with_versions(&renamed, "Box", "Namespaced", json!(versions))).await;
    let api = "/apis/admissionregistration.k8s.io/v1";
    for group in [&converted, &renamed] {
        let constraints = json!({"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["boxes", "boxs"]}]});
        let paints = json!({"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE"], "resources": ["boxes", "boxs"]}]});
        let checks = json!({"metadata": {"name": group}, "spec": {"matchConstraints": constraints, "validations": [
            {"expression": "request.operation == 'DELETE' || object.spec.size != '9x9'", "message": "too large"},
            {"expression": "request.operation != 'DELETE' || oldObject.spec.size != '5x5'", "message": "stays"},
        ]}});
        let paints = json!({"metadata": {"name": group}, "spec": {"matchConstraints": paints,
            "reinvocationPolicy": "Never", "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration":
                {"expression": "Object{spec: Object.spec{colour: 'blue'}}"}}]}});
        for (plural, policy, actions) in [
            ("validatingadmissionpolic", checks, json!({"validationActions": ["Deny"]})),
            ("mutatingadmissionpolic", paints, json!({})),
        ] {
            let (code, made) =
                call(&client, Method::POST, &format!("{api}/{plural}ies"), Some(&policy)).await;
            assert_eq!(code, 201, "{made}");
            let mut binding = json!({"metadata": {"name": group}, "spec": actions});
            binding["spec"]["policyName"] = group.as_str().into();
            let path = format!("{api}/{plural}ybindings");
            let (code, made) = call(&client, Method::POST, &path, Some(&binding)).await;
            assert_eq!(code, 201, "{made}");
        }
        let boxes = format!("/apis/{group}/v2/namespaces/default/boxs");
        let sized = |name: &str, size: i64| {
            let spec = match *group == converted {
                true => json!({"width": size, "height": size}),
                false => json!({"size": format!("{size}x{size}")}),
            };
            json!({"apiVersion": format!("{group}/v2"), "kind": "Box", "metadata": {"name": name}, "spec": spec})
        };
        plinth_tests::eventually("the policies are in force", || async {
            let path = format!("{boxes}?dryRun=All");
            let (code, answer) = call(&client, Method::POST, &path, Some(&sized("large", 9))).await;
            code == 422 && answer["message"].as_str().is_some_and(|message| message.contains("too large"))
        })
        .await;
        for (name, size) in [("one", 3), ("two", 5)] {
            let (code, made) = call(&client, Method::POST, &boxes, Some(&sized(name, size))).await;
            assert_eq!((code, &made["spec"]["colour"]), (201, &json!("blue")), "{made}");
        }
        let grown = sized("one", 9)["spec"].clone();
        let patch = json!({"spec": grown}).to_string();
        let merge = "application/merge-patch+json";
        let (code, answer) = call_with(&client, Method::PATCH, &format!("{boxes}/one"), merge, patch).await;
        assert_eq!(code, 422, "{answer}");
        let labelled = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
        let (code, answer) =
            call_with(&client, Method::PATCH, &format!("{boxes}/one"), merge, labelled).await;
        assert_eq!((code, &answer["spec"]["colour"]), (200, &json!("blue")), "{answer}");
        for (name, expected) in [("one", 200), ("two", 422)] {
            let (code, answer) = call(&client, Method::DELETE, &format!("{boxes}/{name}"), None).await;
            assert_eq!(code, expected, "{name}: {answer}");
        }
    }
}

/// A conversion is a call of a webhook, so all that name a version share one.
#[tokio::test]
async fn an_object_is_converted_once_for_all_policies_of_a_version() {
    let converter = Converter::start().await;
    let client = shared_with_apis().await.client().await;
    let group = unique("once.example.com").replace('_', "-");
    establish(&client, &converter.definition(&group)).await;
    let boxes = format!("/apis/{group}/v2/namespaces/default/boxs?dryRun=All");
    let sized = |size: usize| {
        json!({"apiVersion": format!("{group}/v2"), "kind": "Box", "metadata": {"name": "sized"},
               "spec": {"width": size, "height": size}})
    };
    let api = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    for size in 1..4 {
        let name = format!("{size}.{group}");
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": [group], "apiVersions": ["v1"],
                "operations": ["CREATE"], "resources": ["boxs"]}]},
            "validations": [{"expression": format!("object.spec.size != '{size}x{size}'")}]}});
        let binding = json!({"metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]}});
        for (path, object) in [(format!("{api}ies"), policy), (format!("{api}ybindings"), binding)] {
            let (code, made) = call(&client, Method::POST, &path, Some(&object)).await;
            assert_eq!(code, 201, "{made}");
        }
        plinth_tests::eventually("the policy is in force", || async {
            call(&client, Method::POST, &boxes, Some(&sized(size))).await.0 == 422
        })
        .await;
    }
    let before = converter.calls.load(Ordering::Relaxed);
    let (code, made) = call(&client, Method::POST, &boxes, Some(&sized(9))).await;
    assert_eq!((code, converter.calls.load(Ordering::Relaxed) - before), (201, 1), "{made}");

    // A deletion in another version than the stored one reads the object in it, and writes nothing.
    let stored = boxes.trim_end_matches("?dryRun=All");
    let (code, made) = call(&client, Method::POST, stored, Some(&sized(9))).await;
    assert_eq!(code, 201, "{made}");
    let before = converter.calls.load(Ordering::Relaxed);
    let path = format!("/apis/{group}/v1/namespaces/default/boxs/sized");
    let (code, answer) = call(&client, Method::DELETE, &path, None).await;
    assert_eq!((code, converter.calls.load(Ordering::Relaxed) - before), (200, 1), "{answer}");
    assert_eq!(answer["details"]["uid"], made["metadata"]["uid"]);

    // The update that lets a deleted object go answers with it, in the version of the request.
    let mut kept = sized(9);
    kept["metadata"]["finalizers"] = json!(["example.com/keeps"]);
    let (code, made) = call(&client, Method::POST, stored, Some(&kept)).await;
    assert_eq!(code, 201, "{made}");
    let (code, answer) = call(&client, Method::DELETE, &path, None).await;
    assert_eq!((code, &answer["spec"]["size"]), (200, &json!("9x9")), "{answer}");
    let freed = json!({"metadata": {"finalizers": null}}).to_string();
    let (code, answer) =
        call_with(&client, Method::PATCH, &path, "application/merge-patch+json", freed).await;
    assert_eq!((code, &answer["spec"]["size"]), (200, &json!("9x9")), "{answer}");
    assert_eq!(call(&client, Method::GET, &path, None).await.0, 404);
}
