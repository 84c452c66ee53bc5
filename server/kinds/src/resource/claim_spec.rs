//! What a claim asks for: the spec of a ResourceClaim and of those that a ResourceClaimTemplate makes.

use std::collections::{HashMap, HashSet};

use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, AnyText, By, Each, Positive, RequiredText};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Computed, Field, ForEach, IfPresent, When};
use crate::defaults::Literal::Str;
use crate::resource::device::{
    each_of, each_of_set, fully_qualified_name, opaque_config, selectors, TOLERATION,
};
use crate::resource::selector::Written;

/// Of requests in both forms: those of `v1beta1` have the members of `exactly` themselves.
pub(crate) const SPEC_DEFAULTS: &[DefaultRule] = &[ForEach(
    "devices.requests",
    &[
        IfPresent("exactly", REQUEST_DEFAULTS),
        ForEach("firstAvailable", REQUEST_DEFAULTS),
        Computed(flat_request_defaults),
        ForEach("tolerations", TOLERATION_DEFAULTS),
    ],
)];

/// Without a class it is one of alternatives.
fn flat_request_defaults(request: &mut Map) {
    let text = |request: &Map, key: &str| request.get(key).and_then(Value::as_str).map(str::to_owned);
    if text(request, "deviceClassName").is_none_or(|class| class.is_empty()) {
        return;
    }
    let mode = text(request, "allocationMode").filter(|mode| !mode.is_empty());
    if mode.is_none() {
        request.insert("allocationMode", "ExactCount");
    }
    let has_count = request.get("count").and_then(Value::as_int).is_some_and(|count| count != 0);
    if mode.is_none_or(|mode| mode == "ExactCount") && !has_count {
        request.insert("count", 1);
    }
}

const REQUEST_DEFAULTS: &[DefaultRule] = &[
    Field("allocationMode", Str("ExactCount")),
    When("allocationMode", "ExactCount", &[DefaultRule::NonZero("count", 1)]),
    ForEach("tolerations", TOLERATION_DEFAULTS),
];

/// Of the tolerations of a request, and of those that an allocation has from it.
pub(crate) const TOLERATION_DEFAULTS: &[DefaultRule] = &[Field("operator", Str("Equal"))];

/// Maximum number of requests, and of names of requests.
const MAX_REQUESTS: usize = 32;

/// Maximum number of alternatives of a request.
const MAX_ALTERNATIVES: usize = 8;

/// Maximum number of constraints.
const MAX_CONSTRAINTS: usize = 32;

/// Maximum number of configurations of a claim.
pub(crate) const MAX_CONFIG: usize = 32;

/// The names of a claim's requests, each with those of its alternatives.
pub(crate) struct RequestNames<'a>(HashMap<&'a str, HashSet<&'a str>>);

impl<'a> RequestNames<'a> {
    /// The names of `devices` of a spec.
    pub(crate) fn of(devices: &Part<'a>) -> RequestNames<'a> {
        fn name(object: &Value) -> &str {
            object.str_at(&["name"]).unwrap_or_default()
        }
        let requests = devices.list("requests").iter();
        let alternatives = |request: &'a Value| request.list_at(&["firstAvailable"]).iter().map(name);
        RequestNames(requests.map(|request| (name(request), alternatives(request).collect())).collect())
    }

    fn has(&self, name: &str) -> bool {
        match name.split_once('/') {
            None => self.0.contains_key(name),
            Some((request, alternative)) => {
                self.0.get(request).is_some_and(|alternatives| alternatives.contains(alternative))
            }
        }
    }

    /// Validates a reference to a request, or to an alternative of one: `request/alternative`.
    pub(crate) fn validate(&self, reference: &Part<'_>, key: &str) {
        const WHY: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
        let name = reference.text(key);
        let parts: Vec<&str> = name.split('/').collect();
        if parts.len() > 2 {
            reference.invalid(key, name, WHY);
            return;
        }
        parts.iter().for_each(|part| reference.check_text(key, part, names::dns1123_label_errors));
        if !self.has(name) {
            reference.invalid(key, name, WHY);
        }
    }

    /// Validates the requests that a constraint or a configuration names.
    pub(crate) fn validate_list(&self, holder: &Part<'_>) {
        each_of_set(holder, "requests", MAX_REQUESTS, "", |name| self.validate(name, ""));
    }
}

/// Validates `devices` of the spec of a claim.
pub(crate) fn claim_devices(devices: &Part<'_>) {
    let known = RequestNames::of(devices);
    each_of_set(devices, "requests", MAX_REQUESTS, "name", request);
    each_of(devices, "constraints", MAX_CONSTRAINTS, |constraint| {
        known.validate_list(constraint);
        constraint.check(ATTRIBUTE);
    });
    each_of(devices, "config", MAX_CONFIG, |config| {
        known.validate_list(config);
        opaque_config(config, Written::New);
    });
}

/// The attribute that a constraint compares. Where both are named upstream looks at the first alone.
const ATTRIBUTE: &[Check] = &[By(|constraint| {
    const KEYS: [&str; 2] = ["matchAttribute", "distinctAttribute"];
    // Upstream's message where none is set.
    const WHY: &str =
        "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set";
    match KEYS.into_iter().find(|key| constraint.has(key)) {
        Some(key) => constraint.apply(key, fully_qualified_name),
        None => constraint.required("", WHY),
    }
})];

fn request(wanted: &Part<'_>) {
    const WHY: &str = "exactly one of `exactly` or `firstAvailable` is required";
    wanted.check(&[AnyText("name", names::dns1123_label_errors)]);
    match (wanted.get("exactly"), wanted.is_empty("firstAvailable")) {
        (None, true) => wanted.required("", WHY),
        (Some(_), false) => {
            wanted.invalid("", Value::Null, &format!("{WHY}, but multiple fields are set"));
        }
        (Some(exactly), true) => exactly.check(ONE_REQUEST),
        (None, false) => each_of_set(wanted, "firstAvailable", MAX_ALTERNATIVES, "name", |alternative| {
            alternative.check(&[AnyText("name", names::dns1123_label_errors)]);
            alternative.check(ONE_REQUEST);
        }),
    }
}

const ONE_REQUEST: &[Check] = &[
    RequiredText("deviceClassName", names::dns1123_subdomain_errors),
    By(|wanted| selectors(wanted, Written::New)),
    By(|wanted| {
        let count = wanted.number("count");
        match wanted.text("allocationMode") {
            "All" if count != 0 => {
                wanted.invalid("count", count, "must not be specified when allocationMode is 'All'");
            }
            "ExactCount" => wanted.check(&[Positive("count")]),
            _ => wanted.one_of("allocationMode", &["All", "ExactCount"]),
        }
    }),
    Each("tolerations", TOLERATION),
];
