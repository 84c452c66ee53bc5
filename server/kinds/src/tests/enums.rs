//! The values that validation supports are those that the schema lists for the field, which is what clients
//! read (`kubectl explain`). Validation has lists of its own, because messages show them in upstream's order.

use std::collections::BTreeSet;

use plinth_codec::resources;
use plinth_codec::schema::{self, Scalar, Type, TypeId};

use super::recording::{good_objects, hash, places, with, Random, START};
use crate::rows::ROWS;

/// Where upstream supports fewer values than its schema lists: the end of the path, the supported values.
const EXCEPTIONS: &[(&str, &[&str])] = &[
    ("reclaimPolicy", &["Delete", "Retain"]),
    // A Pod may have any; the templates of controllers may not.
    ("template.spec.restartPolicy", &["Always"]),
    ("template.spec.restartPolicy", &["Never", "OnFailure"]),
    // Comparisons are behind a feature gate that is off.
    ("tolerations.operator", &["Equal", "Exists"]),
    // The empty family is that of an unset field.
    ("ipFamilies", &["IPv4", "IPv6"]),
    // A deletion has no object to mutate.
    ("resourceRules.operations", &["*", "CONNECT", "CREATE", "UPDATE"]),
    // Of jobs with a pod failure policy.
    ("podReplacementPolicy", &["Failed"]),
    // The others were for v1beta1.
    ("webhooks.sideEffects", &["None", "NoneOnDryRun"]),
];

fn is_exception((ending, values): &(&str, &[&str]), path: &str, supported: &BTreeSet<String>) -> bool {
    path.strip_suffix(ending).is_some_and(|start| start.is_empty() || start.ends_with('.'))
        && supported.iter().map(String::as_str).eq(values.iter().copied())
}

/// The enum of the field at that path; `None` where the schema lists no values or upstream's path is not that
/// of a field.
fn declared(id: TypeId, path: &str) -> Option<BTreeSet<String>> {
    let schema = schema::builtin();
    match (schema.get(id), path.split_once('.').unwrap_or((path, ""))) {
        (Type::List { element, .. }, _) => declared(*element, path),
        (Type::Map { value, .. }, (_, rest)) => declared(*value, rest),
        (Type::Struct(members), (name, rest)) => declared(members.field(name)?.type_id, rest),
        (Type::Scalar(Scalar::String { values }), ("", "")) if !values.is_empty() => {
            Some(values.iter().map(ToString::to_string).collect())
        }
        _ => None,
    }
}

/// The path without indexes and keys.
fn plain(path: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => return depth == 0,
        }
        false
    };
    path.chars().filter(outside).collect()
}

fn supported(message: &str) -> BTreeSet<String> {
    let list = message.rsplit_once(": supported values: ").map_or("", |(_, list)| list);
    list.split(", ").map(|value| value.trim_matches('"').to_owned()).collect()
}

#[test]
fn supported_values_are_those_of_the_schema() {
    let good = good_objects();
    let (mut lists, mut exceptions, mut differing) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for (group, plural, strategy) in ROWS {
        let rows = &resources::known().table.resources;
        let served = rows.iter().find(|row| row.group == *group && row.plural == *plural).unwrap();
        let id = schema::builtin().kind(&served.gvk()).unwrap();
        let mut random = Random(hash(plural.as_bytes(), START));
        let mut objects: Vec<_> = (0..50).map(|_| random.object(id, 0)).collect();
        for base in good.get(&((*group).to_owned(), (*plural).to_owned())).into_iter().flatten() {
            let mut found = Vec::new();
            places(base, &[], &mut found);
            objects.extend(found.iter().map(|place| with(base, place, |_| Some("Other".into()))));
        }
        for object in &objects {
            let errors = [strategy.create_errors(object), strategy.status_errors(object, object)].concat();
            for error in errors.iter().filter(|error| error.reason == "FieldValueNotSupported") {
                let path = plain(&error.field);
                let Some(declared) = declared(id, &path) else { continue };
                let supported = supported(&error.message);
                if supported != declared {
                    match EXCEPTIONS.iter().position(|exception| is_exception(exception, &path, &supported)) {
                        Some(exception) => drop(exceptions.insert(exception)),
                        None => drop(differing.insert((*plural, path.clone(), supported, declared))),
                    }
                }
                lists.insert((*plural, path));
            }
        }
    }
    assert!(differing.is_empty(), "resource, path, supported, declared: {differing:#?}");
    assert_eq!(exceptions.len(), EXCEPTIONS.len(), "only these are exceptions still: {exceptions:?}");
    assert!(lists.len() > 150, "only {} lists were compared", lists.len());
}
