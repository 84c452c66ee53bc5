//! Label selectors: which labels one matches.

use super::error::SelectorError;
use super::parser;
use super::requirement::{Operator, Requirement};
use crate::Value;
use std::fmt;

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
    pub(crate) fn from_requirements(mut requirements: Vec<Requirement>) -> LabelSelector {
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
