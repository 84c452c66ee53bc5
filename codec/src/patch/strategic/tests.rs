use super::*;
use crate::patch::testkit::{deployment, json};

fn apply(live: &str, patch: &str) -> Result<Value, PatchError> {
    let (schema, root) = deployment();
    strategic_merge(json(live), json(patch), &schema, root)
}

/// Description, object, patch, result.
const MERGES: &[(&str, &str, &str, &str)] = &[
    (
        "a member is set",
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"paused":true}}"#,
        r#"{"spec":{"replicas":1,"paused":true}}"#,
    ),
    (
        "null removes",
        r#"{"spec":{"replicas":1,"paused":true}}"#,
        r#"{"spec":{"paused":null}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    (
        "null of what is absent does nothing",
        r#"{"spec":{}}"#,
        r#"{"spec":{"paused":null}}"#,
        r#"{"spec":{}}"#,
    ),
    (
        "nulls of a new object go",
        r#"{}"#,
        r#"{"spec":{"strategy":{"type":null,"rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"rollingUpdate":{"maxSurge":1}}}}"#,
    ),
    (
        "maps are merged",
        r#"{"metadata":{"labels":{"a":"1","b":"2"}}}"#,
        r#"{"metadata":{"labels":{"a":null,"c":"3"}}}"#,
        r#"{"metadata":{"labels":{"b":"2","c":"3"}}}"#,
    ),
    (
        "a value of another type replaces",
        r#"{"spec":{"strategy":{"type":"x"}}}"#,
        r#"{"spec":{"strategy":"y"}}"#,
        r#"{"spec":{"strategy":"y"}}"#,
    ),
    (
        "a list without strategy is replaced",
        r#"{"spec":{"template":{"tolerations":[{"key":"a"},{"key":"b"}]}}}"#,
        r#"{"spec":{"template":{"tolerations":[{"key":"c"}]}}}"#,
        r#"{"spec":{"template":{"tolerations":[{"key":"c"}]}}}"#,
    ),
    (
        "a map with strategy replace is replaced",
        r#"{"spec":{"selector":{"a":"1"}}}"#,
        r#"{"spec":{"selector":{"b":"2"}}}"#,
        r#"{"spec":{"selector":{"b":"2"}}}"#,
    ),
    // $patch in objects
    (
        "$patch: replace takes the rest",
        r#"{"spec":{"strategy":{"type":"a","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$patch":"replace","type":"b"}}}"#,
        r#"{"spec":{"strategy":{"type":"b"}}}"#,
    ),
    (
        "$patch: delete empties",
        r#"{"spec":{"strategy":{"type":"a"},"replicas":1}}"#,
        r#"{"spec":{"strategy":{"$patch":"delete"}}}"#,
        r#"{"spec":{"strategy":{},"replicas":1}}"#,
    ),
    (
        "$patch: replace of the whole object",
        r#"{"spec":{"replicas":1},"kind":"D"}"#,
        r#"{"$patch":"replace","kind":"E"}"#,
        r#"{"kind":"E"}"#,
    ),
    (
        "an absent object with a directive stays absent",
        r#"{"spec":{}}"#,
        r#"{"spec":{"strategy":{"$patch":"replace","type":"b"}}}"#,
        r#"{"spec":{}}"#,
    ),
    (
        "a directive below a new object goes too",
        r#"{}"#,
        r#"{"spec":{"replicas":1,"strategy":{"$patch":"delete"}}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    // lists of objects
    (
        "elements merge by key",
        r#"{"spec":{"template":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"1"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b","image":"2"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","image":"1"},{"name":"b","image":"2"}]}}}"#,
    ),
    (
        "new elements come first",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}"#,
    ),
    (
        "the patch's order wins among its elements",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c","image":"x"},{"name":"a","image":"y"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b"},{"name":"c","image":"x"},{"name":"a","image":"y"}]}}}"#,
    ),
    (
        "nested lists merge",
        r#"{"spec":{"template":{"containers":[{"name":"a","env":[{"name":"x","value":"1"}]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","env":[{"name":"y","value":"2"},{"name":"x","value":null}]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","env":[{"name":"y","value":"2"},{"name":"x"}]}]}}}"#,
    ),
    (
        "keys may be numbers",
        r#"{"spec":{"template":{"containers":[{"name":"a","ports":[{"containerPort":80}]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"w"}]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","ports":[{"containerPort":80,"name":"w"}]}]}}}"#,
    ),
    (
        "$patch: delete of an element",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"},{"name":"a","image":"twin"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","$patch":"delete"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
    ),
    (
        "$patch: delete of an absent element does nothing",
        r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","$patch":"delete"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
    ),
    (
        "delete and set again in one patch",
        r#"{"spec":{"template":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["x"]},{"name":"a","$patch":"delete"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["x"]},{"name":"b"}]}}}"#,
    ),
    (
        "$patch: replace of a list",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"},{"$patch":"replace"},{"name":"b","image":"2"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"},{"name":"b","image":"2"}]}}}"#,
    ),
    (
        "$patch: replace by nothing",
        r#"{"spec":{"template":{"containers":[{"name":"a"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"$patch":"replace"}]}}}"#,
        r#"{"spec":{"template":{"containers":[]}}}"#,
    ),
    (
        "deletions in a list that is absent go",
        r#"{"spec":{"template":{}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","$patch":"delete"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b"}]}}}"#,
    ),
    (
        "one key twice in the patch",
        r#"{"spec":{"template":{"containers":[]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","image":"1"},{"name":"a","args":["x"]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","image":"1","args":["x"]}]}}}"#,
    ),
    // lists of scalars
    (
        "scalars merge as a set",
        r#"{"metadata":{"finalizers":["a","b"]}}"#,
        r#"{"metadata":{"finalizers":["b","c"]}}"#,
        r#"{"metadata":{"finalizers":["a","b","c"]}}"#,
    ),
    (
        "scalars of the patch alone come first",
        r#"{"metadata":{"finalizers":["a","b"]}}"#,
        r#"{"metadata":{"finalizers":["c"]}}"#,
        r#"{"metadata":{"finalizers":["c","a","b"]}}"#,
    ),
    (
        "$deleteFromPrimitiveList",
        r#"{"metadata":{"finalizers":["a","b","c"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["b","x"]}}"#,
        r#"{"metadata":{"finalizers":["a","c"]}}"#,
    ),
    (
        "$deleteFromPrimitiveList of a replaced list",
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["x","y"]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","$deleteFromPrimitiveList/args":["x"]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["y"]}]}}}"#,
    ),
    (
        "$deleteFromPrimitiveList of an absent list",
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["b"]}}"#,
        r#"{"metadata":{}}"#,
    ),
    (
        "delete, add and order scalars",
        r#"{"metadata":{"finalizers":["a","b","c"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["b"],"$setElementOrder/finalizers":["c","d","a"],"finalizers":["d"]}}"#,
        r#"{"metadata":{"finalizers":["c","d","a"]}}"#,
    ),
    // $retainKeys
    (
        "$retainKeys clears the others",
        r#"{"spec":{"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#,
        r#"{"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
        r#"{"spec":{"strategy":{"type":"Recreate"}}}"#,
    ),
    (
        "$retainKeys in an element",
        r#"{"spec":{"template":{"volumes":[{"name":"v","emptyDir":{}}]}}}"#,
        r#"{"spec":{"template":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/"}}]}}}"#,
        r#"{"spec":{"template":{"volumes":[{"name":"v","hostPath":{"path":"/"}}]}}}"#,
    ),
    (
        "$retainKeys works wherever it stands",
        r#"{"spec":{"replicas":1,"paused":true}}"#,
        r#"{"spec":{"$retainKeys":["replicas"]}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    (
        "a null need not be retained",
        r#"{"spec":{"replicas":1,"paused":true}}"#,
        r#"{"spec":{"$retainKeys":["replicas"],"data":null}}"#,
        r#"{"spec":{"replicas":1}}"#,
    ),
    // $setElementOrder
    (
        "order alone",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"},{"name":"a"},{"name":"b"}]}}}"#,
    ),
    (
        "order puts new elements in their place",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"a"},{"name":"c"},{"name":"b"}],"containers":[{"name":"c"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"c"},{"name":"b"}]}}}"#,
    ),
    (
        "server-only elements keep their side",
        r#"{"spec":{"template":{"containers":[{"name":"s"},{"name":"a"},{"name":"t"},{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"s"},{"name":"t"},{"name":"b"},{"name":"a"}]}}}"#,
    ),
    (
        "order with a deletion",
        r#"{"spec":{"template":{"containers":[{"name":"a"},{"name":"b"},{"name":"c"}]}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"c"},{"name":"a"}],"containers":[{"name":"b","$patch":"delete"},{"name":"a","image":"2"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"c"},{"name":"a","image":"2"}]}}}"#,
    ),
    (
        "order of a list that is new",
        r#"{"spec":{"template":{}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"b"},{"name":"a"}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"b"},{"name":"a"}]}}}"#,
    ),
    (
        "order of a list that is on neither side",
        r#"{"spec":{"template":{}}}"#,
        r#"{"spec":{"template":{"$setElementOrder/containers":[{"name":"b"}]}}}"#,
        r#"{"spec":{"template":{}}}"#,
    ),
    (
        "order of an unmerged list",
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["x","y"]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","$setElementOrder/args":["y","x"]}]}}}"#,
        r#"{"spec":{"template":{"containers":[{"name":"a","args":["y","x"]}]}}}"#,
    ),
    // schemaless parts
    (
        "scalars in a raw part",
        r#"{"spec":{"data":{"a":1,"b":2}}}"#,
        r#"{"spec":{"data":{"a":3,"b":null}}}"#,
        r#"{"spec":{"data":{"a":3}}}"#,
    ),
];

#[test]
fn merges_by_table() {
    for (what, live, patch, want) in MERGES {
        assert_eq!(apply(live, patch).as_ref(), Ok(&json(want)), "{what}");
    }
}

#[test]
fn an_empty_patch_changes_nothing() {
    for (what, live, ..) in MERGES {
        assert_eq!(apply(live, "{}").as_ref(), Ok(&json(live)), "{what}");
    }
}

#[test]
fn refusals_by_table() {
    let one = r#"{"spec":{"template":{"containers":[{"name":"a"}]},"strategy":{"type":"x"},"keyless":[{"key":"a"}],"rows":[["a"]],"data":{"a":{}}},"metadata":{"finalizers":["a"]}}"#;
    let rows = [
        (r#"[]"#, 400, "json: cannot unmarshal array into Go value of type map[string]interface {}"),
        (
            r#"{"spec":{"strategy":{"$patch":"merge"}}}"#,
            500,
            "unknown patch type: merge in map: map[$patch:merge]",
        ),
        (
            r#"{"spec":{"strategy":{"$patch":1}}}"#,
            500,
            "unknown patch type: %!s(int64=1) in map: map[$patch:1]",
        ),
        (r#"{"spec":{"strategy":{"$patch":null}}}"#, 500, "unknown patch type: %!s(<nil>) in map"),
        (
            r#"{"spec":{"strategy":{"$patch":["x",true]}}}"#,
            500,
            "unknown patch type: [x %!s(bool=true)] in map",
        ),
        (
            r#"{"spec":{"template":{"containers":[{"image":"x"}]}}}"#,
            500,
            "map: map[image:x] does not contain declared merge key: name",
        ),
        (
            r#"{"spec":{"template":{"containers":[{"$patch":"delete"}]}}}"#,
            500,
            "does not contain declared merge key: name",
        ),
        (
            r#"{"spec":{"template":{"containers":[{"name":"a","$patch":"merge"}]}}}"#,
            500,
            "merging lists cannot yet be specified in the patch",
        ),
        (
            r#"{"spec":{"template":{"containers":[{"name":"a","$patch":"spin"}]}}}"#,
            500,
            "unknown patch type: spin",
        ),
        (r#"{"spec":{"template":{"containers":["a"]}}}"#, 500, "list element types are not identical"),
        (r#"{"spec":{"template":{"containers":[null]}}}"#, 500, "list element types are not identical"),
        (r#"{"metadata":{"finalizers":[1]}}"#, 500, "list element types are not identical"),
        (r#"{"spec":{"rows":[["b"]]}}"#, 500, "unexpected slice of slice"),
        (r#"{"spec":{"keyless":[{"key":"b"}]}}"#, 500, "cannot merge lists without merge key for struct"),
        (r#"{"spec":{"data":{"a":{"b":1}}}}"#, 500, "unable to find api field"),
        (r#"{"spec":{"strategy":{"$retainKeys":"type"}}}"#, 400, "invalid patch format of retainKeys"),
        (
            r#"{"spec":{"strategy":{"$retainKeys":["rollingUpdate"],"type":"x"}}}"#,
            400,
            "invalid patch format of retainKeys",
        ),
        (r#"{"metadata":{"$deleteFromPrimitiveList":["a"]}}"#, 400, "invalid patch format of primitive list"),
        (r#"{"metadata":{"$setElementOrder":["a"]}}"#, 400, "invalid patch format of setElementOrder list"),
        (
            r#"{"metadata":{"$setElementOrder/finalizers":"a"}}"#,
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            r#"{"metadata":{"$setElementOrder/finalizers":["a"],"finalizers":"a"}}"#,
            500,
            "expected a []interface {}, but received a string",
        ),
        (
            r#"{"metadata":{"$setElementOrder/finalizers":["a"],"finalizers":["b"]}}"#,
            500,
            "The order in patch list:\n[b]\n doesn't match $setElementOrder list:\n[a]",
        ),
        (
            r#"{"metadata":{"$setElementOrder/finalizers":["a","b"],"finalizers":["b","a"]}}"#,
            500,
            "The order in patch list",
        ),
        (
            r#"{"metadata":{"$setElementOrder/nothing":["a"]}}"#,
            500,
            "unable to find api field in struct ObjectMeta for the json field \"nothing\"",
        ),
        (
            r#"{"spec":{"template":{"$setElementOrder/containers":[{"image":"x"}]}}}"#,
            500,
            "does not contain declared merge key: name",
        ),
        (
            r#"{"spec":{"template":{"$setElementOrder/containers":["a"]}}}"#,
            500,
            "expected a map[string]interface {}, but received a string",
        ),
    ];
    for (patch, code, text) in rows {
        let error = apply(one, patch).expect_err(patch);
        assert_eq!(error.code(), code, "{patch}: {error}");
        assert!(error.to_string().contains(text), "{patch}: {error}");
    }
}

#[test]
fn lists_of_lists_have_another_error_than_elements_of_other_types() {
    let error =
        apply(r#"{"metadata":{"finalizers":[]}}"#, r#"{"metadata":{"finalizers":[["a"]]}}"#).unwrap_err();
    assert_eq!(error, PatchError::NotApplicable("lists of lists are not supported".into()));
    assert_eq!(apply("{}", "null"), Ok(json("{}")));
    // A null directive is dropped with the other nulls of a new object.
    let patched = apply(r#"{"spec":{}}"#, r#"{"spec":{"paused":{"$patch":null}}}"#);
    assert_eq!(patched, Ok(json(r#"{"spec":{"paused":{}}}"#)));
}

#[test]
fn long_lists_cost_no_square() {
    let (schema, root) = deployment();
    let n = 100_000;
    let containers = |step: usize, image: &str| -> Vec<Value> {
        (0..n).step_by(step).map(|i| crate::tree!({ "name": format!("c{i}"), "image": image })).collect()
    };
    let body = |list: Vec<Value>| crate::tree!({ "spec": crate::tree!({ "template": crate::tree!({ "containers": list }) }) });
    let merged =
        strategic_merge(body(containers(1, "old")), body(containers(2, "new")), &schema, root).unwrap();
    let list = merged.at(&["spec", "template", "containers"]).and_then(Value::as_array).unwrap();
    assert_eq!(list.len(), n);
    assert_eq!(list[1], crate::tree!({ "name": "c1", "image": "old" }));
    assert_eq!(list[2], crate::tree!({ "name": "c2", "image": "new" }));
}

#[test]
fn deep_patches_are_bounded() {
    let mut b = crate::patch::testkit::Builder::default();
    // A recursive type, like JSONSchemaProps.
    let itself = TypeId(0);
    let root = b.structure("Props", &[("not", itself, "")]);
    let (schema, root) = b.finish(crate::schema::GVK::new("t", "v1", "Props"), root);
    let nest = |n: usize, leaf: &str| (0..n).fold(json(leaf), |v, _| crate::tree!({ "not": v }));
    let merged = strategic_merge(nest(100, r#"{"x":1}"#), nest(100, r#"{"y":2}"#), &schema, root);
    assert_eq!(merged, Ok(nest(100, r#"{"x":1,"y":2}"#)));
    let error = strategic_merge(nest(5_000, "{}"), nest(5_000, "{}"), &schema, root).unwrap_err();
    assert_eq!(error, PatchError::Malformed("exceeded max depth".into()));
    // Not nested in the object: copied, at any depth.
    assert!(strategic_merge(json("{}"), nest(9_000, r#"{"a":null}"#), &schema, root).is_ok());
}
