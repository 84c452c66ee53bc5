//! Merging a configuration into an object without ownership, as mutating admission policies do
//! (k8s.io/apiserver `pkg/admission/plugin/policy/mutating/patch/smd.go`).

use super::merge::merge;
use super::path::{self, PathElement};
use super::typed::Ref;
use super::{validate, MAX_DEPTH};
use crate::schema::{Scalar, Schema, Type, TypeId};
use crate::value::Value;

/// Maximum number of paths in an error.
const MAX_PLACES: usize = 100;

/// Why a configuration cannot be applied. The text is upstream's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigureError {
    /// It does not fit the schema.
    #[error("failed to convert patch object to typed object: {0}")]
    Unfit(String),
    /// It sets atomic lists, maps or structs: a configuration that means to set one member would remove the
    /// others.
    #[error("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {0}")]
    Atomic(String),
}

/// Merges a configuration into an object: what it sets wins, what it leaves out stays. `O(n log n)`.
///
/// # Errors
/// [`ConfigureError`]; then the object is as it was.
pub fn configure(
    schema: &Schema,
    root: TypeId,
    object: &mut Value,
    configuration: &Value,
) -> Result<(), ConfigureError> {
    if let Some(errors) = validate::errors(schema, root, configuration) {
        return Err(ConfigureError::Unfit(errors));
    }
    let mut atomics = Atomics { schema, path: Vec::new(), found: Vec::new() };
    atomics.value(configuration, Ref::root(root));
    if !atomics.found.is_empty() {
        return Err(ConfigureError::Atomic(atomics.found.join(", ")));
    }
    merge(schema, root, object, configuration);
    Ok(())
}

/// Finds atomic lists, maps and structs.
struct Atomics<'s> {
    schema: &'s Schema,
    path: Vec<PathElement>,
    found: Vec<String>,
}

impl<'s> Atomics<'s> {
    fn value(&mut self, value: &Value, of: Ref<'s>) {
        if self.path.len() >= MAX_DEPTH || self.found.len() >= MAX_PLACES {
            return;
        }
        // Without a schema, objects are maps of such parts, and lists are atomic.
        let untyped = match of.get(self.schema) {
            None => true,
            Some(Type::Scalar(s)) => !matches!(s, Scalar::RawExtension),
            Some(_) => false,
        };
        let has_parts = matches!(value, Value::Object(_) | Value::Array(_));
        if has_parts && if untyped { value.as_array().is_some() } else { of.is_atomic(self.schema) } {
            self.found.push(path::describe(&self.path));
        }
        match (of.get(self.schema), value) {
            (Some(Type::Struct(s)), Value::Object(members)) => {
                for (name, member) in members.iter() {
                    if let Some(field) = s.field(name) {
                        self.step(PathElement::Field(name.clone()), member, Ref::field(field));
                    }
                }
            }
            (Some(Type::List { element, .. }), Value::Array(items)) => {
                for (i, item) in items.iter().enumerate() {
                    self.step(PathElement::Index(i as i64), item, Ref::root(*element));
                }
            }
            _ => {}
        }
    }

    fn step(&mut self, element: PathElement, value: &Value, of: Ref<'s>) {
        self.path.push(element);
        self.value(value, of);
        self.path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json;
    use crate::schema::{builtin, GVK};

    #[test]
    fn configurations_by_table() {
        let schema = builtin();
        let root = schema.kind(&GVK::new("apps", "v1", "Deployment")).unwrap();
        let live = r#"{"metadata":{"name":"d","labels":{"a":"b"}},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#;
        let pod = |spec: &str| format!(r#"{{"spec":{{"template":{{"spec":{spec}}}}}}}"#);
        // configuration, and the object or part of the error
        let rows: [(String, Result<&str, &str>); 9] = [
            ("{}".into(), Ok(live)),
            (
                r#"{"spec":{"replicas":5}}"#.into(),
                Ok(
                    r#"{"metadata":{"name":"d","labels":{"a":"b"}},"spec":{"replicas":5,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
                ),
            ),
            (
                r#"{"metadata":{"labels":{"x":"y"}}}"#.into(),
                Ok(
                    r#"{"metadata":{"name":"d","labels":{"a":"b","x":"y"}},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"c","image":"i"}]}}}}"#,
                ),
            ),
            (
                pod(r#"{"containers":[{"name":"c","env":[{"name":"E","value":"v"}]},{"name":"s"}]}"#),
                Ok(
                    r#"{"metadata":{"name":"d","labels":{"a":"b"}},"spec":{"replicas":1,"template":{"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"E","value":"v"}]},{"name":"s"}]}}}}"#,
                ),
            ),
            (
                pod(r#"{"containers":[{"name":"c","args":["x"]}]}"#),
                Err("atomic arrays, maps or structs: .spec.template.spec.containers[0].args"),
            ),
            (
                pod(r#"{"nodeSelector":{"x":"y"},"tolerations":[{"key":"a"}]}"#),
                Err(".spec.template.spec.nodeSelector, .spec.template.spec.tolerations"),
            ),
            (
                r#"{"metadata":{"ownerReferences":[{"uid":"u"}]}}"#.into(),
                Err(": .metadata.ownerReferences[0]"),
            ),
            (r#"{"nope":1}"#.into(), Err("typed object: .nope: field not declared in schema")),
            (
                r#"{"spec":{"replicas":"3"}}"#.into(),
                Err(".spec.replicas: expected numeric (int or float), got string"),
            ),
        ];
        for (configuration, expected) in rows {
            let parse = |text: &str| json::parse(text.as_bytes()).unwrap();
            let mut object = parse(live);
            match (configure(schema, root, &mut object, &parse(&configuration)), expected) {
                (Ok(()), Ok(expected)) => assert_eq!(object, parse(expected), "{configuration}"),
                (Err(found), Err(expected)) => {
                    assert!(found.to_string().contains(expected), "{configuration}: {found}");
                    assert_eq!(object, parse(live), "{configuration}");
                }
                (found, _) => panic!("{configuration}: {found:?}"),
            }
        }
    }
}
