//! An operator written with the `kube` crate: finalizer, status, server-side apply, owner references,
//! controller runtime.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use http::Method;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::controller::{Action, Controller};
use kube::runtime::finalizer::{finalizer, Event};
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use plinth_tests::definitions::{definition, establish, until};
use plinth_tests::requests::call;
use plinth_tests::server::{namespace, TestServer};
use serde_json::json;

const GROUP: &str = "op.example.com";
const FINALIZER: &str = "op.example.com/cleanup";
/// The timeout of what has to happen; only reached in failure.
const WITHIN: Duration = Duration::from_secs(60);

fn sites() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", "Site"))
}

#[derive(Debug)]
struct Failed(String);

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Failed {}

fn failed(error: impl std::fmt::Debug) -> Failed {
    Failed(format!("{error:?}"))
}

/// Keeps a ConfigMap of the site's page and reports it in the status.
async fn reconcile(site: Arc<DynamicObject>, client: Arc<Client>) -> Result<Action, Failed> {
    let namespace = site.namespace().ok_or_else(|| failed("no namespace"))?;
    let api: Api<DynamicObject> = Api::namespaced_with((*client).clone(), &namespace, &sites());
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let work = |event: Event<DynamicObject>| {
        let (api, maps) = (api.clone(), maps.clone());
        async move {
            let Event::Apply(site) = event else { return Ok(Action::await_change()) };
            let name = site.name_any();
            let page = site.data["spec"]["page"].as_str().unwrap_or_default().to_owned();
            let owner = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Site", "name": name,
                "uid": site.uid(), "controller": true});
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": name, "ownerReferences": [owner]}, "data": {"page": page}});
            let params = PatchParams::apply("site-operator").force();
            maps.patch(&name, &params, &Patch::Apply(map)).await.map_err(failed)?;
            let status = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Site", "metadata": {"name": name},
                "status": {"ready": true, "seen": site.metadata.generation}});
            api.patch_status(&name, &params, &Patch::Apply(status)).await.map_err(failed)?;
            Ok::<_, Failed>(Action::await_change())
        }
    };
    finalizer(&api, FINALIZER, site, work).await.map_err(failed)
}

#[tokio::test]
async fn an_operator_does_its_work() {
    let server = TestServer::start(&[]).await;
    let client = server.client().await;
    let namespace = namespace(&client, "operator").await;
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"page": {"type": "string"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}, "seen": {"type": "integer"}}}}});
    establish(&client, &definition(GROUP, "Site", "Namespaced", schema)).await;

    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &namespace, &sites());
    let controller = Controller::new_with(api.clone(), watcher::Config::default(), sites())
        .owns(Api::<ConfigMap>::namespaced(client.clone(), &namespace), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_millis(100)), Arc::new(client.clone()));
    let running = tokio::spawn(controller.for_each(|_| std::future::ready(())));

    let mut site = DynamicObject::new("blog", &sites());
    site.data = json!({"spec": {"page": "first"}});
    api.create(&PostParams::default(), &site).await.expect("create");
    let maps = format!("/api/v1/namespaces/{namespace}/configmaps/blog");
    let page = |page: &'static str| {
        let (client, maps) = (client.clone(), maps.clone());
        let wait = async move {
            loop {
                let (_, map) = call(&client, Method::GET, &maps, None).await;
                if map["data"]["page"] == page {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(WITHIN, wait)
    };
    page("first").await.expect("the ConfigMap of the site");
    let change = json!({"spec": {"page": "second"}});
    api.patch("blog", &PatchParams::default(), &Patch::Merge(change)).await.expect("patch");
    page("second").await.expect("the change arrives");
    // A ConfigMap that another client deletes is created again.
    assert_eq!(call(&client, Method::DELETE, &maps, None).await.0, 200);
    page("second").await.expect("the ConfigMap comes back");
    let seen = tokio::time::timeout(WITHIN, async {
        loop {
            let site = api.get("blog").await.expect("the site");
            if site.data["status"]["seen"] == 2 {
                return site;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let site = seen.await.expect("the status");
    assert_eq!(site.data["status"]["ready"], true);
    assert_eq!(site.finalizers(), [FINALIZER]);
    // Deleting the site runs the finalizer, and the collector takes what it owned.
    api.delete("blog", &Default::default()).await.expect("delete");
    let gone = tokio::time::timeout(WITHIN, async {
        while call(&client, Method::GET, &maps, None).await.0 != 404
            || api.get_opt("blog").await.expect("get").is_some()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    gone.await.expect("the site and its ConfigMap go");
    running.abort();
    let path = format!("{}/sites.{GROUP}", plinth_tests::definitions::DEFINITIONS);
    assert_eq!(call(&client, Method::DELETE, &path, None).await.0, 200);
    until(&client, &format!("sites.{GROUP}"), |d| d["code"] == 404).await;
}
