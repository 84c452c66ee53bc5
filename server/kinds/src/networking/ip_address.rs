//! IPAddress (`networking.k8s.io`).

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::address;
use crate::checks::Check::{self, By, In, RequiredText, Set, Text};
use crate::path::{at, text};
use crate::strategy::{Conversion, Deprecation, NameRule, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    name: NameRule::PathSegment,
    checks: CHECKS,
    immutable: &["spec.parentRef"],
    columns: COLUMNS,
    deprecations: &[Deprecation::new(
        "v1beta1",
        "networking.k8s.io/v1beta1 IPAddress is deprecated in v1.34+, unavailable in v1.37+",
        "1.37",
    )],
    conversions: &[Conversion::same("v1beta1", ("networking.k8s.io", "v1"))],
    ..BASE
};

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

const COLUMNS: &[Column] = &[Column::NAME, Column::computed("ParentRef", &["spec.parentRef"], parent_cell)];

fn parent_cell(address: &Value, _: Now) -> Cell<'_> {
    let Some(parent) = at(address, "spec.parentRef") else { return "<none>".into() };
    let [group, resource, namespace, name] =
        ["group", "resource", "namespace", "name"].map(|field| text(parent, field));
    let dot = if group.is_empty() { "" } else { "." };
    let slash = if namespace.is_empty() { "" } else { "/" };
    let resource = format!("{resource}{dot}{group}").to_lowercase();
    format!("{resource}{slash}{namespace}/{name}").into()
}
