//! `DefaultStorageClass`, `PersistentVolumeClaimResize` and `StorageObjectInUseProtection`: default class and
//! resizing of claims, and protection finalizers.
//!
//! Upstream: kubernetes `plugin/pkg/admission/storage`.

use std::sync::Arc;

use plinth_codec::quantity::Quantity;
use plinth_codec::Value;

use super::call::Call;
use plinth_api::{finalizers, metadata_text, ApiError};
use plinth_storage::ObjectCache;

const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The deprecated annotation for a claim's class.
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.str_at(&["metadata", "annotations", key])
}

/// The newest class that is annotated as default; of equally old ones the first by name.
pub(super) fn newest_default(classes: &[Arc<Value>], marks: &[&str]) -> Option<Arc<Value>> {
    let marked = classes.iter().filter(|c| marks.iter().any(|mark| annotation(c, mark) == Some("true")));
    // RFC 3339 in UTC sorts as text; classes are sorted by name, and the first of equals is kept.
    let newer = |a: &Arc<Value>, b: &Arc<Value>| {
        metadata_text(a, "creationTimestamp") >= metadata_text(b, "creationTimestamp")
    };
    marked.fold(None, |best, class| match best {
        Some(best) if newer(&best, class) => Some(best),
        _ => Some(class.clone()),
    })
}

/// Sets the default class of a claim without a class.
///
/// # Errors
/// When the classes cannot be read.
pub(super) async fn default_class(
    call: &Call<'_>,
    classes: &ObjectCache,
    claim: &mut Value,
) -> Result<(), ApiError> {
    let named = annotation(claim, BETA_CLASS).is_some()
        || claim.at(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if named {
        return Ok(());
    }
    let server = &call.cx.server;
    let classes = classes.objects(&server.store, "").await?;
    if let (Some(class), Some(spec)) =
        (newest_default(&classes, &DEFAULT_CLASS), claim.object_at_mut(&["spec"]))
    {
        spec.insert("storageClassName", metadata_text(&class, "name"));
    }
    Ok(())
}

fn class_name(claim: &Value) -> &str {
    let field = claim.str_at(&["spec", "storageClassName"]);
    annotation(claim, BETA_CLASS).or(field).unwrap_or_default()
}

/// Allows a claim to grow only if it is bound and its class allows it.
///
/// # Errors
/// 403 where the claim grows and its class does not allow that.
pub(super) async fn validate_resize(
    call: &Call<'_>,
    classes: &ObjectCache,
    claim: &Value,
) -> Result<(), ApiError> {
    let Some(old) = call.old else { return Ok(()) };
    let size = |claim: &Value| {
        let text = claim.str_at(&["spec", "resources", "requests", "storage"]);
        text.and_then(|text| Quantity::parse(text).ok()).unwrap_or(Quantity::ZERO)
    };
    if size(claim) <= size(old) {
        return Ok(());
    }
    if old.str_at(&["status", "phase"]) != Some("Bound") {
        return Err(call.forbidden(claim, "Only bound persistent volume claims can be expanded"));
    }
    let server = &call.cx.server;
    let name = class_name(claim);
    let class = match name.is_empty() || name != class_name(old) {
        true => None,
        false => classes.object(&server.store, name).await?,
    };
    let allows = class.is_some_and(|c| c.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true));
    if allows {
        return Ok(());
    }
    let why = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize";
    Err(call.forbidden(claim, why))
}

/// The protection finalizers of storage objects, by plural of the resource.
pub(crate) const PROTECTION: &[(&str, &str)] = &[
    ("persistentvolumeclaims", "kubernetes.io/pvc-protection"),
    ("persistentvolumes", "kubernetes.io/pv-protection"),
    ("volumeattributesclasses", "kubernetes.io/vac-protection"),
];

/// Adds the protection finalizer to a new object.
pub(super) fn protect(call: &Call<'_>, object: &mut Value) {
    let plural = call.cx.resource.plural();
    if let Some((_, finalizer)) = PROTECTION.iter().find(|(resource, _)| *resource == plural) {
        add_finalizer(object, finalizer);
    }
}

/// Adds a finalizer unless the object has it.
pub(super) fn add_finalizer(object: &mut Value, finalizer: &str) {
    let mut all: Vec<Value> = finalizers(object).into_iter().map(Value::from).collect();
    if all.iter().any(|present| present.as_str() == Some(finalizer)) {
        return;
    }
    all.push(finalizer.into());
    if let Some(metadata) = object.object_at_mut(&["metadata"]) {
        metadata.insert("finalizers", all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_api::metadata_text;
    use plinth_codec::json;

    #[test]
    fn the_newest_default_counts() {
        let class = |name: &str, created: &str, mark: &str| {
            let text = format!(
                r#"{{"metadata":{{"name":"{name}","creationTimestamp":"{created}","annotations":{{"{mark}":"true"}}}}}}"#
            );
            Arc::new(json::parse(text.as_bytes()).unwrap())
        };
        let [mark, beta] = DEFAULT_CLASS;
        let classes = [
            class("a", "2026-01-01T00:00:00Z", mark),
            class("b", "2026-01-02T00:00:00Z", beta),
            class("c", "2026-01-02T00:00:00Z", mark),
            class("d", "2026-01-03T00:00:00Z", "other"),
        ];
        let found = newest_default(&classes, &DEFAULT_CLASS);
        assert_eq!(found.as_ref().map(|c| metadata_text(c, "name")), Some("b"));
        assert_eq!(newest_default(&classes[3..], &DEFAULT_CLASS), None);
    }
}
