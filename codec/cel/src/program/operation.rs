//! The operations of a compiled expression.

use regex::Regex;
use smol_str::SmolStr;

use crate::library::Function;
use crate::value::Val;

/// One operation.
#[derive(Debug)]
pub(super) enum Op {
    Const(Val<'static>),
    Variable(usize, SmolStr),
    Local(usize),
    Select(Box<Op>, SmolStr),
    Has(Box<Op>, SmolStr),
    /// `has(a.b)` where `a.b` is one variable: true when it has a value.
    Present(usize, SmolStr),
    OptionalSelect(Box<Op>, SmolStr),
    And(Box<[Op; 2]>),
    Or(Box<[Op; 2]>),
    Conditional(Box<[Op; 3]>),
    /// `a.or(b)`, `a.orValue(b)`.
    OrElse(Box<[Op; 2]>, bool),
    /// A function call.
    Call(&'static Function, Box<[Op]>),
    /// `matches`, `find`, `findAll` with a literal expression.
    Regex(&'static Function, Box<[Op]>, Regex),
    List(Box<[(Op, bool)]>),
    Map(Box<[(Op, Op, bool)]>),
    /// `Name{field: value}`.
    Message(SmolStr, Box<[(SmolStr, Op, bool)]>),
    Fold(Box<Fold>),
    Bind(Box<[Op; 2]>),
    OptMap(Box<[Op; 2]>, bool),
}

#[derive(Debug)]
pub(super) struct Fold {
    pub(super) range: Op,
    /// Whether each step has two variables: index or key, and value.
    pub(super) two: bool,
    pub(super) step: Step,
}

/// The step of a fold.
#[derive(Debug)]
pub(super) enum Step {
    All(Op),
    Exists(Op),
    One(Op),
    /// A condition, and the new element.
    List(Option<Op>, Op),
    Map(Option<Op>, Op, Op),
    Entries(Option<Op>, Op),
}
