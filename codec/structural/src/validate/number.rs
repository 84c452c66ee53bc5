//! Bounds, multiples and ranges of numbers.

use plinth_codec::field::{go_float, Path};
use plinth_codec::value::Value;

use super::walk::{DottedPath, Outcome, Walk};
use crate::node::{Bound, Constraint, Kind, Node};

/// The largest integer up to which floats have no gaps.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
/// How far a quotient may be from an integer, relative to it.
const EPSILON: f64 = 1e-9;

/// Whether a float stands for an integer.
pub(super) fn is_integer(n: f64) -> bool {
    let away = (n - n.round()).abs();
    n.abs() <= MAX_EXACT && (away == 0.0 || away / (2.0 * n.abs()) < EPSILON)
}

fn float(value: &Value) -> Option<f64> {
    match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(n) => Some(*n),
        _ => None,
    }
}

/// Whether two values are the same; numbers by value.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Int(_), Value::Float(_)) | (Value::Float(_), Value::Int(_)) => float(a) == float(b),
        _ => a == b,
    }
}

/// A bound as in messages: an integer if the value is one.
fn shown(bound: f64, value: &Value) -> String {
    match value {
        Value::Int(_) if bound.fract() == 0.0 && bound.abs() <= MAX_EXACT => format!("{}", bound as i64),
        _ => go_float(bound),
    }
}

impl Walk<'_> {
    pub(super) fn number(&self, node: &Node, value: &Value, path: &Path<'_>, all: &mut Outcome) {
        let Some(data) = float(value) else { return };
        let out_of_range = |what: &str| {
            let kind = match node.kind {
                Kind::Integer => "integer",
                _ => "number",
            };
            let format = match node.format() {
                Some(format) => format!("with format {format}"),
                None => "(default format)".to_owned(),
            };
            self.plain(path, format!("{what} value must be of type {kind} {format} in {}", DottedPath(path)))
        };
        if !is_in_range(node, value) {
            all.add(out_of_range("Checked"));
        }
        for constraint in &node.constraints {
            match constraint {
                Constraint::MultipleOf(factor) => {
                    if !is_in_range(node, &Value::Float(*factor)) {
                        all.add(out_of_range("MultipleOf"));
                    }
                    if *factor <= 0.0 {
                        let text = format!(
                            "factor MultipleOf declared for {} must be positive: {}",
                            DottedPath(path),
                            shown(*factor, value)
                        );
                        all.add(self.plain(path, text));
                    } else if !is_multiple(value, data, *factor) {
                        let what = format!("should be a multiple of {}", shown(*factor, value));
                        all.add(self.invalid(path, value, what));
                    }
                }
                Constraint::Maximum(Bound { value: most, exclusive }) => {
                    if !is_in_range(node, &Value::Float(*most)) {
                        all.add(out_of_range("Maximum boundary"));
                    }
                    if data > *most || (*exclusive && data >= *most) {
                        let than = if *exclusive { "less than" } else { "less than or equal to" };
                        all.add(self.invalid(
                            path,
                            value,
                            format_args!("should be {than} {}", shown(*most, value)),
                        ));
                    }
                }
                Constraint::Minimum(Bound { value: least, exclusive }) => {
                    if !is_in_range(node, &Value::Float(*least)) {
                        all.add(out_of_range("Minimum boundary"));
                    }
                    if data < *least || (*exclusive && data <= *least) {
                        let than = if *exclusive { "greater than" } else { "greater than or equal to" };
                        all.add(self.invalid(
                            path,
                            value,
                            format_args!("should be {than} {}", shown(*least, value)),
                        ));
                    }
                }
                _ => {}
            }
        }
    }
}

/// Whether a number is one of the schema's type and format.
fn is_in_range(node: &Node, value: &Value) -> bool {
    match (node.kind, node.format(), value) {
        (Kind::Integer, Some("int32"), Value::Int(n)) => i32::try_from(*n).is_ok(),
        (Kind::Integer, Some("int32"), Value::Float(n)) => {
            n.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(n)
        }
        (Kind::Integer, _, Value::Float(n)) => {
            n.fract() == 0.0 && (i64::MIN as f64..i64::MAX as f64).contains(n)
        }
        (Kind::Number, Some("float"), Value::Float(n)) => n.abs() <= f64::from(f32::MAX),
        _ => true,
    }
}

fn is_multiple(value: &Value, data: f64, factor: f64) -> bool {
    match value {
        Value::Int(n) if factor.fract() == 0.0 && factor <= MAX_EXACT => n % (factor as i64) == 0,
        _ if factor < 1.0 => is_integer(1.0 / factor * data),
        _ => is_integer(data / factor),
    }
}
