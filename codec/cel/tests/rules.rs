//! Rules in CEL: the fuzz target on stable Rust, and the definitions of real projects.
//!
//! Three thousand mutated rules; `PLINTH_SMOKE_INPUTS` sets another number. The definitions are those in
//! `manifests` of `PLINTH_FIXTURES`, by default `../shared/fixtures` beside the project; without them the
//! test prints a note and passes.

#[path = "../../../fuzz/rules.rs"]
mod target;

#[path = "../../tests/support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

use plinth_cel::{child_cardinality, Budget, DeclType, JsonSchema, Rule, Rules, SchemaCost, SchemaNode};
use plinth_codec::{json, yaml, Value};

use support::Random;

#[test]
fn mutated_rules_are_errors_or_verdicts_but_never_panics() {
    let wanted = std::env::var("PLINTH_SMOKE_INPUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(3_000u64);
    let mut random =
        Random::new(std::env::var("PLINTH_SMOKE_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(1));
    let reference = json::parse(include_bytes!("../src/tests/reference.json")).unwrap();
    let mut seeds: Vec<Vec<u8>> = Vec::new();
    for table in ["values", "errors", "costs"] {
        for row in reference.get(table).and_then(Value::as_array).unwrap() {
            seeds.push(row.as_array().unwrap()[0].as_str().unwrap().as_bytes().to_vec());
        }
    }
    // The names of the target's schema in place of the table's.
    for seed in &mut seeds {
        let text = String::from_utf8_lossy(seed).into_owned();
        let text =
            ["text", "bounded"].iter().fold(text, |t, name| t.replace(&format!("self.{name}"), "self.s"));
        let text =
            ["list", "short"].iter().fold(text, |t, name| t.replace(&format!("self.{name}"), "self.l"));
        *seed = text.replace("self.number", "self.n").replace("self.objects", "self.o").into_bytes();
    }
    for n in 0..wanted {
        let mut input = random.pick(&seeds).clone();
        for _ in 0..random.below(4) {
            let at = random.below(input.len().max(1));
            let other = random.pick(&seeds);
            let from = random.below(other.len());
            let to = (from + 1 + random.below(12)).min(other.len());
            match random.below(5) {
                0 => drop(input.splice(at..at, other[from..to].iter().copied())),
                1 => input.truncate(at),
                2 => input.insert(at.min(input.len()), *random.pick(b"()[]{}.,?:'\"+-*/%&|!<>=\\0x\n\xc3")),
                3 if !input.is_empty() => drop(input.remove(at)),
                _ => input.extend([b"\n" as &[u8], other].concat()),
            }
        }
        let caught = std::panic::catch_unwind(|| target::rules(&input));
        assert!(caught.is_ok(), "input {n}: {}", String::from_utf8_lossy(&input));
    }
}

fn manifests() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let root = std::env::var_os("PLINTH_FIXTURES").map_or(beside, PathBuf::from).join("manifests");
    let mut files = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => folders.push(path),
                path if path.extension().is_some_and(|e| e == "yaml") => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// Compiles the rules of a schema and of all below; counts them.
fn compile_all(schema: JsonSchema<'_>, path: &str, cardinality: Option<u64>, cost: &mut SchemaCost) -> usize {
    let mut count = 0;
    if let Some(Value::Array(entries)) = schema.0.get("x-kubernetes-validations") {
        let rules: Vec<Rule> = entries.iter().map(Rule::from_value).collect();
        let declared = DeclType::of(schema, path.is_empty()).unwrap_or_else(|| panic!("{path}"));
        let rules_errors: Vec<_> = rules.iter().flat_map(|rule| rule.errors(path, schema)).collect();
        assert_eq!(rules_errors, [], "{path}");
        let compiled = Rules::compile(&rules, schema, &declared);
        assert_eq!(compiled.errors(path, cardinality, None, cost), [], "{path}");
        // An empty object has nothing that optional fields' rules could object to; only that it is evaluated
        // without a panic and within the budget is tested here.
        let empty = Value::object();
        let mut budget = Budget::default();
        compiled.evaluate(path, &empty, None, &mut || false, &mut budget);
        assert!(!budget.is_exhausted(), "{path}");
        count += rules.len();
    }
    let below = child_cardinality(schema, cardinality);
    let children: Vec<_> =
        schema.properties().map(|(name, child)| (format!("{path}.{name}"), child)).collect();
    for (path, child) in children {
        count += compile_all(child, &path, below, cost);
    }
    for (name, child) in [("items", schema.items()), ("additionalProperties", schema.additional_properties())]
    {
        count += child.map_or(0, |child| compile_all(child, &format!("{path}.{name}"), below, cost));
    }
    count
}

#[test]
fn the_rules_of_real_projects_compile_within_the_limits() {
    let (mut definitions, mut rules) = (0, 0);
    for file in manifests() {
        let text = std::fs::read_to_string(&file).unwrap();
        for document in text.split("\n---") {
            let Ok((tree, _)) = yaml::to_value(document.as_bytes()) else { continue };
            if tree.get("kind").and_then(Value::as_str) != Some("CustomResourceDefinition") {
                continue;
            }
            definitions += 1;
            for version in tree.list_at(&["spec", "versions"]) {
                let Some(schema) = version.at(&["schema", "openAPIV3Schema"]) else { continue };
                let mut cost = SchemaCost::default();
                rules += compile_all(JsonSchema(schema), "", Some(1), &mut cost);
                assert_eq!(cost.errors("root"), [], "{}", file.display());
            }
        }
    }
    match definitions {
        0 => eprintln!("fixtures are ABSENT: nothing is checked"),
        _ => assert!(rules > 50, "{rules} rules of {definitions} definitions"),
    }
    println!("{rules} rules of {definitions} definitions");
}
