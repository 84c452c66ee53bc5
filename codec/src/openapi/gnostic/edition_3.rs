//! Messages of `openapi.v3`.

use serde_json::Value;

use super::message::MemberForm::*;
use super::message::{is_reference, message, only, put, MessageTable, EXTERNAL_DOCS};

pub(super) static DOCUMENT: MessageTable = MessageTable {
    members: &[
        ("openapi", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 4, Map(1, |item| Some(message(&PATH_ITEM, item)))),
        ("components", 5, One(&COMPONENTS)),
    ],
    extensions: 9,
};

static INFO: MessageTable =
    MessageTable { members: &[("title", 1, Text), ("version", 6, Text)], extensions: 7 };

static COMPONENTS: MessageTable = MessageTable {
    members: &[
        ("schemas", 1, Map(1, schema)),
        ("securitySchemes", 7, Map(1, |scheme| Some(only(1, &message(&SECURITY_SCHEME, scheme))))),
    ],
    extensions: 10,
};

static SECURITY_SCHEME: MessageTable = MessageTable {
    members: &[("type", 1, Text), ("description", 2, Text), ("name", 3, Text), ("in", 4, Text)],
    extensions: 9,
};

static PATH_ITEM: MessageTable = MessageTable {
    members: &[
        ("get", 4, One(&OPERATION)),
        ("put", 5, One(&OPERATION)),
        ("post", 6, One(&OPERATION)),
        ("delete", 7, One(&OPERATION)),
        ("options", 8, One(&OPERATION)),
        ("head", 9, One(&OPERATION)),
        ("patch", 10, One(&OPERATION)),
        ("parameters", 13, Others(parameter)),
    ],
    extensions: 14,
};

static OPERATION: MessageTable = MessageTable {
    members: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("parameters", 6, Others(parameter)),
        ("requestBody", 7, Other(|body| Some(only(1, &message(&REQUEST_BODY, body))))),
        ("responses", 8, Map(2, |response| Some(only(1, &message(&RESPONSE, response))))),
    ],
    extensions: 13,
};

static REQUEST_BODY: MessageTable = MessageTable {
    members: &[("description", 1, Text), ("content", 2, Map(1, media_type)), ("required", 3, Bool)],
    extensions: 4,
};

static RESPONSE: MessageTable =
    MessageTable { members: &[("description", 1, Text), ("content", 3, Map(1, media_type))], extensions: 5 };

static PARAMETER: MessageTable = MessageTable {
    members: &[
        ("name", 1, Text),
        ("in", 2, Text),
        ("description", 3, Text),
        ("required", 4, Bool),
        ("schema", 10, Other(schema)),
    ],
    extensions: 14,
};

static MEDIA_TYPE: MessageTable = MessageTable { members: &[("schema", 1, Other(schema))], extensions: 5 };

/// `ParameterOrReference`.
fn parameter(value: &Value) -> Option<Vec<u8>> {
    Some(only(1, &message(&PARAMETER, value)))
}

fn media_type(value: &Value) -> Option<Vec<u8>> {
    Some(message(&MEDIA_TYPE, value))
}

static REFERENCE: MessageTable =
    MessageTable { members: &[("$ref", 1, Text), ("description", 3, Text)], extensions: 0 };

static SCHEMA: MessageTable = MessageTable {
    members: &[
        ("nullable", 1, Bool),
        ("externalDocs", 6, One(&EXTERNAL_DOCS)),
        ("example", 7, Any),
        ("title", 9, Text),
        ("multipleOf", 10, Number),
        ("maximum", 11, Number),
        ("exclusiveMaximum", 12, Bool),
        ("minimum", 13, Number),
        ("exclusiveMinimum", 14, Bool),
        ("maxLength", 15, Int),
        ("minLength", 16, Int),
        ("pattern", 17, Text),
        ("maxItems", 18, Int),
        ("minItems", 19, Int),
        ("uniqueItems", 20, Bool),
        ("maxProperties", 21, Int),
        ("minProperties", 22, Int),
        ("required", 23, Texts),
        ("enum", 24, Anys),
        ("type", 25, Text),
        ("allOf", 26, Others(schema)),
        ("oneOf", 27, Others(schema)),
        ("anyOf", 28, Others(schema)),
        ("not", 29, One(&SCHEMA)),
        ("items", 30, Other(|items| Some(only(1, &schema(items)?)))),
        ("properties", 31, Map(1, schema)),
        ("additionalProperties", 32, Other(additional_properties)),
        ("default", 33, Other(default)),
        ("description", 34, Text),
        ("format", 35, Text),
    ],
    extensions: 36,
};

/// `SchemaOrReference`.
fn schema(value: &Value) -> Option<Vec<u8>> {
    Some(match is_reference(value) {
        true => only(2, &message(&REFERENCE, value)),
        false => only(1, &message(&SCHEMA, value)),
    })
}

fn additional_properties(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bool(allowed) => Some(vec![2 << 3, u8::from(*allowed)]),
        _ => Some(only(1, &schema(value)?)),
    }
}

/// `DefaultType`, which can hold numbers, booleans and strings; anything else is an empty message.
fn default(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    match value {
        Value::Bool(truth) => out.extend([2 << 3, u8::from(*truth)]),
        Value::String(text) => put(&mut out, 3, text.as_bytes()),
        Value::Number(number) => {
            out.push(1 << 3 | 1);
            out.extend_from_slice(&number.as_f64()?.to_le_bytes());
        }
        _ => {}
    }
    Some(out)
}
