//! LimitRange (`core`).

use std::collections::BTreeSet;

use plinth_api::api_error::Cause;
use plinth_api::field::{self, FieldPath};
use plinth_codec::quantity::Quantity;
use plinth_codec::{names, Map, Value};

use crate::checks::Check::{self, By, Each};
use crate::checks::{check_text, quantities};
use crate::defaults;
use crate::defaults::DefaultRule::{self, Computed, ForEach, When};
use crate::path::{at, list, text};
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

const CHECKS: &[Check] = &[By(types), Each("spec.limits", &[By(limit)])];

fn types(range: &Value, _: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (i, limit) in list(range, "spec.limits").iter().enumerate() {
        let (kind, here) = (text(limit, "type"), format_args!("spec.limits[{i}].type"));
        let before = errors.len();
        check_text(here, kind, names::qualified_name_errors, errors);
        let standard = matches!(kind, "Pod" | "Container" | "PersistentVolumeClaim");
        if errors.len() == before && !kind.contains('/') && !standard {
            let why = "must be a standard limit type or fully qualified";
            errors.push(field::invalid(here, kind, why));
        }
        if !seen.insert(kind) {
            errors.push(field::duplicate(here, kind));
        }
    }
}

fn limit(limit: &Value, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let kind = text(limit, "type");
    let mut resources = BTreeSet::new();
    for part in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let given = at(limit, part).and_then(Value::as_object).filter(|given| !given.is_empty());
        let Some(given) = given else { continue };
        if kind == "Pod" && part.starts_with("default") {
            let why = "may not be specified when `type` is 'Pod'";
            errors.push(field::forbidden(format_args!("{path}{part}"), why));
            continue;
        }
        for (name, _) in given.iter() {
            let here = format_args!("{path}{part}[{name}]");
            match kind {
                "Pod" | "Container" => quantities::container_resource_name(name, here, errors),
                _ => quantities::resource_name(name, here, errors),
            }
            resources.insert(name.as_str());
        }
    }
    let bounds_storage = |part: &str| at(limit, part).and_then(|given| given.get("storage")).is_some();
    if kind == "PersistentVolumeClaim" && !bounds_storage("min") && !bounds_storage("max") {
        let why = "either minimum or maximum storage value is required, but neither was provided";
        errors.push(field::required(format_args!("{path}limits"), why));
    }
    for name in resources {
        amounts_agree(limit, name, kind, path, errors);
    }
}

/// A quantity as text and as value.
type Amount<'a> = Option<(&'a str, Quantity)>;

fn amounts_agree(limit: &Value, name: &str, kind: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let amount = |part: &str| -> Amount<'_> {
        let shown = at(limit, part).and_then(|given| given.get(name)).and_then(Value::as_str)?;
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
            let shown = shown.map_or("", |(text, _)| text);
            errors.push(field::invalid(format_args!("{path}{part}[{name}]"), shown, &why));
        }
    }
    let here = format_args!("{path}maxLimitRequestRatio[{name}]");
    if let Some((shown, ratio)) = amount("maxLimitRequestRatio") {
        if ratio < Quantity::of_int(1) {
            errors.push(field::invalid(here, shown, &format!("ratio {shown} is less than 1")));
        }
        if let (Some((_, least)), Some((_, most))) = (least, most) {
            let highest = most.to_f64() / least.to_f64();
            if ratio.to_f64() > highest {
                let why = format!("ratio {shown} is greater than max/min = {highest:.6}");
                errors.push(field::invalid(here, shown, &why));
            }
        }
    }
    if let (Some((shown, a)), Some((asked, b))) = (default, request) {
        let may_exceed = quantities::is_native(name) && !quantities::is_huge(name);
        if !may_exceed && a != b {
            let why = format!("default value {shown} must equal to defaultRequest value {asked} in {name}");
            errors.push(field::invalid(format_args!("{path}defaultRequest[{name}]"), asked, &why));
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
