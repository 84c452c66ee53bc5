//! Which parts of a capacity can be requested: a list of values, or a range with steps.

use std::collections::HashSet;

use plinth_codec::quantity::Quantity;

use crate::checks::Part;
use crate::resource::device::each_of;

/// Maximum number of values that can be requested.
const MAX_VALUES: usize = 10;

/// A quantity and its text; `None` for what does not parse, which decoding refuses.
type Amount<'a> = Option<(Quantity, &'a str)>;

fn amount<'a>(holder: &Part<'a>, key: &str) -> Amount<'a> {
    let text = holder.set_text(key)?;
    Some((Quantity::parse(text).ok()?, text))
}

/// Validates the policy of requests of a capacity of that value.
pub(crate) fn request_policy(policy: &Part<'_>, capacity: &str) {
    let Ok(most) = Quantity::parse(capacity) else { return };
    let default = amount(policy, "default");
    match (policy.list("validValues").is_empty(), policy.get("validRange"), default) {
        (false, Some(_), _) => policy.forbidden(
            "",
            r#"exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time"#,
        ),
        (false, None, None) => policy.required("default", "required when validValues is defined"),
        (true, Some(_), None) => policy.required("default", "required when validRange is defined"),
        (false, None, Some(default)) => valid_values(policy, default, (most, capacity)),
        (true, Some(range), Some(default)) => valid_range(&range, default, (most, capacity)),
        (true, None, _) => {}
    }
}

fn valid_values(policy: &Part<'_>, (default, shown): (Quantity, &str), (most, capacity): (Quantity, &str)) {
    const KEY: &str = "validValues";
    let amounts: Vec<Amount<'_>> = policy.each(KEY).map(|value| amount(&value, "")).collect();
    let unsorted = policy.each(KEY).zip(&amounts).skip(1).zip(&amounts);
    for ((value, amount), before) in unsorted {
        if let (Some((amount, text)), Some((before, _))) = (amount, before) {
            if before > amount {
                value.invalid("", *text, "values must be sorted in ascending order");
            }
        }
    }
    let is_bounded = each_of(policy, KEY, MAX_VALUES, |value| {
        if let Some((_, text)) = amount(value, "").filter(|(amount, _)| *amount > most) {
            value.invalid("", text, &format!("option is larger than capacity value: {capacity}"));
        }
    });
    if is_bounded {
        let mut seen = HashSet::new();
        for (value, amount) in policy.each(KEY).zip(&amounts) {
            let whole = amount.map_or(0, |(amount, _)| amount.value(0));
            if !seen.insert(whole) {
                value.duplicate("", whole.to_string());
            }
        }
    }
    if !is_bounded || !amounts.iter().flatten().any(|(amount, _)| *amount == default) {
        policy.invalid(KEY, shown, "default value is not valid according to the requestPolicy");
    }
}

fn valid_range(range: &Part<'_>, default: (Quantity, &str), (most, capacity): (Quantity, &str)) {
    let Some(min) = amount(range, "min") else {
        range.required("min", "required when validRange is defined");
        return;
    };
    if min.0 > most {
        range.invalid("min", min.1, &format!("min is larger than capacity value: {capacity}"));
    }
    if default.0 < min.0 {
        range.invalid("min", default.1, &format!("default is less than min: {}", min.1));
    }
    let max = amount(range, "max");
    if let Some(max) = max {
        if min.0 > max.0 {
            range.invalid("max", min.1, &format!("min is larger than max: {}", max.1));
        }
        if max.0 > most {
            range.invalid("max", max.1, &format!("max is larger than capacity value: {capacity}"));
        }
        if default.0 > max.0 {
            range.invalid("max", default.1, &format!("default is more than max: {}", max.1));
        }
    }
    let Some(step) = amount(range, "step") else { return };
    let one = min.0.plus(step.0);
    if one > most {
        let why = format!("one step {} is larger than capacity value: {capacity}", one.canonical());
        range.invalid("step", step.1, &why);
    }
    for value in [Some(default), max].into_iter().flatten() {
        let distance = value.0.value(0).wrapping_sub(min.0.value(0));
        // A step of nothing leads nowhere; upstream divides by it.
        if distance.checked_rem(step.0.value(0)).unwrap_or(1) != 0 {
            let why = format!("value is not a multiple of a given step ({}) from ({})", step.1, min.1);
            range.invalid("step", value.1, &why);
        }
    }
}
