//! ControllerRevision (`apps`).

use plinth_api::field;
use plinth_codec::Value;

use crate::checks::Check::{self, AtLeast, By};
use crate::path::at;
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy { checks: CHECKS, immutable: &["data"], ..BASE };

const CHECKS: &[Check] = &[
    By(|revision, _, errors| match at(revision, "data") {
        None => errors.push(field::required("data", "data is mandatory")),
        Some(Value::Object(_) | Value::Encoded(_)) => {}
        Some(_) => errors.push(field::required("data", "data must be a valid JSON object")),
    }),
    AtLeast("revision", 0),
];
