//! VolumeAttachment (`storage.k8s.io`).

use plinth_api::field;
use plinth_codec::names;
use plinth_codec::table::Column;

use crate::checks::check_text;
use crate::checks::qualified_names::csi_driver_name;
use crate::checks::Check::{self, By};
use crate::core::persistent_volume::SOURCE_DEFAULTS;
use crate::defaults::DefaultRule::{self, IfPresent};
use crate::path::{at, text};
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
    By(|attachment, _, errors| {
        csi_driver_name(text(attachment, "spec.attacher"), format_args!("spec.attacher"), errors)
    }),
    By(|attachment, _, errors| {
        const PATH: &str = "spec.source";
        let (inline, name) = (
            at(attachment, "spec.source.inlineVolumeSpec"),
            at(attachment, "spec.source.persistentVolumeName"),
        );
        match (inline, name) {
            (None, None) => {
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(field::required(PATH, why));
            }
            (Some(_), Some(_)) => {
                let shown = at(attachment, PATH).cloned().unwrap_or_default();
                let why = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.push(field::invalid(PATH, shown, why));
            }
            (None, Some(name)) => {
                let (here, name) =
                    (format!("{PATH}.persistentVolumeName"), name.as_str().unwrap_or_default());
                check_text(format_args!("{here}"), name, names::dns1123_subdomain_errors, errors);
                if name.is_empty() {
                    errors.push(field::required(here, "must specify non empty persistentVolumeName"));
                }
            }
            _ => {}
        }
    }),
    By(|attachment, _, errors| {
        let name = text(attachment, "spec.nodeName");
        check_text(format_args!("spec.nodeName"), name, names::dns1123_subdomain_errors, errors);
    }),
];

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::text("Attacher", "spec.attacher", "").identity(),
    Column::text("PV", "spec.source.persistentVolumeName", ""),
    Column::text("Node", "spec.nodeName", ""),
    Column::boolean("Attached", "status.attached", false),
    Column::AGE,
];
