//! LimitRange (`core`).

use std::collections::BTreeSet;

use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By, Each, EachUnique};
use crate::checks::{quantities, Part};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, ForEach, When};
use crate::strategy::{Strategy, BASE};

pub(crate) const STRATEGY: Strategy =
    Strategy { create_on_update: true, defaults: DEFAULTS, prepare_for_create, checks: CHECKS, ..BASE };

const DEFAULTS: &[DefaultRule] =
    &[ForEach("spec.limits", &[When("type", "Container", &[Computed(default_limits)])])];

/// For containers, `default` defaults to `max`, and `defaultRequest` to `default` or else to `min`.
fn default_limits(item: &mut Map) {
    for (target, source) in [("default", "max"), ("defaultRequest", "default"), ("defaultRequest", "min")] {
        let from = item.get(source).and_then(Value::as_object).cloned().unwrap_or_default();
        if !from.is_empty() {
            defaults::fill_from(item, target, &from);
        }
    }
}

/// A LimitRange without a name gets a UUID as name.
fn prepare_for_create(range: &mut Value) {
    if let Some(metadata) = range.object_at_mut(&["metadata"]) {
        if metadata.get("name").and_then(Value::as_str).unwrap_or_default().is_empty() {
            metadata.insert("name", uuid::Uuid::new_v4().to_string());
        }
    }
}

const CHECKS: &[Check] =
    &[EachUnique("spec.limits", "type", &[By(limit_type)]), Each("spec.limits", &[By(limit)])];

fn limit_type(limit: &Part<'_>) {
    let (kind, before) = (limit.text("type"), limit.errors());
    limit.check_text("type", kind, names::qualified_name_errors);
    let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
    if limit.errors() == before && !kind.contains('/') && !standard {
        limit.invalid("type", kind, "must be a standard limit type or fully qualified");
    }
}

fn limit(limit: &Part<'_>) {
    let kind = limit.text("type");
    let mut resources = BTreeSet::new();
    for part in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        if limit.is_empty(part) {
            continue;
        }
        if kind == "Pod" && part.starts_with("default") {
            limit.forbidden(part, "may not be specified when `type` is 'Pod'");
            continue;
        }
        for (name, amount) in limit.entries(part) {
            match kind {
                "Pod" | "Container" => quantities::container_resource_name(name, &amount),
                _ => quantities::resource_name(name, &amount),
            }
            resources.insert(name);
        }
    }
    if kind == "PersistentVolumeClaim" && limit.count(&["min.storage", "max.storage"]) == 0 {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        limit.required("limits", why);
    }
    for name in resources {
        amounts_agree(limit, name, kind);
    }
}

/// A quantity as text and as value.
type Amount<'a> = Option<(&'a str, Quantity)>;

fn amounts_agree(limit: &Part<'_>, name: &str, kind: &str) {
    let amount = |part: &str| -> Amount<'_> {
        let shown = limit.at(part).and_then(|given| given.get(name)).and_then(Value::as_str)?;
        Some((shown, Quantity::parse(shown).ok()?))
    };
    let of_containers = |part: &str| amount(part).filter(|_| kind != "Pod");
    let (least, most) = (amount("min"), amount("max"));
    let (default, request) = (of_containers("default"), of_containers("defaultRequest"));
    // The smaller and the larger quantity, their names, the field and the value that the error reports.
    let rows: [(Amount<'_>, Amount<'_>, &str, &str, &str, Amount<'_>); 6] = [
        (least, most, "min value", "max value", "min", least),
        (least, request, "min value", "default request value", "defaultRequest", request),
        (request, most, "default request value", "max value", "defaultRequest", request),
        (request, default, "default request value", "default limit value", "defaultRequest", request),
        (least, default, "min value", "default value", "default", least),
        (default, most, "default value", "max value", "default", most),
    ];
    for (smaller, larger, first, second, part, shown) in rows {
        let (Some((small, a)), Some((large, b))) = (smaller, larger) else { continue };
        if a > b {
            let why = format!("{first} {small} is greater than {second} {large}");
            limit.invalid(format_args!("{part}[{name}]"), shown.map_or("", |(text, _)| text), &why);
        }
    }
    if let Some((shown, ratio)) = amount("maxLimitRequestRatio") {
        let refuse = |why: String| limit.invalid(format_args!("maxLimitRequestRatio[{name}]"), shown, &why);
        if ratio < Quantity::of_int(1) {
            refuse(format!("ratio {shown} is less than 1"));
        }
        if let (Some((_, least)), Some((_, most))) = (least, most) {
            let highest = most.to_f64() / least.to_f64();
            if ratio.to_f64() > highest {
                refuse(format!("ratio {shown} is greater than max/min = {highest:.6}"));
            }
        }
    }
    if let (Some((shown, a)), Some((requested, b))) = (default, request) {
        let may_exceed = quantities::is_native(name) && !quantities::is_huge(name);
        if !may_exceed && a != b {
            let why =
                format!("default value {shown} must equal to defaultRequest value {requested} in {name}");
            limit.invalid(format_args!("defaultRequest[{name}]"), requested, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    #[test]
    fn a_limit_range_gets_a_name_unless_it_has_one() {
        let named = |text: &str| {
            let mut range = json::parse(text.as_bytes()).unwrap();
            prepare_for_create(&mut range);
            range.str_at(&["metadata", "name"]).unwrap_or_default().to_owned()
        };
        assert_eq!(named(r#"{"metadata":{"name":"a"}}"#), "a");
        assert!(uuid::Uuid::parse_str(&named("{}")).is_ok());
        assert_ne!(named("{}"), named("{}"));
    }
}
