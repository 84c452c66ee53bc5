//! CSIDriver (`storage.k8s.io`).

use std::collections::HashSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{join, Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::Check::{self, By, Enum};
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::{Bool, Str, Strs};
use crate::path::{at, int, list, text, texts};
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::LaterChanges,
    unconditional_update: false,
    returns_deleted_object: true,
    defaults: DEFAULTS,
    checks: CHECKS,
    warnings,
    validate_update,
    columns: COLUMNS,
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[
    Field("spec.attachRequired", Bool(true)),
    Field("spec.podInfoOnMount", Bool(false)),
    Field("spec.storageCapacity", Bool(false)),
    Field("spec.fsGroupPolicy", Str("ReadWriteOnceWithFSType")),
    Field("spec.volumeLifecycleModes", Strs(&["Persistent"])),
    Field("spec.requiresRepublish", Bool(false)),
    Field("spec.seLinuxMount", Bool(false)),
];

const CHECKS: &[Check] = &[
    By(|driver, _, errors| {
        const MODES: &[&str] = &["Persistent", "Ephemeral"];
        for mode in texts(driver, "spec.volumeLifecycleModes") {
            if !MODES.contains(&mode) {
                errors.push(field::not_supported("spec.volumeLifecycleModes", mode, MODES));
            }
        }
    }),
    Enum("spec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    By(token_requests),
    By(|driver, _, errors| {
        const PATH: &str = "spec.nodeAllocatableUpdatePeriodSeconds";
        if let Some(seconds) = int(driver, PATH).filter(|seconds| *seconds < 10) {
            errors.push(field::invalid(PATH, seconds, "must be greater than or equal to 10 seconds"));
        }
    }),
];

fn token_requests(driver: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = HashSet::new();
    for (i, request) in list(driver, "spec.tokenRequests").iter().enumerate() {
        let path = format_args!("spec.tokenRequests[{i}]");
        let audience = text(request, "audience");
        if !seen.insert(audience) {
            errors.push(field::duplicate(format_args!("{path}.audience"), audience));
            continue;
        }
        let here = format_args!("{path}.expirationSeconds");
        match int(request, "expirationSeconds") {
            Some(seconds) if seconds < 600 => {
                errors.push(field::invalid(here, seconds, "may not specify a duration less than 10 minutes"));
            }
            Some(seconds) if seconds > 1 << 32 => {
                let why = "may not specify a duration larger than 2^32 seconds";
                errors.push(field::invalid(here, seconds, why));
            }
            _ => {}
        }
    }
}

/// Fields that determine how volumes are attached are immutable.
fn validate_update(new: &Value, old: &Value) -> Vec<Cause> {
    const ROWS: [(&str, &str); 2] = [
        // Upstream misspells the first path.
        ("spec.attachRequired", "spec.attachedRequired"),
        ("spec.volumeLifecycleModes", "spec.volumeLifecycleModes"),
    ];
    let changed = ROWS.iter().filter(|(path, _)| at(new, path) != at(old, path));
    changed
        .map(|(path, shown)| {
            field::invalid(*shown, at(new, path).cloned().unwrap_or_default(), "field is immutable")
        })
        .collect()
}

/// Warnings about service account tokens that may be logged by the driver.
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const WHY: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";
    let requests = list(new, "spec.tokenRequests");
    let changed = old.is_none_or(|old| list(old, "spec.tokenRequests") != requests);
    match changed && !requests.is_empty() && at(new, "spec.serviceAccountTokenInSecrets").is_none() {
        true => vec![WHY.to_owned()],
        false => Vec::new(),
    }
}

const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::boolean("AttachRequired", "spec.attachRequired", true),
    Column::boolean("PodInfoOnMount", "spec.podInfoOnMount", false),
    Column::boolean("StorageCapacity", "spec.storageCapacity", false),
    Column::computed("TokenRequests", &["spec.tokenRequests[].audience"], token_requests_cell),
    Column::boolean("RequiresRepublish", "spec.requiresRepublish", false),
    Column::list("Modes", "spec.volumeLifecycleModes", "<none>"),
    Column::AGE,
];

fn token_requests_cell(driver: &Value, _: Now) -> Cell<'_> {
    match at(driver, "spec.tokenRequests") {
        None => "<unset>".into(),
        Some(_) => join(list(driver, "spec.tokenRequests").iter().map(|r| text(r, "audience")), ",").into(),
    }
}
