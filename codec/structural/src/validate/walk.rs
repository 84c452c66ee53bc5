//! One walk over a value by its schema, and what it finds.

use std::fmt::{self, Display};

use plinth_codec::field::{FieldError, Path};

use crate::node::Node;

/// Maximum number of errors reported for one object.
pub(crate) const MAX_ERRORS: usize = 1000;

/// An error; those with the same text are reported once.
#[derive(Debug)]
pub(super) struct ValidationError {
    pub(super) text: String,
    pub(super) error: FieldError,
}

/// The result of checking a value.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<ValidationError>,
    /// Number of passed checks.
    pub(super) matches: u64,
}

impl Outcome {
    pub(super) fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn add(&mut self, error: ValidationError) {
        if self.errors.len() < MAX_ERRORS && self.errors.iter().all(|f| f.text != error.text) {
            self.errors.push(error);
        }
    }

    pub(super) fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        match self.errors.is_empty() {
            true => self.errors = other.errors,
            false => other.errors.into_iter().for_each(|error| self.add(error)),
        }
    }
}

/// A path as in messages: keys of maps look like fields.
pub(super) struct DottedPath<'a>(pub(super) &'a Path<'a>);

impl Display for DottedPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.steps().into_iter().enumerate() {
            match step {
                Path::Root => {}
                Path::Child(_, name) if i == 0 => f.write_str(name)?,
                Path::Child(_, name) | Path::Key(_, name) => write!(f, ".{name}")?,
                Path::Index(_, index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

pub(super) struct Walk<'a> {
    pub(super) nodes: &'a [Node],
    /// The path of the value in the object; part of causes, not of messages.
    pub(super) prefix: &'a Path<'a>,
    /// Remaining checks.
    pub(super) steps: u64,
    /// Whether the limit was reached; unchecked values are then not reported.
    pub(super) exhausted: bool,
}
