//! VolumeAttachment (`storage.k8s.io`).

use plinth_codec::names;
use plinth_codec::table::Column;

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, Always, AnyText, By, ExactlyOne, Is, OptionalText};
use crate::checks::{Part, PartError};
use crate::core::persistent_volume::SOURCE_DEFAULTS;
use crate::defaults::DefaultRule::{self, IfPresent};
use crate::strategy::{Strategy, BASE, STATUS_KEEPS_METADATA, STATUS_OWNS_NO_METADATA};

pub(crate) const STRATEGY: Strategy = Strategy {
    unconditional_update: false,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec"],
    status_keeps: STATUS_KEEPS_METADATA,
    columns: COLUMNS,
    reset_fields: STATUS_OWNS_NO_METADATA,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[IfPresent("spec.source.inlineVolumeSpec", SOURCE_DEFAULTS)];

const CHECKS: &[Check] = &[
    Is("spec.attacher", csi_driver_name),
    Always("spec.source", &[SOURCE, By(not_an_empty_name)]),
    AnyText("spec.nodeName", names::dns1123_subdomain_errors),
];

const ONE_SOURCE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";

const SOURCE: Check = ExactlyOne(
    &["inlineVolumeSpec", "persistentVolumeName"],
    PartError::Required(ONE_SOURCE),
    PartError::Invalid(ONE_SOURCE),
    &[OptionalText("persistentVolumeName", names::dns1123_subdomain_errors)],
);

fn not_an_empty_name(source: &Part<'_>) {
    if source.set_text("persistentVolumeName") == Some("") && !source.has("inlineVolumeSpec") {
        source.required("persistentVolumeName", "must specify non empty persistentVolumeName");
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Attacher", "spec.attacher", "").identity(),
    Column::text("PV", "spec.source.persistentVolumeName", ""),
    Column::text("Node", "spec.nodeName", ""),
    Column::boolean("Attached", "status.attached", false),
    Column::AGE,
];
