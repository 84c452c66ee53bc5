//! Label and field selectors: the query parameters `labelSelector` and `fieldSelector`, and the selector
//! objects of specs.
//!
//! Grammar, rules and messages are upstream's (`k8s.io/apimachinery/pkg/labels` and `.../pkg/fields`). A
//! selector is parsed once per request and matched against the labels and field values in the stored
//! header of each object; matching allocates nothing.
//!
//! ```
//! use plinth_codec::selector::{FieldSelector, LabelSelector, Selectable, SelectableField};
//!
//! let selector = LabelSelector::parse("app in (web, api), tier!=test, !canary").unwrap();
//! let labels = [("app", "web"), ("release", "7")];
//! assert!(selector.matches_sorted(labels));
//! assert!(selector.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v)));
//!
//! const FIELDS: Selectable =
//!     Selectable::new(&[SelectableField::new("spec.nodeName"), SelectableField::new("status.phase")]);
//! let selector = FieldSelector::parse("spec.nodeName=n1,status.phase!=Running").unwrap();
//! let selector = selector.resolve(&FIELDS).unwrap();
//! assert!(selector.matches(|field| match field {
//!     "spec.nodeName" => "n1",
//!     "status.phase" => "Pending",
//!     _ => "",
//! }));
//! let error = FieldSelector::parse("spec.image=x").unwrap().resolve(&FIELDS).unwrap_err();
//! assert_eq!(error.to_string(), "field label not supported: spec.image");
//! ```

mod error;
mod field;
mod label;
mod parser;
mod requirement;
mod selectable;

pub use error::{LabelError, RequirementError, SelectorError};
pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use requirement::{Operator, Requirement};
pub use selectable::{CustomFields, Selectable, SelectableField};

#[cfg(test)]
mod tests;
