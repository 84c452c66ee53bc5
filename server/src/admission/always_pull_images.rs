//! `AlwaysPullImages`: a node pulls each image for each pod, so that a pod cannot run another user's private
//! image that is cached on the node. Off by default.
//!
//! Upstream: kubernetes `plugin/pkg/admission/alwayspullimages`.

use std::collections::HashSet;

use plinth_codec::Value;

use super::call::Call;
use plinth_api::{ApiError, Cause};
use plinth_apiserver::context::Operation;

const ALWAYS: &str = "Always";
const CONTAINERS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// Sets the pull policy of every container and image volume.
pub(super) fn admit(call: &Call<'_>, pod: &mut Value) {
    if has_no_new_image(call, pod) {
        return;
    }
    let Some(spec) = pod.object_at_mut(&["spec"]) else { return };
    for list in CONTAINERS {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set(container, "imagePullPolicy");
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = volume.get_mut("image") {
            set(image, "pullPolicy");
        }
    }
}

fn set(owner: &mut Value, member: &str) {
    if let Some(owner) = owner.as_object_mut() {
        owner.insert(member, ALWAYS);
    }
}

/// Denies pods whose pull policy a webhook has reset.
///
/// # Errors
/// 403 that names the first such container or volume.
pub(super) fn validate(call: &Call<'_>, pod: &Value) -> Result<(), ApiError> {
    if has_no_new_image(call, pod) {
        return Ok(());
    }
    let containers = CONTAINERS.iter().flat_map(|list| {
        let each = items(pod, list).iter().enumerate();
        each.map(move |(i, c)| (format!("spec.{list}[{i}].imagePullPolicy"), c.str_at(&["imagePullPolicy"])))
    });
    let images = items(pod, "volumes").iter().enumerate().filter_map(|(i, volume)| {
        let image = volume.get("image")?;
        Some((format!("spec.volumes[{i}].image.pullPolicy"), image.str_at(&["pullPolicy"])))
    });
    match containers.chain(images).find(|(_, policy)| *policy != Some(ALWAYS)) {
        None => Ok(()),
        Some((path, policy)) => {
            let error = Cause::not_supported(path, policy.unwrap_or_default(), &[ALWAYS]);
            Err(call.forbidden(pod, &format!("{}: {}", error.field, error.message)))
        }
    }
}

fn items<'a>(pod: &'a Value, list: &str) -> &'a [Value] {
    pod.list_at(&["spec", list])
}

/// Whether the update adds no image to the pod.
fn has_no_new_image(call: &Call<'_>, pod: &Value) -> bool {
    fn images(pod: &Value) -> HashSet<&str> {
        let containers = CONTAINERS.iter().flat_map(|list| items(pod, list));
        containers.filter_map(|container| container.str_at(&["image"])).collect()
    }
    call.operation == Operation::Update && call.old.is_some_and(|old| images(pod).is_subset(&images(old)))
}
