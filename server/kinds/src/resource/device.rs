//! What claims, classes and slices of devices share: selectors, opaque parameters, attribute names.

use plinth_codec::names;

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, In, Is, Set};
use crate::checks::Part;

/// Checks of the selectors of devices.
pub(crate) const SELECTOR: &[Check] = &[Set("cel", "")];

/// Validates the configuration of a driver.
pub(crate) fn opaque_config(config: &Part<'_>) {
    config.check(&[Set("opaque", ""), In("opaque", &[Is("driver", csi_driver_name), Set("parameters", "")])]);
}

/// Validates the name of an attribute: a C identifier, prefixed by a domain and a slash unless the driver
/// defines it.
pub(crate) fn attribute_name(name: &str, qualified: bool, at: &Part<'_>) {
    const MAX_DOMAIN_LENGTH: usize = 63;
    const MAX_NAME_LENGTH: usize = 32;
    const IDENTIFIER: &str = "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')";
    if name.is_empty() {
        at.required("", "name required");
        return;
    }
    let (domain, own) = match name.split_once('/') {
        Some((domain, own)) => (Some(domain), own),
        None => (None, name),
    };
    match domain {
        None if qualified => {
            let why = "a fully qualified name must be a domain and a name separated by a slash";
            at.invalid("", name, why);
        }
        Some("") => at.required("", "the domain must not be empty"),
        Some(domain) => {
            at.at_most_bytes("", domain, MAX_DOMAIN_LENGTH);
            at.check_text("", domain, names::dns1123_subdomain_errors);
        }
        None => {}
    }
    if own.is_empty() {
        at.required("", "the name must not be empty");
        return;
    }
    at.at_most_bytes("", own, MAX_NAME_LENGTH);
    let starts = own.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts || !own.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        at.invalid("", own, IDENTIFIER);
    }
}
