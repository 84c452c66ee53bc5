//! Columns that several kinds share, and what their functions share. The rules are those of upstream's
//! `pkg/printers/internalversion/printers.go`.

use plinth_codec::table::{join, Cell, Column};
use plinth_codec::Value;

use crate::path::{at, text};

/// The names of a list of containers.
pub(crate) const fn containers(list: &'static str) -> Column {
    Column::each("Containers", list, "name")
}

/// The images of a list of containers.
pub(crate) const fn images(list: &'static str) -> Column {
    Column::each("Images", list, "image")
}

/// The columns of a controller that keeps replicas of a pod; its selector is the last one.
pub(crate) const fn replicas(selector: Column) -> [Column; 8] {
    [
        Column::NAME,
        Column::int("Desired", "spec.replicas"),
        Column::int("Current", "status.replicas"),
        Column::int("Ready", "status.readyReplicas"),
        Column::AGE,
        containers("spec.template.spec.containers").wide(),
        images("spec.template.spec.containers").wide(),
        selector.wide(),
    ]
}

/// The phase, unless the object waits to be deleted.
pub(crate) const PHASE: Column =
    Column::computed("Status", &["metadata.deletionTimestamp", "status.phase"], |object, _| {
        match at(object, "metadata.deletionTimestamp") {
            Some(_) => "Terminating".into(),
            None => text(object, "status.phase").into(),
        }
    });

/// The storage class of a volume or claim: an old annotation wins over the field.
pub(crate) const STORAGE_CLASS: Column =
    Column::computed("StorageClass", &["metadata.annotations", "spec.storageClassName"], |object, _| {
        let annotations = at(object, "metadata.annotations");
        let annotated = annotations.and_then(|a| a.get("volume.beta.kubernetes.io/storage-class"));
        annotated.and_then(Value::as_str).unwrap_or(text(object, "spec.storageClassName")).into()
    });

/// Access modes in short, always in the same order.
pub(crate) fn short_access_modes(modes: &[Value]) -> String {
    let short = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let held = |mode| modes.iter().any(|m| m.as_str() == Some(mode));
    join(short.into_iter().filter(|(mode, _)| held(mode)).map(|(_, short)| short), ",")
}

/// A name, marked if one of the annotations makes the object the default.
pub(crate) fn named_default<'a>(object: &'a Value, annotations: &[&str]) -> Cell<'a> {
    let name = text(object, "metadata.name");
    let set = at(object, "metadata.annotations");
    let is_default =
        annotations.iter().any(|a| set.and_then(|s| s.get(a)).and_then(Value::as_str) == Some("true"));
    if is_default {
        format!("{name} (default)").into()
    } else {
        name.into()
    }
}

/// Texts joined by a separator, truncated after `max` with the number of the rest. `count` is the total
/// number.
pub(crate) fn with_more<'a>(
    texts: impl Iterator<Item = &'a str>,
    separator: &str,
    count: usize,
    max: usize,
) -> String {
    let mut text = join(texts.take(max), separator);
    if count > max {
        text.push_str(&format!(" + {} more...", count - max));
    }
    text
}

/// The text, or another one where it is empty.
pub(crate) fn or<'a>(text: &'a str, absent: &'a str) -> &'a str {
    if text.is_empty() {
        absent
    } else {
        text
    }
}
