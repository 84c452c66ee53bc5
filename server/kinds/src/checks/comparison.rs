//! Compares the old and the new object where some fields may change: put what may change into the old one,
//! then compare (kubernetes `pkg/apis/{core,apps,batch}/validation`; where upstream appends a diff to a
//! message, ours ends before it).

use plinth_codec::{Map, Value};

/// Copies the value at a path of keys from `new` to `target`; removes it from `target` where `new` has none.
pub(crate) fn take(target: &mut Value, new: &Value, path: &[&str]) {
    let Some((key, parents)) = path.split_last() else { return };
    match new.at(path).filter(|v| !v.is_null()) {
        Some(value) => {
            if let Some(parent) = target.object_at_mut(parents) {
                parent.insert(*key, value.clone());
            }
        }
        None => {
            if let Some(parent) = parent_mut(target, parents) {
                parent.remove(key);
            }
        }
    }
}

/// The object at a path, if any.
fn parent_mut<'a>(value: &'a mut Value, path: &[&str]) -> Option<&'a mut Map> {
    let mut value = value;
    for key in path {
        value = value.get_mut(key)?;
    }
    value.as_object_mut()
}

/// Whether two values are equal, where null, empty and absent members count as equal.
pub fn same(a: Option<&Value>, b: Option<&Value>) -> bool {
    fn empty(value: Option<&Value>) -> bool {
        match value {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        }
    }
    match (a, b) {
        (a, b) if empty(a) && empty(b) => true,
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            a.iter().all(|(key, value)| same(Some(value), b.get(key)))
                && b.iter().all(|(key, value)| a.contains(key) || empty(Some(value)))
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(Some(a), Some(b)))
        }
        (a, b) => a == b,
    }
}
