//! What a call costs, in upstream's units (cel-go `interpreter/runtimecost.go`, `checker/cost.go`;
//! k8s.io/apiserver `pkg/cel/library/cost.go`). `Cost::of_call` of the program counts at run
//! time, `estimate` estimates; both agree for each kind.

/// How the cost of a function depends on its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// One unit, whatever the arguments.
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
