//! Snapshots that are written record by record, imported, and exported again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use plinth_codec::convert::{convert, Format};
use plinth_engine::{At, Engine, KeyRange, Options, Record, Subscribe};
use plinth_etcd_wire::kv::KeyValue;
use plinth_storage::{Encryption, Stored};
use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::decode::Decoder;
use crate::report::Report;
use crate::snapshot::Snapshot;
use crate::source::Source;
use crate::{export, import};
use plinth_bolt::BoltWriter;
use plinth_etcd_wire::lease::Lease;

/// A record of the bucket `key`: the key, its value (none for a deletion), and its lease.
type Change<'c> = (&'c str, Option<Vec<u8>>, i64);

fn revision(main: u64, is_deletion: bool) -> Vec<u8> {
    let mut key = [&main.to_be_bytes()[..], b"_", &0u64.to_be_bytes()].concat();
    key.extend(is_deletion.then_some(b't'));
    key
}

/// A snapshot of an etcd in which these changes were made, one in a revision, from revision 2 on.
fn snapshot(dir: &Path, changes: &[Change<'_>]) -> PathBuf {
    let records = changes.iter().zip(2..).map(|((key, value, lease), main)| {
        let record = KeyValue {
            key: (*key).to_owned().into(),
            create_revision: main,
            mod_revision: main,
            version: 1,
            value: value.clone().unwrap_or_default().into(),
            lease: *lease,
        };
        (revision(main as u64, value.is_none()), record.encode_to_vec())
    });
    write(dir, records.collect())
}

fn write(dir: &Path, records: Vec<(Vec<u8>, Vec<u8>)>) -> PathBuf {
    let path = dir.join("snapshot.db");
    let mut bolt = BoltWriter::new(File::create(&path).unwrap()).unwrap();
    let mut bucket = bolt.bucket(b"key");
    records.into_iter().for_each(|(key, value)| bucket.put(key, value).unwrap());
    bucket.finish().unwrap();
    let mut bucket = bolt.bucket(b"lease");
    let lease = Lease { id: 7, ttl: 3600, remaining_ttl: 600 };
    bucket.put(7i64.to_be_bytes().to_vec(), lease.encode_to_vec()).unwrap();
    bucket.finish().unwrap();
    bolt.finish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let hash = Sha256::digest(&bytes);
    bytes.extend_from_slice(&hash);
    fs::write(&path, bytes).unwrap();
    path
}

fn protobuf(yaml: &str) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    convert(yaml.as_bytes(), Format::Protobuf, &mut value).unwrap();
    Some(value)
}

fn json(text: &str) -> Option<Vec<u8>> {
    Some(text.as_bytes().to_vec())
}

/// What was refused by a check, as `key: reason`.
fn refused(source: &Snapshot, decoder: &mut Decoder) -> Vec<String> {
    let mut lines = Vec::new();
    let mut list = |key: &[u8], refusal: &crate::refusal::Refusal| {
        lines.push(format!("{}: {refusal}", String::from_utf8_lossy(key)));
    };
    import::check(source, decoder, &mut list, &mut |_| {}).unwrap();
    lines
}

fn decoder() -> Decoder {
    Decoder::new("/registry", Arc::<Encryption>::default())
}

/// Imports into a new store.
fn imported(dir: &Path, source: &Snapshot, decoder: &mut Decoder) -> (Engine, Report) {
    refused(source, decoder);
    let options = Options::new(dir.join("store")).expire_keys(false);
    let above = import::continue_above(source.revision()).unwrap();
    let engine = Engine::open(options.continue_above(above)).unwrap();
    let report = import::import(source, decoder, &engine, &mut |_| {}).unwrap();
    (engine, report)
}

fn get(engine: &Engine, key: &str) -> Record {
    engine.get(key.as_bytes(), At::Latest).unwrap().unwrap_or_else(|| panic!("{key} is absent"))
}

fn body(record: &Record) -> String {
    String::from_utf8(Stored::parse(&record.value).unwrap().body().to_vec()).unwrap()
}

const DEFINITION: &str = r#"{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"CustomResourceDefinition","metadata":{"name":"cars.a.example"},
    "spec":{"group":"a.example","version":"v1","scope":"Namespaced","names":{"plural":"cars","singular":"car","kind":"Car","listKind":"CarList"},
    "preserveUnknownFields":false,"validation":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":
    {"wheels":{"type":"integer","default":4}}}}}}}}"#;

fn changes() -> Vec<Change<'static>> {
    let map = |value: &str| {
        protobuf(&format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: ns, uid: u}}\ndata: {{k: {value}}}\n"))
    };
    vec![
        ("/registry/configmaps/ns/m", map("old"), 0),
        ("/registry/apiextensions.k8s.io/customresourcedefinitions/cars.a.example", json(DEFINITION), 0),
        (
            "/registry/a.example/cars/ns/c",
            json(r#"{"kind":"Car","apiVersion":"a.example/v1","metadata":{"name":"c","namespace":"ns","uid":"u"},"spec":{"rust":1}}"#),
            0,
        ),
        ("/registry/configmaps/ns/gone", map("gone"), 0),
        ("/registry/configmaps/ns/m", map("new"), 0),
        ("/registry/configmaps/ns/gone", None, 0),
        (
            "/registry/horizontalpodautoscalers/ns/h",
            protobuf(
                "apiVersion: autoscaling/v1\nkind: HorizontalPodAutoscaler\nmetadata: {name: h, namespace: ns}\nspec: {maxReplicas: 3, \
                 targetCPUUtilizationPercentage: 50, scaleTargetRef: {kind: Deployment, name: d}}\n",
            ),
            0,
        ),
        (
            "/registry/events/ns/e",
            protobuf(
                "apiVersion: events.k8s.io/v1\nkind: Event\nmetadata: {name: e, namespace: ns}\nnote: text\nregarding: {name: p, namespace: ns}\n",
            ),
            7,
        ),
        (
            "/registry/validatingadmissionpolicies/p",
            protobuf(
                "apiVersion: admissionregistration.k8s.io/v1beta1\nkind: ValidatingAdmissionPolicy\nmetadata: {name: p}\nspec: {validations: \
                 [{expression: 'true'}]}\n",
            ),
            0,
        ),
        ("/registry/masterleases/10.0.0.1", json("anything"), 0),
        ("/registry/ranges/serviceips", json("anything"), 0),
        ("/elsewhere", json("not below the prefix"), 0),
    ]
}

#[test]
fn versions_deletions_and_leases_are_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let source = Snapshot::open(&snapshot(dir.path(), &changes()), true).unwrap();
    assert_eq!((source.revision(), source.len()), (13, 9));
    let mut decoder = decoder();
    assert_eq!(refused(&source, &mut decoder), Vec::<String>::new());
    let (engine, report) = imported(dir.path(), &source, &mut decoder);
    assert_eq!(report.objects(), 6, "{report}");
    assert!(body(&get(&engine, "core/configmaps/ns/m")).contains(r#""k":"new""#));
    let car = get(&engine, "_custom/namespaced/a.example/cars/ns/c");
    assert!(body(&car).contains(r#""wheels":4"#) && !body(&car).contains("rust"), "{}", body(&car));
    assert!(!Stored::parse(&car.value).unwrap().schema().is_empty(), "served without further checks");
    let autoscaler = get(&engine, "autoscaling/horizontalpodautoscalers/ns/h");
    assert_eq!(Stored::parse(&autoscaler.value).unwrap().version(), "v2");
    assert!(body(&autoscaler).contains(r#""averageUtilization":50"#), "{}", body(&autoscaler));
    let event = get(&engine, "core/events/ns/e");
    assert!(body(&event).contains(r#""message":"text""#), "{}", body(&event));
    assert!(event.expires_at_ms.is_some(), "what is left of its lease");
    get(&engine, "admissionregistration.k8s.io/validatingadmissionpolicies/p");
    get(&engine, "apiextensions.k8s.io/customresourcedefinitions/cars.a.example");

    // Revisions continue above, one for each object, and history begins at the end.
    let revisions: std::collections::BTreeSet<_> = {
        let mut entries = engine.snapshot(At::Latest).unwrap().range(&KeyRange::all());
        std::iter::from_fn(|| entries.next().unwrap().map(|entry| entry.mod_revision)).collect()
    };
    assert_eq!(revisions.len(), 7, "the objects and the layout");
    assert!(revisions.first().unwrap().get() > 13 + import::REVISION_GAP);
    let newest = engine.current_revision();
    let after = |revision| engine.subscribe(Subscribe::new(KeyRange::all()).after(revision)).map(drop);
    assert!(after(newest.previous()).is_err() && after(newest).is_ok());
    engine.close().unwrap();
}

#[test]
fn what_was_exported_is_imported_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let source = Snapshot::open(&snapshot(dir.path(), &changes()), true).unwrap();
    let (engine, report) = imported(dir.path(), &source, &mut decoder());
    let exported = |name: &str| {
        let path = dir.path().join(name);
        let file = File::create_new(&path).unwrap();
        let written = export::export(
            &engine,
            &mut decoder(),
            (file, &path),
            false,
            &mut |key, reason| panic!("{key}: {reason}"),
            &mut |_| {},
        );
        (written.unwrap(), Snapshot::open(&path, true).unwrap())
    };
    let (written, file) = exported("exported.db");
    assert_eq!((&written.hash, &written.kinds), (&report.hash, &report.kinds));
    assert_eq!(file.revision(), engine.current_revision().get());
    let mut ttls = Vec::new();
    file.visit::<crate::source::SourceError>(b"/registry/events/", &mut |entry| {
        ttls.push(entry.ttl);
        Ok(())
    })
    .unwrap();
    assert!(
        matches!(ttls[..], [Some(left)] if left > Duration::from_secs(500) && left <= Duration::from_secs(600))
    );
    let second = tempfile::tempdir().unwrap();
    let (again, report_again) = imported(second.path(), &file, &mut decoder());
    assert_eq!((report.hash, report.kinds), (report_again.hash, report_again.kinds));
    again.close().unwrap();
    engine.close().unwrap();
}

#[test]
fn what_cannot_be_taken_over_has_a_reason() {
    let pod = |name: &str, namespace: &str| {
        protobuf(&format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {namespace}}}\n"))
    };
    let car = |version: &str, name: &str| {
        Some(format!(r#"{{"kind":"Car","apiVersion":"a.example/{version}","metadata":{{"name":"{name}","namespace":"ns"}}}}"#).into_bytes())
    };
    let rows: [(&str, Option<Vec<u8>>, &str); 12] = [
        ("/registry/apiextensions.k8s.io/customresourcedefinitions/cars.a.example", json(DEFINITION), ""),
        ("/registry/podsecuritypolicy/p", json("{}"), "no API that this version serves keeps objects there"),
        ("/registry/pods/n", pod("x", ""), "no API that this version serves keeps objects there"),
        ("/registry/pods/ns/other", pod("p", "ns"), "the value is the object ns/p"),
        ("/registry/pods/ns/p", pod("p", "ns"), ""),
        (
            "/registry/pods/ns/q",
            json("k8s:enc:aescbc:v1:key1:xyz"),
            "the value is encrypted (aescbc); give the Encry",
        ),
        ("/registry/pods/ns/r", Some(b"k8s\0garbage".to_vec()), "the value cannot be decoded: "),
        ("/registry/pods/ns/s", json("neither"), "it is neither protobuf nor JSON nor CBOR"),
        ("/registry/secrets/ns/p", pod("p", "ns"), "the value is a Pod"),
        (
            "/registry/b.example/boats/ns/b",
            json("{}"),
            "there is no CustomResourceDefinition boats.b.example",
        ),
        ("/registry/a.example/cars/ns/c", car("v9", "c"), "version v9 is not served any more"),
        ("/registry/a.example/cars/c", car("v1", "c"), "no API that this version serves keeps objects there"),
    ];
    let dir = tempfile::tempdir().unwrap();
    let mut changes: Vec<Change<'_>> = rows.iter().map(|(key, value, _)| (*key, value.clone(), 0)).collect();
    changes.sort_by_key(|(key, ..)| *key);
    let source = Snapshot::open(&snapshot(dir.path(), &changes), true).unwrap();
    let mut decoder = decoder();
    let lines = refused(&source, &mut decoder);
    assert_eq!(lines.len(), rows.iter().filter(|(.., reason)| !reason.is_empty()).count(), "{lines:#?}");
    for (key, _, reason) in rows.iter().filter(|(.., reason)| !reason.is_empty()) {
        let found = lines.iter().any(|line| line.starts_with(&format!("{key}: ")) && line.contains(reason));
        assert!(found, "{key}: {reason} in {lines:#?}");
    }
    // The rest is imported.
    let (engine, report) = imported(dir.path(), &source, &mut decoder);
    assert_eq!(report.objects(), 2);
    engine.close().unwrap();
}

#[test]
fn a_damaged_record_is_named() {
    let record =
        |mod_revision| KeyValue { key: "/a".into(), mod_revision, ..KeyValue::default() }.encode_to_vec();
    for (key, value, expected) in [
        (b"short".to_vec(), record(5), "the record of revision short is damaged: its key is no revision"),
        (revision(5, false), vec![0xff; 9], "the record of revision 5/0 is damaged: it cannot be decoded"),
        (revision(5, false), record(6), "the record of revision 5/0 is damaged: it has another revision"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let error = Snapshot::open(&write(dir.path(), vec![(key, value)]), true).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("snapshot.db"), "{error}");
    }
}

#[test]
fn a_source_without_the_prefix_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = Snapshot::open(&snapshot(dir.path(), &changes()), true).unwrap();
    let mut decoder = Decoder::new("/other/", Arc::<Encryption>::default());
    let error = import::check(&source, &mut decoder, &mut |_, _| {}, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("no keys below /other/"), "{error}");
    assert!(import::continue_above(u64::MAX).is_err() && import::continue_above(1 << 62).is_err());
}
