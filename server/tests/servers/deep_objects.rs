//! The stack of the runtime's threads is enough for the deepest objects, also in an unoptimized build.

use hyper::Method;
use plinth_benches::api::client::{Call, Protocol, JSON};
use plinth_benches::api::kubeconfig;
use plinth_server::cli::{runtime, start, ServeOptions};

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
    "metadata":{"name":"notes.example.com"},"spec":{"group":"example.com","scope":"Cluster",
    "names":{"plural":"notes","singular":"note","kind":"Note","listKind":"NoteList"},"versions":[
    {"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object",
    "x-kubernetes-preserve-unknown-fields":true}}}]}}"#;
const NOTES: &str = "/apis/example.com/v1/notes";
/// Below the 10,000 levels that are refused, with those of the object around it.
const LEVELS: usize = 9900;

#[test]
fn the_deepest_objects_fit_the_stack_of_the_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let arguments = ["--data-dir", data_dir.to_str().unwrap(), "--secure-port", "0"];
    runtime().unwrap().block_on(async {
        let server = start(ServeOptions::from_arguments(arguments).unwrap()).await.unwrap();
        let endpoint = kubeconfig::endpoint(server.kubeconfig()).unwrap();
        let mut client = endpoint.connect(Protocol::Http2).await.unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        client.must(&Call::new(Method::POST, definitions).body(JSON, DEFINITION)).await.unwrap();
        while client.call(&Call::get(NOTES)).await.unwrap().status != 200 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        for (name, open, close) in [("lists", "[", "]"), ("maps", r#"{"a":"#, "}")] {
            let deep = format!("{}1{}", open.repeat(LEVELS), close.repeat(LEVELS));
            let note = format!(
                r#"{{"apiVersion":"example.com/v1","kind":"Note","metadata":{{"name":"{name}"}},"a":{deep}}}"#
            );
            let own = format!("{NOTES}/{name}");
            let apply = format!("{own}?fieldManager=other&force=true");
            for (method, path, media_type, body) in [
                (Method::POST, NOTES, JSON, note.clone()),
                (Method::PATCH, own.as_str(), "application/merge-patch+json", format!(r#"{{"b":{deep}}}"#)),
                (Method::PATCH, apply.as_str(), "application/apply-patch+yaml", note.clone()),
                (Method::PUT, own.as_str(), JSON, note.clone()),
            ] {
                let what = format!("{method} {path}");
                let reply = client.call(&Call::new(method, path).body(media_type, body)).await.unwrap();
                // Refused or done: the process goes on.
                assert!(reply.status.as_u16() < 500, "{what}: {}", reply.status);
            }
        }
        assert_eq!(client.call(&Call::get("/readyz")).await.unwrap().status, 200);
        server.stop().await.unwrap();
    });
}
