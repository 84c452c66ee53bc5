//! Names that several kinds share: names with a domain prefix, names of CSI drivers.

use plinth_api::{Cause, FieldPath};
use plinth_codec::names;

use super::part::Part;

/// Validates what a pod adds to its request for the signer (kubernetes `pkg/apis/core/validation`,
/// `ValidateUserAnnotations`).
pub(crate) fn user_annotations(holder: &Part<'_>, field: &str) {
    const MAX_SIZE: usize = 256 << 10;
    let mut size = 0;
    for (key, value) in holder.members(field) {
        size += key.len() + value.as_str().unwrap_or_default().len();
        domain_prefixed_key(holder, field, &key.to_lowercase());
    }
    if size > MAX_SIZE {
        holder.push(Cause::too_long(holder.path(field), MAX_SIZE));
    }
}

fn domain_prefixed_key(holder: &Part<'_>, field: &str, key: &str) {
    let errors = names::qualified_name_errors(key);
    if key.is_empty() {
        holder.required(field, "");
    } else if errors.is_empty() && !key.contains('/') {
        holder.invalid(field, key, "must be a domain-prefixed key (such as \"acme.io/foo\")");
    }
    errors.iter().filter(|_| !key.is_empty()).for_each(|why| holder.invalid(field, key, why));
}

/// Validates a domain-prefixed path, such as `acme.io/foo`.
pub(crate) fn domain_prefixed_path(given: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const FORM: &str = "must be a domain-prefixed path (such as \"acme.io/foo\")";
    if given.is_empty() {
        errors.push(Cause::required(path, ""));
        return;
    }
    let Some((domain, rest)) = given.split_once('/').filter(|(d, r)| !d.is_empty() && !r.is_empty()) else {
        errors.push(Cause::invalid(path, given, FORM));
        return;
    };
    for why in names::dns1123_subdomain_errors(domain) {
        errors.push(Cause::invalid(path, domain, &why));
    }
    let good = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    if !rest.bytes().all(good) {
        let why = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')";
        errors.push(Cause::invalid(path, rest, why));
    }
}

/// Checks the name of a CSI driver (kubernetes `pkg/apis/core/validation`, `ValidateCSIDriverName`).
pub(crate) fn csi_driver_name(driver: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const MAX: usize = 63;
    if driver.is_empty() {
        errors.push(Cause::required(path, ""));
        return;
    }
    if driver.len() > MAX {
        errors.push(Cause::too_long(path, MAX));
    }
    let why = names::dns1123_subdomain_errors(&driver.to_lowercase());
    errors.extend(why.iter().map(|why| Cause::invalid(path, driver, why)));
}
