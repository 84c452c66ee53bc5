//! Label selectors: requirements and how they match.

use super::{parser, LabelError, RequirementError, SelectorError};
use crate::error::quoted;
use crate::{names, Value};
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
    key: SmolStr,
    operator: Operator,
    /// Sorted, each once.
    values: Vec<SmolStr>,
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

/// A conjunction of requirements on labels. The empty one matches everything.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LabelSelector {
    /// Sorted by key.
    requirements: Vec<Requirement>,
    /// Set for an absent selector object, which matches no object.
    nothing: bool,
}

impl LabelSelector {
    /// The selector that matches every object.
    pub fn everything() -> LabelSelector {
        LabelSelector::default()
    }

    /// The selector that matches no object.
    pub fn nothing() -> LabelSelector {
        LabelSelector { requirements: Vec::new(), nothing: true }
    }

    /// Parses the query parameter `labelSelector`. Time and memory are proportional to its length (times its
    /// logarithm, for sorting).
    pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
        parser::parse(text).map(LabelSelector::from_requirements)
    }

    /// A selector of requirements.
    pub fn from_requirements(mut requirements: Vec<Requirement>) -> LabelSelector {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        LabelSelector { requirements, nothing: false }
    }

    /// Reads a `metav1.LabelSelector` object (`matchLabels`, `matchExpressions`). An absent or null
    /// selector matches nothing, an empty one everything.
    pub fn from_object(object: Option<&Value>) -> Result<LabelSelector, SelectorError> {
        let object = match object {
            None | Some(Value::Null) => return Ok(LabelSelector::nothing()),
            Some(object) => object.as_object().ok_or(SelectorError::Type("the selector"))?,
        };
        let mut requirements = Vec::new();
        match object.get("matchLabels") {
            None | Some(Value::Null) => {}
            Some(labels) => {
                let labels = labels.as_object().ok_or(SelectorError::Type("matchLabels"))?;
                for (key, value) in labels.iter() {
                    let value = value.as_str().ok_or(SelectorError::Type("a value of matchLabels"))?;
                    requirements.push(
                        Requirement::new(key.clone(), Operator::Equals, [value])
                            .map_err(SelectorError::Object)?,
                    );
                }
            }
        }
        match object.get("matchExpressions") {
            None | Some(Value::Null) => {}
            Some(expressions) => {
                let expressions = expressions.as_array().ok_or(SelectorError::Type("matchExpressions"))?;
                for expression in expressions {
                    requirements.push(expression_of(expression)?);
                }
            }
        }
        Ok(LabelSelector::from_requirements(requirements))
    }

    /// A selector of exact labels, as in ReplicationControllers and Services (`{"app": "web"}`). It is not
    /// checked; an empty map matches everything.
    pub fn from_map<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> LabelSelector {
        LabelSelector::from_requirements(
            labels
                .into_iter()
                .map(|(key, value)| Requirement {
                    key: key.into(),
                    operator: Operator::Equals,
                    values: vec![value.into()],
                })
                .collect(),
        )
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty() && !self.nothing
    }

    /// The requirements, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// Whether labels match, given a way to look one up. Allocates nothing.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        !self.nothing && self.requirements.iter().all(|r| r.matches(label(&r.key)))
    }

    /// Whether labels sorted by key match: one pass over both. Allocates nothing.
    pub fn matches_sorted<'a>(&self, labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
        let mut labels = labels.into_iter();
        let mut current = labels.next();
        !self.nothing
            && self.requirements.iter().all(|requirement| {
                while current.is_some_and(|(key, _)| key < requirement.key.as_str()) {
                    current = labels.next();
                }
                requirement.matches(current.and_then(|(key, v)| (key == requirement.key).then_some(v)))
            })
    }
}

/// Reads one element of `matchExpressions`.
fn expression_of(expression: &Value) -> Result<Requirement, SelectorError> {
    let text = |name| match expression.get(name) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().ok_or(SelectorError::Type("an expression of matchExpressions")),
    };
    let operator = match text("operator")? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => return Err(SelectorError::Operator(other.to_owned())),
    };
    let values = match expression.get("values") {
        None | Some(Value::Null) => &[],
        Some(values) => values.as_array().ok_or(SelectorError::Type("values"))?,
    };
    let values = values
        .iter()
        .map(|v| v.as_str().ok_or(SelectorError::Type("a value of matchExpressions")))
        .collect::<Result<Vec<_>, _>>()?;
    Requirement::new(text("key")?, operator, values).map_err(SelectorError::Object)
}

/// Writes the selector as upstream does; parsing that gives the selector back, except for the one that
/// matches nothing, which has no text form and is written as the empty string.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, requirement) in self.requirements.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            requirement.fmt(f)?;
        }
        Ok(())
    }
}
