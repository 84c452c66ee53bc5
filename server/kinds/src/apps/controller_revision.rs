//! ControllerRevision (`apps`).

use plinth_codec::Value;

use crate::checks::Check::{self, AtLeast, By};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy { checks: CHECKS, immutable: &["data"], ..BASE };

const CHECKS: &[Check] = &[
    By(|revision| match revision.at("data") {
        None => revision.required("data", "data is mandatory"),
        Some(Value::Object(_) | Value::Encoded(_)) => {}
        Some(_) => revision.required("data", "data must be a valid JSON object"),
    }),
    AtLeast("revision", 0),
];
