//! Properties of patches, apply and ownership tracking on random Pods, with the checks of the fuzz targets.

#[path = "../../fuzz/patches.rs"]
mod checks;

use plinth_codec::{tree, Map, Value};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

/// An object of the present members.
fn object(members: Vec<(&'static str, Option<Value>)>) -> Value {
    members.into_iter().filter_map(|(k, v)| Some((k.into(), v?))).collect::<Map>().into()
}

fn text() -> impl Strategy<Value = Value> {
    select(vec!["", "a", "b", "c", "1"]).prop_map(Value::from)
}

/// Names in any order, each once, as the elements of a list.
fn names() -> impl Strategy<Value = Vec<&'static str>> {
    subsequence(vec!["a", "b", "c", "d"], 0..=4).prop_shuffle()
}

fn labels() -> impl Strategy<Value = Value> {
    vec((select(vec!["x", "y", "z"]), text()), 0..4)
        .prop_map(|pairs| pairs.into_iter().map(|(k, v)| (k.into(), v)).collect::<Map>().into())
}

fn port() -> impl Strategy<Value = Value> {
    (select(vec![80i64, 81]), of(select(vec!["TCP", "UDP"])), of(text())).prop_map(
        |(port, protocol, name)| {
            object(vec![
                ("containerPort", Some(port.into())),
                ("protocol", protocol.map(Value::from)),
                ("name", name),
            ])
        },
    )
}

fn container(name: &'static str) -> impl Strategy<Value = Value> {
    (of(text()), of(vec(text(), 0..3)), of(vec(port(), 0..3))).prop_map(move |(image, args, ports)| {
        object(vec![
            ("name", Some(name.into())),
            ("image", image),
            ("args", args.map(Value::from)),
            ("ports", ports.map(Value::from)),
        ])
    })
}

fn containers() -> impl Strategy<Value = Value> {
    names().prop_flat_map(|names| names.into_iter().map(container).collect::<Vec<_>>()).prop_map(Value::from)
}

fn null_or(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop_oneof![9 => value, 1 => Just(Value::Null)]
}

fn pod() -> impl Strategy<Value = Value> {
    let finalizers =
        names().prop_map(|names| Value::from(names.into_iter().map(Value::from).collect::<Vec<_>>()));
    let tolerations = vec(text().prop_map(|key| tree!({ "key": key })), 0..3).prop_map(Value::from);
    let conditions = names().prop_flat_map(|names| {
        let condition =
            |name: &'static str| text().prop_map(move |status| tree!({ "type": name, "status": status }));
        names.into_iter().map(condition).collect::<Vec<_>>()
    });
    let metadata = (of(null_or(labels())), of(null_or(finalizers)));
    let spec = (of(null_or(containers())), of(null_or(tolerations)), of(null_or(labels())), any::<bool>());
    (metadata, spec, of(conditions)).prop_map(|((labels, finalizers), spec, conditions)| {
        let (containers, tolerations, selector, host) = spec;
        object(vec![
            (
                "metadata",
                Some(object(vec![
                    ("name", Some("p".into())),
                    ("labels", labels),
                    ("finalizers", finalizers),
                ])),
            ),
            (
                "spec",
                Some(object(vec![
                    ("containers", containers),
                    ("tolerations", tolerations),
                    ("nodeSelector", selector),
                    ("hostNetwork", host.then_some(true.into())),
                ])),
            ),
            ("status", conditions.map(|list| tree!({ "conditions": list }))),
        ])
    })
}

/// A strategic merge patch: a Pod with random directives.
fn patch() -> impl Strategy<Value = Value> {
    let directive = select(vec![
        ("$patch", Value::from("replace")),
        ("$patch", "delete".into()),
        ("$patch", "merge".into()),
        ("$retainKeys", tree!(["containers", "name"])),
        ("$setElementOrder/containers", tree!([tree!({ "name": "c" }), tree!({ "name": "a" })])),
        ("$setElementOrder/finalizers", tree!(["b", "a"])),
        ("$deleteFromPrimitiveList/finalizers", tree!(["a"])),
    ]);
    let place = select(vec!["", "metadata", "spec", "container"]);
    (pod(), vec((place, directive), 0..3)).prop_map(|(mut pod, directives)| {
        for (place, (key, value)) in directives {
            let at = match place {
                "" => Some(&mut pod),
                "container" => pod
                    .get_mut("spec")
                    .and_then(|spec| spec.get_mut("containers"))
                    .and_then(Value::as_array_mut)
                    .and_then(|list| list.first_mut()),
                name => pod.get_mut(name),
            };
            if let Some(Value::Object(map)) = at {
                map.insert(key, value);
            }
        }
        pod
    })
}

fn operations() -> impl Strategy<Value = Value> {
    let path = select(vec![
        "",
        "/spec",
        "/spec/containers",
        "/spec/containers/0",
        "/spec/containers/-",
        "/spec/containers/-1/name",
        "/metadata/labels/x",
        "/nothing/there",
    ]);
    let op = select(vec!["add", "remove", "replace", "move", "copy", "test"]);
    vec((op, path.clone(), path, pod()), 0..6).prop_map(|list| {
        let list = list
            .into_iter()
            .map(|(op, path, from, value)| tree!({ "op": op, "path": path, "from": from, "value": value }));
        Value::from(list.collect::<Vec<_>>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn patches_are_total(object in pod(), patch in patch(), operations in operations()) {
        checks::patch_all(object.clone(), patch);
        checks::patch_all(object, operations);
    }

    #[test]
    fn applying_twice_is_applying_once(live in pod(), config in pod()) {
        checks::apply_twice(live, config);
    }

    #[test]
    fn nobody_shares_what_was_updated(old in pod(), new in pod()) {
        checks::track_twice(old, new);
    }

    #[test]
    fn any_bytes_are_survived(bytes in vec(any::<u8>(), 0..200)) {
        checks::patches(&bytes);
        checks::fields(&bytes);
        checks::applies(&bytes);
        checks::tracks(&bytes);
    }
}

/// Nesting, sizes and odd forms that random trees do not reach.
#[test]
fn odd_inputs() {
    let deep = |open: &str, close: &str, n: usize| open.repeat(n) + "1" + &close.repeat(n);
    for input in [
        format!("[{},{}]", deep("[", "]", 5_000), deep("{\"a\":", "}", 5_000)),
        format!("[{{}},{}]", deep("{\"spec\":", "}", 9_000)),
        format!("[{{}},[{{\"op\":\"add\",\"path\":\"/a\",\"value\":{}}}]]", deep("[", "]", 9_000)),
        deep("{\"f:a\":", "}", 9_000),
        r#"{"k:{\"a\":1}":{},"k:{\"a\":1.0}":{},"v:1":{},"v:\"1\"":{},"i:-1":{},".":{}}"#.to_owned(),
        r#"[{"manager":"a","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:":{}}}]"#.to_owned(),
        r#"[{"spec":{"containers":[{"name":"a"},{"name":"a"},{"name":"b"}]}},{"spec":{"containers":[{"name":"b"},{"name":"a"}]}}]"#.to_owned(),
        r#"[{"spec":{"containers":null}},{"spec":{"containers":[{}]}}]"#.to_owned(),
    ] {
        let bytes = input.as_bytes();
        checks::patches(bytes);
        checks::fields(bytes);
        checks::applies(bytes);
        checks::tracks(bytes);
    }
}
