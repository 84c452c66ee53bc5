//! What a type of the schema model is.

use smol_str::SmolStr;

use super::successors::Successors;
use crate::value::{Map, Value};

/// Group, version and kind of an API object. The core group is the empty string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GVK {
    /// API group; empty for core.
    pub group: SmolStr,
    /// Version within the group, like `v1`.
    pub version: SmolStr,
    /// Kind in CamelCase.
    pub kind: SmolStr,
}

impl GVK {
    /// Creates a GVK.
    pub fn new(group: impl Into<SmolStr>, version: impl Into<SmolStr>, kind: impl Into<SmolStr>) -> GVK {
        GVK { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Its `apiVersion`: `v1`, `apps/v1`.
    pub fn api_version(&self) -> SmolStr {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => smol_str::format_smolstr!("{}/{}", self.group, self.version),
        }
    }
}

/// The index of a type in the arena of its [`super::Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TypeId(pub u32);

/// Type of a field, item or member.
#[derive(Debug)]
pub enum Type {
    /// A value without fields or items.
    Scalar(Scalar),
    /// Fields by name.
    Struct(StructType),
    /// A list; how elements are merged is specified by its [`Field`], since upstream puts the markers there.
    List {
        /// The type of each element.
        element: TypeId,
        /// Whether protobuf holds the list in a message of its own, as field 1 (upstream's `ExtraValue`
        /// and `Verbs`). Then the field's number is that of the message, and a map may have such values.
        message: bool,
        /// How elements are merged, where the type has a marker: in custom resources, whose markers are on
        /// the list itself, so that nested lists have their own. A marker of the field takes precedence.
        merge: ListType,
    },
    /// String keys, one type of value.
    Map {
        /// The type of each value.
        value: TypeId,
        /// Whether the map is merged as a whole, where the type has a marker.
        atomic: bool,
    },
}

/// Scalar types, each with its JSON form.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value (`bool`).
    Bool,
    /// Number, 32 bits signed (`int32`; also Go's `uint8`/`uint16`/`uint32` where upstream has them).
    Int32,
    /// Number, 64 bits signed.
    Int64,
    /// Number, IEEE double; in a decoded tree always [`Value::Float`].
    Double,
    /// String. `values` lists what an enum allows (documentation and `kubectl explain`; validation is
    /// per kind); empty for free text.
    String {
        /// Allowed values of an enum, sorted; empty when free.
        values: Vec<SmolStr>,
    },
    /// String, base64.
    Bytes,
    /// String or number, canonicalized as `resource.Quantity` does (`1000m` -> `1`).
    Quantity,
    /// String or 32-bit number, kept as sent (`intstr.IntOrString`).
    IntOrString,
    /// String, RFC 3339 in UTC with seconds (`metav1.Time`); zero is `null`.
    Time,
    /// String, RFC 3339 in UTC with six digits of fraction (`metav1.MicroTime`); zero is `null`.
    MicroTime,
    /// String, Go's duration syntax (`metav1.Duration`: `1h0m0s`).
    Duration,
    /// An embedded API object, kept as sent (`runtime.RawExtension`); protobuf carries its JSON in field 1.
    RawExtension,
    /// Any JSON value, kept as sent (apiextensions `JSON`); protobuf carries its JSON text in field 1.
    Json,
    /// Object: a set of field paths (`metav1.FieldsV1`); protobuf carries its JSON text in field 1.
    FieldsV1,
    /// apiextensions `JSONSchemaPropsOrArray`, `OrBool`, `OrStringArray`: a schema or the alternative. The
    /// struct is the type of JSONSchemaProps.
    SchemaOr(SchemaOr, TypeId),
    /// No schema at all: custom resource parts with preserved unknown fields.
    Any,
}

impl Scalar {
    /// Whether upstream holds the scalar in a struct, which `omitempty` never leaves out.
    pub(super) fn is_go_struct(&self) -> bool {
        matches!(
            self,
            Scalar::Quantity
                | Scalar::IntOrString
                | Scalar::Time
                | Scalar::MicroTime
                | Scalar::Duration
                | Scalar::RawExtension
                | Scalar::Json
                | Scalar::FieldsV1
                | Scalar::SchemaOr(..)
        )
    }
}

/// The alternative in one of apiextensions' union types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// A schema or a list of schemas (protobuf: 1 schema, 2 repeated schemas).
    Array,
    /// A schema or a boolean (protobuf: 1 bool allows, 2 schema).
    Bool,
    /// A schema or a list of strings (protobuf: 1 schema, 2 repeated string).
    StringArray,
}

/// The fields of a union.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnionType {
    /// The field that names the member that is set, where there is one.
    pub discriminator: Option<SmolStr>,
    /// The fields of which one is set, in alphabetical order.
    pub members: Vec<SmolStr>,
}

/// A struct: the fields in JSON order (upstream's declaration order), embedded structs flattened.
#[derive(Debug, Default)]
pub struct StructType {
    /// OpenAPI name (`io.k8s.api.core.v1.PodSpec`); empty for a nameless part of a custom resource.
    pub name: SmolStr,
    /// The kinds that this struct is the body of; empty for parts.
    pub kinds: Vec<GVK>,
    /// Fields in JSON order. `apiVersion` and `kind` come first in types that have them (upstream
    /// writes `kind` before `apiVersion`) and have number 0: protobuf keeps them in the envelope.
    pub fields: Vec<Field>,
    /// Field indices sorted by name, for lookups; made by [`super::Schema::index`]. The index of a field in
    /// this list is its rank: members of an object's `Map` come in order of rank.
    pub by_name: Vec<u16>,
    /// The values that upstream writes for absent fields (`status: {}`, `rules: null`): rank and value, in
    /// order of rank; made by [`super::Schema::index`].
    pub always: Vec<(u16, Value)>,
    /// The embedded messages, which protobuf always writes, even when empty. A message comes after the
    /// one that holds it.
    pub embedded: Vec<Embedded>,
    /// Where the struct is a union (`+union`): what it is made of. Only documents have it; the validation of
    /// each kind checks it.
    pub union: Option<Box<UnionType>>,
    /// Whether the struct as a whole is merged atomically by server-side apply (`+structType=atomic`).
    pub atomic: bool,
    /// Whether fields without a type of their own are kept (`x-kubernetes-preserve-unknown-fields`);
    /// server-side apply deduces their types.
    pub preserves_unknown: bool,
    /// The names of the fields, sorted: by rank. Made by `StructType::index_fields`.
    pub names: Box<[SmolStr]>,
    /// A hash table of ranks plus one; 0 where free. Made by `StructType::index_fields`.
    pub slots: Box<[u16]>,
    /// The usual successor of each field, by rank.
    pub successors: Successors,
}

/// A hash of a field's name from its length and three of its bytes.
#[inline]
fn hash(name: &str) -> usize {
    let bytes = name.as_bytes();
    let [Some(&first), Some(&middle), Some(&last)] =
        [bytes.first(), bytes.get(bytes.len() / 2), bytes.last()]
    else {
        return 0;
    };
    let mixed = u32::from_le_bytes([first, middle, last, bytes.len() as u8]).wrapping_mul(0x9e37_79b1);
    (mixed >> 16) as usize
}

impl StructType {
    /// The field of that JSON name; case-sensitive.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.lookup(name).map(|(_, field)| field)
    }

    /// Fills in `by_name` and the table behind [`StructType::rank`].
    pub(crate) fn index_fields(&mut self) {
        let mut order: Vec<u16> = (0..self.fields.len() as u16).collect();
        order.sort_unstable_by(|&a, &b| {
            self.fields[usize::from(a)].name.cmp(&self.fields[usize::from(b)].name)
        });
        self.by_name = order;
        // At most half full, so that probing is short.
        let size = (2 * self.fields.len()).next_power_of_two();
        self.slots = vec![0; size].into_boxed_slice();
        self.names = (0..self.by_name.len()).map(|rank| self.by_rank(rank).name.clone()).collect();
        self.successors = Successors::new(self.by_name.len());
        for rank in 0..self.by_name.len() {
            let mut slot = hash(&self.names[rank]) & (size - 1);
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (size - 1);
            }
            self.slots[slot] = rank as u16 + 1;
        }
    }

    /// The rank of a field in the order of names.
    #[inline]
    pub fn rank(&self, name: &str) -> Option<usize> {
        self.lookup(name).map(|(rank, _)| rank)
    }

    /// The field of that JSON name and its rank.
    #[inline]
    pub fn lookup(&self, name: &str) -> Option<(usize, &Field)> {
        let mask = self.slots.len().checked_sub(1)?;
        let mut slot = hash(name) & mask;
        loop {
            let rank = usize::from(self.slots[slot]).checked_sub(1)?;
            if self.names[rank] == name {
                return Some((rank, self.by_rank(rank)));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The field of a rank.
    #[inline]
    pub(crate) fn by_rank(&self, rank: usize) -> &Field {
        &self.fields[self.by_name[rank] as usize]
    }

    /// The object that upstream writes for a struct without set fields.
    pub fn empty(&self) -> Map {
        let members = self
            .always
            .iter()
            .map(|(rank, value)| (self.by_rank(*rank as usize).name.clone(), value.clone()));
        Map::from_sorted(members.collect())
    }
}

/// A protobuf message whose fields are flat in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedded {
    /// Go's name of the struct, which errors of decoding mention.
    pub name: SmolStr,
    /// Its protobuf number in the message that holds it.
    pub number: u32,
    /// The embedded message that holds it, numbered as in [`Field::embedded_in`]; 0 for the struct's own.
    pub within: u8,
}

/// One field of a struct.
#[derive(Debug)]
pub struct Field {
    /// JSON name.
    pub name: SmolStr,
    /// Protobuf number in its message; 0 when protobuf does not carry the field.
    pub number: u32,
    /// The embedded message that holds the field: `n` stands for `StructType::embedded[n - 1]`, 0 for the
    /// struct's own message.
    pub embedded_in: u8,
    /// The type of the value.
    pub type_id: TypeId,
    /// When upstream omits the field from JSON.
    pub omit: Omit,
    /// Whether upstream's field is a pointer: then an explicit zero is kept and protobuf writes it. For a
    /// list: whether upstream's defaults distinguish an empty one from nil.
    pub pointer: bool,
    /// Whether OpenAPI lists it as required.
    pub required: bool,
    /// The default that the type itself declares (`+default=`), if any.
    pub default: Option<Value>,
    /// How strategic merge patch treats it.
    pub patch: PatchStrategy,
    /// How server-side apply merges a list.
    pub list: ListType,
    /// How server-side apply merges a map or struct.
    pub map: MapType,
}

/// When a field is omitted from JSON (Go's struct tag).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Always written: an absent string is `""`, a nil list or pointer `null`, a struct `{}`.
    Never,
    /// `omitempty`: false, 0, `""`, nil pointers, empty lists and maps are omitted; structs never are.
    Empty,
    /// `omitzero` (with `omitempty` or not): structs and times too, when they are zero.
    Zero,
}

/// The tags `patchStrategy` and `patchMergeKey`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PatchStrategy {
    /// `merge`: a list is merged (by key, or as a set of scalars), not replaced.
    pub merge: bool,
    /// `replace`: a map or struct is replaced as a whole.
    pub replace: bool,
    /// `retainKeys`: keys that the patch's `$retainKeys` does not name are cleared.
    pub retain_keys: bool,
    /// The field that identifies an element of a merged list.
    pub merge_key: Option<SmolStr>,
}

/// `+listType`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ListType {
    /// Replaced as a whole; also the rule for lists without a marker.
    #[default]
    Atomic,
    /// Scalars, each once.
    Set,
    /// Objects identified by these fields.
    Map(Vec<SmolStr>),
}

/// `+mapType` and `+structType` on a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapType {
    /// Each key has its own owner.
    #[default]
    Granular,
    /// One owner for the whole.
    Atomic,
}
