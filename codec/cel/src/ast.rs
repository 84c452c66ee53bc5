//! The syntax tree, after macros.

use smol_str::SmolStr;

#[derive(Debug)]
pub(crate) struct Expr {
    /// Dense: the index in side tables.
    pub(crate) id: usize,
    /// Byte offset in the source.
    pub(crate) offset: u32,
    pub(crate) kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    Literal(Literal),
    Ident(SmolStr),
    /// `operand.field`; with `test` it is `has(operand.field)`.
    Select {
        operand: Box<Expr>,
        field: SmolStr,
        test: bool,
    },
    Call(Call),
    List(Vec<Element>),
    Map(Vec<Entry>),
    /// `Name{field: value}`.
    Struct(Struct),
    Comprehension(Box<Comprehension>),
    /// A variable bound to a value.
    Bind(Box<Bind>),
    /// `target.optMap(name, body)`, `target.optFlatMap(name, body)`.
    OptMap(Box<OptMap>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    Uint(u64),
    Double(f64),
    String(SmolStr),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) function: SmolStr,
    pub(crate) target: Option<Box<Expr>>,
    pub(crate) args: Vec<Expr>,
}

#[derive(Debug)]
pub(crate) struct Element {
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: SmolStr,
    pub(crate) fields: Vec<FieldInit>,
}

#[derive(Debug)]
pub(crate) struct FieldInit {
    /// Byte offset of the colon.
    pub(crate) offset: u32,
    pub(crate) field: SmolStr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) key: Expr,
    pub(crate) value: Expr,
    pub(crate) optional: bool,
}

/// A fold over a list or map, to which `all`, `map` and other macros expand.
#[derive(Debug)]
pub(crate) struct Comprehension {
    pub(crate) range: Expr,
    /// The element of a list or the key of a map; with a second variable, the index or key.
    pub(crate) var: SmolStr,
    pub(crate) var2: Option<SmolStr>,
    pub(crate) init: Expr,
    pub(crate) condition: Expr,
    pub(crate) step: Expr,
    pub(crate) result: Expr,
}

#[derive(Debug)]
pub(crate) struct Bind {
    pub(crate) name: SmolStr,
    pub(crate) value: Expr,
    pub(crate) body: Expr,
}

#[derive(Debug)]
pub(crate) struct OptMap {
    pub(crate) target: Expr,
    pub(crate) name: SmolStr,
    pub(crate) body: Expr,
    /// Whether the body returns an optional itself.
    pub(crate) flat: bool,
}

/// The accumulator variable of a fold; not a valid identifier in source text.
pub(crate) const ACCUMULATOR: &str = "@result";

impl Expr {
    /// The name that a chain of selections spells: `a.b.c`.
    pub(crate) fn qualified_name(&self) -> Option<String> {
        match &self.kind {
            Kind::Ident(name) => Some(name.to_string()),
            Kind::Select { operand, field, test: false } => {
                let mut name = operand.qualified_name()?;
                // No declared name is longer.
                if name.len() > 64 {
                    return None;
                }
                name.push('.');
                name.push_str(field);
                Some(name)
            }
            _ => None,
        }
    }
}
