//! What the types of expressions and of data are: the former name the latter, and the reverse.

use std::sync::Arc;

use smol_str::SmolStr;

/// The type of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Type {
    /// Checked when evaluated.
    Dyn,
    /// As `Dyn`, of data that are declared to be of any scalar type (upstream's `google.protobuf.Any`): no
    /// range of a comprehension.
    Any,
    /// The type of an expression with an error; assignable to everything, so that one error is reported once.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Arc<Type>),
    Map(Arc<(Type, Type)>),
    Object(DeclType),
    Optional(Arc<Type>),
    /// The type of types.
    Kind,
    /// A constructed message: `Object` and nested types, `JSONPatch`.
    Message(SmolStr),
    /// An opaque type of a library.
    Opaque(OpaqueType),
    /// A type parameter of a function, or a type that is not known yet.
    Param(u32),
}

/// Opaque types of Kubernetes' function libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpaqueType {
    Quantity,
    Url,
    Ip,
    Cidr,
    Format,
    Semver,
    Authorizer,
    PathCheck,
    GroupCheck,
    ResourceCheck,
    Decision,
}

impl OpaqueType {
    pub(crate) fn name(self) -> &'static str {
        match self {
            OpaqueType::Quantity => "kubernetes.Quantity",
            OpaqueType::Url => "kubernetes.URL",
            OpaqueType::Ip => "net.IP",
            OpaqueType::Cidr => "net.CIDR",
            OpaqueType::Format => "kubernetes.NamedFormat",
            OpaqueType::Semver => "kubernetes.Semver",
            OpaqueType::Authorizer => "kubernetes.authorization.Authorizer",
            OpaqueType::PathCheck => "kubernetes.authorization.PathCheck",
            OpaqueType::GroupCheck => "kubernetes.authorization.GroupCheck",
            OpaqueType::ResourceCheck => "kubernetes.authorization.ResourceCheck",
            OpaqueType::Decision => "kubernetes.authorization.Decision",
        }
    }
}

/// A schema node as a CEL type, with its children (upstream's `DeclType`). Clones share their data.
#[derive(Clone, Debug)]
pub struct DeclType(pub(super) Arc<Node>);

#[derive(Debug)]
pub(super) struct Node {
    pub(super) shape: Shape,
    /// Most elements, entries, bytes or code points that a value can have.
    pub(super) max_elements: u64,
    /// Fewest bytes that a value takes in JSON.
    pub(super) min_bytes: i64,
}

/// The kind of data.
#[derive(Debug)]
pub(crate) enum Shape {
    /// Anything: `x-kubernetes-int-or-string`.
    Dyn,
    /// A scalar of any type.
    Any,
    Bool,
    Int,
    Double,
    String,
    /// Base64 text.
    Bytes,
    Duration,
    /// RFC 3339 text, or a date alone.
    Timestamp {
        date: bool,
    },
    List {
        element: DeclType,
        kind: ListKind,
    },
    Map {
        element: DeclType,
        /// Most bytes of a key; upstream counts keys of schemas as empty.
        key_bytes: u64,
    },
    Object {
        /// As messages show the type.
        name: SmolStr,
        fields: Vec<Field>,
    },
    /// Not data: the result of an expression, or a type of a library.
    Computed(Type),
}

/// How lists are compared and concatenated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListKind {
    Atomic,
    Set,
    /// By the values of these keys.
    Map(Vec<SmolStr>),
}

#[derive(Debug)]
pub(crate) struct Field {
    /// The identifier in expressions.
    pub(crate) identifier: SmolStr,
    /// The name in data.
    pub(crate) name: SmolStr,
    pub(crate) declared: DeclType,
}
