//! Conflicts: fields that an apply would change while others own them.

use super::managed::{Entry, ManagedFieldsOperationType};
use super::path::{self, PathElement};
use super::set::Set;

/// One field that another manager owns.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The manager, for display: `"kubectl" with subresource "status" using apps/v1`.
    pub manager: String,
    /// The steps to the field.
    pub path: Vec<PathElement>,
}

impl Conflict {
    /// The field of the cause: `.spec.replicas`.
    pub fn field(&self) -> String {
        path::describe(&self.path)
    }

    /// The message of the cause; its type is `FieldManagerConflict`.
    pub fn message(&self) -> String {
        format!("conflict with {}", self.manager)
    }
}

/// All conflicts of an apply, by manager: 409 Conflict with one cause each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conflicts(pub Vec<Conflict>);

impl Conflicts {
    /// The conflicts with the fields of managers, sorted by manager.
    pub(super) fn of(mut sets: Vec<(&Entry, Set)>) -> Conflicts {
        let name = |e: &Entry| (e.manager.clone(), e.operation, e.api_version.clone(), e.subresource.clone());
        sets.sort_by_key(|(entry, _)| name(entry));
        let conflicts = sets.iter().flat_map(|(entry, set)| {
            let manager = describe(entry);
            set.paths().into_iter().map(move |path| Conflict { manager: manager.clone(), path })
        });
        Conflicts(conflicts.collect())
    }
}

/// The manager of an entry, for display.
fn describe(entry: &Entry) -> String {
    let mut text = format!("{:?}", entry.manager.as_str());
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {:?}", entry.subresource.as_str()));
    }
    if entry.operation == ManagedFieldsOperationType::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

impl std::fmt::Display for Conflicts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field());
        }
        write!(f, "Apply failed with {} conflicts: ", self.0.len())?;
        let mut last = None;
        for (i, conflict) in self.0.iter().enumerate() {
            if last != Some(&conflict.manager) {
                let line = if i > 0 { "\n" } else { "" };
                write!(f, "{line}conflicts with {}:", conflict.manager)?;
                last = Some(&conflict.manager);
            }
            write!(f, "\n- {}", conflict.field())?;
        }
        Ok(())
    }
}
