//! Fields that a write to a resource or subresource cannot own, since the server resets them: the status for
//! the object itself, the spec for `/status`, and so on. Upstream's strategies list them (`GetResetFields`);
//! which ones a write has is data of its kind.

use super::path::PathElement;
use super::set::{Builder, Set, View};

/// Which fields a write cannot own. Paths are dotted; `*` stands for any element.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reset {
    /// Everything may be owned.
    #[default]
    Nothing,
    /// These fields and all below them may not.
    Except(&'static [&'static str]),
    /// Only these fields and those below them may.
    Only(&'static [&'static str]),
}

impl Reset {
    /// The set without fields that may not be owned.
    pub(super) fn filter(&self, set: Set) -> Set {
        let (patterns, keeps) = match *self {
            Reset::Nothing => return set,
            // Most sets have none of them.
            Reset::Except(paths) if !paths.iter().any(|path| touches(set.view(), path)) => return set,
            Reset::Except(paths) => (paths, false),
            Reset::Only(paths) => (paths, true),
        };
        let mut out = Builder::default();
        copy(set.view(), patterns, keeps, &mut out);
        out.finish()
    }
}

/// Splits a path into its first step and the rest.
fn split(path: &str) -> (&str, Option<&str>) {
    path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)))
}

fn is_step(element: &PathElement, step: &str) -> bool {
    step == "*" || matches!(element, PathElement::Field(name) if name == step)
}

/// Whether the set has a field of that path, or one below it.
fn touches(view: View<'_>, path: &str) -> bool {
    let (first, rest) = split(path);
    let mut nodes = view.nodes().filter(|node| is_step(node.element, first));
    nodes.any(|node| rest.is_none_or(|rest| touches(node.below, rest)))
}

/// Copies the fields of the paths and all below them, or all others.
fn copy(view: View<'_>, paths: &[&str], keeps: bool, out: &mut Builder) {
    for node in view.nodes() {
        let steps = paths.iter().map(|path| split(path)).filter(|(first, _)| is_step(node.element, first));
        // What remains of the paths that lead here; `None` for one that ends here.
        let rest: Option<Vec<&str>> = steps.map(|(_, rest)| rest).collect();
        match rest.as_deref() {
            None if keeps => out.copy(node),
            None => {}
            Some([]) if keeps => {}
            Some([]) => out.copy(node),
            Some(rest) => {
                out.enter(node.element.clone());
                if node.member && !keeps {
                    out.add();
                }
                copy(node.below, rest, keeps, out);
                out.leave();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::fields_v1;
    use crate::patch::testkit::json;

    #[test]
    fn filters_by_paths() {
        let all = r#"{"f:metadata":{"f:labels":{"f:a":{}},"f:ownerReferences":{}},"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:image":{},"f:resources":{"f:limits":{}}}},"f:ephemeralContainers":{".":{}},"f:x":{}},"f:status":{"f:phase":{},"f:conditions":{}}}"#;
        let set = fields_v1::decode(&json(all)).unwrap();
        let top = [
            (Reset::Nothing, vec!["f:metadata", "f:spec", "f:status"]),
            (Reset::Except(&["absent", "metadata.absent"]), vec!["f:metadata", "f:spec", "f:status"]),
            (Reset::Except(&["status"]), vec!["f:metadata", "f:spec"]),
            (Reset::Except(&["spec", "metadata"]), vec!["f:status"]),
        ];
        for (reset, want) in top {
            let left = reset.filter(set.clone());
            let top: Vec<_> = left.view().nodes().map(|n| n.element.to_key()).collect();
            assert_eq!(top, want, "{reset:?}");
        }
        let left = [
            (Reset::Only(&["spec.ephemeralContainers"]), r#"{"f:spec":{"f:ephemeralContainers":{}}}"#),
            (
                Reset::Only(&["spec.containers.*.resources", "spec.containers.*.resizePolicy"]),
                r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{"f:resources":{"f:limits":{}}}}}}"#,
            ),
            (
                Reset::Except(&["spec", "metadata.ownerReferences"]),
                r#"{"f:metadata":{"f:labels":{"f:a":{}}},"f:status":{"f:phase":{},"f:conditions":{}}}"#,
            ),
            (
                Reset::Except(&["spec.containers.*.image", "metadata", "status"]),
                r#"{"f:spec":{"f:containers":{"k:{\"name\":\"a\"}":{".":{},"f:resources":{"f:limits":{}}}},"f:ephemeralContainers":{},"f:x":{}}}"#,
            ),
        ];
        for (reset, want) in left {
            assert_eq!(fields_v1::encode(&reset.filter(set.clone())), json(want), "{reset:?}");
        }
    }
}
