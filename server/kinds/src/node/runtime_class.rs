//! RuntimeClass (`node.k8s.io`).

use std::collections::BTreeSet;

use plinth_api::field;
use plinth_codec::table::Column;
use plinth_codec::{names, Value};

use crate::checks::quantities::{self, Kind};
use crate::checks::Check::{self, By};
use crate::path::{at, list};
use crate::pod_template::scheduling;
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
    By(|class, _, errors| {
        if let Some(amounts) = at(class, "overhead.podFixed") {
            let requirements = plinth_codec::tree!({ "limits": amounts.clone() });
            quantities::requirements(
                &requirements,
                Kind::Container,
                &BTreeSet::new(),
                format_args!("overhead"),
                errors,
            );
        }
    }),
    Check::Labels("scheduling.nodeSelector"),
    By(|class, _, errors| {
        if let Some(scheduling) = at(class, "scheduling") {
            scheduling::tolerations(scheduling, format_args!("scheduling."), errors);
            let all = list(scheduling, "tolerations");
            for (i, toleration) in all.iter().enumerate() {
                if all.iter().take(i).any(|earlier| earlier == toleration) {
                    let here = format_args!("scheduling.tolerations[{i}]");
                    errors.push(field::duplicate(here, toleration.clone()));
                }
            }
        }
    }),
];

fn warnings(new: &Value, _: Option<&Value>) -> Vec<String> {
    let keys = deprecated_keys(at(new, "scheduling.nodeSelector"));
    keys.map(|(_, why)| format!("scheduling.nodeSelector: {why}")).collect()
}
