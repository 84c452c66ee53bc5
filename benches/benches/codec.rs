//! The codec on a Pod of three KiB as a cluster holds it, beside what else there is in Rust: `serde_json`
//! into its own tree, `k8s-openapi` types with `serde_json`, and the `prost` types of `k8s-pb`.
//!
//! `cargo bench -p plinth-benches --bench codec`; figures in `docs/benchmarks.md`.

use std::hint::black_box;

use criterion::{criterion_group, criterion_main, Criterion, Throughput};
use k8s_openapi::api::core::v1::Pod as OpenapiPod;
use k8s_pb::api::core::v1::Pod as ProstPod;
use plinth_codec::json::DecodeOptions;
use plinth_codec::negotiate::MetaVersion;
use plinth_codec::schema::{self, TypeId, GVK};
use plinth_codec::{cbor, json, protobuf, table, Value};
use prost::Message;

struct Pod {
    gvk: GVK,
    id: TypeId,
    tree: Value,
    /// As stored.
    json: Vec<u8>,
    /// The bare message.
    message: Vec<u8>,
    cbor: Vec<u8>,
}

fn pod() -> Pod {
    let schema = schema::builtin();
    let gvk = GVK::new("", "v1", "Pod");
    let id = schema.kind(&gvk).unwrap();
    let text = include_bytes!("../data/pod.json");
    let tree = json::decode(text, schema, id, &DecodeOptions { strict: true }).unwrap().value;
    let (mut json, mut message, mut cbor) = (Vec::new(), Vec::new(), Vec::new());
    json::write(&tree, schema, id, &mut json);
    protobuf::encode_message(&tree, schema, id, &mut message).unwrap();
    cbor::encode(&tree, Some((schema, id)), &mut cbor).unwrap();
    println!("Pod: {} bytes of JSON, {} of protobuf, {} of CBOR", json.len(), message.len(), cbor.len());
    Pod { gvk, id, tree, json, message, cbor }
}

fn decode(c: &mut Criterion) {
    let pod = pod();
    let schema = schema::builtin();
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Bytes(pod.json.len() as u64));
    group.bench_function("JSON, checked, to a tree", |b| {
        let options = DecodeOptions { strict: true };
        b.iter(|| json::decode(black_box(&pod.json), schema, pod.id, &options).unwrap());
    });
    group.bench_function("JSON, serde_json to Value", |b| {
        b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(&pod.json)).unwrap());
    });
    group.bench_function("JSON, serde_json to k8s-openapi", |b| {
        b.iter(|| serde_json::from_slice::<OpenapiPod>(black_box(&pod.json)).unwrap());
    });
    group.bench_function("protobuf to a tree", |b| {
        b.iter(|| protobuf::decode_object(black_box(&pod.message), Some(&pod.gvk), schema, pod.id).unwrap());
    });
    group.bench_function("protobuf, prost to k8s-pb", |b| {
        b.iter(|| ProstPod::decode(black_box(&pod.message[..])).unwrap());
    });
    group.bench_function("CBOR to a tree", |b| b.iter(|| cbor::decode(black_box(&pod.cbor)).unwrap()));
    group.finish();
}

fn encode(c: &mut Criterion) {
    let pod = pod();
    let schema = schema::builtin();
    let value: serde_json::Value = serde_json::from_slice(&pod.json).unwrap();
    let openapi: OpenapiPod = serde_json::from_slice(&pod.json).unwrap();
    let prost = ProstPod::decode(&pod.message[..]).unwrap();
    let mut out = Vec::with_capacity(64 << 10);
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Bytes(pod.json.len() as u64));
    group.bench_function("tree to JSON", |b| {
        b.iter(|| {
            out.clear();
            json::write(black_box(&pod.tree), schema, pod.id, &mut out);
        });
    });
    group.bench_function("serde_json Value to JSON", |b| {
        b.iter(|| {
            out.clear();
            serde_json::to_writer(&mut out, black_box(&value)).unwrap();
        });
    });
    group.bench_function("k8s-openapi to JSON", |b| {
        b.iter(|| {
            out.clear();
            serde_json::to_writer(&mut out, black_box(&openapi)).unwrap();
        });
    });
    group.bench_function("tree to protobuf", |b| {
        b.iter(|| {
            out.clear();
            protobuf::encode(black_box(&pod.tree), &pod.gvk, schema, pod.id, &mut out).unwrap();
        });
    });
    group.bench_function("k8s-pb to protobuf", |b| {
        b.iter(|| {
            out.clear();
            black_box(&prost).encode(&mut out).unwrap();
        });
    });
    group.bench_function("tree to CBOR", |b| {
        b.iter(|| {
            out.clear();
            cbor::encode(black_box(&pod.tree), Some((schema, pod.id)), &mut out).unwrap();
        });
    });
    group.finish();
}

fn transcode(c: &mut Criterion) {
    let pod = pod();
    let schema = schema::builtin();
    let mut out = Vec::with_capacity(64 << 10);
    let mut group = c.benchmark_group("transcode");
    group.throughput(Throughput::Bytes(pod.json.len() as u64));
    group.bench_function("stored JSON to the wire", |b| {
        b.iter(|| {
            out.clear();
            out.extend_from_slice(black_box(&pod.json));
        });
    });
    group.bench_function("stored JSON to protobuf", |b| {
        b.iter(|| {
            out.clear();
            protobuf::transcode_json(black_box(&pod.json), &pod.gvk, schema, pod.id, &mut out).unwrap();
        });
    });
    group.bench_function("protobuf to JSON", |b| {
        b.iter(|| {
            out.clear();
            protobuf::transcode_to_json(black_box(&pod.message), Some(&pod.gvk), schema, pod.id, &mut out)
                .unwrap();
        });
    });
    group.bench_function("stored JSON to CBOR", |b| {
        b.iter(|| {
            out.clear();
            cbor::transcode_json(black_box(&pod.json), Some((schema, pod.id)), &mut out).unwrap();
        });
    });
    // What a server does whose objects are types: nothing converts k8s-openapi types to protobuf, so the
    // nearest thing is JSON to a type and a type to JSON.
    group.bench_function("JSON to JSON through k8s-openapi", |b| {
        b.iter(|| {
            out.clear();
            let pod: OpenapiPod = serde_json::from_slice(black_box(&pod.json)).unwrap();
            serde_json::to_writer(&mut out, &pod).unwrap();
        });
    });
    group.finish();
}

/// What a list answered as Table costs for each Pod: the columns read from the stored text, the row written.
fn table(c: &mut Criterion) {
    let pod = pod();
    let definition = plinth_kinds::of("", "pods").table();
    let mut metadata = Vec::new();
    json::write_untyped(pod.tree.get("metadata").unwrap(), &mut metadata);
    let now = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_800_000_000);
    let mut out = Vec::with_capacity(64 << 10);
    c.bench_function("table/row of stored JSON", |b| {
        b.iter(|| {
            out.clear();
            let mut writer = table::Writer::new(&definition, MetaVersion::V1, now.into());
            writer
                .row(black_box(&pod.json), "481516", table::RowObject::Metadata(&metadata), &mut out)
                .unwrap();
        });
    });
}

criterion_group!(benches, decode, encode, transcode, table);
criterion_main!(benches);
