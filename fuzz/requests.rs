//! The fuzz targets of request parts: headers, selectors, printer columns. Shared with the smoke
//! test on stable Rust (`codec/tests/requests.rs`). A target returns for every input.

use plinth_codec::negotiate::{
    accept, accept_for_error, choose, content_type, gzip, wants_pretty, Accepts, Encoding, Offer, Shape,
    Transform,
};
use plinth_codec::selector::{FieldSelector, LabelSelector, Selectable};
use plinth_codec::table::{Now, TableDefinition};
use plinth_codec::tree;
use std::time::SystemTime;

/// A label selector; its text form must parse to the same selector.
pub(crate) fn label_selector(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(selector) = LabelSelector::parse(text) {
        assert_eq!(LabelSelector::parse(&selector.to_string()).as_ref(), Ok(&selector));
        let labels = [("a", "1"), ("b", "x")];
        let looked_up = selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v));
        assert_eq!(selector.matches_sorted(labels), looked_up);
    }
}

/// A field selector, likewise.
pub(crate) fn field_selector(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(selector) = FieldSelector::parse(text) else { return };
    let again = FieldSelector::parse(&selector.to_string()).expect("what we wrote");
    assert_eq!(again.requirements().len(), selector.requirements().len());
    let lookup = |field: &str| if field == "a" { "1" } else { "" };
    assert_eq!(again.matches(lookup), selector.matches(lookup));
    drop(selector.resolve(&Selectable::METADATA));
}

/// `Accept` and the other headers of a negotiation. An accepted representation must have been offered.
pub(crate) fn headers(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let header = Some(text);
    for shape in [Shape::Object, Shape::List, Shape::Watch, Shape::Discovery, Shape::Plain] {
        for offer in [Offer::builtin(shape), Offer::custom(shape)] {
            let Ok(accepted) = accept(header, &offer) else { continue };
            let raw = accepted.transform == Transform::None;
            assert!(offer.protobuf || !raw || accepted.encoding != Encoding::Protobuf);
            assert!(shape != Shape::Watch || accepted.encoding.watch_media_type().is_some());
            let table = matches!(accepted.transform, Transform::Table(_));
            assert!(!table || matches!(accepted.encoding, Encoding::Json | Encoding::Yaml));
            wants_pretty(&accepted, header, header);
        }
    }
    assert_eq!(accept_for_error(header).transform, Transform::None);
    assert!(choose(header, &["application/json", "text/plain"]).is_none_or(|i| i < 2));
    gzip(header);
    for accepts in [Accepts::Object, Accepts::CustomObject, Accepts::Patch, Accepts::CustomPatch] {
        if let Err(error) = content_type(header, accepts) {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// A JSONPath of a printer column.
pub(crate) fn json_path(input: &[u8]) {
    let Ok(path) = std::str::from_utf8(input) else { return };
    let item = tree!({ "type": "Ready", "n": 3i64, "a": tree!(["x", "y"]) });
    let object = tree!({ "spec": tree!({ "a": tree!([item.clone(), item]), "b": "c" }) });
    for kind in ["string", "integer", "date"] {
        let definition = TableDefinition::custom(&[tree!({ "name": "C", "type": kind, "jsonPath": path })]);
        assert_eq!(definition.cells(&object, Now::from(SystemTime::UNIX_EPOCH)).len(), 2);
        for cell in definition.cells(&object, Now::from(SystemTime::UNIX_EPOCH)) {
            drop(cell);
        }
    }
}

/// A target with its name and seeds.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

/// Every target.
pub(crate) const ALL: [Target; 4] = [
    (
        "label_selector",
        label_selector,
        &["a=1,b in (x,,y),!c", "p.io/n notin (v)", "a>5,b<6,c==d,e!=f", "in in (in)"],
    ),
    (
        "field_selector",
        field_selector,
        &[r"a=1,metadata.name!=x\,y", "spec.nodeName==n,status.phase!=Running"],
    ),
    (
        "headers",
        headers,
        &[
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;q=0.5",
            "application/vnd.kubernetes.protobuf;stream=watch, */*;q=0.1",
            "application/cbor-seq, application/apply-patch+yaml; charset=\"a,b\"",
            "gzip;q=0.5, identity;q=0",
        ],
    ),
    ("json_path", json_path, &[r#".spec.a[?(@.type=="Ready")].a[-1]"#, ".spec['b']", r".spec.a\.b[0:2:1].*"]),
];
