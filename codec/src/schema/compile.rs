//! Compiles the layouts of a schema.

use super::layout::{FieldLayout, FieldSet, FieldStep, Form, Layouts, Message, NameTable, Part, ValueLayout};
use super::{Field, Scalar, Schema, StructType, Successors, Type, TypeId};

/// The name of the type of an object's metadata.
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Layouts {
    /// Compiles a schema's structs, but not the bytes of unset fields and empty messages, which the encoder
    /// adds. Costs a few microseconds each.
    pub(crate) fn new(schema: &Schema) -> Layouts {
        Layouts {
            messages: schema
                .types
                .iter()
                .map(|t| match t {
                    Type::Struct(s)
                        if s.fields.len() + s.embedded.len() <= FieldSet::MAX && has_message(s) =>
                    {
                        Some(message(schema, s))
                    }
                    _ => None,
                })
                .collect(),
        }
    }
}

/// Whether protobuf carries a struct. Tables it does not: none of their fields has a number.
fn has_message(structure: &StructType) -> bool {
    let own = |f: &&Field| f.name != "kind" && f.name != "apiVersion";
    structure.fields.iter().filter(own).any(|f| f.number != 0) || structure.fields.iter().find(own).is_none()
}

fn message(schema: &Schema, structure: &StructType) -> Message {
    let mut fields: Box<[FieldLayout]> = structure.fields.iter().map(|f| field(schema, f)).collect();
    // Part 0 is the message itself; part n is what `embedded_in` calls n.
    let mut steps: Vec<Vec<(u32, FieldStep)>> = vec![Vec::new(); structure.embedded.len() + 1];
    for (i, (model, layout)) in structure.fields.iter().zip(&fields).enumerate() {
        if layout.number != 0 && layout.shape != ValueLayout::None {
            if let Some(part) = steps.get_mut(model.embedded_in as usize) {
                part.push((layout.number, FieldStep::Field(i as u16)));
            }
        }
    }
    for (i, embedded) in structure.embedded.iter().enumerate() {
        let step = FieldStep::Part { number: embedded.number, part: i as u16 + 1 };
        if let Some(part) = steps.get_mut(embedded.within as usize) {
            part.push((embedded.number, step));
        }
    }
    let parts: Box<[Part]> = steps.into_iter().map(|steps| part(steps, &fields)).collect();
    for part in &parts {
        for (place, step) in part.steps.iter().enumerate() {
            if let FieldStep::Field(field) = step {
                fields[usize::from(*field)].place = place as u8;
            }
        }
    }
    let names = NameTable::new(&fields);
    let mut always = FieldSet::default();
    for (i, field) in fields.iter().enumerate() {
        if field.number != 0 && field.written_when_absent() {
            always.add(i);
        }
    }
    let (name, successors) = (structure.name.clone(), Successors::new(fields.len()));
    let revision = match name.as_str() {
        OBJECT_META => names.find("resourceVersion", &fields).map(|index| index as u16),
        _ => None,
    };
    Message { name, fields, parts, empty: Box::default(), always, names, successors, revision }
}

fn part(mut steps: Vec<(u32, FieldStep)>, fields: &[FieldLayout]) -> Part {
    steps.sort_by_key(|(number, _)| *number);
    let last = steps.last().map_or(0, |(number, _)| *number) as usize;
    let mut by_number = vec![0; last + 1];
    for (i, (number, _)) in steps.iter().enumerate() {
        by_number[*number as usize] = i as u16 + 1;
    }
    let mut filled = FieldSet::default();
    for (i, (_, step)) in steps.iter().enumerate() {
        if matches!(step, FieldStep::Field(field) if fields[usize::from(*field)].is_filled()) {
            filled.add(i);
        }
    }
    let steps = steps.into_iter().map(|(_, step)| step).collect();
    Part { steps, filled, by_number: by_number.into() }
}

fn field(schema: &Schema, field: &Field) -> FieldLayout {
    let (form, shape) = match schema.get(field.type_id) {
        Type::List { element, message: false, .. } => (Form::List, shape(schema, *element)),
        Type::List { element, message: true, .. } => (Form::Wrapped, shape(schema, *element)),
        Type::Map { value, .. } => match schema.get(*value) {
            Type::List { element, .. } => (Form::MapOfWrapped, shape(schema, *element)),
            _ => (Form::Map, shape(schema, *value)),
        },
        _ => (Form::One, shape(schema, field.type_id)),
    };
    FieldLayout {
        name: field.name.clone(),
        key: format!("\"{}\":", field.name).into(),
        number: field.number,
        shape,
        form,
        omit: field.omit,
        pointer: field.pointer,
        place: 0,
        zero: Box::default(),
    }
}

fn shape(schema: &Schema, id: TypeId) -> ValueLayout {
    match schema.get(id) {
        Type::Struct(_) => ValueLayout::Message(id),
        Type::List { .. } | Type::Map { .. } => ValueLayout::None,
        Type::Scalar(scalar) => match scalar {
            Scalar::Bool => ValueLayout::Bool,
            Scalar::Int32 => ValueLayout::Int32,
            Scalar::Int64 => ValueLayout::Int64,
            Scalar::Double => ValueLayout::Double,
            Scalar::String { .. } => ValueLayout::String,
            Scalar::Bytes => ValueLayout::Bytes,
            Scalar::Quantity => ValueLayout::Quantity,
            Scalar::IntOrString => ValueLayout::IntOrString,
            Scalar::Time => ValueLayout::Time,
            Scalar::MicroTime => ValueLayout::MicroTime,
            Scalar::Duration => ValueLayout::Duration,
            Scalar::RawExtension | Scalar::Json | Scalar::FieldsV1 => ValueLayout::Raw,
            Scalar::SchemaOr(or, id) => ValueLayout::SchemaOr(*or, *id),
            Scalar::Any => ValueLayout::None,
        },
    }
}
