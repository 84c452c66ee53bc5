//! The fuzz targets of custom resources. Shared with the smoke test on stable Rust
//! (`codec/structural/tests/structural.rs`). A target returns for every input.

use plinth_codec::schema::GVK;
use plinth_codec::{json, regexp, tree};
use plinth_structural::{definition, Conform, StructuralSchema};

/// `{"schema": …, "object": …, "old": …}`: a definition with that schema is validated; an accepted one must
/// compile, and applying it to the object must be idempotent.
pub(crate) fn structural(input: &[u8]) {
    let Ok(case) = json::parse(input) else { return };
    let schema = case.get("schema").cloned().unwrap_or_default();
    let version = tree!({
        "name": "v1", "served": true, "storage": true, "schema": tree!({ "openAPIV3Schema": schema.clone() }),
    });
    let names = tree!({ "plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList" });
    let definition = tree!({
        "metadata": tree!({ "name": "things.example.com" }),
        "spec": tree!({
            "group": "example.com", "scope": "Namespaced", "names": names, "versions": tree!([version]),
        }),
        "status": tree!({ "storedVersions": tree!(["v1"]) }),
    });
    drop(definition::warnings(&definition, None));
    drop(definition::validate_update(&definition, &definition));
    let accepted = definition::validate(&definition).is_empty();
    let compiled = StructuralSchema::compile(&schema);
    if accepted {
        assert!(compiled.is_ok(), "an accepted schema compiles: {compiled:?}");
    }
    let Ok(compiled) = compiled else { return };
    drop(compiled.model(GVK::new("example.com", "v1", "Thing")));

    let old = case.get("old").cloned().unwrap_or_default();
    let mut object = case.get("object").cloned().unwrap_or_default();
    if compiled.conform(&mut object, &Conform::default()).is_err() {
        return;
    }
    let valid = compiled.validate(&object).is_empty();
    let once = object.clone();
    let unknown = compiled.conform(&mut object, &Conform { strict: true, ..Conform::default() });
    assert_eq!((&object, unknown), (&once, Ok(Vec::new())), "conforming twice");
    compiled.default(&mut object);
    // As in upstream, defaults below `additionalProperties` are not validated.
    let mut text = Vec::new();
    json::write_untyped(&schema, &mut text);
    let text = String::from_utf8_lossy(&text);
    let checked = !(text.contains("additionalProperties") && text.contains("default"));
    if accepted && valid && checked {
        assert_eq!(compiled.validate(&object), [], "defaults make nothing invalid");
    }
    assert!(!compiled.default(&mut object), "defaulting twice");
    drop(compiled.validate_update(&object, &old));
    drop(compiled.validate_status_update(&object, &old));
}

/// A pattern and, after a line break, a text to be searched.
pub(crate) fn pattern(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (pattern, text) = text.split_once('\n').unwrap_or((text, text));
    match regexp::compile(pattern) {
        Ok(regex) => {
            regex.is_match(text);
        }
        Err(error) => assert!(error.to_string().starts_with("error parsing regexp: ")),
    }
}

/// A target with seeds.
type Target = (&'static str, fn(&[u8]), &'static [&'static str]);

/// Every target.
pub(crate) const ALL: &[Target] = &[
    (
        "structural",
        structural,
        &[
            r#"{"schema":{"type":"object","properties":{"spec":{"type":"object","properties":{"a":{"type":"string","default":"x","maxLength":3,"pattern":"^x"},"b":{"type":"integer","format":"int32","maximum":5,"nullable":true},"c":{"x-kubernetes-int-or-string":true}},"required":["a"]}}},"object":{"apiVersion":"g/v1","kind":"K","metadata":{"name":"n"},"spec":{"a":"xyz","b":null,"c":"1","d":1}},"old":{"spec":{"a":"long"}}}"#,
            r#"{"schema":{"type":"object","properties":{"l":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},"v":{"type":"number","multipleOf":0.5}}}},"s":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}}},"object":{"l":[{"k":"a","v":1.5},{"k":"b"}],"s":["a","b"]},"old":{"l":[{"k":"b","v":0.3}],"s":["c","c"]}}"#,
            r#"{"schema":{"type":"object","properties":{"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true,"default":{"apiVersion":"v1","kind":"K"}},"m":{"type":"object","additionalProperties":{"type":"object","properties":{"a":{"type":"boolean","default":true}}}}}},"object":{"e":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":"b"}},"x":1},"m":{"k":{}}}}"#,
            r#"{"schema":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}],"anyOf":[{"properties":{"a":{"minLength":2}}}],"not":{"properties":{"b":{"enum":["z"]}},"required":["b"]}},"object":{"a":"xx"},"old":{}}"#,
            r#"{"schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"metadata":{"type":"object","properties":{"name":{"type":"string","maxLength":3}}}}},"object":{"metadata":{"name":"abcd","generation":1},"any":[{"b":null}]}}"#,
        ],
    ),
    (
        "pattern",
        pattern,
        &[
            r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
            r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
            "(?i)\\Qa.b\\E|[[:alpha:]\\d\\x{41}-Z\\pL]{1,3}?(?P<n>\\bx\\B)\na.b x",
        ],
    ),
];
