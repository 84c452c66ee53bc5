//! Field selectors: `spec.nodeName=n1,status.phase!=Running`.

use super::error::SelectorError;
use super::selectable::{CustomFields, Selectable};
use smol_str::SmolStr;
use std::fmt;

/// One condition on one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldRequirement {
    /// The field: as the client wrote it, and after [`FieldSelector::resolve`] as it is stored.
    pub field: SmolStr,
    /// Whether the field must have the value, or must not.
    pub equal: bool,
    /// The value, without escapes.
    pub value: SmolStr,
}

/// A conjunction of conditions on fields. The empty one matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector {
    requirements: Vec<FieldRequirement>,
}

impl FieldSelector {
    /// The selector that matches every object.
    pub fn everything() -> FieldSelector {
        FieldSelector::default()
    }

    /// The selector for one name.
    pub fn name(name: impl Into<SmolStr>) -> FieldSelector {
        FieldSelector {
            requirements: vec![FieldRequirement {
                field: SmolStr::new_static("metadata.name"),
                equal: true,
                value: name.into(),
            }],
        }
    }

    /// Parses the query parameter `fieldSelector`: terms `field=value`, `field==value` or `field!=value` with
    /// commas between them; in a value `\`, `,` and `=` have a backslash before them. Empty terms are
    /// skipped. Time and memory are proportional to the length (times its logarithm).
    pub fn parse(text: &str) -> Result<FieldSelector, SelectorError> {
        let mut terms: Vec<&str> = terms(text).filter(|term| !term.is_empty()).collect();
        // Upstream sorts before it validates, so the first invalid term in this order is reported.
        terms.sort_unstable();
        let requirements = terms
            .into_iter()
            .map(|term| {
                let (field, equal, value) = split_term(term).ok_or_else(|| SelectorError::Term {
                    selector: text.to_owned(),
                    term: term.to_owned(),
                })?;
                Ok(FieldRequirement { field: field.into(), equal, value: unescape(value)? })
            })
            .collect::<Result<_, SelectorError>>()?;
        Ok(FieldSelector { requirements })
    }

    /// Checks that a built-in resource can be selected by these fields, and maps them to the names under
    /// which they are stored: `spec.host` of pods becomes `spec.nodeName`.
    pub fn resolve(mut self, selectable: &Selectable) -> Result<FieldSelector, SelectorError> {
        for requirement in &mut self.requirements {
            match selectable.fields.iter().find(|f| f.label == requirement.field) {
                Some(field) => requirement.field = SmolStr::new_static(field.name),
                None => return Err(SelectorError::Field((selectable.unsupported)(&requirement.field))),
            }
        }
        Ok(self)
    }

    /// Checks that a custom resource can be selected by these fields.
    pub fn resolve_custom(self, fields: &CustomFields) -> Result<FieldSelector, SelectorError> {
        match self.requirements.iter().find(|r| !fields.supports(&r.field)) {
            None => Ok(self),
            Some(r) => Err(SelectorError::Field(CustomFields::unsupported(&r.field))),
        }
    }

    /// Whether every object matches.
    pub fn is_everything(&self) -> bool {
        self.requirements.is_empty()
    }

    /// The conditions, sorted as text.
    pub fn requirements(&self) -> &[FieldRequirement] {
        &self.requirements
    }

    /// The value that a field must equal, if the selector requires one. Lets a list of `metadata.name=x` read
    /// one key.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.requirements.iter().find(|r| r.equal && r.field == field).map(|r| r.value.as_str())
    }

    /// Whether an object matches, given a way to look up a field; an absent one is the empty string.
    /// Allocates nothing.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> &'a str) -> bool {
        self.requirements.iter().all(|r| (field(&r.field) == r.value) == r.equal)
    }
}

/// Splits at commas that are not escaped.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    let mut escaped = false;
    text.split(move |c| {
        let cut = c == ',' && !escaped;
        escaped = c == '\\' && !escaped;
        cut
    })
}

/// Splits a term at its first operator.
fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    let bytes = term.as_bytes();
    let at = (0..bytes.len()).find(|&i| bytes[i] == b'=' || bytes[i..].starts_with(b"!="))?;
    let (field, rest) = term.split_at(at);
    let (operator, equal) = [("!=", false), ("==", true), ("=", true)]
        .into_iter()
        .find(|(operator, _)| rest.starts_with(operator))?;
    Some((field, equal, &rest[operator.len()..]))
}

fn unescape(value: &str) -> Result<SmolStr, SelectorError> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.into());
    }
    let mut plain = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c @ ('\\' | ',' | '=')) => plain.push(c),
                Some(c) => return Err(SelectorError::Escape(format!("\\{c}"))),
                None => return Err(SelectorError::Escape("\\".to_owned())),
            },
            ',' | '=' => return Err(SelectorError::Unescaped(u32::from(c))),
            c => plain.push(c),
        }
    }
    Ok(plain.into())
}

/// Writes the selector so that it parses back to itself.
impl fmt::Display for FieldSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, r) in self.requirements.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            write!(f, "{}{}", r.field, if r.equal { "=" } else { "!=" })?;
            for c in r.value.chars() {
                if matches!(c, '\\' | ',' | '=') {
                    f.write_str("\\")?;
                }
                write!(f, "{c}")?;
            }
        }
        Ok(())
    }
}
