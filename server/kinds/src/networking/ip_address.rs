//! IPAddress (`networking.k8s.io`).

use plinth_codec::names;

use crate::checks::address;
use crate::checks::Check::{self, By, In, RequiredText, Set, Text};
use crate::strategy::{NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { name: NameRule::PathSegment, checks: CHECKS, immutable: &["spec.parentRef"], ..BASE };

const CHECKS: &[Check] = &[
    By(|object| {
        // An empty name is reported with the metadata.
        if !object.text("metadata.name").is_empty() {
            object.apply("metadata.name", address::canonical);
        }
    }),
    Set("spec.parentRef", ""),
    In("spec.parentRef", PARENT),
];

const PARENT: &[Check] = &[
    Text("group", names::dns1123_subdomain_errors),
    RequiredText("resource", names::path_segment_errors),
    RequiredText("name", names::path_segment_errors),
    Text("namespace", names::path_segment_errors),
];
