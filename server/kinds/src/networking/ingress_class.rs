//! IngressClass (`networking.k8s.io`).

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::qualified_names::domain_prefixed_path;
use crate::checks::Check::{self, By, In};
use crate::checks::Part;
use crate::columns::named_default;
use crate::defaults::DefaultRule::{self, Field, IfPresent};
use crate::defaults::Literal::OptionalStr;
use crate::networking::ingress::REFERENCE;
use crate::path::{at, text};
use crate::strategy::{Generation, Strategy, BASE};

pub(crate) const STRATEGY: Strategy = Strategy {
    generation: Generation::Changes,
    defaults: DEFAULTS,
    checks: CHECKS,
    immutable: &["spec.controller"],
    columns: COLUMNS,
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

const COLUMNS: &[Column] = &[
    Column::computed("Name", &["metadata.name", "metadata.annotations"], name_cell).identity(),
    Column::text("Controller", "spec.controller", ""),
    Column::computed("Parameters", &["spec.parameters"], parameters_cell),
    Column::AGE,
];

fn name_cell(class: &Value, _: Now) -> Cell<'_> {
    named_default(class, &["ingressclass.kubernetes.io/is-default-class"])
}

fn parameters_cell(class: &Value, _: Now) -> Cell<'_> {
    let Some(parameters) = at(class, "spec.parameters") else { return "<none>".into() };
    let (kind, name) = (text(parameters, "kind"), text(parameters, "name"));
    match at(parameters, "apiGroup").and_then(Value::as_str) {
        Some(group) => format!("{kind}.{group}/{name}").into(),
        None => format!("{kind}/{name}").into(),
    }
}
