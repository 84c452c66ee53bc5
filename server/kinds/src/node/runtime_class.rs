//! RuntimeClass (`node.k8s.io`).

use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::quantities;
use crate::checks::Check::{self, By, In};
use crate::path::at;
use crate::pod_template::scheduling::validate_tolerations;
use crate::strategy::{Strategy, BASE};
use crate::warnings::node_labels::deprecated_keys;

pub(crate) const STRATEGY: Strategy = Strategy {
    create_on_update: true,
    unconditional_update: false,
    checks: CHECKS,
    immutable: &["handler"],
    warnings,
    columns: &[Column::NAME, Column::text("Handler", "handler", ""), Column::AGE],
    ..BASE
};

const CHECKS: &[Check] = &[
    Check::RequiredText("handler", names::dns1123_label_errors),
    By(|class| quantities::overhead(class, "overhead.podFixed")),
    Check::Labels("scheduling.nodeSelector"),
    In("scheduling", &[By(validate_tolerations)]),
    By(|class| {
        let all = class.list("scheduling.tolerations");
        for (i, toleration) in class.each("scheduling.tolerations").enumerate() {
            if all.iter().take(i).any(|earlier| earlier == toleration.value()) {
                toleration.duplicate("", toleration.shown(""));
            }
        }
    }),
];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let keys = deprecated_keys(at(new, "scheduling.nodeSelector"));
    keys.map(|(_, why)| format!("scheduling.nodeSelector: {why}")).collect()
}
