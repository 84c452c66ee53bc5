//! Requirements of label selectors, and which labels satisfy one.

use super::error::{LabelError, RequirementError};
use crate::error::quoted;
use crate::names;
use smol_str::SmolStr;
use std::fmt;

/// How a requirement relates its key to its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operator {
    /// `key = value`
    Equals,
    /// `key == value`, which means the same
    DoubleEquals,
    /// `key != value`: another value, or no such label
    NotEquals,
    /// `key in (a, b)`
    In,
    /// `key notin (a, b)`: another value, or no such label
    NotIn,
    /// `key`
    Exists,
    /// `!key`
    DoesNotExist,
    /// `key > 5`: the label is an integer above it
    GreaterThan,
    /// `key < 5`: the label is an integer below it
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    pub(super) key: SmolStr,
    pub(super) operator: Operator,
    /// Sorted, each once.
    pub(super) values: Vec<SmolStr>,
}

impl Requirement {
    /// Checks key and values against the rules of labels and of the operator: `in` and `notin` take one value
    /// or more, `=`, `==`, `!=`, `<` and `>` exactly one, the others none; the operand of `<` and `>` is a
    /// 64-bit integer.
    pub fn new(
        key: impl Into<SmolStr>,
        operator: Operator,
        values: impl IntoIterator<Item = impl Into<SmolStr>>,
    ) -> Result<Requirement, RequirementError> {
        use Operator::*;
        let key = key.into();
        // Errors name the original index of a value, the requirement stores values sorted.
        let mut values: Vec<SmolStr> = values.into_iter().map(Into::into).collect();
        let mut errors = Vec::from_iter(LabelError::of("key", &key, &names::qualified_name_errors(&key)));
        let count_error = match operator {
            In | NotIn if values.is_empty() => Some("for 'in', 'notin' operators, values set can't be empty"),
            Equals | DoubleEquals | NotEquals if values.len() != 1 => {
                Some("exact-match compatibility requires one single value")
            }
            Exists | DoesNotExist if !values.is_empty() => {
                Some("values set must be empty for exists and does not exist")
            }
            GreaterThan | LessThan if values.len() != 1 => {
                Some("for 'Gt', 'Lt' operators, exactly one value is required")
            }
            _ => None,
        };
        if let Some(detail) = count_error {
            errors.push(LabelError {
                path: "values".into(),
                value: json_list(&values),
                detail: detail.into(),
            });
        }
        if matches!(operator, GreaterThan | LessThan) {
            for (i, value) in values.iter().enumerate().filter(|(_, v)| v.parse::<i64>().is_err()) {
                let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(LabelError::new(format!("values[{i}]"), value, detail));
            }
        }
        for (i, value) in values.iter().enumerate() {
            let broken = names::label_value_errors(value);
            errors.extend(LabelError::of(&format!("values[{i}][{key}]"), value, &broken));
        }
        if !errors.is_empty() {
            return Err(RequirementError::Invalid(errors));
        }
        values.sort_unstable();
        values.dedup();
        Ok(Requirement { key, operator, values })
    }

    /// The label's key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// How the values are compared.
    pub fn operator(&self) -> Operator {
        self.operator
    }

    /// The values, sorted.
    pub fn values(&self) -> &[SmolStr] {
        &self.values
    }

    /// Whether a label with this value, or its absence, satisfies the requirement.
    pub fn matches(&self, label: Option<&str>) -> bool {
        use Operator::*;
        let listed = |value: &str| match self.values.as_slice() {
            [one] => one == value,
            many => many.binary_search_by(|v| v.as_str().cmp(value)).is_ok(),
        };
        match self.operator {
            Equals | DoubleEquals | In => label.is_some_and(listed),
            NotEquals | NotIn => !label.is_some_and(listed),
            Exists => label.is_some(),
            DoesNotExist => label.is_none(),
            GreaterThan | LessThan => {
                let number = |text: &str| text.parse::<i64>().ok();
                let bound = self.values.first().and_then(|v| number(v));
                match (label.and_then(number), bound) {
                    (Some(label), Some(bound)) if self.operator == GreaterThan => label > bound,
                    (Some(label), Some(bound)) => label < bound,
                    _ => false,
                }
            }
        }
    }
}

/// A list as Go writes it into an error: JSON, `null` when empty. Its strings are quoted as by `%q`, which
/// is the same for anything printable.
fn json_list(values: &[SmolStr]) -> String {
    if values.is_empty() {
        return "null".to_owned();
    }
    let quoted: Vec<_> = values.iter().map(|v| quoted(v)).collect();
    format!("[{}]", quoted.join(","))
}

/// Writes the requirement as upstream does, so that it parses back to itself.
impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use Operator::*;
        let (before, after) = match self.operator {
            DoesNotExist => return write!(f, "!{}", self.key),
            Exists => return f.write_str(&self.key),
            Equals => ("=", ""),
            DoubleEquals => ("==", ""),
            NotEquals => ("!=", ""),
            GreaterThan => (">", ""),
            LessThan => ("<", ""),
            In => (" in (", ")"),
            NotIn => (" notin (", ")"),
        };
        write!(f, "{}{before}{}{after}", self.key, self.values.join(","))
    }
}
