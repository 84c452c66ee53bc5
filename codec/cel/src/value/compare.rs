//! Equality and order of values.

use std::cmp::Ordering;

use smol_str::SmolStr;

use super::{member, List, Table, Val};
use crate::types::ListKind;

impl<'a> Val<'a> {
    /// Compares two values of an ordered type; `None` when they have no order.
    pub(crate) fn compare(&self, other: &Val<'_>) -> Option<Ordering> {
        match (self, other) {
            (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
            (Val::String(a), Val::String(b)) => Some(a.as_str().cmp(b.as_str())),
            (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
            (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
            (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
            (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
            (Val::Double(a), b) => compare_double(*a, b.integer()?),
            (a, Val::Double(b)) => compare_double(*b, a.integer()?).map(Ordering::reverse),
            (a, b) => Some(a.integer()?.cmp(&b.integer()?)),
        }
    }

    fn integer(&self) -> Option<i128> {
        match self {
            Val::Int(n) => Some(i128::from(*n)),
            Val::Uint(n) => Some(i128::from(*n)),
            _ => None,
        }
    }

    /// Whether the values are equal. `visited` is increased by the nodes visited; beyond `limit` the result
    /// is `None`.
    pub(crate) fn equals(&self, other: &Val<'_>, visited: &mut u64, limit: u64) -> Option<bool> {
        plinth_codec::value::level(|| self.equals_here(other, visited, limit))
    }

    fn equals_here(&self, other: &Val<'_>, visited: &mut u64, limit: u64) -> Option<bool> {
        *visited += 1;
        if *visited > limit {
            return None;
        }
        Some(match (self, other) {
            (Val::Null, Val::Null) => true,
            (Val::Type(a), Val::Type(b)) => a == b,
            (Val::String(a), Val::String(b)) => {
                *visited += a.as_str().len().min(b.as_str().len()) as u64 / 64;
                a.as_str() == b.as_str()
            }
            (Val::Optional(a), Val::Optional(b)) => match (a, b) {
                (Some(a), Some(b)) => return a.equals(b, visited, limit),
                (None, None) => true,
                _ => false,
            },
            (Val::Opaque(a), Val::Opaque(b)) => a == b,
            (Val::Message(a), Val::Message(b)) => {
                if a.name != b.name || a.fields.len() != b.fields.len() {
                    return Some(false);
                }
                for ((field, x), (other, y)) in a.fields.iter().zip(&b.fields) {
                    if field != other || !x.equals(y, visited, limit)? {
                        return Some(false);
                    }
                }
                true
            }
            (Val::List(a), Val::List(b)) => return lists_equal(a, b, visited, limit),
            (Val::Map(a), Val::Map(b)) => return tables_equal(a, b, visited, limit),
            (Val::Object(a, declared), Val::Object(b, other)) => {
                if a.len() != b.len() {
                    return Some(false);
                }
                for (key, value) in a.iter() {
                    let Some(counterpart) = b.get(key) else { return Some(false) };
                    let (x, y) = (member(value, declared, key), member(counterpart, other, key));
                    if !x.equals(&y, visited, limit)? {
                        return Some(false);
                    }
                }
                true
            }
            (a, b) => a.compare(b) == Some(Ordering::Equal),
        })
    }
}

fn compare_double(double: f64, integer: i128) -> Option<Ordering> {
    // Beyond 2^64 any double is outside of all integers; within, the integer part decides, then the rest.
    if double.is_nan() {
        return None;
    }
    if double.abs() >= 2e19 {
        return Some(if double > 0.0 { Ordering::Greater } else { Ordering::Less });
    }
    let floor = double.floor();
    let order = (floor as i128).cmp(&integer);
    Some(match order {
        Ordering::Equal if double > floor => Ordering::Greater,
        other => other,
    })
}

fn lists_equal(a: &List<'_>, b: &List<'_>, visited: &mut u64, limit: u64) -> Option<bool> {
    if a.len() != b.len() {
        return Some(false);
    }
    let kind = match (a.kind(), b.kind()) {
        (ListKind::Atomic, kind) => kind,
        (kind, _) => kind,
    };
    match kind {
        ListKind::Atomic => {
            for i in 0..a.len() {
                let (Some(x), Some(y)) = (a.get(i), b.get(i)) else { return Some(false) };
                if !x.equals(&y, visited, limit)? {
                    return Some(false);
                }
            }
        }
        ListKind::Set => {
            for x in a.iter() {
                if !contains(b, &x, visited, limit)? {
                    return Some(false);
                }
            }
        }
        ListKind::Map(keys) => {
            for x in a.iter() {
                let Some(y) = find_by_keys(b, &x, keys, visited, limit)? else { return Some(false) };
                if !x.equals(&y, visited, limit)? {
                    return Some(false);
                }
            }
        }
    }
    Some(true)
}

/// Whether the list has an equal element.
pub(crate) fn contains(list: &List<'_>, value: &Val<'_>, visited: &mut u64, limit: u64) -> Option<bool> {
    for i in 0..list.len() {
        if let Some(element) = list.get(i) {
            if element.equals(value, visited, limit)? {
                return Some(true);
            }
        }
    }
    Some(false)
}

/// The element of a list of type map that has the same keys. Outer `None` when too many nodes were visited.
pub(crate) fn find_by_keys<'b>(
    list: &List<'b>,
    value: &Val<'_>,
    keys: &[SmolStr],
    visited: &mut u64,
    limit: u64,
) -> Option<Option<Val<'b>>> {
    'elements: for element in list.iter() {
        for key in keys {
            let same = match (element.raw_member(key), value.raw_member(key)) {
                (None, None) => true,
                (Some(x), Some(y)) => x.equals(&y, visited, limit)?,
                _ => false,
            };
            if !same {
                continue 'elements;
            }
        }
        return Some(Some(element));
    }
    Some(None)
}

impl<'a> Val<'a> {
    /// A member by its name in data.
    fn raw_member(&self, name: &str) -> Option<Val<'a>> {
        match self {
            Val::Object(members, declared) => members.get(name).map(|v| member(v, declared, name)),
            Val::Map(table) => table.get_text(name),
            _ => None,
        }
    }
}

fn tables_equal(a: &Table<'_>, b: &Table<'_>, visited: &mut u64, limit: u64) -> Option<bool> {
    if a.len() != b.len() {
        return Some(false);
    }
    for (key, x) in a.iter() {
        let y = match (b, &key) {
            (_, Val::String(text)) => b.get_text(text.as_str()),
            (Table::Computed(entries), key) => {
                key.to_key().and_then(|k| entries.get(&k)).map(|(_, v)| v.clone())
            }
            _ => None,
        };
        match y {
            Some(y) if x.equals(&y, visited, limit)? => {}
            _ => return Some(false),
        }
    }
    Some(true)
}
