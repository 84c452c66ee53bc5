//! Validation: checks are rows, nested as the object is, and [`Part::check`] is the only code that reads
//! them.
//!
//! What no row can express is a function, named in a [`Check::By`] row. Paths, reasons and messages are
//! upstream's (kubernetes `pkg/apis/*/validation`), because clients match on them.

pub(crate) mod address;
mod check;
pub(crate) mod comparison;
pub(crate) mod conditions;
pub(crate) mod declarative;
pub(crate) mod immutable;
pub(crate) mod int_or_percent;
mod messages;
pub(crate) mod part;
pub(crate) mod ports;
pub(crate) mod qualified_names;
pub mod quantities;
pub(crate) mod template_metadata;

pub(crate) use check::{selector_errors, Check, PartError};
pub(crate) use part::{ErrorList, Part};
