//! Go's names of types, for the errors of decoding.

use crate::schema::{Scalar, Schema, SchemaOr, Type, TypeId};

/// Go's name of a type.
pub(crate) fn go_type(schema: &Schema, id: TypeId) -> String {
    match schema.get(id) {
        Type::Struct(s) => {
            let mut parts = s.name.rsplit('.');
            let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{package}.{name}")
        }
        Type::List { element, .. } => format!("[]{}", go_type(schema, *element)),
        // Quantities by resource have a type of their own.
        Type::Map { value, .. } if matches!(schema.get(*value), Type::Scalar(Scalar::Quantity)) => {
            "v1.ResourceList".to_owned()
        }
        Type::Map { value, .. } => format!("map[string]{}", go_type(schema, *value)),
        Type::Scalar(scalar) => match scalar {
            Scalar::Bool => "bool",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Double => "float64",
            Scalar::String { .. } => match schema.go_strings.get(&id) {
                Some((package, name)) => return format!("{package}.{name}"),
                None => "string",
            },
            Scalar::Bytes => "[]uint8",
            Scalar::Quantity => "resource.Quantity",
            Scalar::IntOrString => "intstr.IntOrString",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Duration => "v1.Duration",
            Scalar::RawExtension => "runtime.RawExtension",
            Scalar::Json => "v1.JSON",
            Scalar::FieldsV1 => "v1.FieldsV1",
            Scalar::SchemaOr(SchemaOr::Array, _) => "v1.JSONSchemaPropsOrArray",
            Scalar::SchemaOr(SchemaOr::Bool, _) => "v1.JSONSchemaPropsOrBool",
            Scalar::SchemaOr(SchemaOr::StringArray, _) => "v1.JSONSchemaPropsOrStringArray",
            Scalar::Any => "interface {}",
        }
        .to_string(),
    }
}
