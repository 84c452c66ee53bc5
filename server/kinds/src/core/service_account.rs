//! ServiceAccount (`core`).

use plinth_codec::table::Column;
use plinth_codec::Value;

use crate::strategy::{Strategy, BASE};
use crate::warnings::annotation;

pub(crate) const STRATEGY: Strategy =
    Strategy { returns_deleted_object: true, warnings, columns: &[Column::NAME, Column::AGE], ..BASE };

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    let has = |account: &Value| annotation(account, ENFORCE).is_some();
    match has(new) && !old.is_some_and(has) {
        true => vec![format!("metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets")],
        false => Vec::new(),
    }
}
