//! CSIDriver (`storage.k8s.io`).

use plinth_codec::table::{join, Cell, Column, Now};
use plinth_codec::Value;

use crate::checks::immutable::immutable_as;
use crate::checks::Check::{self, By, Each, EachUnlessDuplicate, Enum, MustBe, Within, WithoutIndex};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field};
use crate::defaults::Literal::{Bool, Str, Strs};
use crate::path::{at, list, text};
use crate::pod_template::volume::token_duration;
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
    Each("spec.volumeLifecycleModes", &[WithoutIndex(&[MustBe("", &["Persistent", "Ephemeral"])])]),
    Enum("spec.fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    EachUnlessDuplicate("spec.tokenRequests", "audience", &[By(token_request)]),
    Within(
        "spec.nodeAllocatableUpdatePeriodSeconds",
        10,
        i64::MAX,
        "must be greater than or equal to 10 seconds",
    ),
];

fn token_request(request: &Part<'_>) {
    if let Some(seconds) = request.int("expirationSeconds") {
        token_duration(request, seconds);
    }
}

/// Fields that determine how volumes are attached are immutable.
fn validate_update(new: &Part<'_>, old: &Value) {
    // Upstream misspells the first path.
    immutable_as("spec.attachRequired", "spec.attachedRequired", new, old);
    immutable_as("spec.volumeLifecycleModes", "spec.volumeLifecycleModes", new, old);
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
