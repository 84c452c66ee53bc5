//! Warnings: what clients are warned of when an object is valid but probably not what they want, such as
//! deprecated fields, duplicates and values without effect.
//!
//! Upstream: kubernetes `pkg/api/*/warnings.go`, `pkg/api/*/util.go` and the `WarningsOn…` of its strategies.
//! The number of warnings of a request is bounded ([`MAX_WARNINGS`]).

pub(crate) mod address;
pub(crate) mod node_labels;

use plinth_codec::names::dns1123_label_errors;
use plinth_codec::quantity::Quantity;
use plinth_codec::Value;

use crate::path::{int_or_zero, text};

/// Maximum number of warnings of one request.
pub(crate) const MAX_WARNINGS: usize = 64;

/// The warnings so far, at most [`MAX_WARNINGS`].
#[derive(Debug, Default)]
pub(crate) struct Warnings(Vec<String>);

impl Warnings {
    pub(crate) fn into_vec(self) -> Vec<String> {
        self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn add(&mut self, text: impl Into<String>) {
        if !self.is_full() {
            self.0.push(text.into());
        }
    }

    /// Whether further warnings would be dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= MAX_WARNINGS
    }
}

pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.str_at(&["metadata", "annotations", key])
}

/// Whether an update left the generation unchanged.
pub(crate) fn is_same_generation(new: &Value, old: Option<&Value>) -> bool {
    let generation = |object: &Value| int_or_zero(object, "metadata.generation");
    old.is_some_and(|old| generation(old) == generation(new))
}

/// Adds a warning about a name that is valid but problematic as part of pod names and host names.
pub(crate) fn warn_pod_name(new: &Value, old: Option<&Value>, used_in: &str, found: &mut Warnings) {
    let errors = match old {
        None => dns1123_label_errors(text(new, "metadata.name")),
        Some(_) => return,
    };
    if !errors.is_empty() {
        found.add(format!(
            "metadata.name: this is used in {used_in}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            errors.join(" ")
        ));
    }
}

/// Adds a warning about a quantity of bytes that is not whole and will be rounded up.
pub(crate) fn warn_fractional_bytes(
    amounts: Option<&Value>,
    resource: &str,
    path: &str,
    found: &mut Warnings,
) {
    let Some(shown) = amounts.and_then(|amounts| amounts.get(resource)).and_then(Value::as_str) else {
        return;
    };
    if Quantity::parse(shown).is_ok_and(|amount| amount.as_int().is_none()) {
        found.add(format!(
            "{path}[{resource}]: fractional byte value {shown:?} is invalid, must be an integer"
        ));
    }
}

/// Warns about names that are reserved for static (file-based) configuration.
pub(crate) fn reserved_name_warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    match text(new, "metadata.name").ends_with(SUFFIX) {
        true => vec![format!("metadata.name: names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API")],
        false => Vec::new(),
    }
}

/// Whether the object is managed by upstream's endpoint controllers, which are not warned about addresses.
pub(crate) fn is_made_by(object: &Value, label: &str, controllers: &[&str]) -> bool {
    object.str_at(&["metadata", "labels", label]).is_some_and(|by| controllers.contains(&by))
}
