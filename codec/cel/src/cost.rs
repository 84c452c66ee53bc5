//! What a call costs, in upstream's units (cel-go `interpreter/runtimecost.go`, `checker/cost.go`;
//! k8s.io/apiserver `pkg/cel/library/cost.go`). [`Cost::of_call`] counts at run time, `estimate.rs`
//! estimates; both agree for each kind.

use super::library::opaque::OpaqueValue;
use super::value::Val;

/// How the cost of a function depends on its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// 1.
    One,
    /// `dyn(x)`: free.
    Dyn,
    /// Only the operands that are evaluated.
    Logical,
    /// The condition and one of the branches.
    Conditional,
    /// `==`: the smaller size, but 1 for the libraries' own types.
    Equality,
    /// `<` and its like, `!=`: the smaller size.
    Comparison,
    /// `+`: the sum of the sizes of texts, 1 for all else.
    Add,
    /// `in`: the size of a list, 1 for maps.
    In,
    /// `bytes(x)`.
    ToBytes,
    /// `string(x)`.
    ToString,
    /// `startsWith`, `endsWith`.
    Affix,
    /// Product of the sizes.
    Contains,
    /// Text times expression.
    Matches,
    /// As [`Cost::Matches`], of `find` and `findAll`.
    Find,
    /// One traversal of a text; the result is as long.
    Traverse,
    /// `replace`.
    Replace,
    /// `split`.
    Split,
    /// `join`.
    Join,
    /// `'…'.format(…)`.
    Format,
    /// One traversal of a list and its elements, or of a text.
    Search,
    /// A text is read so many times.
    Parse(u8),
    /// `containsIP`.
    ContainsIp,
    /// `containsCIDR`.
    ContainsCidr,
    /// `validate`.
    Validate,
    /// `slice`.
    Slice,
    /// `flatten`.
    Flatten,
    /// `lists.range`.
    Range,
    /// Creates a list of the same size.
    ListCopy,
    /// Each element of the argument of this number is compared with each.
    SelfCompare(u8),
    /// Elements of two lists are compared, so many times.
    Sets(u8),
    /// An authorization check: two per evaluation.
    Check,
    /// Parses a selector.
    Selector,
}

/// Per byte or code point of a text that is traversed.
pub(crate) const TRAVERSAL: f64 = 0.1;
/// Per byte of a regular expression.
pub(crate) const REGEX_LENGTH: f64 = 0.25;
/// A field, an identifier.
pub(crate) const SELECT: u64 = 1;
/// A list literal.
pub(crate) const LIST: u64 = 10;
/// A map literal.
pub(crate) const MAP: u64 = 30;
/// A constructed message.
pub(crate) const STRUCT: u64 = 40;
/// An authorization check.
pub(crate) const CHECK: u64 = 350_000;
/// The call of a list function and the list that it returns.
pub(crate) const LIST_CALL: u64 = 1 + LIST;

/// The cost of parsing a selector of that size.
pub(crate) fn selector(size: u64) -> u64 {
    /// For each requirement, which takes two bytes at least.
    const REQUIREMENT: u64 = LIST + 40;
    let requirements = scaled(size, 0.5).saturating_mul(REQUIREMENT);
    LIST.saturating_add(scaled(size, TRAVERSAL)).saturating_add(requirements)
}

/// `size * factor`, rounded up; saturates.
pub(crate) fn scaled(size: u64, factor: f64) -> u64 {
    // The cast saturates.
    (size as f64 * factor).ceil() as u64
}

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
            Cost::Join => match args.first() {
                Some(Val::List(list)) => {
                    let separators = size(1).saturating_mul((list.len() as u64).saturating_sub(1));
                    // Only as many elements are summed as the result may cost.
                    let texts: u64 = list.iter().take(2_000_000).map(|v| v.size()).sum();
                    scaled(texts.saturating_add(separators), 2.0 * TRAVERSAL).max(list.len() as u64 / 20)
                }
                _ => 1,
            },
            Cost::Search => traversal_cost(args.first()),
            Cost::Parse(_) if matches!(args.first(), Some(Val::Opaque(_))) => 1,
            Cost::Parse(times) => scaled(size(0), f64::from(times) * TRAVERSAL),
            Cost::ContainsIp | Cost::ContainsCidr => {
                let network = size(0);
                let mut cost = scaled(network.saturating_mul(2), TRAVERSAL);
                if self == Cost::ContainsCidr {
                    cost += traversal(network) + 1;
                }
                if matches!(args.get(1), Some(Val::String(_))) {
                    cost = cost.saturating_add(traversal(size(1)));
                }
                cost
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
            Cost::SelfCompare(arg) => {
                let list = args.get(usize::from(arg));
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
            Cost::Check => CHECK,
            Cost::Selector => selector(size(1)),
            Cost::Sets(times) => {
                1u64.saturating_add(size(0).saturating_mul(size(1)).saturating_mul(u64::from(times)))
            }
        }
    }
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
