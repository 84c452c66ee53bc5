//! What a call costs at run time.

use crate::cost::{scaled, selector, Cost, CHECK, LIST_CALL, REGEX_LENGTH, TRAVERSAL};
use crate::opaque::OpaqueValue;
use crate::value::Val;

impl Cost {
    /// The cost of a call with these arguments (the receiver first), computed before the call.
    pub(crate) fn of_call(self, args: &[Val<'_>]) -> u64 {
        let size = |i: usize| args.get(i).map_or(0, Val::size);
        let traversal = |size: u64| scaled(size, TRAVERSAL);
        match self {
            Cost::One | Cost::Dyn => 1,
            Cost::Logical | Cost::Conditional => 0,
            Cost::Equality if matches!(args.first(), Some(Val::Opaque(_))) => 1,
            Cost::Equality | Cost::Comparison => traversal(size(0).min(size(1))),
            Cost::Add => match args.first() {
                Some(Val::String(_) | Val::Bytes(_)) => traversal(size(0).saturating_add(size(1))),
                _ => 1,
            },
            Cost::In => match args.get(1) {
                Some(Val::List(list)) => list.len() as u64,
                _ => 1,
            },
            Cost::ToBytes | Cost::ToString => match args.first() {
                Some(Val::String(_)) if self == Cost::ToBytes => traversal(size(0)),
                Some(Val::Bytes(_)) if self == Cost::ToString => traversal(size(0)),
                _ => 1,
            },
            Cost::Affix | Cost::Format | Cost::Traverse => traversal(size(0)),
            Cost::Contains => traversal(size(0)).saturating_mul(traversal(size(1))),
            Cost::Matches | Cost::Find => {
                let text = scaled(size(0).saturating_add(1), TRAVERSAL);
                text.saturating_mul(scaled(size(1), REGEX_LENGTH))
            }
            Cost::Replace | Cost::Split => scaled(size(0), 2.0 * TRAVERSAL),
            Cost::Join => join_cost(args.first(), size(1)),
            Cost::Search => traversal_cost(args.first()),
            Cost::Parse(_) if matches!(args.first(), Some(Val::Opaque(_))) => 1,
            Cost::Parse(times) => scaled(size(0), f64::from(times) * TRAVERSAL),
            Cost::ContainsIp | Cost::ContainsCidr => {
                let network = size(0);
                let of_cidr = if self == Cost::ContainsCidr { traversal(network) + 1 } else { 0 };
                let of_text =
                    if matches!(args.get(1), Some(Val::String(_))) { traversal(size(1)) } else { 0 };
                (scaled(network.saturating_mul(2), TRAVERSAL) + of_cidr).saturating_add(of_text)
            }
            Cost::Validate => {
                let regex = match args.first().and_then(|v| v.as_opaque()) {
                    Some(OpaqueValue::Format(format)) => format.regex_size,
                    _ => 1,
                };
                let text = scaled(size(1).saturating_add(1), TRAVERSAL);
                text.saturating_mul(scaled(regex, REGEX_LENGTH))
            }
            Cost::Slice => match (args.get(1), args.get(2)) {
                (Some(Val::Int(start)), Some(Val::Int(end))) => {
                    let len = end.saturating_sub(*start).max(0) as u64;
                    LIST_CALL.saturating_add(len.min(size(0)))
                }
                _ => LIST_CALL,
            },
            Cost::Flatten => {
                let depth = match args.get(1) {
                    Some(Val::Int(depth)) => (*depth).max(0) as u64,
                    _ => 1,
                };
                LIST_CALL.saturating_add(size(0).saturating_mul(depth))
            }
            Cost::Range => match args.first() {
                Some(Val::Int(n)) => LIST_CALL.saturating_add((*n).max(0) as u64),
                _ => LIST_CALL,
            },
            Cost::ListCopy => LIST_CALL.saturating_add(size(0)),
            Cost::SelfCompare(arg) => self_comparison_cost(args.get(usize::from(arg))),
            Cost::Check => CHECK,
            Cost::Selector => selector(size(1)),
            Cost::Sets(times) => {
                1u64.saturating_add(size(0).saturating_mul(size(1)).saturating_mul(u64::from(times)))
            }
        }
    }
}

/// The cost of joining the texts of a list.
fn join_cost(texts: Option<&Val<'_>>, separator: u64) -> u64 {
    let Some(Val::List(list)) = texts else { return 1 };
    let separators = separator.saturating_mul((list.len() as u64).saturating_sub(1));
    // Only as many elements are summed as the result may cost.
    let texts: u64 = list.iter().take(2_000_000).map(|v| v.size()).sum();
    scaled(texts.saturating_add(separators), 2.0 * TRAVERSAL).max(list.len() as u64 / 20)
}

/// The cost of comparing the elements of a list with each other.
fn self_comparison_cost(list: Option<&Val<'_>>) -> u64 {
    let n = list.map_or(0, Val::size);
    let first = match list {
        Some(Val::List(list)) => list.get(0),
        _ => None,
    };
    let factor = match first {
        Some(Val::String(_) | Val::Bytes(_)) => 2.0 + TRAVERSAL,
        _ => 2.0,
    };
    LIST_CALL.saturating_add((n.saturating_mul(n) as f64 * factor) as u64)
}

/// The cost of traversing a value.
fn traversal_cost(value: Option<&Val<'_>>) -> u64 {
    /// Maximum depth; no function reads deeper parts.
    const DEPTH: u32 = 8;
    fn cost(value: &Val<'_>, depth: u32) -> u64 {
        if depth > DEPTH {
            return 1;
        }
        match value {
            Val::String(text) => (text.as_str().len() as f64 * TRAVERSAL) as u64,
            Val::Bytes(bytes) => (bytes.len() as f64 * TRAVERSAL) as u64,
            // Longer lists cost more than any evaluation may.
            Val::List(list) if list.len() > 4_000_000 => list.len() as u64,
            Val::List(list) => list.iter().map(|v| cost(&v, depth + 1)).fold(0, u64::saturating_add),
            Val::Map(map) => {
                let entries =
                    map.iter().map(|(k, v)| cost(&k, depth + 1).saturating_add(cost(&v, depth + 1)));
                entries.fold(0, u64::saturating_add)
            }
            _ => 1,
        }
    }
    value.map_or(0, |v| cost(v, 0))
}
