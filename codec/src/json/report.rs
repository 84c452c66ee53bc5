//! The decoder's path, and the strict errors found.

use std::fmt::Write;

use smol_str::SmolStr;

use crate::error::{StrictError, MAX_STRICT_ERRORS};
use crate::schema::{Field, StructType};

/// One step of the path from the root.
pub(super) enum PathStep<'s> {
    /// A field of a struct.
    Field(&'s StructType, &'s Field),
    /// A key of a map.
    Key(SmolStr),
    /// An element of a list.
    Index(usize),
}

/// The path to the current value, and the strict errors so far.
pub(crate) struct Report<'s> {
    pub(super) strict: bool,
    pub(super) path: Vec<PathStep<'s>>,
    pub(super) errors: Vec<StrictError>,
}

impl<'s> Report<'s> {
    pub(super) fn new(strict: bool) -> Report<'s> {
        Report { strict, path: Vec::new(), errors: Vec::new() }
    }

    /// The path as strict errors write it, ending in a member of the current object.
    fn path_to(&self, member: &str) -> SmolStr {
        let mut text = String::new();
        let dotted = |text: &mut String, name: &str| {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(name);
        };
        for step in &self.path {
            match step {
                PathStep::Field(_, field) => dotted(&mut text, &field.name),
                PathStep::Key(key) => dotted(&mut text, key),
                // Writing to a string cannot fail.
                PathStep::Index(i) => drop(write!(text, "[{i}]")),
            }
        }
        dotted(&mut text, member);
        text.into()
    }

    #[cold]
    pub(super) fn unknown(&mut self, name: &str) {
        if self.strict {
            let error = StrictError::UnknownField(self.path_to(name));
            self.add(error);
        }
    }

    #[cold]
    pub(super) fn duplicate(&mut self, name: &str) {
        if self.strict {
            let error = StrictError::DuplicateField(self.path_to(name));
            self.add(error);
        }
    }

    fn add(&mut self, error: StrictError) {
        if self.errors.len() < MAX_STRICT_ERRORS && !self.errors.contains(&error) {
            self.errors.push(error);
        }
    }

    /// The struct and field names that a type error of Go's decoder names: the struct of the last field, and
    /// all fields on the way.
    pub(super) fn go_field(&self) -> (String, String) {
        let (mut structure, mut path) = (String::new(), String::new());
        for step in &self.path {
            if let PathStep::Field(holder, field) = step {
                structure = holder.name.rsplit('.').next().unwrap_or_default().to_string();
                if !path.is_empty() {
                    path.push('.');
                }
                for name in embedding(holder, field) {
                    path.push_str(name);
                    path.push('.');
                }
                path.push_str(&field.name);
            }
        }
        (structure, path)
    }
}

/// Go's names of the embedded structs on the way from a struct to one of its fields.
fn embedding<'s>(holder: &'s StructType, field: &Field) -> Vec<&'s str> {
    let mut names = Vec::new();
    let mut place = usize::from(field.embedded_in);
    while let Some(embedded) = place.checked_sub(1).and_then(|i| holder.embedded.get(i)) {
        names.push(embedded.name.as_str());
        place = usize::from(embedded.within);
    }
    names.reverse();
    let is_meta =
        |i: usize, name| holder.fields.get(i).is_some_and(|f| std::ptr::eq(f, field) && f.name == name);
    if field.number == 0 && (is_meta(0, "kind") || is_meta(1, "apiVersion")) {
        names.push("TypeMeta");
    }
    names
}
