//! A client: the `kube` crate against a plinth server, as against any other API server.
//!
//! ```sh
//! KUBECONFIG=./data/admin.kubeconfig cargo run --release -p plinth-tests --example client
//! ```

use std::collections::BTreeMap;
use std::error::Error;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // Server and credentials as kubectl finds them: $KUBECONFIG, ~/.kube/config, or the service account of a
    // pod.
    let client = Client::try_default().await?;
    let version = client.apiserver_version().await?;
    println!("server version {}.{}", version.major, version.minor);
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");

    // A watch that starts at the list's revision misses nothing and repeats nothing.
    let list = maps.list(&ListParams::default()).await?;
    let revision = list.metadata.resource_version.ok_or("a list without a resourceVersion")?;
    let mut events = maps.watch(&WatchParams::default(), &revision).await?.boxed();

    // Server-side apply creates the object, and afterwards updates the fields that this manager owns.
    let manager = PatchParams::apply("client-example").force();
    for color in ["red", "blue"] {
        let wanted = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "client-example"},
            "data": {"color": color},
        });
        let map = maps.patch("client-example", &manager, &Patch::Apply(&wanted)).await?;
        println!("applied {color} at resourceVersion {}", map.resource_version().unwrap_or_default());
    }
    maps.delete("client-example", &DeleteParams::default()).await?;

    // Three events: ADDED, MODIFIED, DELETED.
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(map) => println!("ADDED {} {:?}", map.name_any(), data(&map)),
            WatchEvent::Modified(map) => println!("MODIFIED {} {:?}", map.name_any(), data(&map)),
            WatchEvent::Deleted(map) if map.name_any() == "client-example" => {
                println!("DELETED {}", map.name_any());
                break;
            }
            WatchEvent::Error(status) => return Err(status.to_string().into()),
            WatchEvent::Deleted(_) | WatchEvent::Bookmark(_) => {}
        }
    }
    Ok(())
}

fn data(map: &ConfigMap) -> BTreeMap<String, String> {
    map.data.clone().unwrap_or_default()
}
