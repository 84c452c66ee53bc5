//! `OwnerReferencesPermissionEnforcement`: setting owner references of an existing object requires permission
//! to delete it, since the deletion of the owner deletes it; setting blockOwnerDeletion requires permission
//! to set the owner's finalizers. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/gc`.

use plinth_codec::Value;

use super::call::Call;
use plinth_api::ApiError;
use plinth_apiserver::authz::{Attributes, Decision, ResourceTarget};
use plinth_apiserver::context::Operation;

/// Checks new and changed owner references.
///
/// # Errors
/// 403.
pub(super) async fn validate(call: &Call<'_>, object: &Value) -> Result<(), ApiError> {
    // A pod's owner references cannot be changed through its status.
    if (call.cx.resource.group(), call.cx.resource.plural(), call.cx.info.subresource.as_str())
        == ("", "pods", "status")
    {
        return Ok(());
    }
    let (new, old) = (owners(object), call.old.map_or(&[][..], owners));
    if new == old {
        return Ok(());
    }
    if call.operation != Operation::Create {
        let info = &call.cx.info;
        let target = ResourceTarget {
            group: &info.group,
            version: &info.version,
            resource: &info.resource,
            subresource: &info.subresource,
            name: call.name,
            namespace: call.namespace,
            ..ResourceTarget::default()
        };
        let decision = authorize(call, "delete", target).await;
        if !decision.allowed() {
            let why = format!(
                "cannot set an ownerRef on a resource you can't delete: {}",
                format_decision(&decision)
            );
            return Err(call.forbidden(object, &why));
        }
    }
    let blocking: Vec<&Value> = new.iter().filter(|owner| blocks(owner) && !blocked(old, owner)).collect();
    if blocking.is_empty() {
        return Ok(());
    }
    let anything = ResourceTarget {
        group: "*",
        version: "*",
        resource: "*",
        subresource: "finalizers",
        name: "*",
        ..ResourceTarget::default()
    };
    if authorize(call, "update", anything).await.allowed() {
        return Ok(());
    }
    for owner in blocking {
        may_finalize(call, object, owner).await?;
    }
    Ok(())
}

/// Checks permission to set an owner's finalizers, for every resource of its kind.
async fn may_finalize(call: &Call<'_>, object: &Value, owner: &Value) -> Result<(), ApiError> {
    let text = |key: &str| owner.str_at(&[key]).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resources: Vec<_> = call.cx.registry.of_kind(group, version, kind).collect();
    if resources.is_empty() {
        let why = format!("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion {api_version} Kind {kind}: no matches for kind {kind:?} in version {api_version:?}");
        return Err(call.forbidden(object, &why));
    }
    for resource in resources {
        let target = ResourceTarget {
            group,
            version,
            resource: resource.plural(),
            subresource: "finalizers",
            name: text("name"),
            namespace: if resource.row.namespaced { call.namespace } else { "" },
            ..ResourceTarget::default()
        };
        let decision = authorize(call, "update", target).await;
        if !decision.allowed() {
            let why = format!("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: {}", format_decision(&decision));
            return Err(call.forbidden(object, &why));
        }
    }
    Ok(())
}

async fn authorize(call: &Call<'_>, verb: &str, target: ResourceTarget<'_>) -> Decision {
    call.cx.server.authorizer.authorize(&Attributes::resource(&call.cx.user, verb, target)).await
}

/// Reason and error of a decision, formatted as upstream does.
fn format_decision(decision: &Decision) -> String {
    format!("{}, {}", decision.reason, decision.error.as_deref().unwrap_or("<nil>"))
}

fn owners(object: &Value) -> &[Value] {
    object.list_at(&["metadata", "ownerReferences"])
}

fn blocks(owner: &Value) -> bool {
    owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
}

/// Whether that owner was blocked before; owners are identified by UID.
fn blocked(old: &[Value], owner: &Value) -> bool {
    old.iter().any(|before| blocks(before) && before.str_at(&["uid"]) == owner.str_at(&["uid"]))
}
