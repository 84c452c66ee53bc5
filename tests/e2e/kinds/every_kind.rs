//! The same life for an object of every built-in kind, through the `kube` crate: created, read,
//! listed, patched in three ways, replaced, watched, deleted alone and as a collection.

use std::fmt::Debug;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::discovery::{ApiCapabilities, Scope};
use kube::{Client, Discovery, ResourceExt};
use plinth_codec::resources::{self, Resource};
use plinth_tests::refusal::{assert_refusal, refusal};
use plinth_tests::requests::{create, send};
use plinth_tests::samples;
use plinth_tests::server::{namespace, shared, shared_with_apis, unique, TestServer};
use serde_json::{json, Value};

/// The timeout of an event; only reached in failure.
const EVENT_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn every_kind_lives_and_dies() {
    let client = shared_with_apis().await.client().await;
    let known = resources::known();
    live(client, |row| known.is_on_by_default(&row.group, &row.version)).await;
}

#[tokio::test]
async fn kinds_that_are_off_by_default_live_and_die() {
    let known = resources::known();
    let gates: Vec<String> = known.gates().map(|gate| format!("--feature-gates={gate}=true")).collect();
    let mut flags = vec!["--runtime-config=api/all=true"];
    flags.extend(gates.iter().map(String::as_str));
    let server = TestServer::start(&flags).await;
    live(server.client().await, |row| !known.is_on_by_default(&row.group, &row.version)).await;
}

/// A value that was stored in plain text cannot be read here, whoever wrote it: the server's own objects and
/// what is written beside another object (the address of a Service, the usage of a quota) included.
#[tokio::test]
async fn every_kind_lives_encrypted() {
    let dir = tempfile::tempdir().expect("directory");
    let config = dir.path().join("encryption.yaml");
    let text = "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n\
                - resources: ['*.*']\n  providers: [{secretbox: {keys: [\
                {name: a, secret: AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=}]}}]\n";
    std::fs::write(&config, text).expect("configuration");
    let server = TestServer::start(&[&format!("--encryption-provider-config={}", config.display())]).await;
    let (client, known) = (server.client().await, resources::known());
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"services": "9"}}});
    create(&client, "/api/v1/namespaces/default/resourcequotas", &quota).await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}});
    create(&client, "/api/v1/namespaces/default/services", &service).await;
    live(client.clone(), |row| known.is_on_by_default(&row.group, &row.version)).await;
    for row in stored().filter(|row| known.is_on_by_default(&row.group, &row.version)) {
        let version = row.gvk().api_version();
        let base = if row.group.is_empty() { "/api" } else { "/apis" };
        let path = format!("{base}/{version}/{}", row.plural);
        let list = send(&client, "GET", &path, &Value::Null).await;
        assert_eq!(list.code, 200, "{path}: {}", list.text);
    }
    let addresses = send(&client, "GET", "/apis/networking.k8s.io/v1/ipaddresses", &Value::Null).await;
    let held = addresses.body["items"].as_array().map_or(0, Vec::len);
    assert!(held >= 2, "those of the Services kubernetes and s: {}", addresses.text);
}

/// The resources that are stored, by the table. Namespaces have a life of their own.
fn stored() -> impl Iterator<Item = &'static Resource> {
    let rows = resources::known().table.resources.iter();
    rows.filter(|row| ["create", "get", "delete"].iter().all(|verb| row.has_verb(verb)))
        .filter(|row| row.kind != "Namespace")
}

async fn live(client: Client, is_wanted: impl Fn(&Resource) -> bool) {
    // Aggregated, so in one request: other tests create and delete definitions meanwhile.
    let discovery = Discovery::new(client.clone()).run_aggregated().await.expect("discovery");
    let namespace = namespace(&client, "kinds").await;
    let mut lives = Vec::new();
    for row in stored().filter(|row| is_wanted(row)) {
        let label = format!("{} {}", row.gvk().api_version(), row.kind);
        // Two versions of one storage would meet under one name.
        let sample = samples::of_resource(row, &unique("sample"), &namespace);
        let sample = sample.unwrap_or_else(|| panic!("no sample of {label}"));
        let gvk = GroupVersionKind::gvk(&row.group, &row.version, &row.kind);
        let Some((resource, capabilities)) = discovery.resolve_gvk(&gvk) else {
            panic!("{label} is not in discovery");
        };
        lives.push((
            label,
            tokio::spawn(life(client.clone(), namespace.clone(), sample, resource, capabilities)),
        ));
    }
    let mut failed = Vec::new();
    for (label, life) in lives {
        if life.await.is_err() {
            failed.push(label);
        }
    }
    assert!(failed.is_empty(), "{} kinds failed (each says why above): {failed:#?}", failed.len());
}

#[test]
fn every_stored_kind_has_a_sample() {
    let has_none = |row: &&Resource| samples::of_resource(row, "name", "namespace").is_none();
    let missing: Vec<String> =
        stored().filter(has_none).map(|row| format!("{} {}", row.gvk().api_version(), row.kind)).collect();
    assert!(missing.is_empty(), "no samples of {missing:?}");
}

/// What a step was about to do, for the message of its failure.
trait Must<T> {
    fn must(self, what: &str, label: &str) -> T;
}

impl<T, E: Debug> Must<T> for Result<T, E> {
    #[track_caller]
    fn must(self, what: &str, label: &str) -> T {
        self.unwrap_or_else(|error| panic!("{label}: {what}: {error:?}"))
    }
}

async fn life(
    client: Client,
    namespace: String,
    mut sample: DynamicObject,
    resource: ApiResource,
    capabilities: ApiCapabilities,
) {
    let label = &format!("{} {}", resource.api_version, resource.kind);
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Namespaced => Api::namespaced_with(client, &namespace, &resource),
        Scope::Cluster => Api::all_with(client, &resource),
    };
    let name = sample.name_any();
    let mark = unique("mark");
    sample.labels_mut().insert("tests.example.com/mark".into(), mark.clone());
    let only_ours = ListParams::default().labels(&format!("tests.example.com/mark={mark}"));

    let before = api.list(&only_ours).await.must("list before", label);
    assert!(before.items.is_empty(), "{label}: {before:?}");
    let version = before.metadata.resource_version.expect("resourceVersion of a list");
    let watch = WatchParams::default().labels(&format!("tests.example.com/mark={mark}"));
    let events = api.watch(&watch, &version).await.must("watch", label);
    let mut events = std::pin::pin!(events);

    // As clients that write out a zero version send it: upstream takes it for none.
    let mut versioned = sample.clone();
    versioned.metadata.resource_version = Some("0".to_owned());
    let created = api.create(&PostParams::default(), &versioned).await.must("create", label);
    assert_eq!(
        created.types.as_ref().map(|t| (&t.api_version, &t.kind)),
        Some((&resource.api_version, &resource.kind))
    );
    assert_eq!(created.name_any(), name, "{label}");
    assert!(created.uid().is_some_and(|uid| uid.len() == 36), "{label}: {created:?}");
    assert!(created.creation_timestamp().is_some(), "{label}: {created:?}");
    assert!(created.resource_version().is_some_and(|v| v.parse::<u64>().is_ok()), "{label}: {created:?}");
    let expected = matches!(capabilities.scope, Scope::Namespaced).then_some(namespace.as_str());
    assert_eq!(created.namespace().as_deref(), expected, "{label}");

    let again = refusal(api.create(&PostParams::default(), &sample).await);
    assert_refusal(&again, 409, "AlreadyExists", &resource.plural, &name);

    let read = api.get(&name).await.must("get", label);
    assert_eq!(read.uid(), created.uid(), "{label}");
    if read.resource_version() == created.resource_version() {
        assert_eq!(read, created, "{label}: what is read is what was answered");
    }
    let listed = api.list(&only_ours).await.must("list", label);
    assert_eq!(listed.items.len(), 1, "{label}");
    assert_eq!(listed.items[0].uid(), created.uid(), "{label}");

    let merge = Patch::Merge(json!({"metadata": {"labels": {"merged": "yes"}}}));
    let merged = api.patch(&name, &PatchParams::default(), &merge).await.must("merge patch", label);
    assert_eq!(merged.labels().get("merged").map(String::as_str), Some("yes"), "{label}");
    let strategic = Patch::Strategic(json!({"metadata": {"annotations": {"strategic": "yes"}}}));
    let patched =
        api.patch(&name, &PatchParams::default(), &strategic).await.must("strategic merge patch", label);
    assert_eq!(patched.annotations().get("strategic").map(String::as_str), Some("yes"), "{label}");
    let json_patch = serde_json::from_value(json!([
        {"op": "test", "path": "/metadata/labels/merged", "value": "yes"},
        {"op": "remove", "path": "/metadata/labels/merged"},
    ]));
    let json_patch = Patch::Json::<()>(json_patch.expect("a JSON patch"));
    let removed = api.patch(&name, &PatchParams::default(), &json_patch).await.must("JSON patch", label);
    assert!(!removed.labels().contains_key("merged"), "{label}: {removed:?}");
    assert_eq!(removed.uid(), created.uid(), "{label}");
    let refused = refusal(api.patch(&name, &PatchParams::default(), &json_patch).await);
    assert_eq!(refused.code, 422, "{label}: a test that fails refuses the patch: {refused:?}");

    let mut replacement = removed.clone();
    replacement.labels_mut().insert("replaced".into(), "yes".into());
    let replaced = replace(&api, &mut replacement, label).await;
    assert_ne!(replaced.resource_version(), removed.resource_version(), "{label}");
    let mut unchanged = replaced.clone();
    let same = replace(&api, &mut unchanged, label).await;
    assert_eq!(
        same.resource_version(),
        unchanged.resource_version(),
        "{label}: nothing changed, nothing written"
    );
    let mut late = removed.clone();
    late.labels_mut().insert("replaced".into(), "late".into());
    let stale = refusal(api.replace(&name, &PostParams::default(), &late).await);
    assert_refusal(&stale, 409, "Conflict", &resource.plural, &name);

    let background = DeleteParams::background();
    api.delete_collection(&background, &only_ours).await.must("deletecollection", label);
    release(&api, &name, label).await;
    let gone = refusal(api.get(&name).await);
    assert_refusal(&gone, 404, "NotFound", &resource.plural, &name);

    let recreated = api.create(&PostParams::default(), &sample).await.must("create again", label);
    assert_ne!(recreated.uid(), created.uid(), "{label}");
    api.delete(&name, &background).await.must("delete", label);
    release(&api, &name, label).await;
    let gone = refusal(api.delete(&name, &background).await);
    assert_refusal(&gone, 404, "NotFound", &resource.plural, &name);

    // Two lives, each ADDED, MODIFIED at least as often as we changed it, DELETED, in order.
    let mut seen = Vec::new();
    let mut last = version.parse::<u64>().expect("a number");
    while seen.iter().filter(|kind| **kind == "DELETED").count() < 2 {
        let event = tokio::time::timeout(EVENT_WITHIN, events.try_next()).await;
        let event = event.unwrap_or_else(|_| panic!("{label}: no more events after {seen:?}"));
        let (kind, object) =
            match event.must("event", label).unwrap_or_else(|| panic!("{label}: ended after {seen:?}")) {
                WatchEvent::Added(object) => ("ADDED", object),
                WatchEvent::Modified(object) => ("MODIFIED", object),
                WatchEvent::Deleted(object) => ("DELETED", object),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(status) => panic!("{label}: watch: {status:?}"),
            };
        assert_eq!(object.name_any(), name, "{label}");
        let at = object
            .resource_version()
            .and_then(|v| v.parse::<u64>().ok())
            .expect("resourceVersion of an event");
        assert!(at > last, "{label}: {kind} at {at} after {last}");
        last = at;
        seen.push(kind);
    }
    assert_eq!(seen[..5], ["ADDED", "MODIFIED", "MODIFIED", "MODIFIED", "MODIFIED"], "{label}: {seen:?}");
    let second = seen.iter().position(|kind| *kind == "DELETED").map_or(0, |first| first + 1);
    assert_eq!(seen.get(second), Some(&"ADDED"), "{label}: {seen:?}");
    assert_eq!(seen.last(), Some(&"DELETED"), "{label}: {seen:?}");
}

/// Replaces an object. The server itself writes the status of some kinds at any time, so a conflict
/// is answered as every client does: with the version that is there now.
async fn replace(api: &Api<DynamicObject>, object: &mut DynamicObject, label: &str) -> DynamicObject {
    loop {
        match api.replace(&object.name_any(), &PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                let current = api.get(&object.name_any()).await.must("get after a conflict", label);
                let labels = std::mem::take(object.labels_mut());
                *object = current;
                *object.labels_mut() = labels;
            }
            result => return result.must("replace", label),
        }
    }
}

/// Some kinds are held by finalizers that controllers take off; here nobody else does.
async fn release(api: &Api<DynamicObject>, name: &str, label: &str) {
    let Some(held) = api.get_opt(name).await.must("get after delete", label) else { return };
    assert!(held.metadata.deletion_timestamp.is_some(), "{label}: still there and not marked: {held:?}");
    assert!(!held.finalizers().is_empty(), "{label}: held by nothing: {held:?}");
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    match api.patch(name, &PatchParams::default(), &none).await {
        // The controller that the finalizer belongs to was quicker.
        Err(kube::Error::Api(status)) if status.is_not_found() => {}
        result => drop(result.must("taking off the finalizers", label)),
    }
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector_only() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "collection").await;
    let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &ApiResource::from_gvk(&gvk));
    for index in 0..6 {
        let mut object = samples::of("v1", "ConfigMap", &format!("cm-{index}"), &namespace);
        object.labels_mut().insert("parity".into(), if index % 2 == 0 { "even" } else { "odd" }.into());
        api.create(&PostParams::default(), &object).await.expect("create");
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("parity=even"))
        .await
        .expect("delete");
    let left = api.list(&ListParams::default()).await.expect("list");
    let names: Vec<_> = left.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["cm-1", "cm-3", "cm-5"]);
    let by_name = ListParams::default().fields("metadata.name=cm-3");
    let one = api.list(&by_name).await.expect("list by field");
    assert_eq!(one.iter().map(ResourceExt::name_any).collect::<Vec<_>>(), ["cm-3"]);
}

#[tokio::test]
async fn lists_are_paged_by_continue_tokens() {
    let client = shared().await.client().await;
    let namespace = namespace(&client, "pages").await;
    let gvk = GroupVersionKind::gvk("", "v1", "ConfigMap");
    let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &ApiResource::from_gvk(&gvk));
    let names: Vec<String> = (0..7).map(|index| format!("cm-{index}")).collect();
    futures::stream::iter(&names)
        .for_each_concurrent(None, |name| async {
            api.create(&PostParams::default(), &samples::of("v1", "ConfigMap", name, &namespace))
                .await
                .expect("create");
        })
        .await;
    let first = api.list(&ListParams::default().limit(3)).await.expect("first page");
    assert_eq!(first.metadata.remaining_item_count, Some(4));
    // Written between the pages: not seen, because the pages are of one moment.
    api.create(&PostParams::default(), &samples::of("v1", "ConfigMap", "cm-55", &namespace))
        .await
        .expect("create");
    let mut listed: Vec<String> = first.iter().map(ResourceExt::name_any).collect();
    let mut token = first.metadata.continue_.clone().filter(|token| !token.is_empty());
    while let Some(next) = token {
        let page = api.list(&ListParams::default().limit(3).continue_token(&next)).await.expect("next page");
        assert_eq!(page.metadata.resource_version, first.metadata.resource_version);
        listed.extend(page.iter().map(ResourceExt::name_any));
        token = page.metadata.continue_.clone().filter(|token| !token.is_empty());
    }
    assert_eq!(listed, names);
}

/// Kinds whose status a controller of this server writes in between, so that what stands there is not only
/// the test's.
const STATUS_OF_CONTROLLERS: [&str; 5] =
    ["CustomResourceDefinition", "APIService", "FlowSchema", "PriorityLevelConfiguration", "ResourceQuota"];

/// Writing the desired state (spec) keeps the observed state (status), and the reverse. Metadata go with the
/// desired state; which of them a write of the status keeps is as upstream.
#[tokio::test]
async fn spec_and_status_are_written_apart() {
    let client = shared_with_apis().await.client().await;
    // Aggregated, so in one request: other tests create and delete definitions meanwhile.
    let discovery = Discovery::new(client.clone()).run_aggregated().await.expect("discovery");
    let namespace = namespace(&client, "status").await;
    let mut kinds_with_status = 0;
    for types in samples::all("any", &namespace).into_iter().filter_map(|sample| sample.types) {
        let gvk = GroupVersionKind::try_from(&types).expect("group, version, kind");
        let Some((resource, capabilities)) = discovery.resolve_gvk(&gvk) else { continue };
        let has_status = capabilities.subresources.iter().any(|(sub, _)| sub.plural == "status");
        if !has_status || STATUS_OF_CONTROLLERS.contains(&resource.kind.as_str()) {
            continue;
        }
        let label = &format!("{} {}", resource.api_version, resource.kind);
        let sample = samples::of(&types.api_version, &types.kind, &unique("status"), &namespace);
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Namespaced => Api::namespaced_with(client.clone(), &namespace, &resource),
            Scope::Cluster => Api::all_with(client.clone(), &resource),
        };
        let name = sample.name_any();
        api.create(&PostParams::default(), &sample).await.must("create", label);
        let conditions = json!({ "status": { "conditions": [{
            "type": "Tested", "status": "True", "reason": "Test", "message": "m",
            "lastTransitionTime": "2020-01-01T00:00:00Z"
        }] } });
        // Not all kinds have conditions: there it is dropped as unknown, and the status is what it was.
        let observed = api
            .patch_status(&name, &PatchParams::default(), &Patch::Merge(&conditions))
            .await
            .must("patch of the status", label);
        // The main resource: a label changes and nothing else; the status is not the client's.
        let mut wanted = observed.clone();
        wanted.labels_mut().insert("tests.example.com/changed".into(), "wanted".into());
        wanted.data["status"] = json!({});
        let replaced = api.replace(&name, &PostParams::default(), &wanted).await.must("replace", label);
        assert_eq!(replaced.data.get("status"), observed.data.get("status"), "{label}: the status");
        assert_eq!(replaced.labels()["tests.example.com/changed"], "wanted", "{label}: the label");
        assert_eq!(replaced.metadata.generation, observed.metadata.generation, "{label}: the generation");
        // A write of the status with other changes, too.
        let mut changed = replaced.clone();
        if changed.data["spec"].is_object() {
            changed.data["spec"] = json!({});
        }
        let answer = api
            .replace_status(&name, &PostParams::default(), &changed)
            .await
            .must("replace the status", label);
        assert_eq!(answer.data.get("spec"), replaced.data.get("spec"), "{label}: the spec");
        assert_eq!(answer.metadata.generation, replaced.metadata.generation, "{label}: the generation");
        assert_eq!(
            answer.metadata.resource_version, replaced.metadata.resource_version,
            "{label}: nothing changed"
        );
        api.delete(&name, &DeleteParams::default().grace_period(0)).await.must("delete", label);
        kinds_with_status += 1;
    }
    assert!(kinds_with_status >= 18, "only {kinds_with_status} kinds have a status");
}
