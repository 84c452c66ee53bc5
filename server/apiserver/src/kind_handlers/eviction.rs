//! Eviction: POST to `pods/NAME/eviction`, a deletion that disruption budgets can refuse.
//!
//! Upstream: kubernetes `pkg/registry/core/pod/storage/eviction.go`. The budget is decremented in a separate
//! write before the pod is deleted; if the server crashes in between, the disruption controller finds that
//! the pod still exists and removes the entry of `disruptedPods` after two minutes, as with upstream.

use std::ops::ControlFlow;

use hyper::{Response, StatusCode};
use plinth_codec::negotiate::Shape;
use plinth_codec::schema::GVK;
use plinth_codec::selector::LabelSelector;
use plinth_codec::time::Timestamp;
use plinth_codec::{Map, Value};

use crate::context::{AdmissionRequest, Context, Operation};
use crate::handlers::delete_options::{DeleteOptions, IGNORE_READ_ERROR};
use crate::handlers::respond::{respond_created, respond_status};
use crate::handlers::{body, delete, internal};
use plinth_api::{
    find_condition, is_condition_true, is_deleting, metadata_text, set_observed_condition,
    wipe_system_fields, ApiError, Cause, Reason, Verb,
};
use plinth_http::{Body, RequestBody};
use plinth_registry::match_namespace;
use plinth_storage::decode_object;

/// Attempts of an eviction when pod or budget change concurrently.
const ATTEMPTS: usize = 20;
/// Maximum number of disrupted pods in a budget.
const MAX_DISRUPTED_PODS: usize = 2000;

pub(super) async fn evict(cx: Box<Context>, incoming: RequestBody) -> Result<Response<Body>, ApiError> {
    let representation = cx.representation(Shape::Object)?;
    cx.query.check_write_options("CreateOptions")?;
    let (gvk, root) = body::builtin_kind("policy", "v1", "Eviction")?;
    let before = GVK::new("policy", "v1beta1", "Eviction");
    let mut eviction = body::read_as_either(&cx, incoming, (&gvk, root), Some(&before)).await?;
    wipe_system_fields(&mut eviction)?;
    match_namespace(&cx.resource, &cx.info, &mut eviction)?;
    let mut call = AdmissionRequest::new(&cx, Operation::Create, None);
    call.dry_run = options(&cx, &eviction)?.is_dry_run();
    cx.server.admission.mutate(&call, &mut eviction).await?;
    let options = options(&cx, &eviction)?;
    call.dry_run = options.is_dry_run();
    cx.server.admission.validate(&call, &eviction).await?;
    let pods = cx.on_behalf(("", "v1", "pods"), &cx.info.name, Verb::Delete)?;
    match evict_pod(&pods, &options).await? {
        Evicted::Deleted => respond_created(&representation),
        // Upstream answers it like a result: in the representation of one, and without a reason.
        Evicted::SeveralBudgets => {
            let message =
                "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                not support.";
            let status = ApiError::new(500, Reason::Unknown, message).to_status();
            respond_status(&representation, StatusCode::INTERNAL_SERVER_ERROR, &status)
        }
    }
}

/// The options of the deletion: those of the eviction, with the request's dry run.
fn options(cx: &Context, eviction: &Value) -> Result<DeleteOptions, ApiError> {
    if metadata_text(eviction, "name") != cx.info.name {
        return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut options = eviction.get("deleteOptions").map(DeleteOptions::of_tree).unwrap_or_default();
    if options.ignore_store_read_error {
        let path = format!("deleteOptions.{IGNORE_READ_ERROR}");
        let why = "can not be set for pod eviction, try after removing the option";
        let cause = Cause::invalid(path, true, why);
        return Err(ApiError::invalid("policy", "Eviction", &cx.info.name, vec![cause]));
    }
    let requested = &cx.query.dry_run;
    if options.dry_run.is_empty() {
        options.dry_run.clone_from(requested);
    } else if !requested.is_empty() && *requested != options.dry_run {
        let what = format!(
            "Non-matching dry-run options in request and content: [{}] and [{}]",
            requested.join(" "),
            options.dry_run.join(" ")
        );
        return Err(ApiError::new(500, Reason::Unknown, what));
    }
    options.valid()
}

enum Evicted {
    /// The pod is deleted, or marked for deletion.
    Deleted,
    /// More than one budget selects the pod, which is not supported.
    SeveralBudgets,
}

async fn evict_pod(pods: &Context, options: &DeleteOptions) -> Result<Evicted, ApiError> {
    let mut attempts = 0;
    let pod = loop {
        let pod = read_pod(pods).await?;
        if !ignores_budgets(&pod) {
            break pod;
        }
        let mut options = options.clone();
        let retry = options.resource_version.is_none();
        if retry && !is_over(&pod) {
            // A pod that has become ready is subject to its budget.
            options.resource_version = Some(metadata_text(&pod, "resourceVersion").to_owned());
        }
        attempts += 1;
        match mark_and_delete(pods, options).await {
            Err(error) if error.is_conflict() && retry && attempts < ATTEMPTS => {}
            outcome => return outcome.map(|()| Evicted::Deleted),
        }
    };
    let budgets = budgets_of(pods, &pod).await?;
    let budget = match budgets.as_slice() {
        [] => None,
        [budget] => Some(budget),
        _ => return Ok(Evicted::SeveralBudgets),
    };
    let Some(budget) = budget else {
        return mark_and_delete(pods, options.clone()).await.map(|()| Evicted::Deleted);
    };
    let name = metadata_text(budget, "name");
    if !is_ready(&pod) && allows_unhealthy(budget) {
        let mut own = options.clone();
        own.resource_version = Some(metadata_text(&pod, "resourceVersion").to_owned());
        return match mark_and_delete(pods, own).await {
            // It may have become healthy: the client must retry.
            Err(error) if error.is_conflict() && options.resource_version.is_none() => {
                Err(still_processed(name))
            }
            outcome => outcome.map(|()| Evicted::Deleted),
        };
    }
    decrement_budget(pods, name, options.is_dry_run()).await?;
    mark_and_delete(pods, options.clone()).await.map(|()| Evicted::Deleted)
}

async fn read_pod(pods: &Context) -> Result<Value, ApiError> {
    let record = pods.newest(&pods.info.object_key(&pods.resource)?).await?;
    decode_object(&pods.resource, &record.ok_or_else(|| pods.not_found())?)
}

fn phase(pod: &Value) -> &str {
    pod.str_at(&["status", "phase"]).unwrap_or_default()
}

/// Whether a pod has terminated or is being deleted.
fn is_over(pod: &Value) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed") || is_deleting(pod)
}

/// Whether a pod is not running yet or no longer, so that its eviction disrupts nothing.
fn ignores_budgets(pod: &Value) -> bool {
    phase(pod) == "Pending" || is_over(pod)
}

fn is_ready(pod: &Value) -> bool {
    is_condition_true(pod, "Ready")
}

fn count(budget: &Value, key: &str) -> i64 {
    budget.at(&["status", key]).and_then(Value::as_int).unwrap_or(0)
}

/// Whether the budget allows evicting unready pods without decrement: always, or while enough others are
/// healthy.
fn allows_unhealthy(budget: &Value) -> bool {
    let (current, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == Some("AlwaysAllow")
        || (current >= desired && desired > 0)
}

/// The budgets of the pod's namespace that select it; one without a selector selects nothing.
async fn budgets_of(pods: &Context, pod: &Value) -> Result<Vec<Value>, ApiError> {
    let budgets = pods.registry.internal("policy", "v1", "poddisruptionbudgets");
    let budgets = budgets.ok_or_else(ApiError::no_such_resource)?;
    let labels = pod.at(&["metadata", "labels"]).cloned().unwrap_or_default();
    let keep_selecting = move |selecting: &mut Vec<Value>, budget: Value| {
        let selector = budget.at(&["spec", "selector"]).filter(|s| !s.is_null());
        let label = |key: &str| labels.str_at(&[key]);
        if selector.is_some() && LabelSelector::from_object(selector).is_ok_and(|s| s.matches(label)) {
            selecting.push(budget);
        }
        // More than one is an error already.
        if selecting.len() > 1 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    pods.server.store.visit(budgets, &pods.info.namespace, |_| true, Vec::new(), keep_selecting).await
}

/// Sets the reason in the pod's conditions, and deletes it.
async fn mark_and_delete(pods: &Context, mut options: DeleteOptions) -> Result<(), ApiError> {
    let written = internal::update_unchecked(pods, options.is_dry_run(), &|pod| {
        delete::check_preconditions(pods, &pods.info.name, &options, pod)?;
        let (reason, message) = ("EvictionByEvictionAPI", "Eviction API: evicting");
        plinth_kinds::set_pod_condition(pod, "DisruptionTarget", "True", reason, message);
        Ok(())
    })
    .await?;
    if let (Some(version), Some(revision)) = (options.resource_version.as_mut(), written.revision) {
        *version = revision.get().to_string();
    }
    // Admission was asked about the eviction.
    delete::delete_admitted(pods, &options).await
}

/// Decrements the budget.
async fn decrement_budget(pods: &Context, name: &str, dry_run: bool) -> Result<(), ApiError> {
    let resource = ("policy", "v1", "poddisruptionbudgets");
    let budgets = pods.on_behalf(resource, name, Verb::Update)?;
    internal::update_unchecked(&budgets, dry_run, &|budget| decrement(budget, &pods.info.name))
        .await
        .map(|_| ())
}

fn decrement(budget: &mut Value, pod: &str) -> Result<(), ApiError> {
    let name = metadata_text(budget, "name").to_owned();
    let generation = budget.at(&["metadata", "generation"]).and_then(Value::as_int).unwrap_or(0);
    let observed = count(budget, "observedGeneration");
    if observed < generation {
        return Err(still_processed(&name));
    }
    let allowed = count(budget, "disruptionsAllowed");
    let refuse = |why: &str| ApiError::forbidden("policy", "poddisruptionbudget", &name, why);
    if allowed < 0 {
        return Err(refuse("pdb disruptions allowed is negative"));
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object).map_or(0, Map::len);
    if disrupted > MAX_DISRUPTED_PODS {
        return Err(refuse("DisruptedPods map too big - too many evictions not confirmed by PDB controller"));
    }
    if allowed == 0 {
        return Err(too_many(0, &why_none(budget, &name)));
    }
    if let Some(status) = budget.object_at_mut(&["status"]) {
        status.insert("disruptionsAllowed", allowed - 1);
    }
    if allowed == 1 {
        set_observed_condition(budget, "DisruptionAllowed", "False", "InsufficientPods", observed);
    }
    if let Some(pods) = budget.object_at_mut(&["status", "disruptedPods"]) {
        pods.insert(pod, Timestamp::now().to_rfc3339());
    }
    Ok(())
}

/// Why a budget currently allows no disruption.
fn why_none(budget: &Value, name: &str) -> String {
    let (current, desired) = (count(budget, "currentHealthy"), count(budget, "desiredHealthy"));
    let condition = find_condition(budget, "DisruptionAllowed");
    let text = |key: &str| condition.and_then(|c| c.str_at(&[key])).unwrap_or_default();
    let explained = text("status") == "False" && !text("message").is_empty();
    match explained {
        true if text("reason") == "SyncFailed" => format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {}",
            text("message")
        ),
        _ if current <= desired => {
            format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
        }
        true => format!(
            "The disruption budget {name} does not allow evicting pods currently ({}): {}",
            text("reason"),
            text("message")
        ),
        false => format!("The disruption budget {name} does not allow evicting pods currently"),
    }
}

fn still_processed(budget: &str) -> ApiError {
    too_many(10, &format!("The disruption budget {budget} is still being processed by the server."))
}

fn too_many(retry_after: u32, why: &str) -> ApiError {
    let message = "Cannot evict pod as it would violate the pod's disruption budget.";
    let cause = Cause { reason: "DisruptionBudget", message: why.to_owned(), field: String::new() };
    ApiError::new(429, Reason::TooManyRequests, message).with_causes(vec![cause]).retry_after(retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::find_condition;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_budget_is_decremented_or_explains_why_not() {
        // status of the budget (generation 2), cause of the refusal
        let rows = [
            (r#"{"observedGeneration":2,"disruptionsAllowed":2}"#, None),
            (
                r#"{"observedGeneration":1,"disruptionsAllowed":2}"#,
                Some("The disruption budget b is still being processed by the server."),
            ),
            (
                r#"{"observedGeneration":2,"disruptionsAllowed":0,"currentHealthy":1,"desiredHealthy":2}"#,
                Some("The disruption budget b needs 2 healthy pods and has 1 currently"),
            ),
            (
                r#"{"observedGeneration":2,"disruptionsAllowed":0,"currentHealthy":3,"desiredHealthy":2}"#,
                Some("The disruption budget b does not allow evicting pods currently"),
            ),
            (
                r#"{"observedGeneration":2,"disruptionsAllowed":0,"conditions":[{"type":"DisruptionAllowed","status":"False","reason":"SyncFailed","message":"no scale"}]}"#,
                Some("The disruption budget b does not allow evicting pods currently because it failed sync: no scale"),
            ),
        ];
        for (status, cause) in rows {
            let mut budget =
                parse(&format!(r#"{{"metadata":{{"name":"b","generation":2}},"status":{status}}}"#));
            let refusal = decrement(&mut budget, "p").err();
            let found =
                refusal.as_ref().and_then(|e| e.details.as_ref()).map(|d| d.causes[0].message.as_str());
            assert_eq!(found, cause, "{status}");
            assert!(refusal.is_none_or(|e| e.code == 429), "{status}");
        }
    }

    #[test]
    fn the_last_disruption_is_noted() {
        let mut budget = parse(
            r#"{"metadata":{"name":"b","generation":1},"status":{"observedGeneration":1,"disruptionsAllowed":1}}"#,
        );
        decrement(&mut budget, "p").unwrap();
        assert_eq!(count(&budget, "disruptionsAllowed"), 0);
        assert!(budget.at(&["status", "disruptedPods", "p"]).is_some());
        let condition = find_condition(&budget, "DisruptionAllowed").unwrap();
        assert_eq!(condition.str_at(&["reason"]), Some("InsufficientPods"));
    }

    #[test]
    fn which_pods_need_a_budget() {
        let rows = [
            (r#"{"status":{"phase":"Running"}}"#, false),
            (r#"{"status":{"phase":"Pending"}}"#, true),
            (r#"{"status":{"phase":"Failed"}}"#, true),
            (r#"{"metadata":{"deletionTimestamp":"x"},"status":{"phase":"Running"}}"#, true),
        ];
        for (pod, free) in rows {
            assert_eq!(ignores_budgets(&parse(pod)), free, "{pod}");
        }
        // policy, current, desired, whether eviction is allowed
        let rows = [
            ("AlwaysAllow", 0, 2, true),
            ("IfHealthyBudget", 2, 2, true),
            ("", 1, 2, false),
            ("", 0, 0, false),
        ];
        for (policy, current, desired, may) in rows {
            let budget = parse(&format!(
                r#"{{"spec":{{"unhealthyPodEvictionPolicy":"{policy}"}},"status":{{"currentHealthy":{current},"desiredHealthy":{desired}}}}}"#
            ));
            assert_eq!(allows_unhealthy(&budget), may, "{policy} {current} {desired}");
        }
    }
}
