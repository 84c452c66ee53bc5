use super::*;
use crate::tree;

fn null() -> Value {
    Value::Null
}

fn doc() -> Value {
    tree!({ "a": tree!({ "b": 1, "n": null() }), "l": tree!(["x", "y", "z"]), "s": "t", "m/~": 7, "f": 1 })
}

fn op(kind: &str, path: &str) -> Value {
    tree!({ "op": kind, "path": path })
}

fn with(kind: &str, path: &str, value: impl Into<Value>) -> Value {
    tree!({ "op": kind, "path": path, "value": value.into() as Value })
}

fn from(kind: &str, from: &str, path: &str) -> Value {
    tree!({ "op": kind, "from": from, "path": path })
}

/// The document with one member changed.
fn changed(path: &[&str], value: impl Into<Value>) -> Value {
    let mut d = doc();
    let (last, parents) = path.split_last().unwrap();
    d.object_at_mut(parents).unwrap().insert(*last, value);
    d
}

#[test]
fn operations_by_table() {
    let list = |items: &[&str]| items.iter().map(|s| Value::from(*s)).collect::<Vec<_>>();
    let mut without_s = doc();
    without_s.as_object_mut().unwrap().remove("s");
    let mut moved = changed(&["t"], "t");
    moved.as_object_mut().unwrap().remove("s");
    let rows: Vec<(&str, Vec<Value>, Value)> = vec![
        ("nothing", vec![], doc()),
        ("add a member", vec![with("add", "/a/c", 2)], changed(&["a", "c"], 2)),
        ("add replaces a member", vec![with("add", "/a/b", 2)], changed(&["a", "b"], 2)),
        ("add without value is null", vec![op("add", "/a/c")], changed(&["a", "c"], null())),
        ("add at the end", vec![with("add", "/l/-", "w")], changed(&["l"], list(&["x", "y", "z", "w"]))),
        ("add at the length", vec![with("add", "/l/3", "w")], changed(&["l"], list(&["x", "y", "z", "w"]))),
        ("add in front", vec![with("add", "/l/0", "w")], changed(&["l"], list(&["w", "x", "y", "z"]))),
        ("add at -1 appends", vec![with("add", "/l/-1", "w")], changed(&["l"], list(&["x", "y", "z", "w"]))),
        (
            "add at -4 is in front",
            vec![with("add", "/l/-4", "w")],
            changed(&["l"], list(&["w", "x", "y", "z"])),
        ),
        ("remove a member", vec![op("remove", "/s")], without_s.clone()),
        ("remove an element", vec![op("remove", "/l/1")], changed(&["l"], list(&["x", "z"]))),
        ("remove from the end", vec![op("remove", "/l/-1")], changed(&["l"], list(&["x", "y"]))),
        ("replace a member", vec![with("replace", "/a/b", 2)], changed(&["a", "b"], 2)),
        ("replace what is missing sets it", vec![with("replace", "/a/c", 2)], changed(&["a", "c"], 2)),
        ("replace an element", vec![with("replace", "/l/1", "w")], changed(&["l"], list(&["x", "w", "z"]))),
        (
            "replace an element from the end",
            vec![with("replace", "/l/-3", "w")],
            changed(&["l"], list(&["w", "y", "z"])),
        ),
        ("replace everything", vec![with("replace", "", tree!({ "z": 1 }))], tree!({ "z": 1 })),
        ("move a member", vec![from("move", "/s", "/t")], moved),
        ("move within a list", vec![from("move", "/l/0", "/l/2")], changed(&["l"], list(&["y", "z", "x"]))),
        ("copy a member", vec![from("copy", "/s", "/t")], changed(&["t"], "t")),
        ("copy of what is missing is null", vec![from("copy", "/a/x", "/t")], changed(&["t"], null())),
        (
            "copy into itself",
            vec![from("copy", "/a", "/a/c")],
            changed(&["a", "c"], tree!({ "b": 1, "n": null() })),
        ),
        ("escapes", vec![with("test", "/m~1~0", 7)], doc()),
        ("plus and zeros in an index", vec![with("test", "/l/+1", "y"), with("test", "/l/01", "y")], doc()),
        ("test of an object", vec![with("test", "/a", tree!({ "n": null(), "b": 1 }))], doc()),
        ("test of everything", vec![with("test", "", doc())], doc()),
        ("test of null", vec![with("test", "/a/n", null()), op("test", "/a/n")], doc()),
        (
            "test of a missing member against null",
            vec![with("test", "/a/x", null()), op("test", "/a/x")],
            doc(),
        ),
        ("what stands before the first slash is ignored", vec![with("add", "zzz/q", 1)], changed(&["q"], 1)),
        (
            "one after the other",
            vec![with("add", "/q", 1), from("move", "/q", "/a/b")],
            changed(&["a", "b"], 1),
        ),
    ];
    for (what, patch, want) in rows {
        assert_eq!(json_patch(doc(), patch.into()).as_ref(), Ok(&want), "{what}");
    }
}

#[test]
fn refusals_by_table() {
    let rows: Vec<(Value, u16, &str)> = vec![
        (tree!({}), 400, "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        (tree!(["x"]), 400, "json: cannot unmarshal string into Go value of type jsonpatch.Operation"),
        (tree!([tree!({ "op": 1 })]), 422, "Unexpected kind: unknown"),
        (tree!([null()]), 422, "Unexpected kind: unknown"),
        (tree!([op("spin", "/a")]), 422, "Unexpected kind: spin"),
        (
            tree!([tree!({ "op": "add", "value": 1 })]),
            422,
            "add operation failed to decode path: missing value",
        ),
        (tree!([tree!({ "op": "move", "path": "/a" })]), 422, "move operation failed to decode from"),
        (tree!([with("add", "", 1)]), 422, "doc is missing path: \"\""),
        (tree!([with("add", "/x/y", 1)]), 422, "add operation does not apply: doc is missing path: \"/x/y\""),
        (tree!([with("add", "/s/y", 1)]), 422, "doc is missing path"),
        (tree!([with("add", "/a/n/y", 1)]), 422, "doc is missing path"),
        (tree!([with("add", "/l/4", 1)]), 422, "Unable to access invalid index: 4"),
        (tree!([with("add", "/l/-5", 1)]), 422, "Unable to access invalid index: -5"),
        (tree!([with("add", "/l/x", 1)]), 422, "value was not a proper array index: 'x'"),
        (tree!([op("remove", "")]), 422, "remove operation does not apply"),
        (tree!([op("remove", "/x")]), 422, "Unable to remove nonexistent key: x"),
        (tree!([op("remove", "/l/3")]), 422, "Unable to access invalid index: 3"),
        (tree!([op("remove", "/l/-")]), 422, "strconv.Atoi: parsing \"-\": invalid syntax"),
        (
            tree!([with("replace", "/l/3", 1)]),
            422,
            "replace operation does not apply: doc is missing key: /l/3",
        ),
        (
            tree!([with("replace", "/x/y", 1)]),
            422,
            "replace operation does not apply: doc is missing path: /x/y",
        ),
        (tree!([with("replace", "", 1)]), 422, "replace operation value must be object or array"),
        (tree!([from("move", "/x", "/y")]), 422, "Unable to remove nonexistent key: x"),
        (tree!([from("move", "/a", "/a/b")]), 422, "missing destination path: /a/b"),
        (tree!([from("copy", "/l/9", "/y")]), 422, "error in copy for from: '9'"),
        (tree!([with("test", "/s", "u")]), 422, "testing value /s failed: test failed"),
        (tree!([with("test", "/f", Value::Float(1.0))]), 422, "testing value /f failed"),
        (tree!([with("test", "/x", 1)]), 422, "testing value /x failed"),
        (tree!([op("test", "/s")]), 422, "testing value /s failed"),
        (tree!([with("test", "/l/9", 1)]), 422, "error in test for path: '/l/9'"),
    ];
    for (patch, code, text) in rows {
        let shown = format!("{patch:?}");
        let error = json_patch(doc(), patch).expect_err(&shown);
        assert_eq!(error.code(), code, "{shown}");
        assert!(error.to_string().contains(text), "{shown}: {error}");
    }
}

#[test]
fn a_patch_is_decoded_before_it_is_applied() {
    let rows: [(Value, Result<(), &str>); 8] = [
        (null(), Ok(())),
        (tree!([null(), tree!({ "op": "add", "path": null(), "from": "x", "value": 1 })]), Ok(())),
        (tree!({}), Err("object into Go value of type []handlers.jsonPatchOp")),
        (tree!(["x"]), Err("string into Go value of type handlers.jsonPatchOp")),
        (tree!([tree!({ "op": 1 })]), Err("number into Go struct field jsonPatchOp.op of type string")),
        (
            tree!([tree!({ "path": tree!([]) })]),
            Err("array into Go struct field jsonPatchOp.path of type string"),
        ),
        (
            tree!([tree!({ "op": "test", "from": true })]),
            Err("bool into Go struct field jsonPatchOp.from of type string"),
        ),
        (tree!([tree!({}), tree!([])]), Err("array into Go value of type handlers.jsonPatchOp")),
    ];
    for (patch, want) in rows {
        let want = want.map_err(|text| {
            PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {text}"))
        });
        assert_eq!(check_json_patch(&patch), want, "{patch:?}");
    }
}

#[test]
fn limits_hold() {
    let many = |n| Value::Array(vec![with("add", "/q", 1); n]);
    assert!(json_patch(doc(), many(MAX_OPERATIONS)).is_ok());
    let error = json_patch(doc(), many(MAX_OPERATIONS + 1)).unwrap_err();
    assert_eq!((error.code(), error), (413, PatchError::TooManyOperations { limit: 10_000, got: 10_001 }));

    // Each copy doubles: refused by size when wide, by depth when narrow.
    let bomb = |seed: &str| {
        let mut ops = vec![with("add", "/x", tree!({ "k": seed }))];
        ops.extend((0..40).map(|i| from("copy", "/x", &format!("/x/{i}"))));
        json_patch(doc(), ops.into()).unwrap_err()
    };
    let error = bomb(&"v".repeat(10_000));
    assert_eq!(error.code(), 422);
    assert!(error.to_string().contains("exceeding the limit 3145728"), "{error}");

    let deep = (0..6_000).fold(Value::object(), |v, _| tree!({ "a": v }));
    let bottom = "/a".repeat(5_999);
    let error = json_patch(deep.clone(), tree!([with("add", &bottom, deep)])).unwrap_err();
    assert!(error.to_string().contains("exceeded max depth"), "{error}");
}

#[test]
fn hostile_work_is_bounded() {
    let long = tree!({ "l": vec![Value::Int(0); 100_000] });
    let patch = Value::Array(vec![with("add", "/l/0", 1); MAX_OPERATIONS]);
    let error = json_patch(long, patch).unwrap_err();
    assert!(error.to_string().contains("moves too many"), "{error}");
}

#[test]
fn unknown_members_are_named() {
    let patch = tree!([op("add", "/a"), tree!({ "op": "add", "values": 1, "Path": "/x" })]);
    assert_eq!(
        json_patch_unknown_fields(&patch),
        ["json patch unknown field \"[1].Path\"", "json patch unknown field \"[1].values\""]
    );
}
