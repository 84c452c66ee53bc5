//! VolumeAttachment (`storage.k8s.io`).

use plinth_codec::names;
use plinth_codec::table::Column;

use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, AnyText, By, Is, OptionalText};
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
    By(|attachment| {
        const WHY: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
        let source = attachment.field("spec.source");
        match source.count(&["inlineVolumeSpec", "persistentVolumeName"]) {
            0 => source.required("", WHY),
            1 => source.check(&[OptionalText("persistentVolumeName", names::dns1123_subdomain_errors)]),
            _ => source.invalid("", source.shown(""), WHY),
        }
        if source.set_text("persistentVolumeName") == Some("") && !source.has("inlineVolumeSpec") {
            source.required("persistentVolumeName", "must specify non empty persistentVolumeName");
        }
    }),
    AnyText("spec.nodeName", names::dns1123_subdomain_errors),
];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Attacher", "spec.attacher", "").identity(),
    Column::text("PV", "spec.source.persistentVolumeName", ""),
    Column::text("Node", "spec.nodeName", ""),
    Column::boolean("Attached", "status.attached", false),
    Column::AGE,
];
