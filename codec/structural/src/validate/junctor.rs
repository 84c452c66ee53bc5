//! `anyOf`, `oneOf`, `allOf` and `not`. Upstream does not correlate old values within them, so an error is
//! ratcheted only if the whole value is unchanged.

use plinth_codec::error::quoted;
use plinth_codec::field::Path;
use plinth_codec::value::{level, Value};

use super::walk::{DottedPath, Outcome, Walk};
use crate::node::{Constraint, Node, NodeId};

impl Walk<'_> {
    pub(super) fn junctors(&mut self, node: &Node, value: &Value, path: &Path<'_>) -> Outcome {
        let mut all = Outcome::default();
        for constraint in &node.constraints {
            let outcome = match constraint {
                Constraint::AnyOf(ids) => level(|| self.any_of(ids, value, path)),
                Constraint::OneOf(ids) => level(|| self.one_of(ids, value, path)),
                Constraint::AllOf(ids) => level(|| self.all_of(ids, value, path)),
                Constraint::Not(id) => {
                    let fits = level(|| self.value(*id, value, path, None)).is_valid();
                    let mut outcome = Outcome::default();
                    if fits {
                        self.add_error(&mut outcome, path, "must not validate the schema (not)");
                    }
                    outcome
                }
                _ => break,
            };
            all.merge(outcome);
        }
        // One for this check, one for the junctor.
        all.matches += 2;
        all
    }

    fn add_error(&self, outcome: &mut Outcome, path: &Path<'_>, what: &str) {
        let text = format!("{} {what}", quoted(&DottedPath(path).to_string()));
        outcome.add(self.plain(path, text));
    }

    fn any_of(&mut self, ids: &[NodeId], value: &Value, path: &Path<'_>) -> Outcome {
        let mut best: Option<Outcome> = None;
        for id in ids {
            let outcome = self.value(*id, value, path, None);
            if outcome.is_valid() {
                return outcome;
            }
            keep_better(&mut best, outcome);
        }
        let mut all = Outcome::default();
        self.add_error(&mut all, path, "must validate at least one schema (anyOf)");
        all.merge(best.unwrap_or_default());
        all
    }

    fn one_of(&mut self, ids: &[NodeId], value: &Value, path: &Path<'_>) -> Outcome {
        let (mut best, mut first, mut fitting) = (None, None, 0);
        for id in ids {
            let outcome = self.value(*id, value, path, None);
            if outcome.is_valid() {
                fitting += 1;
                first.get_or_insert(outcome);
                best = None;
            } else if fitting == 0 {
                keep_better(&mut best, outcome);
            }
        }
        if let (1, Some(first)) = (fitting, first) {
            return first;
        }
        let found = match fitting {
            0 => "Found none valid".to_owned(),
            n => format!("Found {n} valid alternatives"),
        };
        let mut all = Outcome::default();
        self.add_error(&mut all, path, &format!("must validate one and only one schema (oneOf). {found}"));
        all.merge(best.unwrap_or_default());
        all
    }

    fn all_of(&mut self, ids: &[NodeId], value: &Value, path: &Path<'_>) -> Outcome {
        let (mut all, mut fitting) = (Outcome::default(), 0);
        for id in ids {
            let outcome = self.value(*id, value, path, None);
            fitting += usize::from(outcome.is_valid());
            all.merge(outcome);
        }
        if fitting < ids.len() {
            let none = if fitting == 0 { ". None validated" } else { "" };
            self.add_error(&mut all, path, &format!("must validate all the schemas (allOf){none}"));
        }
        all
    }
}

/// Keeps the alternative of which the most checks passed, the first of equal ones.
fn keep_better(best: &mut Option<Outcome>, outcome: Outcome) {
    if best.as_ref().is_none_or(|best| outcome.matches > best.matches) {
        *best = Some(outcome);
    }
}
