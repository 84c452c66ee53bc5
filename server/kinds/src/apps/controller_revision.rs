//! ControllerRevision (`apps`).

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::Check::{self, AtLeast, By};
use crate::path::{flag, list, text};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { checks: CHECKS, immutable: &["data"], columns: COLUMNS, ..BASE };

const CHECKS: &[Check] = &[
    By(|revision| match revision.at("data") {
        None => revision.required("data", "data is mandatory"),
        Some(Value::Object(_) | Value::Encoded(_)) => {}
        Some(_) => revision.required("data", "data must be a valid JSON object"),
    }),
    AtLeast("revision", 0),
];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Controller", &["metadata.ownerReferences"], controller_cell),
    Column::int("Revision", "revision").declared("string"),
    Column::AGE,
];

/// The owner that controls a revision, as `statefulset.apps/web`.
fn controller_cell(revision: &Value, _: Now) -> Cell<'_> {
    let owners = list(revision, "metadata.ownerReferences");
    let Some(owner) = owners.iter().find(|o| flag(o, "controller")) else {
        return "<none>".into();
    };
    let (kind, name) = (text(owner, "kind").to_lowercase(), text(owner, "name"));
    match text(owner, "apiVersion").split_once('/') {
        Some((group, _)) => format!("{kind}.{}/{name}", group.to_lowercase()),
        None if kind.is_empty() => name.to_owned(),
        None => format!("{kind}/{name}"),
    }
    .into()
}
