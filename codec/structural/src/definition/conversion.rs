//! Conversion between versions by a webhook.

use plinth_codec::base64_text;
use plinth_codec::field::{FieldError, Path};
use plinth_codec::names;
use plinth_codec::pem::{self, Block};
use plinth_codec::url;
use plinth_codec::value::Value;

use super::parts::one_of;
use super::view::View;

/// Versions of ConversionReview that this server supports.
const REVIEW_VERSIONS: [&str; 2] = ["v1", "v1beta1"];

/// Which rules apply.
pub(super) struct ConversionRules {
    /// The webhook accepts a version of ConversionReview that this server supports.
    pub known_review_version: bool,
    /// The CA bundle of the webhook may be malformed.
    pub any_ca_bundle: bool,
}

pub(super) fn errors(path: &Path<'_>, view: &View<'_>, rules: &ConversionRules) -> Vec<FieldError> {
    let Some(conversion) = view.spec.get("conversion").filter(|c| !c.is_null()) else { return Vec::new() };
    let mut errors = Vec::new();
    let strategy = conversion.str_at(&["strategy"]).unwrap_or_default();
    if strategy != "None" && view.preserves_unknown() {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(FieldError::invalid(path.child("strategy"), &strategy.into(), why));
    }
    errors.extend(one_of(&path.child("strategy"), strategy, &["None", "Webhook"]));
    let client = conversion.at(&["webhook", "clientConfig"]).filter(|c| !c.is_null());
    let reviews = conversion.at(&["webhook", "conversionReviewVersions"]);
    let reviews = reviews.and_then(Value::as_array).unwrap_or_default();
    let (client_path, reviews_path) =
        (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        errors.extend(client.map(|_| FieldError::forbidden(client_path, why)));
        errors.extend((!reviews.is_empty()).then(|| FieldError::forbidden(reviews_path, why)));
        return errors;
    }
    match client {
        None => {
            errors.push(FieldError::required(client_path, "required when strategy is set to Webhook"));
        }
        Some(client) => client_errors(&client_path, client, rules, &mut errors),
    }
    review_errors(&reviews_path, reviews, rules, &mut errors);
    errors
}

fn client_errors(path: &Path<'_>, client: &Value, rules: &ConversionRules, errors: &mut Vec<FieldError>) {
    let is_set = |key: &str| client.get(key).filter(|v| !v.is_null());
    match (is_set("url").and_then(Value::as_str), is_set("service")) {
        (Some(url), None) => url_errors(&path.child("url"), url, errors),
        (None, Some(service)) => service_errors(&path.child("service"), service, errors),
        _ => errors.push(FieldError::required(path, "exactly one of url or service is required")),
    }
    let bundle = ca_bundle(client);
    if !rules.any_ca_bundle && !bundle.is_empty() && !is_pem(bundle) {
        let why = "unable to load root certificates: unable to parse bytes as PEM block";
        errors.push(FieldError::invalid(path.child("caBundle"), &bundle.into(), why));
    }
}

fn url_errors(path: &Path<'_>, text: &str, errors: &mut Vec<FieldError>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let url = match url::parse(text, false) {
        Ok(url) => url,
        Err(why) => {
            let why = format!("url must be a valid URL: {why}{FORM}");
            return errors.push(FieldError::required(path, why));
        }
    };
    let mut refuse = |value: &str, why: &str| errors.push(FieldError::invalid(path, &value.into(), why));
    if url.scheme != "https" {
        refuse(&url.scheme, &format!("'https' is the only allowed URL scheme{FORM}"));
    }
    if url.host.is_empty() {
        refuse(url.host, &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        refuse(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        refuse(url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        refuse(url.query, "query parameters are not permitted in the URL");
    }
}

fn service_errors(path: &Path<'_>, service: &Value, errors: &mut Vec<FieldError>) {
    let text = |key: &str| service.str_at(&[key]).unwrap_or_default();
    for key in ["name", "namespace"] {
        if text(key).is_empty() {
            errors.push(FieldError::required(path.child(key), ""));
        }
    }
    // The default port is 443.
    if let Some(port) = service.get("port").filter(|p| p.as_int().is_none_or(|p| !(1..=65535).contains(&p))) {
        if !port.is_null() {
            let why = "port is not valid: must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(path.child("port"), port, why));
        }
    }
    let given = text("path");
    let mut refuse = |why: &str| errors.push(FieldError::invalid(path.child("path"), &given.into(), why));
    match given {
        "" | "/" => return,
        "//" => return refuse("segment[0] may not be empty"),
        _ if !given.starts_with('/') => refuse("must start with a '/'"),
        _ => {}
    }
    let mut chars = given.chars();
    chars.next();
    let steps = chars.as_str();
    for (i, step) in steps.strip_suffix('/').unwrap_or(steps).split('/').enumerate() {
        if step.is_empty() {
            refuse(&format!("segment[{i}] may not be empty"));
            continue;
        }
        names::dns1123_subdomain_errors(step).iter().for_each(|why| refuse(&format!("segment[{i}]: {why}")));
    }
}

fn review_errors(path: &Path<'_>, versions: &[Value], rules: &ConversionRules, errors: &mut Vec<FieldError>) {
    if versions.is_empty() {
        return errors.push(FieldError::required(path, ""));
    }
    for (i, version) in versions.iter().enumerate() {
        if versions[..i].contains(version) {
            errors.push(FieldError::invalid(path.index(i), version, "duplicate version"));
            continue;
        }
        for why in names::dns1035_label_errors(version.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid(path.index(i), version, why));
        }
    }
    if rules.known_review_version && !versions.iter().any(is_known) {
        let why = format!("must include at least one of {}", REVIEW_VERSIONS.join(", "));
        errors.push(FieldError::invalid(path, &versions.to_vec().into(), why));
    }
}

fn is_known(version: &Value) -> bool {
    version.as_str().is_some_and(|version| REVIEW_VERSIONS.contains(&version))
}

/// Whether the webhook accepts a version that this server supports, or does not list versions.
pub(super) fn has_known_review_version(view: &View<'_>) -> bool {
    let webhook = view.spec.get("conversion").and_then(|c| c.get("webhook"));
    let versions = webhook.and_then(|w| w.get("conversionReviewVersions")).and_then(Value::as_array);
    versions.is_none_or(|versions| versions.is_empty() || versions.iter().any(is_known))
}

pub(super) fn has_bad_ca_bundle(view: &View<'_>) -> bool {
    let client = view.spec.get("conversion").and_then(|c| c.at(&["webhook", "clientConfig"]));
    let bundle = client.map(ca_bundle).unwrap_or_default();
    !bundle.is_empty() && !is_pem(bundle)
}

fn ca_bundle(client: &Value) -> &str {
    client.str_at(&["caBundle"]).unwrap_or_default()
}

/// Whether a bundle (base64) has a certificate in a PEM block. The certificate itself is checked by the TLS
/// client.
fn is_pem(bundle: &str) -> bool {
    let blocks = base64_text::decode(bundle).ok().and_then(|text| pem::parse(&text).ok());
    let is_certificate =
        |block: &Block| block.label == "CERTIFICATE" && !block.has_headers && !block.contents.is_empty();
    blocks.is_some_and(|blocks| blocks.iter().any(is_certificate))
}
