//! IngressClass (`networking.k8s.io`).

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::{names, Value};

use crate::checks::check_text;
use crate::checks::qualified_names::domain_prefixed_path;
use crate::checks::Check::{self, By, In};
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
    By(|class, _, errors| {
        const PATH: &str = "spec.controller";
        const MAX_LENGTH: usize = 250;
        let controller = text(class, PATH);
        if controller.len() > MAX_LENGTH {
            errors.push(field::too_long(PATH, MAX_LENGTH));
        }
        domain_prefixed_path(controller, format_args!("{PATH}"), errors);
    }),
    In("spec.parameters", REFERENCE),
    In("spec.parameters", &[By(parameters_scope)]),
];

fn parameters_scope(parameters: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let (scope, namespace) = (text(parameters, "scope"), at(parameters, "namespace").and_then(Value::as_str));
    let here = format_args!("{path}namespace");
    match (scope, namespace) {
        ("Namespace", None | Some("")) => {
            errors.push(field::required(here, "`parameters.scope` is set to 'Namespace'"));
        }
        ("Namespace", Some(name)) => check_text(here, name, names::dns1123_label_errors, errors),
        ("Cluster", Some(_)) => {
            errors.push(field::forbidden(here, "`parameters.scope` is set to 'Cluster'"));
        }
        ("Cluster", None) => {}
        ("", _) => errors.push(field::required(format_args!("{path}scope"), "")),
        (other, _) => {
            errors.push(field::not_supported(format_args!("{path}scope"), other, &["Cluster", "Namespace"]));
        }
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
