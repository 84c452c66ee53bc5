//! The built-in types: reads `builtin.table`, whose header describes the format.

use std::collections::HashMap;
use std::sync::LazyLock;

use smol_str::SmolStr;

use super::arena::Schema;
use super::model::{
    Embedded, Field, ListType, MapType, Omit, PatchStrategy, Scalar, SchemaOr, StructType, Type, TypeId,
    UnionType, GVK,
};
use crate::value::Value;

static TABLE: &str = include_str!("builtin.table");

static BUILTIN: LazyLock<Schema> = LazyLock::new(|| match parse(TABLE) {
    Ok(schema) => schema,
    // The table is part of the program, and a test reads all of it.
    Err(error) => panic!("builtin.table: {error}"),
});

/// The schema of every built-in kind, built on first use (about a millisecond and a half).
pub fn builtin() -> &'static Schema {
    &BUILTIN
}

/// An error in a line of the table.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
struct TableLineError {
    line: usize,
    what: &'static str,
}

/// A type's package and name there.
type Name = (&'static str, &'static str);

struct Reader {
    schema: Schema,
    /// Structs and named strings.
    names: HashMap<Name, TypeId>,
    /// Scalars by their word in the table.
    scalars: HashMap<&'static str, TypeId>,
    lists: HashMap<TypeId, TypeId>,
    message_lists: HashMap<TypeId, TypeId>,
    maps: HashMap<TypeId, TypeId>,
}

fn parse(table: &'static str) -> Result<Schema, TableLineError> {
    let mut reader = Reader::new();
    let lines = || {
        let numbered = table.lines().enumerate().map(|(i, line)| (i + 1, line));
        numbered.filter(|(_, line)| !line.starts_with('#'))
    };
    // Types refer to later ones, so the first pass assigns every name its id.
    let mut package = "";
    for (line, text) in lines() {
        reader.declare(&mut package, text).map_err(|what| TableLineError { line, what })?;
    }
    let mut current = None;
    for (line, text) in lines() {
        reader.define(&mut package, &mut current, text).map_err(|what| TableLineError { line, what })?;
    }
    reader.schema.index();
    Ok(reader.schema)
}

impl Reader {
    fn new() -> Reader {
        let mut reader = Reader {
            schema: Schema::default(),
            names: HashMap::with_capacity(2048),
            scalars: HashMap::new(),
            lists: HashMap::new(),
            message_lists: HashMap::new(),
            maps: HashMap::new(),
        };
        for (word, scalar) in [
            ("bool", Scalar::Bool),
            ("int32", Scalar::Int32),
            ("int64", Scalar::Int64),
            ("double", Scalar::Double),
            ("string", Scalar::String { values: Vec::new() }),
            ("bytes", Scalar::Bytes),
            ("quantity", Scalar::Quantity),
            ("intorstring", Scalar::IntOrString),
            ("time", Scalar::Time),
            ("microtime", Scalar::MicroTime),
            ("duration", Scalar::Duration),
            ("raw", Scalar::RawExtension),
            ("json", Scalar::Json),
            ("fields", Scalar::FieldsV1),
            ("any", Scalar::Any),
        ] {
            let id = reader.add(Type::Scalar(scalar));
            reader.scalars.insert(word, id);
        }
        reader
    }

    fn add(&mut self, t: Type) -> TypeId {
        self.schema.types.push(t);
        TypeId(self.schema.types.len() as u32 - 1)
    }

    fn declare(&mut self, package: &mut &'static str, line: &'static str) -> Result<(), &'static str> {
        let mut words = line.split(' ');
        match words.next() {
            Some("package") => *package = words.next().ok_or("package without a name")?,
            Some("enum") => {
                let (name, values) = line["enum ".len()..].split_once(' ').ok_or("enum without values")?;
                let values = values.split('|').map(SmolStr::new_static).collect();
                self.declare_string(package, name, values);
            }
            Some("text") => {
                self.declare_string(package, words.next().ok_or("text without a name")?, Vec::new())
            }
            Some("struct") => {
                let full = words.next().ok_or("struct without a name")?;
                let name = split_name(full).ok_or("struct name without a package")?;
                let id = self.add(Type::Struct(StructType {
                    name: SmolStr::new_static(full),
                    atomic: words.next() == Some("atomic"),
                    ..StructType::default()
                }));
                self.names.insert(name, id);
                self.schema.named.insert(SmolStr::new_static(full), id);
            }
            Some("") => {}
            _ => return Err("neither package, enum, text, struct nor a line of a struct"),
        }
        Ok(())
    }

    fn declare_string(&mut self, package: &'static str, name: &'static str, values: Vec<SmolStr>) {
        let id = self.add(Type::Scalar(Scalar::String { values }));
        self.names.insert((package, name), id);
        let go_package = split_name(package).map_or(package, |(_, last)| last);
        self.schema.go_strings.insert(id, (SmolStr::new_static(go_package), SmolStr::new_static(name)));
    }

    fn define(
        &mut self,
        package: &mut &'static str,
        current: &mut Option<TypeId>,
        line: &'static str,
    ) -> Result<(), &'static str> {
        let Some(line) = line.strip_prefix(' ') else {
            if let Some(name) = line.strip_prefix("package ") {
                *package = name;
            } else if let Some(rest) = line.strip_prefix("struct ") {
                let full = rest.split(' ').next().unwrap_or_default();
                *current = self.schema.named(full);
            }
            return Ok(());
        };
        let id = current.ok_or("a field outside of a struct")?;
        let mut words = line.split(' ');
        let first = words.next().unwrap_or_default();
        match first {
            ".kind" => {
                let kind = words.next().ok_or("kind without a name")?;
                for version in words {
                    let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
                    let [group, version, kind] = [group, version, kind].map(SmolStr::new_static);
                    let gvk = GVK { group, version, kind };
                    self.schema.kinds.insert(gvk.clone(), id);
                    self.structure(id)?.kinds.push(gvk);
                }
            }
            ".union" => {
                let discriminator = words.next().ok_or("union without a discriminator")?;
                let discriminator = (discriminator != "-").then(|| SmolStr::new_static(discriminator));
                let members: Vec<SmolStr> = words.map(SmolStr::new_static).collect();
                self.structure(id)?.union = Some(Box::new(UnionType { discriminator, members }));
            }
            ".embed" => {
                let name = words.next().map(SmolStr::new_static).ok_or("embed without a name")?;
                let number = words.next().and_then(|n| n.parse().ok()).ok_or("embed without a number")?;
                let within = words.next().map_or(Ok(0), |n| n.parse().map_err(|_| "embed in what?"))?;
                self.structure(id)?.embedded.push(Embedded { name, number, within });
            }
            name => {
                let field = self.field(package, name, words)?;
                self.structure(id)?.fields.push(field);
            }
        }
        Ok(())
    }

    fn structure(&mut self, id: TypeId) -> Result<&mut StructType, &'static str> {
        match self.schema.types.get_mut(id.0 as usize) {
            Some(Type::Struct(s)) => Ok(s),
            _ => Err("not a struct"),
        }
    }

    fn field(
        &mut self,
        package: &'static str,
        name: &'static str,
        mut words: std::str::Split<'static, char>,
    ) -> Result<Field, &'static str> {
        let number = words.next().and_then(|n| n.parse().ok()).ok_or("field without a number")?;
        let type_id = self.expression(package, words.next().ok_or("field without a type")?)?;
        let mut field = Field {
            name: SmolStr::new_static(name),
            number,
            embedded_in: 0,
            type_id,
            omit: Omit::Never,
            pointer: false,
            required: false,
            default: None,
            patch: PatchStrategy::default(),
            list: ListType::default(),
            map: MapType::default(),
        };
        for word in words {
            match word.split_once('=') {
                None => set_flags(&mut field, word)?,
                Some(("in", n)) => field.embedded_in = n.parse().map_err(|_| "in what?")?,
                Some(("default", json)) => field.default = Some(default_value(json)?),
                Some(("patch", strategies)) => set_strategies(&mut field.patch, strategies)?,
                Some(("key", key)) => field.patch.merge_key = Some(SmolStr::new_static(key)),
                Some(("list", "set")) => field.list = ListType::Set,
                Some(("list", kind)) => {
                    let keys = kind.strip_prefix("map:").ok_or("unknown list type")?;
                    field.list = ListType::Map(keys.split(',').map(SmolStr::new_static).collect());
                }
                Some(("map", "atomic")) => field.map = MapType::Atomic,
                Some(_) => return Err("unknown word"),
            }
        }
        Ok(field)
    }

    fn expression(&mut self, package: &'static str, text: &'static str) -> Result<TypeId, &'static str> {
        if let Some(inner) = text.strip_prefix("[]") {
            let element = self.expression(package, inner)?;
            if let Some(&id) = self.lists.get(&element) {
                return Ok(id);
            }
            let id = self.add(Type::List { element, message: false, merge: ListType::Atomic });
            self.lists.insert(element, id);
            return Ok(id);
        }
        if let Some(inner) = text.strip_prefix("[m]") {
            let element = self.expression(package, inner)?;
            if let Some(&id) = self.message_lists.get(&element) {
                return Ok(id);
            }
            let id = self.add(Type::List { element, message: true, merge: ListType::Atomic });
            self.message_lists.insert(element, id);
            return Ok(id);
        }
        if let Some(inner) = text.strip_prefix("{}") {
            let value = self.expression(package, inner)?;
            if let Some(&id) = self.maps.get(&value) {
                return Ok(id);
            }
            let id = self.add(Type::Map { value, atomic: false });
            self.maps.insert(value, id);
            return Ok(id);
        }
        if let Some(&id) = self.scalars.get(text) {
            return Ok(id);
        }
        if let Some(alternative) = text.strip_prefix("schemaor") {
            let alternative = match alternative {
                "array" => SchemaOr::Array,
                "bool" => SchemaOr::Bool,
                "strings" => SchemaOr::StringArray,
                _ => return Err("unknown union"),
            };
            let schema =
                *self.names.get(&(package, "JSONSchemaProps")).ok_or("no JSONSchemaProps in this package")?;
            // Only one package has these, so the keyword identifies the type.
            let id = self.add(Type::Scalar(Scalar::SchemaOr(alternative, schema)));
            self.scalars.insert(text, id);
            return Ok(id);
        }
        let name = split_name(text).unwrap_or((package, text));
        self.names.get(&name).copied().ok_or("unknown type")
    }
}

fn split_name(full: &'static str) -> Option<Name> {
    full.rsplit_once('.')
}

fn set_flags(field: &mut Field, flags: &str) -> Result<(), &'static str> {
    for flag in flags.bytes() {
        match flag {
            b'?' if field.omit == Omit::Never => field.omit = Omit::Empty,
            b'z' => field.omit = Omit::Zero,
            b'*' => field.pointer = true,
            b'!' => field.required = true,
            _ => return Err("unknown flag"),
        }
    }
    Ok(())
}

fn set_strategies(patch: &mut PatchStrategy, strategies: &str) -> Result<(), &'static str> {
    for strategy in strategies.split(',') {
        match strategy {
            "merge" => patch.merge = true,
            "replace" => patch.replace = true,
            "retainKeys" => patch.retain_keys = true,
            _ => return Err("unknown patch strategy"),
        }
    }
    Ok(())
}

fn default_value(json: &'static str) -> Result<Value, &'static str> {
    match json {
        "true" => Ok(Value::Bool(true)),
        "false" => Ok(Value::Bool(false)),
        _ => match json.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
            Some(text) if !text.contains('\\') => Ok(Value::String(SmolStr::new_static(text))),
            _ => json
                .parse()
                .map(Value::Int)
                .map_err(|_| "a default that is no boolean, integer or plain string"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_read_whole() {
        let schema = builtin();
        let fields: usize = schema
            .types
            .iter()
            .map(|t| match t {
                Type::Struct(s) => s.fields.len(),
                _ => 0,
            })
            .sum();
        let in_table = TABLE.lines().filter(|line| line.starts_with(' ') && !line.starts_with(" .")).count();
        assert_eq!(fields, in_table);
        assert!(fields > 4000, "{fields} fields");
    }

    #[test]
    fn facts_of_a_container_port_list() {
        let schema = builtin();
        let container = schema.structure(schema.named("io.k8s.api.core.v1.Container").unwrap()).unwrap();
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.number, 6);
        assert_eq!(ports.omit, Omit::Empty);
        assert_eq!(ports.list, ListType::Map(vec!["containerPort".into(), "protocol".into()]));
        assert!(ports.patch.merge);
        assert_eq!(ports.patch.merge_key.as_deref(), Some("containerPort"));
        let Type::List { element, message: false, .. } = schema.get(ports.type_id) else { panic!() };
        let protocol = schema.structure(*element).unwrap().field("protocol").unwrap();
        assert_eq!(protocol.default, Some(Value::from("TCP")));
        let Type::Scalar(Scalar::String { values }) = schema.get(protocol.type_id) else { panic!() };
        assert_eq!(values, &["SCTP", "TCP", "UDP"]);
    }

    #[test]
    fn messages_can_be_embedded_two_deep() {
        let schema = builtin();
        let id = schema.named("io.k8s.api.admissionregistration.v1.NamedRuleWithOperations").unwrap();
        let rules = schema.structure(id).unwrap();
        let of = |name: &str, within| Embedded { name: name.into(), number: 2, within };
        assert_eq!(rules.embedded, [of("RuleWithOperations", 0), of("Rule", 1)]);
        assert_eq!(rules.field("apiGroups").unwrap().embedded_in, 2);
    }

    #[test]
    fn errors_name_their_line() {
        let error = parse("package a\nstruct a.T\n x 1 nothing\n").unwrap_err();
        assert_eq!(error.to_string(), "line 3: unknown type");
    }
}
