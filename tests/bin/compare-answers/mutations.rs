//! Objects with something wrong: random changes of good objects, and the table of validation rules.

use serde_json::{json, Map, Value};

use super::kinds::Catalog;
use super::script::{merge, Body, Random, Request, Script, APPLY_PATCH, JSON, MERGE_PATCH, YAML};
use super::Subject;

/// The table of validation rules, relative to this package.
const RULES: &str = "../server/kinds/src/tests/rules.txt";
/// Random changes per good object of the table.
const MUTATIONS_PER_BASE: usize = 12;

/// Requests that write randomly changed copies of an object, all of them dry runs.
pub(crate) fn of(
    object: &Value,
    collection: &str,
    path: &str,
    count: usize,
    random: &mut Random,
) -> Vec<Request> {
    (0..count)
        .map(|_| {
            let mut changed = object.clone();
            for _ in 0..=random.below(3) {
                change(&mut changed, random);
            }
            let validation = *random.choose(&["", "&fieldValidation=Strict", "&fieldValidation=Ignore"]);
            let query = format!("dryRun=All{validation}");
            match random.below(10) {
                0..6 => {
                    let renamed = json!({"metadata": {"name": "mutation"}});
                    if changed["metadata"]["name"] == object["metadata"]["name"] {
                        merge(&mut changed, &renamed);
                    }
                    Request::create(format!("{collection}?{query}"), &changed)
                }
                6 | 7 => Request::update(format!("{path}?{query}"), Body::Template(changed.to_string())),
                8 => Request::patch(format!("{path}?{query}"), MERGE_PATCH, &changed),
                _ => Request::patch(
                    format!("{path}?{query}&fieldManager=mutation&force=true"),
                    APPLY_PATCH,
                    &changed,
                ),
            }
        })
        .collect()
}

/// Changes one random place of an object.
fn change(object: &mut Value, random: &mut Random) {
    let mut pointers = Vec::new();
    collect_pointers(object, String::new(), &mut pointers);
    pointers.retain(|pointer| pointer != "/kind" && pointer != "/apiVersion" && pointer != "/metadata");
    if pointers.is_empty() {
        return;
    }
    let pointer = random.choose(&pointers).clone();
    let Some(place) = object.pointer_mut(&pointer) else { return };
    let copy = place.clone();
    *place = match random.below(16) {
        0 => Value::Null,
        1 => json!(""),
        2 => json!("Not A_Name!"),
        3 => json!("x".repeat(300)),
        4 => json!(-1),
        5 => json!(70_000),
        6 => json!(9_223_372_036_854_775_807_i64),
        7 => json!(1.5),
        8 => json!(true),
        9 => json!([]),
        10 => json!({}),
        11 => json!([copy.clone(), copy]),
        12 => json!({"unknownField": copy}),
        13 => json!("18446744073709551616Ei"),
        _ => match copy {
            Value::Array(mut items) => {
                items.extend(items.clone());
                Value::Array(items)
            }
            Value::Object(members) => extended(members),
            Value::String(text) => json!(format!("{text}-{text}")),
            Value::Number(number) => json!(number.as_i64().unwrap_or(1).wrapping_neg()),
            other => json!([other]),
        },
    };
}

fn extended(mut members: Map<String, Value>) -> Value {
    match members.keys().next_back().cloned() {
        Some(last) if members.len().is_multiple_of(2) => drop(members.remove(&last)),
        _ => drop(members.insert("unknownField".into(), json!({"a": [1, "b"]}))),
    }
    Value::Object(members)
}

fn collect_pointers(value: &Value, at: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let name = name.replace('~', "~0").replace('/', "~1");
                collect_pointers(member, format!("{at}/{name}"), pointers);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                collect_pointers(item, format!("{at}/{index}"), pointers);
            }
        }
        _ => {}
    }
    if !at.is_empty() {
        pointers.push(at);
    }
}

/// A good object of the table of rules.
struct Base {
    name: String,
    collection: String,
    place: String,
    object: Value,
}

/// Creates every broken object of the table of validation rules, and random changes of its good ones.
pub(crate) fn rules(catalog: &Catalog, seed: u64) -> Result<Subject, Box<dyn std::error::Error>> {
    let path = plinth_tests::package_dir().join(RULES);
    let table =
        std::fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    let mut random = Random(seed);
    let mut script = Script::default();
    let mut bases: Vec<Base> = Vec::new();
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(rest) = line.strip_prefix("base ") {
            let Some(base) = base(catalog, rest) else { continue };
            let create = format!("{}?dryRun=All", base.collection);
            script.push(Request::create(create, &base.object));
            let path = format!("{}/absent", base.collection);
            let requests = of(&base.object, &base.collection, &path, MUTATIONS_PER_BASE, &mut random);
            requests.into_iter().for_each(|request| script.push(request));
            bases.push(base);
            continue;
        }
        let mut columns = line.splitn(3, " |");
        let (Some(name), Some(change)) = (columns.next(), columns.next()) else { continue };
        let Some(base) = bases.iter().find(|base| base.name == name) else { continue };
        let (mut object, change) = (base.object.clone(), serde_json::from_str(change.trim())?);
        let Some(place) = object.pointer_mut(&base.place) else { continue };
        merge(place, &change);
        script.push(Request::create(format!("{}?dryRun=All", base.collection), &object));
        let strict =
            Request::create(format!("{}?dryRun=All&fieldValidation=Strict", base.collection), &object);
        script.push(strict.accept(if random.below(2) == 0 { YAML } else { JSON }));
    }
    Ok(Subject { name: "validation rules".into(), script })
}

fn base(catalog: &Catalog, row: &str) -> Option<Base> {
    let mut columns = row.splitn(4, ' ');
    let (name, resource, place) = (columns.next()?, columns.next()?, columns.next()?);
    let mut object: Value = serde_json::from_str(columns.next()?).ok()?;
    let (group, plural) = resource.split_once('/')?;
    let resource = catalog.resources.iter().find(|resource| {
        let own_group = resource.api_version.split_once('/').map_or("", |(group, _)| group);
        own_group == group && resource.plural == plural
    })?;
    merge(&mut object, &json!({"apiVersion": resource.api_version, "kind": resource.kind}));
    if object["metadata"]["name"].is_null() {
        merge(&mut object, &json!({"metadata": {"name": "base"}}));
    }
    let place = if place == "." { String::new() } else { format!("/{}", place.replace('.', "/")) };
    Some(Base { name: name.to_owned(), collection: resource.collection(), place, object })
}
