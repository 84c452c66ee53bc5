//! Types of expressions, and how they unify.

mod declare;
mod model;

use std::collections::HashMap;
use std::fmt::{self, Display};
use std::sync::Arc;

pub use model::DeclType;
pub(crate) use model::{ListKind, OpaqueType, Shape, Type};

impl Type {
    pub(crate) fn list(element: Type) -> Type {
        Type::List(Arc::new(element))
    }

    pub(crate) fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    pub(crate) fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    pub(crate) fn is_dyn_or_error(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// The type inside an optional one, and whether it was optional.
    pub(crate) fn unwrap_optional(&self) -> (Type, bool) {
        match self {
            Type::Optional(inner) => (Type::clone(inner), true),
            other => (other.clone(), false),
        }
    }

    /// Whether values have a size that is known beforehand.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint => true,
            Type::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The name of the type without its parameters; `None` when it is known only at evaluation.
    pub(crate) fn literal_name(&self) -> Option<&'static str> {
        Some(match self {
            Type::Dyn | Type::Any | Type::Error | Type::Param(_) | Type::Message(_) => return None,
            Type::Null => "null",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "duration",
            Type::Timestamp => "timestamp",
            Type::List(_) => "list",
            Type::Map(_) | Type::Object(_) => "map",
            Type::Optional(_) => "optional_type",
            Type::Kind => "type",
            Type::Opaque(opaque) => opaque.name(),
        })
    }

    /// Whether both are exactly the same type.
    pub(crate) fn is_exactly(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => a.is_exactly(b),
            (Type::Map(a), Type::Map(b)) => a.0.is_exactly(&b.0) && a.1.is_exactly(&b.1),
            (Type::Object(a), Type::Object(b)) => a.is(b),
            (Type::Opaque(a), Type::Opaque(b)) => a == b,
            (Type::Message(a), Type::Message(b)) => a == b,
            (Type::Param(a), Type::Param(b)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Whether this is the same type or a less specific one.
    fn is_equal_or_less_specific(&self, other: &Type) -> bool {
        match (self, other) {
            (Type::Dyn | Type::Any | Type::Param(_), _) => true,
            (_, Type::Dyn | Type::Any | Type::Param(_)) => false,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => {
                a.is_equal_or_less_specific(b)
            }
            (Type::Map(a), Type::Map(b)) => {
                a.0.is_equal_or_less_specific(&b.0) && a.1.is_equal_or_less_specific(&b.1)
            }
            (a, b) => a.is_exactly(b),
        }
    }
}

impl Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Dyn => f.write_str("dyn"),
            Type::Any => f.write_str("any"),
            Type::Error => f.write_str("!error!"),
            Type::Object(declared) => f.write_str(declared.name()),
            Type::Message(name) => f.write_str(name),
            Type::List(element) => write!(f, "list({element})"),
            Type::Map(both) => write!(f, "map({}, {})", both.0, both.1),
            Type::Optional(inner) => write!(f, "optional_type({inner})"),
            Type::Param(id) => write!(f, "_var{id}"),
            plain => f.write_str(plain.literal_name().unwrap_or_default()),
        }
    }
}

/// The bindings of type parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    known: HashMap<u32, Type>,
    fresh: u32,
}

/// Maximum depth of types in unification; types nest as deep as expressions and schemas do.
const MAX_TYPE_DEPTH: u32 = 400;

impl Bindings {
    /// A type that is not known yet.
    pub(crate) fn fresh(&mut self) -> Type {
        self.fresh += 1;
        Type::Param(self.fresh + PARAMS)
    }

    /// Substitutes bound parameters. With `to_dyn`, unbound ones become `dyn`.
    pub(crate) fn substitute(&self, t: &Type, to_dyn: bool) -> Type {
        self.substitute_at(t, to_dyn, 0)
    }

    fn substitute_at(&self, t: &Type, to_dyn: bool, depth: u32) -> Type {
        if depth > MAX_TYPE_DEPTH {
            return Type::Dyn;
        }
        let inner = |t: &Type| self.substitute_at(t, to_dyn, depth + 1);
        match t {
            Type::Param(id) => match self.known.get(id) {
                Some(known) => inner(known),
                None if to_dyn => Type::Dyn,
                None => t.clone(),
            },
            Type::List(element) => Type::list(inner(element)),
            Type::Map(both) => Type::map(inner(&both.0), inner(&both.1)),
            Type::Optional(value) => Type::optional(inner(value)),
            _ => t.clone(),
        }
    }

    /// Renames the parameters of a declaration consistently to fresh ones.
    pub(crate) fn instantiate(&mut self, t: &Type, names: &mut [Option<u32>; PARAMS as usize]) -> Type {
        match t {
            Type::Param(id) if *id < PARAMS => {
                if names[*id as usize].is_none() {
                    self.fresh += 1;
                }
                Type::Param(*names[*id as usize].get_or_insert(self.fresh + PARAMS))
            }
            Type::List(element) => Type::list(self.instantiate(element, names)),
            Type::Map(both) => {
                let key = self.instantiate(&both.0, names);
                Type::map(key, self.instantiate(&both.1, names))
            }
            Type::Optional(value) => Type::optional(self.instantiate(value, names)),
            _ => t.clone(),
        }
    }

    /// Whether a value of type `a` is assignable to `b`; binds parameters if so, and none otherwise.
    pub(crate) fn assign(&mut self, a: &Type, b: &Type) -> bool {
        self.assign_all(&[(a.clone(), b.clone())])
    }

    /// As [`Bindings::assign`], all or none.
    pub(crate) fn assign_all(&mut self, pairs: &[(Type, Type)]) -> bool {
        let before = self.known.clone();
        let fits = pairs.iter().all(|(a, b)| self.unify(a, b, 0));
        if !fits {
            self.known = before;
        }
        fits
    }

    fn unify(&mut self, a: &Type, b: &Type, depth: u32) -> bool {
        if depth > MAX_TYPE_DEPTH {
            return true;
        }
        if let Type::Param(id) = b {
            match self.bind(*id, a, depth) {
                (true, _) => return true,
                (false, true) => return false,
                (false, false) => {}
            }
        }
        if let Type::Param(id) = a {
            return self.bind(*id, b, depth).0;
        }
        let next = depth + 1;
        match (a, b) {
            (a, b) if a.is_dyn_or_error() || b.is_dyn_or_error() => true,
            (Type::Null, other) | (other, Type::Null) => {
                let nullable = matches!(
                    other,
                    Type::Null
                        | Type::Optional(_)
                        | Type::Opaque(_)
                        | Type::Object(_)
                        | Type::Message(_)
                        | Type::Duration
                        | Type::Timestamp
                );
                nullable
            }
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b, next),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0, next) && self.unify(&a.1, &b.1, next),
            (a, b) => a.is_exactly(b),
        }
    }

    /// Binds the parameter to `t`. Returns whether that is possible, and whether it was bound before.
    fn bind(&mut self, id: u32, t: &Type, depth: u32) -> (bool, bool) {
        if matches!(t, Type::Param(other) if *other == id) {
            return (true, true);
        }
        if let Some(known) = self.known.get(&id).cloned() {
            if t.is_exactly(&known) {
                return (true, true);
            }
            if !self.unify(t, &known, depth + 1) {
                return (false, true);
            }
            let general = most_general(t, &known);
            if !self.occurs(id, &general, 0) {
                self.known.insert(id, general);
            }
            return (true, true);
        }
        if self.occurs(id, t, 0) {
            return (false, false);
        }
        self.known.insert(id, t.clone());
        (true, false)
    }

    fn occurs(&self, id: u32, within: &Type, depth: u32) -> bool {
        if depth > MAX_TYPE_DEPTH {
            return true;
        }
        match within {
            Type::Param(other) if *other == id => true,
            Type::Param(other) => self.known.get(other).is_some_and(|t| self.occurs(id, t, depth + 1)),
            Type::List(t) | Type::Optional(t) => self.occurs(id, t, depth + 1),
            Type::Map(both) => self.occurs(id, &both.0, depth + 1) || self.occurs(id, &both.1, depth + 1),
            _ => false,
        }
    }
}

/// Number of parameters that a declaration can have; larger ids are unknown types.
pub(crate) const PARAMS: u32 = 3;

/// The more general of two types that unify.
pub(crate) fn most_general(a: &Type, b: &Type) -> Type {
    if a.is_equal_or_less_specific(b) {
        a.clone()
    } else {
        b.clone()
    }
}
