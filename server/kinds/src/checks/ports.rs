//! Port numbers, port names and protocols.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::Check::{self, OptionalText, RequiredOneOf};

/// Message for an invalid port number.
pub(crate) const PORT: &str = "must be between 1 and 65535, inclusive";

pub(crate) fn is_port(number: i64) -> bool {
    (1..=65_535).contains(&number)
}

/// Valid protocols.
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Checks of the protocols of a port of Endpoints and EndpointSlices.
pub(crate) const PROTOCOL_CHECKS: &[Check] =
    &[RequiredOneOf("protocol", PROTOCOLS), OptionalText("appProtocol", names::qualified_name_errors)];

/// Validates a port that is given by number or by name.
pub(crate) fn port_or_name(port: Option<&Value>, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    match port {
        Some(Value::String(name)) => check_text(path, name, port_name_errors, errors),
        other => {
            let number = other.and_then(Value::as_int).unwrap_or(0);
            if !is_port(number) {
                errors.push(field::invalid(path, number, PORT));
            }
        }
    }
}

/// Errors of a port name (an IANA service name).
pub(crate) fn port_name_errors(name: &str) -> Vec<String> {
    const MAX: usize = 15;
    let mut errors = Vec::new();
    if name.len() > MAX {
        errors.push(format!("must be no more than {MAX} characters"));
    }
    if !name.bytes().all(|b| b.is_ascii_alphanumeric() && !b.is_ascii_uppercase() || b == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        errors.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        errors.push("must not begin or end with a hyphen".into());
    }
    errors
}
