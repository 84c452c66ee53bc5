//! The columns of autoscalers, in the form of autoscaling/v2.

use plinth_codec::table::{Cell, Column, Now};
use plinth_codec::Value;

use crate::columns::with_more;
use crate::path::{at, list, text};

pub(crate) const COLUMNS: &[Column] = &[
    Column::NAME,
    Column::computed("Reference", &["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"], reference_cell),
    Column::computed("Targets", &["spec.metrics", "status.currentMetrics"], targets_cell),
    Column::text("MinPods", "spec.minReplicas", "<unset>"),
    Column::int("MaxPods", "spec.maxReplicas").declared("string"),
    Column::int("Replicas", "status.currentReplicas").declared("string"),
    Column::AGE,
];

/// How many metrics a cell shows.
const SHOWN: usize = 2;

fn reference_cell(autoscaler: &Value, _: Now) -> Cell<'_> {
    let [kind, name] = ["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"].map(|p| text(autoscaler, p));
    format!("{kind}/{name}").into()
}

fn targets_cell(autoscaler: &Value, _: Now) -> Cell<'_> {
    let metrics = list(autoscaler, "spec.metrics");
    if metrics.is_empty() {
        return "<none>".into();
    }
    let statuses = list(autoscaler, "status.currentMetrics");
    let shown: Vec<String> =
        metrics.iter().take(SHOWN).enumerate().map(|(i, metric)| target(metric, statuses.get(i))).collect();
    with_more(shown.iter().map(String::as_str), ", ", metrics.len(), SHOWN).into()
}

/// One metric as `current/target`, by the type of its source.
fn target(metric: &Value, status: Option<&Value>) -> String {
    let source = match text(metric, "type") {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let spec = metric.get(source).unwrap_or(&Value::Null);
    let current = status.and_then(|s| s.get(source));
    let named = match source {
        "resource" | "containerResource" => format!("{}: ", text(spec, "name")),
        _ => String::new(),
    };
    // Go's print of a nil quantity.
    const NIL: &str = "<nil>";
    let now = |field: &str| current.map(|c| at(c, field).and_then(Value::as_str).unwrap_or(NIL));
    let unknown = |text: Option<&str>| text.unwrap_or("<unknown>").to_owned();
    let average = at(spec, "target.averageValue").and_then(Value::as_str);
    let averaged = at(spec, "target.averageValue").is_some();
    match source {
        "external" | "object" if averaged => {
            let current = now("current.averageValue").filter(|text| *text != NIL);
            format!("{}/{} (avg)", unknown(current), average.unwrap_or(NIL))
        }
        "external" | "object" => {
            let value = at(spec, "target.value").and_then(Value::as_str).unwrap_or(NIL);
            format!("{}/{value}", unknown(now("current.value")))
        }
        "pods" => format!("{}/{}", unknown(now("current.averageValue")), average.unwrap_or(NIL)),
        _ if averaged => {
            format!("{named}{}/{}", unknown(now("current.averageValue")), average.unwrap_or(NIL))
        }
        _ => {
            let percent = |value: Option<&Value>, absent: &str| match value.and_then(Value::as_int) {
                Some(n) => format!("{n}%"),
                None => absent.to_owned(),
            };
            let current = percent(current.and_then(|c| at(c, "current.averageUtilization")), "<unknown>");
            let target = percent(at(spec, "target.averageUtilization"), "<auto>");
            format!("{named}{current}/{target}")
        }
    }
}
