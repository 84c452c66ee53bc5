//! IPAddress (`networking.k8s.io`).

use plinth_api::field;
use plinth_codec::names;

use crate::checks::Check::{self, By};
use crate::checks::{address, check_text};
use crate::path::{at, text};
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, checks: CHECKS, immutable: &["spec.parentRef"], ..BASE };

const CHECKS: &[Check] = &[By(|object, _, errors| {
    const PATH: &str = "spec.parentRef";
    // An empty name is reported with the metadata.
    if !text(object, "metadata.name").is_empty() {
        address::canonical(text(object, "metadata.name"), format_args!("metadata.name"), errors);
    }
    let Some(parent) = at(object, PATH) else {
        errors.push(field::required(PATH, ""));
        return;
    };
    let group = text(parent, "group");
    if !group.is_empty() {
        check_text(format_args!("{PATH}.group"), group, names::dns1123_subdomain_errors, errors);
    }
    for key in ["resource", "name"] {
        match text(parent, key) {
            "" => errors.push(field::required(format_args!("{PATH}.{key}"), "")),
            given => check_text(format_args!("{PATH}.{key}"), given, names::path_segment_errors, errors),
        }
    }
    match text(parent, "namespace") {
        "" => {}
        given => check_text(format_args!("{PATH}.namespace"), given, names::path_segment_errors, errors),
    }
})];
