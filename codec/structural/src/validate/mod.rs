//! Whether a value fits its schema: every keyword but list types and rules (kube-openapi,
//! `pkg/validation/validate`, with the causes of apiextensions-apiserver's `pkg/apiserver/validation`).
//!
//! Errors name the value in two ways: the cause's field is `spec.labels.a`, and most messages name it once
//! more. Of the alternatives of a failed `anyOf` or `oneOf` the errors of the one with the most passed checks
//! are reported; checks are counted as in upstream.
//!
//! Intentional differences: an error that has no field upstream (`<nil>`) has one here; bounds of numbers are
//! not truncated to integers before they are compared; a value that would be too expensive to check is
//! refused.

mod junctor;
mod number;
mod ratchet;
mod walk;

pub(super) use ratchet::CorrelatedObject;
pub(super) use walk::MAX_ERRORS;

use std::fmt::Display;

use plinth_codec::error::quoted;
use plinth_codec::field::{FieldError, Path};
use plinth_codec::patch::goprint;
use plinth_codec::regexp;
use plinth_codec::value::{level, Map, Value};

use super::format;
use super::node::{Additional, Constraint, Kind, Node, NodeId};
use walk::{DottedPath, Outcome, ValidationError, Walk};

/// Values that are checked against schemas, alternatives counted each: some seconds of work. A list of
/// numbers in a body of 3 MiB has 1.5 million.
const MAX_STEPS: u64 = 10_000_000;

/// Validates a value.
pub(super) fn errors(nodes: &[Node], id: NodeId, prefix: &Path<'_>, value: &Value) -> Vec<FieldError> {
    errors_within(nodes, id, prefix, value, MAX_STEPS)
}

/// As [`errors`], with another limit of the work.
pub(super) fn errors_within(
    nodes: &[Node],
    id: NodeId,
    prefix: &Path<'_>,
    value: &Value,
    steps: u64,
) -> Vec<FieldError> {
    let mut walk = Walk { nodes, prefix, steps, exhausted: false };
    let outcome = walk.value(id, value, &Path::Root, None);
    walk.finish(outcome)
}

/// Validates a value, ignoring errors of unchanged values.
pub(super) fn update_errors(
    nodes: &[Node],
    id: NodeId,
    prefix: &Path<'_>,
    new: &Value,
    old: Option<&Value>,
) -> Vec<FieldError> {
    let all = errors(nodes, id, prefix, new);
    // Old and new values are compared only if there are errors.
    match (all.is_empty(), old) {
        (true, _) | (_, None) => all,
        (false, Some(old)) => {
            let correlated = CorrelatedObject::new(nodes, nodes.get(id.index()), new, old);
            let mut walk = Walk { nodes, prefix, steps: MAX_STEPS, exhausted: false };
            let outcome = walk.ratcheted(id, new, &Path::Root, Some(correlated));
            walk.finish(outcome)
        }
    }
}

impl<'a> Walk<'a> {
    fn finish(self, outcome: Outcome) -> Vec<FieldError> {
        let mut errors: Vec<FieldError> = outcome.errors.into_iter().map(|error| error.error).collect();
        if self.exhausted {
            let why = "the object is too large to be checked by its schema";
            errors.push(FieldError::invalid(self.prefix, &"".into(), why));
        }
        errors
    }

    fn field(&self, path: &Path<'_>) -> String {
        let (prefix, path) = (self.prefix.to_string(), DottedPath(path).to_string());
        let path = path.strip_prefix('.').unwrap_or(&path);
        match (prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => prefix,
            (false, false) => format!("{prefix}.{path}"),
        }
    }

    /// An error whose message names the value.
    fn error(
        &self,
        path: &Path<'_>,
        what: impl Display,
        error: fn(String, &str) -> FieldError,
    ) -> ValidationError {
        let text = format!("{} in body {what}", DottedPath(path));
        ValidationError { error: error(self.field(path), &text), text }
    }

    /// A malformed value.
    fn invalid(&self, path: &Path<'_>, value: &Value, what: impl Display) -> ValidationError {
        let text = format!("{} in body {what}", DottedPath(path));
        ValidationError { error: FieldError::invalid(self.field(path), value, &text), text }
    }

    /// A value of a wrong type; `found` is upstream's name of its type.
    fn wrong_type(&self, path: &Path<'_>, expected: &str, found: &str) -> ValidationError {
        let text = format!("{} in body must be of type {expected}: {}", DottedPath(path), quoted(found));
        ValidationError { error: FieldError::type_invalid(self.field(path), &found.into(), &text), text }
    }

    /// An error with a text of its own.
    fn plain(&self, path: &Path<'_>, text: String) -> ValidationError {
        ValidationError { error: FieldError::invalid(self.field(path), &"".into(), &text), text }
    }

    /// Checks a value with its old value; errors of an unchanged value are ignored.
    fn ratcheted(
        &mut self,
        id: NodeId,
        value: &Value,
        path: &Path<'_>,
        old: Option<CorrelatedObject<'_>>,
    ) -> Outcome {
        let mut outcome = self.value(id, value, path, old);
        if !outcome.is_valid() && old.is_some_and(|old| old.is_unchanged()) {
            outcome.errors.clear();
        }
        outcome
    }

    /// Checks a value. Without ratcheting of the value itself, which alternatives of one schema share.
    fn value(
        &mut self,
        id: NodeId,
        value: &Value,
        path: &Path<'_>,
        old: Option<CorrelatedObject<'_>>,
    ) -> Outcome {
        let mut all = Outcome::default();
        let Some(node) = self.nodes.get(id.index()) else { return all };
        match self.steps.checked_sub(1) {
            Some(left) => self.steps = left,
            None => {
                self.exhausted = true;
                return all;
            }
        }
        if value.is_null() {
            match node.has_type() && !node.nullable {
                true => all.add(self.wrong_type(path, node.types(), "null")),
                false => all.matches += 1,
            }
            self.enumeration(node, value, path, &mut all);
            return all;
        }
        if node.has_type() || node.format().is_some() {
            match self.type_error(node, value, path) {
                Some(error) => all.add(error),
                None => all.matches += 1,
            }
            all.matches += 1;
        }
        all.merge(self.junctors(node, value, path));
        match value {
            Value::String(text) => self.text(node, text, path, &mut all),
            Value::Int(_) | Value::Float(_) => {
                self.number(node, value, path, &mut all);
                all.matches += 2;
            }
            Value::Array(items) => {
                let outcome = level(|| self.list(node, items, path, old));
                all.merge(outcome);
                all.matches += 2;
            }
            _ => {}
        }
        self.enumeration(node, value, path, &mut all);
        all.matches += 1;
        if let Value::Object(map) = value {
            let outcome = level(|| self.object(node, map, path, old));
            all.merge(outcome);
            all.matches += 1;
        }
        all.matches += 1;
        all
    }

    fn type_error(&self, node: &Node, value: &Value, path: &Path<'_>) -> Option<ValidationError> {
        let (found, found_format) = match value {
            Value::Null => return None,
            Value::Bool(_) => (Kind::Boolean, ""),
            Value::Int(_) => (Kind::Integer, "int64"),
            Value::Float(_) => (Kind::Number, "float64"),
            Value::String(_) => (Kind::String, ""),
            Value::Array(_) => (Kind::Array, ""),
            Value::Object(_) | Value::Encoded(_) => (Kind::Object, ""),
        };
        let allows = |kind: Kind| match node.int_or_string {
            true => matches!(kind, Kind::Integer | Kind::String),
            false => node.kind == kind,
        };
        let fits = allows(found)
            || match value {
                Value::Float(n) => number::is_integer(*n) && allows(Kind::Integer),
                Value::Int(_) => allows(Kind::Number),
                _ => false,
            };
        if let Some(format) = node.format() {
            match value {
                // For a schema with a format, lists pass here, as in upstream.
                Value::String(_) | Value::Array(_) if !allows(Kind::Number) && !allows(Kind::Integer) => {
                    return None;
                }
                Value::String(_) | Value::Array(_) => {}
                _ if !fits && found_format != format => {
                    return Some(self.wrong_type(path, format, found_format));
                }
                _ => {}
            }
        }
        (!fits).then(|| self.wrong_type(path, node.types(), found.as_str()))
    }

    fn enumeration(&self, node: &Node, value: &Value, path: &Path<'_>, all: &mut Outcome) {
        let allowed = node.enumeration();
        if allowed.is_empty() || allowed.iter().any(|a| !a.is_null() && number::same(a, value)) {
            return;
        }
        let text = format!("{} in body should be one of {}", DottedPath(path), goprint::list(allowed));
        let shown: Vec<String> = allowed
            .iter()
            .map(|a| match a {
                Value::String(s) => s.to_string(),
                other => {
                    let mut json = Vec::new();
                    plinth_codec::json::write_untyped(other, &mut json);
                    String::from_utf8_lossy(&json).into_owned()
                }
            })
            .collect();
        all.add(ValidationError { error: FieldError::not_supported(self.field(path), value, &shown), text });
    }

    /// Length, then pattern: only the first failure is reported. Then the format.
    fn text(&self, node: &Node, text: &str, path: &Path<'_>, all: &mut Outcome) {
        let value = || Value::from(text);
        let length = || text.chars().count() as i64;
        let error = node.constraints.iter().find_map(|constraint| match constraint {
            Constraint::MaxLength(most) if length() > *most => {
                let text = format!("{} in body should be at most {most} chars long", DottedPath(path));
                Some(ValidationError { error: FieldError::too_long(self.field(path), *most), text })
            }
            Constraint::MinLength(least) if length() < *least => {
                Some(self.invalid(path, &value(), format_args!("should be at least {least} chars long")))
            }
            Constraint::Pattern(pattern) => match regexp::compile(pattern) {
                Ok(regex) if regex.is_match(text) => None,
                Ok(_) => Some(self.invalid(path, &value(), format_args!("should match '{pattern}'"))),
                Err(why) => {
                    let what = format_args!("should match '{pattern}, but pattern is invalid: {why}'");
                    Some(self.invalid(path, &value(), what))
                }
            },
            _ => None,
        });
        if let Some(error) = error {
            all.add(error);
        }
        all.matches += 1;
        let Some(format) = node.format().filter(|f| format::is_known(Kind::String, f)) else { return };
        if !format::fits(format, text) {
            all.add(self.wrong_type(path, format, text));
        }
        all.matches += 1;
    }

    fn list(
        &mut self,
        node: &Node,
        items: &[Value],
        path: &Path<'_>,
        old: Option<CorrelatedObject<'_>>,
    ) -> Outcome {
        let mut all = Outcome::default();
        if let Some(id) = node.items {
            let before = old.and_then(|old| old.elements());
            for (i, item) in items.iter().enumerate() {
                let old = before.as_ref().and_then(|before| before.of(item));
                let outcome = self.ratcheted(id, item, &path.index(i), old);
                all.merge(outcome);
            }
        }
        self.count(items.len(), (node.min_items(), node.max_items()), "items", path, &mut all);
        all
    }

    /// Whether there are neither fewer nor more items or properties than that.
    fn count(
        &self,
        count: usize,
        (least, most): (Option<i64>, Option<i64>),
        noun: &str,
        path: &Path<'_>,
        all: &mut Outcome,
    ) {
        let count = count as i64;
        if let Some(least) = least.filter(|least| count < *least) {
            let what = format_args!("should have at least {least} {noun}");
            all.add(self.invalid(path, &Value::Int(count), what));
        }
        if let Some(most) = most.filter(|most| count > *most) {
            let text = format!("{} in body should have at most {most} {noun}", DottedPath(path));
            all.add(ValidationError { error: FieldError::too_many(self.field(path), count, most), text });
        }
    }

    fn object(
        &mut self,
        node: &Node,
        map: &Map,
        path: &Path<'_>,
        old: Option<CorrelatedObject<'_>>,
    ) -> Outcome {
        let mut all = Outcome::default();
        self.count(map.len(), (node.min_properties(), node.max_properties()), "properties", path, &mut all);
        let correlated = |name: &str| old.and_then(|old| old.member(name));
        if node.additional != Additional::Absent {
            for (name, value) in map.iter().filter(|(name, _)| node.property(name).is_none()) {
                match node.additional {
                    Additional::Schema(id) => {
                        let outcome = self.ratcheted(id, value, &path.key(name), correlated(name));
                        all.merge(outcome);
                    }
                    Additional::Closed => {
                        let text = format!("{}.{name} in body is a forbidden property", DottedPath(path));
                        let shown = Value::from(name.clone());
                        let error = FieldError::invalid(self.field(path), &shown, &text);
                        all.add(ValidationError { error, text });
                    }
                    Additional::Any | Additional::Absent => {}
                }
            }
        }
        // Walks whichever has fewer members.
        if node.properties.len() <= map.len() {
            for (name, id) in &node.properties {
                if let Some(value) = map.get(name) {
                    let outcome = self.ratcheted(*id, value, &path.child(name), correlated(name));
                    all.merge(outcome);
                }
            }
        } else {
            for (name, value) in map.iter() {
                if let Some(id) = node.property(name) {
                    let outcome = self.ratcheted(id, value, &path.child(name), correlated(name));
                    all.merge(outcome);
                }
            }
        }
        for name in node.required().iter().filter(|name| !map.contains(name)) {
            all.add(self.error(&path.child(name), "is required", |field, _| FieldError::required(field, "")));
        }
        all
    }
}
