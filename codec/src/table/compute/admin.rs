//! Quotas, budgets, access control, admission, component status, API services, certificates, device claims.

use super::read::{at, condition, count, items, join, or, pairs, str_at};
use super::Computation;
use crate::table::age;
use crate::Value;

/// Used and hard quantities of the quota's resources, those of limits or the others.
fn quota(object: &Value, limits: bool) -> String {
    let used = at(object, "status.used");
    let entries: Vec<String> = pairs(object, "status.hard")
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = used.and_then(|u| u.get(resource)).and_then(Value::as_str).unwrap_or("0");
            format!("{resource}: {used}/{hard}")
        })
        .collect();
    entries.join(", ")
}

pub const QUOTA_REQUESTS: Computation =
    Computation { reads: &["status.hard", "status.used"], cell: |object, _| quota(object, false).into() };

pub const QUOTA_LIMITS: Computation =
    Computation { reads: &["status.hard", "status.used"], cell: |object, _| quota(object, true).into() };

pub const ROLE: Computation = Computation {
    reads: &["roleRef.kind", "roleRef.name"],
    cell: |binding, _| {
        format!("{}/{}", str_at(binding, "roleRef.kind"), str_at(binding, "roleRef.name")).into()
    },
};

const SUBJECTS: &[&str] = &["subjects[].kind", "subjects[].namespace", "subjects[].name"];

fn subjects<'a>(binding: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(binding, "subjects").iter().filter(move |s| str_at(s, "kind") == kind)
}

pub const USERS: Computation = Computation {
    reads: SUBJECTS,
    cell: |binding, _| join(subjects(binding, "User").map(|s| str_at(s, "name")), ", ").into(),
};

pub const GROUPS: Computation = Computation {
    reads: SUBJECTS,
    cell: |binding, _| join(subjects(binding, "Group").map(|s| str_at(s, "name")), ", ").into(),
};

pub const SERVICE_ACCOUNTS: Computation = Computation {
    reads: SUBJECTS,
    cell: |binding, _| {
        let accounts: Vec<String> = subjects(binding, "ServiceAccount")
            .map(|s| format!("{}/{}", str_at(s, "namespace"), str_at(s, "name")))
            .collect();
        accounts.join(", ").into()
    },
};

pub const PARAM_KIND: Computation = Computation {
    reads: &["spec.paramKind"],
    cell: |policy, _| match at(policy, "spec.paramKind") {
        Some(kind) => format!("{}/{}", str_at(kind, "apiVersion"), str_at(kind, "kind")).into(),
        None => "<unset>".into(),
    },
};

/// The parameters of a binding: a name with its namespace, else the selector as Go prints the object.
pub const PARAM_REF: Computation = Computation {
    reads: &["spec.paramRef"],
    cell: |binding, _| {
        let Some(reference) = at(binding, "spec.paramRef") else { return "<unset>".into() };
        match (str_at(reference, "name"), at(reference, "selector")) {
            ("", Some(selector)) => go_label_selector(selector).into(),
            ("", None) => "<unset>".into(),
            (name, _) => format!("{}/{name}", or(str_at(reference, "namespace"), "*")).into(),
        }
    },
};

/// A label selector object in the notation of Go's generated printers.
fn go_label_selector(selector: &Value) -> String {
    let labels: String = pairs(selector, "matchLabels").map(|(k, v)| format!("{k}: {v},")).collect();
    let expressions: String = items(selector, "matchExpressions")
        .iter()
        .map(|expression| {
            let (key, operator) = (str_at(expression, "key"), str_at(expression, "operator"));
            let values = join(items(expression, "values").iter().filter_map(Value::as_str), " ");
            format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

const HEALTH: &[&str] = &["conditions"];

fn health<'a>(component: &'a Value, field: &str) -> &'a str {
    condition(items(component, "conditions"), "Healthy").map_or("", |c| str_at(c, field))
}

pub const COMPONENT_STATUS: Computation = Computation {
    reads: HEALTH,
    cell: |component, _| {
        match health(component, "status") {
            "True" => "Healthy",
            _ if condition(items(component, "conditions"), "Healthy").is_some() => "Unhealthy",
            _ => "Unknown",
        }
        .into()
    },
};

pub const COMPONENT_MESSAGE: Computation =
    Computation { reads: HEALTH, cell: |component, _| health(component, "message").into() };

pub const COMPONENT_ERROR: Computation =
    Computation { reads: HEALTH, cell: |component, _| health(component, "error").into() };

pub const API_SERVICE: Computation = Computation {
    reads: &["spec.service.namespace", "spec.service.name"],
    cell: |service, _| match at(service, "spec.service") {
        Some(backend) => format!("{}/{}", str_at(backend, "namespace"), str_at(backend, "name")).into(),
        None => "Local".into(),
    },
};

pub const API_SERVICE_AVAILABLE: Computation = Computation {
    reads: &["status.conditions[].type", "status.conditions[].status", "status.conditions[].reason"],
    cell: |service, _| match condition(items(service, "status.conditions"), "Available") {
        None => "Unknown".into(),
        Some(available) => match (str_at(available, "status"), str_at(available, "reason")) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        },
    },
};

pub const CSR_DURATION: Computation = Computation {
    reads: &["spec.expirationSeconds"],
    cell: |request, _| match at(request, "spec.expirationSeconds").and_then(Value::as_int) {
        Some(seconds) => age::seconds(seconds).into(),
        None => "<none>".into(),
    },
};

pub const CSR_CONDITION: Computation = Computation {
    reads: &["status.conditions[].type", "status.certificate"],
    cell: |request, _| {
        let conditions = items(request, "status.conditions");
        let has = |kind| condition(conditions, kind).is_some();
        let mut text = match (has("Denied"), has("Approved")) {
            (true, _) => "Denied",
            (false, true) => "Approved",
            (false, false) => "Pending",
        }
        .to_owned();
        if has("Failed") {
            text.push_str(",Failed");
        }
        if !str_at(request, "status.certificate").is_empty() {
            text.push_str(",Issued");
        }
        text.into()
    },
};

pub const CLAIM_STATE: Computation = Computation {
    reads: &["metadata.deletionTimestamp", "status.allocation#", "status.reservedFor#"],
    cell: |claim, _| {
        let deleted = at(claim, "metadata.deletionTimestamp").is_some();
        let allocated = at(claim, "status.allocation").is_some();
        let reserved = count(claim, "status.reservedFor") > 0;
        match (deleted, allocated, reserved) {
            (true, false, _) => "deleted",
            (true, true, false) => "deleted,allocated",
            (true, true, true) => "deleted,allocated,reserved",
            (false, false, _) => "pending",
            (false, true, false) => "allocated",
            (false, true, true) => "allocated,reserved",
        }
        .into()
    },
};

pub const CONFIG_MAP_DATA: Computation = Computation {
    reads: &["data#", "binaryData#"],
    cell: |map, _| (count(map, "data") + count(map, "binaryData")).into(),
};
