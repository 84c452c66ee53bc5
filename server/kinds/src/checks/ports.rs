//! Port numbers, port names and protocols.

use plinth_codec::names;

use crate::checks::Check::{self, OptionalText, RequiredOneOf};
use crate::checks::Part;

pub(crate) use crate::checks::messages::PORT;

pub(crate) fn is_port(number: i64) -> bool {
    (1..=65_535).contains(&number)
}

/// Valid protocols.
pub(crate) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

/// Checks of the protocols of a port of Endpoints and EndpointSlices.
pub(crate) const PROTOCOL_CHECKS: &[Check] =
    &[RequiredOneOf("protocol", PROTOCOLS), OptionalText("appProtocol", names::qualified_name_errors)];

/// Validates a port that is given by number or by name.
pub(crate) fn port_or_name(port: &Part<'_>) {
    match port.set_text("") {
        Some(name) => port.check_text("", name, port_name_errors),
        None => must_be_port(port, ""),
    }
}

/// A number must be a port; an absent one counts as 0.
pub(crate) fn must_be_port(part: &Part<'_>, key: &str) {
    if !is_port(part.number(key)) {
        part.invalid(key, part.number(key), PORT);
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
