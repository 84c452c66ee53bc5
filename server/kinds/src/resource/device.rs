//! What claims, classes and slices of devices share: selectors, opaque parameters, attribute names.

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::qualified_names::csi_driver_name;
use crate::path::{at, list, text};

pub(crate) fn selectors(holder: &Value, key: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    for (i, selector) in list(holder, key).iter().enumerate() {
        if at(selector, "cel").is_none() {
            errors.push(field::required(format_args!("{path}[{i}].cel"), ""));
        }
    }
}

pub(crate) fn opaque_config(config: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(opaque) = at(config, "opaque") else {
        errors.push(field::required(format_args!("{path}.opaque"), ""));
        return;
    };
    csi_driver_name(text(opaque, "driver"), format_args!("{path}.opaque.driver"), errors);
    if at(opaque, "parameters").is_none() {
        errors.push(field::required(format_args!("{path}.opaque.parameters"), ""));
    }
}

/// Validates the name of an attribute: a C identifier, prefixed by a domain and a slash unless the driver
/// defines it.
pub(crate) fn attribute_name(name: &str, qualified: bool, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX_DOMAIN_LENGTH: usize = 63;
    const MAX_NAME_LENGTH: usize = 32;
    const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    if name.is_empty() {
        errors.push(field::required(path, "name required"));
        return;
    }
    let (domain, own) = match name.split_once('/') {
        Some((domain, own)) => (Some(domain), own),
        None => (None, name),
    };
    match domain {
        None if qualified => {
            let why = "a fully qualified name must be a domain and a name separated by a slash";
            errors.push(field::invalid(path, name, why));
        }
        Some("") => errors.push(field::required(path, "the domain must not be empty")),
        Some(domain) => {
            if domain.len() > MAX_DOMAIN_LENGTH {
                errors.push(field::too_long(path, MAX_DOMAIN_LENGTH));
            }
            check_text(path, domain, names::dns1123_subdomain_errors, errors);
        }
        None => {}
    }
    if own.is_empty() {
        errors.push(field::required(path, "the name must not be empty"));
        return;
    }
    if own.len() > MAX_NAME_LENGTH {
        errors.push(field::too_long(path, MAX_NAME_LENGTH));
    }
    let starts = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        errors.push(field::invalid(path, own, IDENTIFIER));
    }
}
