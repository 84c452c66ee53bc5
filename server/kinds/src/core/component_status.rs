//! ComponentStatus (`core`).

use plinth_codec::table::{condition, Cell, Column, Now};
use plinth_codec::Value;

use crate::path::{list, text};
use crate::strategy::{Deprecation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    deprecations: &[Deprecation::new("v1", "v1 ComponentStatus is deprecated in v1.19+", "")],
    columns: COLUMNS,
    ..BASE
};

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Status", HEALTH, status_cell),
    Column::computed("Message", HEALTH, message_cell),
    Column::computed("Error", HEALTH, error_cell),
];

const HEALTH: &[&str] = &["conditions"];

fn health<'a>(component: &'a Value, field: &str) -> &'a str {
    condition(list(component, "conditions"), "Healthy").map_or("", |c| text(c, field))
}

fn status_cell(component: &Value, _: Now) -> Cell<'_> {
    match health(component, "status") {
        "True" => "Healthy",
        _ if condition(list(component, "conditions"), "Healthy").is_some() => "Unhealthy",
        _ => "Unknown",
    }
    .into()
}

fn message_cell(component: &Value, _: Now) -> Cell<'_> {
    health(component, "message").into()
}

fn error_cell(component: &Value, _: Now) -> Cell<'_> {
    health(component, "error").into()
}
