//! Messages of `openapi.v2`.

use serde_json::Value;

use super::message::MemberForm::*;
use super::message::{is_reference, message, only, pair, put, MessageTable, EXTERNAL_DOCS};

pub(super) static DOCUMENT: MessageTable = MessageTable {
    members: &[
        ("swagger", 1, Text),
        ("info", 2, One(&INFO)),
        ("paths", 8, Map(2, |item| Some(message(&PATH_ITEM, item)))),
        ("definitions", 9, Map(1, |schema| Some(message(&SCHEMA, schema)))),
        ("parameters", 10, Map(1, parameter)),
        ("security", 12, Others(security_requirement)),
        ("securityDefinitions", 13, Map(1, |scheme| Some(only(2, &message(&API_KEY, scheme))))),
    ],
    extensions: 16,
};

static INFO: MessageTable =
    MessageTable { members: &[("title", 1, Text), ("version", 2, Text)], extensions: 7 };

static PATH_ITEM: MessageTable = MessageTable {
    members: &[
        ("get", 2, One(&OPERATION)),
        ("put", 3, One(&OPERATION)),
        ("post", 4, One(&OPERATION)),
        ("delete", 5, One(&OPERATION)),
        ("options", 6, One(&OPERATION)),
        ("head", 7, One(&OPERATION)),
        ("patch", 8, One(&OPERATION)),
        ("parameters", 9, Others(parameter_item)),
    ],
    extensions: 10,
};

static OPERATION: MessageTable = MessageTable {
    members: &[
        ("tags", 1, Texts),
        ("description", 3, Text),
        ("operationId", 5, Text),
        ("produces", 6, Texts),
        ("consumes", 7, Texts),
        ("parameters", 8, Others(parameter_item)),
        ("responses", 9, Map(1, |response| Some(only(1, &message(&RESPONSE, response))))),
        ("schemes", 10, Texts),
    ],
    extensions: 13,
};

static RESPONSE: MessageTable = MessageTable {
    members: &[
        ("description", 1, Text),
        ("schema", 2, Other(|schema| Some(only(1, &message(&SCHEMA, schema))))),
    ],
    extensions: 5,
};

static JSON_REFERENCE: MessageTable =
    MessageTable { members: &[("$ref", 1, Text), ("description", 2, Text)], extensions: 0 };

static BODY_PARAMETER: MessageTable = MessageTable {
    members: &[
        ("description", 1, Text),
        ("name", 2, Text),
        ("in", 3, Text),
        ("required", 4, Bool),
        ("schema", 5, One(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: MessageTable = MessageTable {
    members: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 6, Text),
        ("format", 7, Text),
        ("uniqueItems", 20, Bool),
    ],
    extensions: 23,
};

static PATH_PARAMETER: MessageTable = MessageTable {
    members: &[
        ("required", 1, Bool),
        ("in", 2, Text),
        ("description", 3, Text),
        ("name", 4, Text),
        ("type", 5, Text),
        ("format", 6, Text),
        ("uniqueItems", 19, Bool),
    ],
    extensions: 22,
};

/// `ParametersItem`.
fn parameter_item(value: &Value) -> Option<Vec<u8>> {
    match is_reference(value) {
        true => Some(only(2, &message(&JSON_REFERENCE, value))),
        false => Some(only(1, &parameter(value)?)),
    }
}

/// `Parameter`.
fn parameter(value: &Value) -> Option<Vec<u8>> {
    match value.get("in")?.as_str()? {
        "body" => Some(only(1, &message(&BODY_PARAMETER, value))),
        "query" => Some(only(2, &only(3, &message(&QUERY_PARAMETER, value)))),
        "path" => Some(only(2, &only(4, &message(&PATH_PARAMETER, value)))),
        _ => None,
    }
}

static SCHEMA: MessageTable = MessageTable {
    members: &[
        ("$ref", 1, Text),
        ("format", 2, Text),
        ("title", 3, Text),
        ("description", 4, Text),
        ("default", 5, Any),
        ("multipleOf", 6, Number),
        ("maximum", 7, Number),
        ("exclusiveMaximum", 8, Bool),
        ("minimum", 9, Number),
        ("exclusiveMinimum", 10, Bool),
        ("maxLength", 11, Int),
        ("minLength", 12, Int),
        ("pattern", 13, Text),
        ("maxItems", 14, Int),
        ("minItems", 15, Int),
        ("uniqueItems", 16, Bool),
        ("maxProperties", 17, Int),
        ("minProperties", 18, Int),
        ("required", 19, Texts),
        ("enum", 20, Anys),
        ("additionalProperties", 21, Other(additional_properties)),
        ("type", 22, Other(type_item)),
        ("items", 23, Other(|items| Some(only(1, &message(&SCHEMA, items))))),
        ("allOf", 24, Each(&SCHEMA)),
        ("properties", 25, Map(1, |schema| Some(message(&SCHEMA, schema)))),
        ("externalDocs", 29, One(&EXTERNAL_DOCS)),
        ("example", 30, Any),
    ],
    extensions: 31,
};

fn additional_properties(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::Bool(allowed) => Some(vec![2 << 3, u8::from(*allowed)]),
        _ => Some(only(1, &message(&SCHEMA, value))),
    }
}

/// `TypeItem`: a list, since JSON Schema allows several.
fn type_item(value: &Value) -> Option<Vec<u8>> {
    value.as_str().map(|name| only(1, name.as_bytes()))
}

static API_KEY: MessageTable = MessageTable {
    members: &[("type", 1, Text), ("name", 2, Text), ("in", 3, Text), ("description", 4, Text)],
    extensions: 5,
};

/// `SecurityRequirement`: the scopes of each scheme, which are all empty.
fn security_requirement(value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    value.as_object()?.keys().for_each(|scheme| put(&mut out, 1, &pair(scheme, &[])));
    Some(out)
}
