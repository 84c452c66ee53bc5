//! Metadata of a template of claims, from which objects are made (kubernetes `pkg/apis/core/validation`,
//! `ValidateTemplateObjectMeta`).

use plinth_codec::Value;

use crate::checks::Check::Labels;
use crate::checks::Part;

/// Members that only the objects themselves have, in upstream's order, and as errors name them.
const OF_OBJECTS: [(&str, &str); 13] = [
    ("name", "name"),
    ("generateName", "generateName"),
    ("namespace", "namespace"),
    ("selfLink", "selfLink"),
    ("uid", "uID"),
    ("resourceVersion", "resourceVersion"),
    ("generation", "generation"),
    ("creationTimestamp", "creationTimestamp"),
    ("deletionTimestamp", "deletionTimestamp"),
    ("deletionGracePeriodSeconds", "deletionGracePeriodSeconds"),
    ("ownerReferences", "ownerReferences"),
    ("finalizers", "finalizers"),
    ("managedFields", "managedFields"),
];

/// Validates annotations and labels; other metadata cannot be set.
pub(crate) fn template_metadata(metadata: &Part<'_>) {
    metadata.append("annotations", |path, errors| {
        errors.extend(plinth_api::annotation_errors(metadata.at("annotations"), path));
    });
    metadata.check(&[Labels("labels")]);
    for (key, shown) in OF_OBJECTS {
        if metadata.at(key).is_some_and(|value| *value != Value::Int(0)) && !metadata.is_empty(key) {
            metadata.forbidden(shown, "cannot be set");
        }
    }
}
