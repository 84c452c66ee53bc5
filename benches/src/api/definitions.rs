//! Hundreds of CustomResourceDefinitions: how soon each is served, what it takes of memory, and what all of
//! them cost a server that starts.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{json, Value};

use super::client::{Call, Connection};
use super::drive::micros;
use super::lifecycle::{timed_start, SETTLE, STARTS};
use super::process::{self, Usage};
use super::report::Measurement;
use super::server::{Launch, READY_WITHIN};
use super::workloads::Workload;
use super::{Error, Options};

/// How many definitions.
const COUNT: usize = 500;
/// API groups that they share.
const GROUPS: usize = 25;
/// How many of the last ones make the second row.
const LAST: usize = 25;
/// How long a definition may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
/// The interval at which a definition is polled until it is served.
const LOOK_AGAIN: Duration = Duration::from_millis(1);
const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates the definitions one after the other and times each from the create until its collection answers
/// 200; then measures the server's memory, and times starts on the directory.
///
/// The base of both growths is a server that has just started and serves one definition. Memory after the
/// creates is the definitions and the buffers of the storage that any writes of that size fill; memory after
/// a start is the definitions alone.
pub async fn measure(
    workload: &Workload,
    options: &Options,
    launch: &Launch,
) -> Result<Vec<Measurement>, Error> {
    let template = template(options.definition.as_deref())?;
    let dir = launch.data_dir()?;
    let mut server = launch.start(dir.path(), &[]).await?;
    server.ready(READY_WITHIN).await?;
    let mut connection = server.endpoint()?.connect(options.protocol).await?;
    // What the first definition brings into memory for all of them is not its own.
    let first = named(&template, COUNT);
    serve(&mut connection, &first).await?;
    server.terminate().await?;
    let mut server = launch.start(dir.path(), &[]).await?;
    server.ready(READY_WITHIN).await?;
    let mut connection = server.endpoint()?.connect(options.protocol).await?;
    served(&mut connection, &first).await?;
    tokio::time::sleep(SETTLE).await;
    let before = process::usage(&[server.pid()]);
    let mut times = Vec::with_capacity(COUNT);
    for i in 0..COUNT {
        let begin = Instant::now();
        serve(&mut connection, &named(&template, i)).await?;
        times.push(micros(begin.elapsed()));
    }
    tokio::time::sleep(SETTLE).await;
    let after = process::usage(&[server.pid()]);
    server.terminate().await?;
    let used = Usage {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        growth_mib: after.rss_mib - before.rss_mib,
        ..after
    };
    let last = times.get(COUNT - LAST..).unwrap_or_default().to_vec();
    let mut results = vec![
        Measurement::of(format!("{}-served", workload.name), times, used),
        Measurement::of(format!("{}-last", workload.name), last, Usage::default()),
    ];
    let mut times = Vec::new();
    let mut used = Usage::default();
    for _ in 0..STARTS {
        used = timed_start(launch, dir.path(), &mut times).await?;
    }
    used.growth_mib = used.rss_mib - before.rss_mib;
    results.push(Measurement::of(format!("{}-start", workload.name), times, used));
    Ok(results)
}

/// Creates a definition and lists its objects until the answer is 200.
async fn serve(connection: &mut Connection, definition: &Value) -> Result<(), Error> {
    let create = Call::new(Method::POST, PATH).body("application/json", definition.to_string());
    connection.must(&create).await?;
    served(connection, definition).await
}

/// Lists the objects of a definition until the answer is 200.
async fn served(connection: &mut Connection, definition: &Value) -> Result<(), Error> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let spec = &definition["spec"];
    let version = text(&spec["versions"][0]["name"]);
    let list =
        Call::get(format!("/apis/{}/{version}/{}", text(&spec["group"]), text(&spec["names"]["plural"])));
    let begin = Instant::now();
    while connection.call(&list).await?.status != 200 {
        if begin.elapsed() > SERVED_WITHIN {
            return Err(Error::Server(format!("{} is not served", definition["metadata"]["name"])));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(())
}

/// The definition of that number: the template under names of its own.
fn named(template: &Value, number: usize) -> Value {
    let mut definition = template.clone();
    let group = format!("g{}.bench.example.com", number % GROUPS);
    definition["metadata"] = json!({"name": format!("benches{number}.{group}")});
    definition["spec"]["group"] = json!(group);
    definition["spec"]["names"] = json!({
        "plural": format!("benches{number}"),
        "singular": format!("bench{number}"),
        "kind": format!("Bench{number}"),
        "listKind": format!("Bench{number}List"),
    });
    definition
}

fn template(file: Option<&Path>) -> Result<Value, Error> {
    let Some(path) = file else { return Ok(made()) };
    let text = std::fs::read(path).map_err(Error::io(format!("reading {}", path.display())))?;
    serde_json::from_slice(&text).map_err(|source| Error::Report { path: path.into(), source })
}

/// As large as a definition of the size that operators have: 75 KiB, most of it descriptions.
fn made() -> Value {
    const DESCRIPTION: &str = "What this field is for, what happens when it is left out, which other fields it has to fit, and since which version of the operator it is there, told at the length that real projects tell it.";
    let fields = |count: usize, of: &dyn Fn(usize) -> Value| -> Value {
        Value::Object((0..count).map(|i| (format!("field{i}"), of(i))).collect())
    };
    let leaf = |i: usize| match i % 4 {
        0 => json!({"type": "string", "description": DESCRIPTION, "maxLength": 253}),
        1 => json!({"type": "integer", "format": "int32", "description": DESCRIPTION, "minimum": 0}),
        2 => json!({"type": "array", "items": {"type": "string"}, "description": DESCRIPTION}),
        _ => {
            json!({"type": "object", "additionalProperties": {"type": "string"}, "description": DESCRIPTION})
        }
    };
    let branch =
        |_: usize| json!({"type": "object", "description": DESCRIPTION, "properties": fields(12, &leaf)});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "scope": "Namespaced",
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "properties": fields(22, &branch)},
                    "status": {"type": "object", "properties": fields(4, &leaf)},
                }}},
            }],
        },
    })
}
