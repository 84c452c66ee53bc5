//! IngressClass (`networking.k8s.io`).

use plinth_codec::names;

use crate::checks::qualified_names::domain_prefixed_path;
use crate::checks::Check::{self, By, In};
use crate::checks::Part;
use crate::defaults::DefaultRule::{self, Field, IfPresent};
use crate::defaults::Literal::OptionalStr;
use crate::networking::ingress::REFERENCE;
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec.controller"],
    ..BASE
};

const DEFAULTS: &[DefaultRule] = &[IfPresent("spec.parameters", &[Field("scope", OptionalStr("Cluster"))])];

const CHECKS: &[Check] = &[
    By(|class| {
        const PATH: &str = "spec.controller";
        class.at_most_bytes(PATH, class.text(PATH), 250);
        class.apply(PATH, domain_prefixed_path);
    }),
    In("spec.parameters", REFERENCE),
    In("spec.parameters", &[By(parameters_scope)]),
];

fn parameters_scope(parameters: &Part<'_>) {
    match parameters.text("scope") {
        "Namespace" => {
            let why = "`parameters.scope` is set to 'Namespace'";
            parameters.required_text("namespace", why, names::dns1123_label_errors);
        }
        "Cluster" => parameters.forbid_each(&["namespace"], "`parameters.scope` is set to 'Cluster'"),
        _ => parameters.required_one_of("scope", &["Cluster", "Namespace"], ""),
    }
}
