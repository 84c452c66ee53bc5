//! Claims of devices. Administrators' access to devices that others use takes a label on the namespace; in
//! the status, the allocation and who it is reserved for take the synthetic subresource
//! `resourceclaims/binding`, and what drivers report takes `resourceclaims/driver` for each driver.
//!
//! Upstream: kubernetes `pkg/registry/resource/utils.go`.

use std::collections::BTreeSet;

use plinth_codec::Value;

use crate::authz::{denied, Attributes, Reason, ResourceTarget};
use crate::context::{Outcome, Write};
use plinth_api::{ApiError, Cause, User};

/// The label of namespaces whose claims may ask for administrators' access.
const ADMIN_LABEL: &str = "resource.kubernetes.io/admin-access";
/// The extra key of a service account's token that is bound to a node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A new claim, or the status of one.
pub(super) fn check_claim<'a>(write: Write<'a>, errors: &'a mut Vec<Cause>) -> Outcome<'a, ()> {
    Box::pin(async move {
        match write.cx.info.subresource.as_str() {
            "" => admin_request(write, &["spec", "devices", "requests"], errors).await,
            "status" => claim_status(write, errors).await,
            _ => Ok(()),
        }
    })
}

/// A new template of claims.
pub(super) fn check_template<'a>(write: Write<'a>, errors: &'a mut Vec<Cause>) -> Outcome<'a, ()> {
    Box::pin(admin_request(write, &["spec", "spec", "devices", "requests"], errors))
}

/// The status of a claim.
async fn claim_status(write: Write<'_>, errors: &mut Vec<Cause>) -> Result<(), ApiError> {
    let mut found = Vec::new();
    let was_granted = write.old.is_some_and(|old| granted_at(old).is_some());
    if let Some(index) = granted_at(write.new).filter(|_| !was_granted) {
        let place = format!("status.allocation.devices.results[{index}].adminAccess");
        found.extend(namespace_forbids(write, &place).await?);
    }
    found.extend(binding_forbids(write).await);
    if of_status(write.new, "allocation").is_some() {
        found.extend(drivers_forbid(write).await);
    }
    found.append(errors);
    *errors = found;
    Ok(())
}

/// Upstream names the place in a template as that in a claim. The spec of both never changes.
async fn admin_request(write: Write<'_>, requests: &[&str], errors: &mut Vec<Cause>) -> Result<(), ApiError> {
    if write.old.is_some() {
        return Ok(());
    }
    let requests = write.new.list_at(requests);
    // Requests of v1beta1 have the members of `exactly` themselves.
    let is_true = |value: Option<&Value>| value.and_then(Value::as_bool) == Some(true);
    let is_admin = |request: &Value| {
        is_true(request.at(&["exactly", "adminAccess"])) || is_true(request.get("adminAccess"))
    };
    let Some(index) = requests.iter().position(is_admin) else { return Ok(()) };
    let place = format!("spec.devices.requests[{index}].adminAccess");
    if let Some(error) = namespace_forbids(write, &place).await? {
        errors.insert(0, error);
    }
    Ok(())
}

async fn namespace_forbids(write: Write<'_>, place: &str) -> Result<Option<Cause>, ApiError> {
    let server = &write.cx.server;
    let labelled = |header: plinth_storage::Header<'_>| header.label(ADMIN_LABEL) == Some("true");
    let allowed = server.namespaces.read(&server.store, &write.cx.info.namespace, labelled).await?;
    let why = format!(
        "admin access to devices requires the `{ADMIN_LABEL}: true` label on the containing namespace"
    );
    Ok((allowed != Some(true)).then(|| Cause::forbidden(place, &why)))
}

/// A member of the status that is set.
fn of_status<'a>(claim: &'a Value, member: &str) -> Option<&'a Value> {
    claim.at(&["status", member]).filter(|value| !value.is_null())
}

/// A list of the status; an absent one is empty.
fn list_of<'a>(claim: &'a Value, member: &str) -> &'a [Value] {
    of_status(claim, member).and_then(Value::as_array).unwrap_or_default()
}

/// The first result of the allocation with administrators' access.
fn granted_at(claim: &Value) -> Option<usize> {
    let results = claim.at(&["status", "allocation", "devices", "results"]).and_then(Value::as_array)?;
    results.iter().position(|result| result.get("adminAccess").and_then(Value::as_bool) == Some(true))
}

/// A question about a subresource that nobody serves, for the verb of the request.
fn target<'a>(
    write: &'a Write<'_>,
    subresource: &'a str,
    namespace: &'a str,
    name: &'a str,
) -> ResourceTarget<'a> {
    let info = &write.cx.info;
    ResourceTarget {
        group: &info.group,
        version: &info.version,
        resource: &info.resource,
        subresource,
        name,
        namespace,
        ..ResourceTarget::default()
    }
}

/// Why the authorizers do not allow it, in the words of upstream's 403.
async fn refused(write: Write<'_>, verb: &str, target: ResourceTarget<'_>) -> Option<String> {
    let decision = write.authorize(verb, target).await;
    if decision.allowed() {
        return None;
    }
    let mut reason = decision.reason.to_string();
    if let Some(error) = &decision.error {
        reason = if reason.is_empty() { error.clone() } else { format!("{error}: {reason}") };
    }
    Some(denied(&Attributes::resource(&write.cx.user, verb, target), &Reason::Text(reason.into())).message)
}

/// Who binds claims does so for all of them: authorized once for the cluster.
async fn binding_forbids(write: Write<'_>) -> Option<Cause> {
    let same = |old: &Value| {
        of_status(old, "allocation") == of_status(write.new, "allocation")
            && list_of(old, "reservedFor") == list_of(write.new, "reservedFor")
    };
    if write.old.is_some_and(same) {
        return None;
    }
    let verb = write.cx.info.verb.as_str();
    let why = refused(write, verb, target(&write, "binding", "", "")).await?;
    Some(Cause::forbidden(
        "status.allocation",
        &format!("changing status.allocation or status.reservedFor requires resource=\"resourceclaims/binding\", verb=\"{verb}\" permission: {why}"),
    ))
}

/// Each driver whose devices change. A driver that runs on the claim's node may do so by a verb of its own.
async fn drivers_forbid(write: Write<'_>) -> Vec<Cause> {
    let verb = write.cx.info.verb.as_str();
    let mut verbs = vec![format!("arbitrary-node:{verb}")];
    if allocated_node(write.new).is_some_and(|node| runs_on(&write.cx.user, node)) {
        verbs.insert(0, format!("associated-node:{verb}"));
    }
    let mut errors = Vec::new();
    for driver in changed_drivers(write.new, write.old) {
        let mut first = None;
        for verb in &verbs {
            let target = target(&write, "driver", &write.cx.info.namespace, driver);
            match refused(write, verb, target).await {
                None => {
                    first = None;
                    break;
                }
                Some(why) => first = first.or(Some(why)),
            }
        }
        errors.extend(first.map(|why| {
            let verbs = verbs.join(" ");
            Cause::forbidden(
                "status.devices",
                &format!("changing status.devices requires resource=\"resourceclaims/driver\", verb=\"[{verbs}]\" permission: {why}"),
            )
        }));
    }
    errors
}

/// Drivers of devices that were added, changed or removed, in order.
fn changed_drivers<'a>(new: &'a Value, old: Option<&'a Value>) -> BTreeSet<&'a str> {
    let text = |device: &'a Value, member: &str| device.str_at(&[member]).unwrap_or_default();
    let key = |device: &'a Value| ["driver", "pool", "device", "shareID"].map(|member| text(device, member));
    let (new, old) = (list_of(new, "devices"), old.map_or(&[][..], |old| list_of(old, "devices")));
    let without = |these: &'a [Value], those: &'a [Value]| {
        these.iter().filter(move |this| !those.iter().any(|that| key(that) == key(this) && that == *this))
    };
    without(new, old).chain(without(old, new)).map(|device| text(device, "driver")).collect()
}

/// The one node that an allocation is for, when its selector names it and nothing else.
fn allocated_node(claim: &Value) -> Option<&str> {
    let terms = claim.at(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"])?.as_array()?;
    let [term] = terms else { return None };
    let list = |object: &'_ Value, member: &str| -> usize {
        object.get(member).and_then(Value::as_array).map_or(0, <[Value]>::len)
    };
    if list(term, "matchExpressions") > 0 {
        return None;
    }
    let [field] = term.get("matchFields")?.as_array()? else { return None };
    let is_name =
        field.str_at(&["key"]) == Some("metadata.name") && field.str_at(&["operator"]) == Some("In");
    let [value] = field.get("values")?.as_array()? else { return None };
    value.as_str().filter(|_| is_name)
}

/// Whether a service account's token is bound to that node.
fn runs_on(user: &User, node: &str) -> bool {
    let is_account = user.name.strip_prefix("system:serviceaccount:").is_some_and(|rest| {
        rest.split_once(':')
            .is_some_and(|(namespace, name)| !namespace.is_empty() && !name.is_empty() && !name.contains(':'))
    });
    let bound =
        user.extra.iter().find(|(key, _)| key.as_str() == NODE_NAME).map(|(_, values)| values.as_slice());
    is_account && bound.is_some_and(|names| matches!(names, [name] if name == node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn drivers_whose_devices_change() {
        let claim = |devices: &str| parse(&format!(r#"{{"status":{{"devices":{devices}}}}}"#));
        let (a, b) =
            (r#"{"driver":"a","pool":"p","device":"d"}"#, r#"{"driver":"b","pool":"p","device":"d"}"#);
        let changed = r#"{"driver":"a","pool":"p","device":"d","data":{}}"#;
        let rows: [(String, String, &[&str]); 5] = [
            ("[]".into(), "[]".into(), &[]),
            (format!("[{a}]"), format!("[{a}]"), &[]),
            (format!("[{a}]"), format!("[{changed}]"), &["a"]),
            (format!("[{a},{b}]"), format!("[{b}]"), &["a"]),
            (format!("[{b}]"), format!("[{a}]"), &["a", "b"]),
        ];
        for (old, new, drivers) in rows {
            let (old, new) = (claim(&old), claim(&new));
            let found: Vec<&str> = changed_drivers(&new, Some(&old)).into_iter().collect();
            assert_eq!(found, drivers, "{new:?}");
        }
    }

    #[test]
    fn the_node_of_an_allocation() {
        let claim = |term: &str| {
            parse(&format!(
                r#"{{"status":{{"allocation":{{"nodeSelector":{{"nodeSelectorTerms":[{term}]}}}}}}}}"#
            ))
        };
        let named = r#"{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}]}"#;
        assert_eq!(allocated_node(&claim(named)), Some("n"));
        assert_eq!(allocated_node(&claim(&named.replace("In", "NotIn"))), None);
        assert_eq!(allocated_node(&claim(&named.replace(r#""n""#, r#""n","m""#))), None);
        assert_eq!(allocated_node(&claim(&format!("{named},{named}"))), None);
        assert_eq!(allocated_node(&claim(r#"{"matchExpressions":[{"key":"a"}]}"#)), None);
    }
}
