//! Selectors of devices: expressions of CEL over the variable `device` (k8s.io/dynamic-resource-allocation
//! `cel`).

use std::sync::LazyLock;

use plinth_api::Cause;
use plinth_cel::{DeclType, Environment, Output};

use crate::checks::Part;

/// Maximum length of an expression in bytes.
const MAX_LENGTH: usize = 10 * 1024;

/// Limit of the estimated cost of an expression.
const MAX_COST: u64 = 1_000_000;

/// Maximum number of attributes and capacities of a device.
const MAX_ENTRIES: u32 = 32;
/// Maximum lengths in bytes.
const MAX_DOMAIN: u32 = 63;
const MAX_ID: u32 = 32;
const MAX_DRIVER: u32 = 63;
const MAX_ATTRIBUTE: u32 = 64;

/// What expressions know of a device. Sizes decide which expressions are too costly.
static ENVIRONMENT: LazyLock<Environment> = LazyLock::new(|| {
    let by_domain =
        |values: DeclType| DeclType::map(DeclType::map(values, MAX_ENTRIES, MAX_ID), MAX_ENTRIES, MAX_DOMAIN);
    let device = DeclType::object(
        "kubernetes.DRADevice",
        [
            ("driver", DeclType::text(MAX_DRIVER)),
            ("allowMultipleAllocations", DeclType::boolean(1)),
            ("attributes", by_domain(DeclType::any(MAX_ATTRIBUTE))),
            ("capacity", by_domain(DeclType::quantity())),
        ],
    );
    Environment::default().with_sizes("device", device).with_bindings()
});

/// Whether a part of an object is stored as it is: expressions and parameters of a stored object may violate
/// limits that were introduced later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    New,
    Stored,
}

/// Validates a selector. That of a stored object is not compiled again.
pub(crate) fn validate(cel: &Part<'_>, written: Written) {
    const KEY: &str = "expression";
    let source = cel.text(KEY);
    if source.len() > MAX_LENGTH {
        cel.push(Cause::too_long(cel.path(KEY), MAX_LENGTH));
        return;
    }
    if written == Written::Stored {
        return;
    }
    match ENVIRONMENT.compile(source, &[Output::Any]) {
        Err(why) => cel.invalid(KEY, source, &why),
        // The result may be an attribute, whose type is known at evaluation only.
        Ok(compiled) => match compiled.output_name().as_str() {
            "bool" | "google.protobuf.Any" if compiled.estimated_cost() > MAX_COST => {
                cel.forbidden(KEY, "too complex, exceeds cost limit");
            }
            "bool" | "google.protobuf.Any" => {}
            other => {
                let why = format!("must evaluate to bool or the unknown type, not {other}");
                cel.invalid(KEY, source, &why);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The estimates of upstream (`cel/compile_test.go` there), and what does not compile.
    #[test]
    fn costs_of_selectors_are_bounded_by_what_a_device_can_have() {
        const ATTRIBUTES: &str = r#"device.attributes["dra.example.com"]"#;
        const CAPACITY: &str = r#"device.capacity["dra.example.com"]"#;
        let rows = [
            ("true".to_owned(), 0),
            (r#""x" in device.attributes"#.to_owned(), 3),
            (r#"device.driver == """#.to_owned(), 2),
            (r#"device.driver == "dra.example.com""#.to_owned(), 4),
            (format!("{ATTRIBUTES}.name"), 4),
            (format!(r#"{ATTRIBUTES}["name"]"#), 4),
            (format!("cel.bind(dra, {ATTRIBUTES}, dra.name)"), 15),
            (format!("{ATTRIBUTES}.name > 0"), 5),
            (format!(r#"{ATTRIBUTES}.name == "fish""#), 5),
            (format!(r#"{ATTRIBUTES}.name.isGreaterThan(semver("0.0.1"))"#), 6),
            (format!(r#"{CAPACITY}.name.isGreaterThan(quantity("1Ki"))"#), 6),
            (format!(r#""name" in {CAPACITY} && {CAPACITY}.name.isGreaterThan(quantity("1Ki"))"#), 10),
            (format!(r#"!("name" in {CAPACITY}) || {CAPACITY}.name.isGreaterThan(quantity("1Ki"))"#), 11),
            (format!("{ATTRIBUTES}.a && {ATTRIBUTES}.b && {ATTRIBUTES}.c"), 12),
            (r#"device.attributes.exists_one(x, x == "dra.example.com")"#.to_owned(), 164),
            (format!(r#"{ATTRIBUTES}.exists_one(x, x == "services")"#), 133),
            (format!(r#"{ATTRIBUTES}.services.split("example").size() >= 2"#), 19),
            (format!(r#"{ATTRIBUTES}.services.matches("[^a]?sym")"#), 18),
            (r#"device.capacity.exists_one(x, x == "dra.example.com")"#.to_owned(), 164),
            (format!(r#"{CAPACITY}.exists_one(x, x == "memory")"#), 133),
            ("device.allowMultipleAllocations == true".to_owned(), 3),
        ];
        for (source, cost) in rows {
            let compiled = ENVIRONMENT.compile(&source, &[Output::Any]).expect(&source);
            assert_eq!(compiled.estimated_cost(), cost, "{source}");
        }
        let ten = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]";
        let mut nested = "int('1'.find('[0-9]*')) < 100".to_owned();
        for variable in ["z5", "z4", "z3", "z2", "z", "y", "x"] {
            nested = format!("{ten}.all({variable}, {nested})");
        }
        assert_eq!(ENVIRONMENT.compile(&nested, &[Output::Any]).unwrap().estimated_cost(), 85_555_551);
        // expression, part of the error
        let rows = [
            ("?!", "Syntax error"),
            (r#"device.attributes["a"].b.includes(1)"#, "undeclared reference to 'includes'"),
            ("device.name", "undefined field 'name'"),
            ("device == 1", "applied to '(kubernetes.DRADevice, int)'"),
            (r#"device.attributes["a"].b.all(x, x)"#, "expression of type 'any' cannot be range"),
            ("cel.bind(a.b, 1, true)", "cel.bind() variable names must be simple identifiers"),
        ];
        for (source, part) in rows {
            let why = ENVIRONMENT.compile(source, &[Output::Any]).expect_err(source);
            assert!(why.starts_with("compilation failed: ERROR: <input>:1:") && why.contains(part), "{why}");
        }
        // expression, its type
        let rows = [
            ("1", "int"),
            ("device", "kubernetes.DRADevice"),
            ("device.attributes", "map(string, map(string, google.protobuf.Any))"),
            (r#"device.capacity["a"].b"#, "kubernetes.Quantity"),
            (r#"device.attributes["a"].b"#, "google.protobuf.Any"),
            (r#"device.attributes["a"].b.c"#, "dyn"),
            ("[duration('1s')]", "list(google.protobuf.Duration)"),
            ("null", "null_type"),
        ];
        for (source, name) in rows {
            assert_eq!(ENVIRONMENT.compile(source, &[Output::Any]).expect(source).output_name(), name);
        }
    }
}
