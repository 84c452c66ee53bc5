//! What server-side apply costs on a Pod of 3 KiB: an apply that changes nothing, one that changes an image,
//! the tracking of a status update. Prints microseconds of processor time per call.
//!
//! Run with `cargo run --release -p plinth-benches --example apply_cost`.

use std::hint::black_box;

use plinth_codec::apply::{apply, track_update, Context, NoOtherVersions, Reset};
use plinth_codec::schema::{self, GVK};
use plinth_codec::{Map, Value};

const ROUNDS: u32 = 20_000;

fn main() {
    let kind = GVK::new("", "v1", "Pod");
    let schema = schema::builtin();
    let root = schema.kind(&kind).expect("Pod is built in");
    let context = |manager, subresource| Context {
        manager,
        time: "2026-01-02T03:04:05Z",
        kind: &kind,
        subresource,
        schema,
        root,
        reset: match subresource {
            "status" => &Reset::Except(&["spec", "metadata.deletionTimestamp", "metadata.ownerReferences"]),
            _ => &Reset::Except(&["status"]),
        },
        versions: &NoOtherVersions,
    };
    let config = parse(include_str!("apply_cost.json"));
    let mut live = apply(None, &config, false, &context("deployer", "")).expect("applies").expect("creates");
    live.object_at_mut(&["metadata"]).expect("object").insert("uid", "6f7ad2a2-5a4b-4f0b-8a53-2b7a6a6a6a6a");
    let mut running = live.clone();
    running.as_object_mut().expect("object").insert("status", parse(include_str!("apply_cost_status.json")));
    track_update(Some(&live), &mut running, &context("kubelet", "status"));
    println!(
        "Pod of {} bytes with {} of them managedFields",
        size(&running),
        size(running.at(&["metadata", "managedFields"]).expect("tracked"))
    );

    time("apply that changes nothing", || {
        let outcome = apply(Some(&running), black_box(&config), false, &context("deployer", ""));
        assert!(matches!(outcome, Ok(None)));
    });
    let mut other = config.clone();
    let containers =
        other.object_at_mut(&["spec"]).and_then(|s| s.get_mut("containers")).and_then(Value::as_array_mut);
    containers
        .and_then(|c| c[0].as_object_mut())
        .expect("container")
        .insert("image", "registry.example/app:v2");
    time("apply that changes an image", || {
        let outcome = apply(Some(&running), black_box(&other), false, &context("deployer", ""));
        assert!(matches!(outcome, Ok(Some(_))));
    });

    let mut updated = running.clone();
    updated.object_at_mut(&["status"]).expect("object").insert("podIP", "10.1.2.99");
    let copy = time("  (copy of the object)", || drop(black_box(updated.clone())));
    let tracked = time("copy and tracking of a status update", || {
        let mut new = updated.clone();
        track_update(Some(&running), black_box(&mut new), &context("kubelet", "status"));
    });
    println!("{:42} {:7.1} µs", "tracking alone", tracked - copy);
}

fn time(what: &str, mut f: impl FnMut()) -> f64 {
    (0..ROUNDS / 10).for_each(|_| f());
    let start = cpu_time();
    (0..ROUNDS).for_each(|_| f());
    let each = (cpu_time() - start) * 1e6 / f64::from(ROUNDS);
    println!("{what:42} {each:7.1} µs");
    each
}

/// Seconds that this process has been on a processor: other load on the machine does not count.
fn cpu_time() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    stat.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn parse(text: &str) -> Value {
    fn convert(v: serde_json::Value) -> Value {
        match v {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => b.into(),
            serde_json::Value::Number(n) => n.as_i64().map_or(Value::Null, Value::Int),
            serde_json::Value::String(s) => s.into(),
            serde_json::Value::Array(a) => a.into_iter().map(convert).collect::<Vec<_>>().into(),
            serde_json::Value::Object(m) => {
                m.into_iter().map(|(k, v)| (k.into(), convert(v))).collect::<Map>().into()
            }
        }
    }
    convert(serde_json::from_str(text).expect("JSON"))
}

/// Bytes as compact JSON.
fn size(v: &Value) -> usize {
    match v {
        Value::Null => 4,
        Value::Bool(_) => 5,
        Value::Int(n) => n.to_string().len(),
        Value::Float(n) => n.to_string().len(),
        Value::String(s) => s.len() + 2,
        Value::Array(items) => items.iter().map(|v| size(v) + 1).sum::<usize>() + 1,
        Value::Object(map) => map.iter().map(|(k, v)| k.len() + 4 + size(v)).sum::<usize>() + 1,
        Value::Encoded(encoded) => encoded.text().len(),
    }
}
