//! The core of every write: check, store, answer.
//!
//! | module | step |
//! |---|---|
//! | `create`, `update` | fill in, admit, validate a new object, or the change of one |
//! | `commit` | store it, or not: dry runs and changes of nothing are decided there |

mod commit;
mod create;
mod update;

use bytes::Bytes;
use plinth_codec::Value;
use plinth_engine::Revision;

use super::Context;
use crate::context::Write;
use crate::large_requests::INLINE_COST;
use plinth_api::api_error::{ApiError, Cause};
use plinth_api::metadata;
use plinth_registry::custom::validate;

pub(super) use commit::{put, Commit, Committed};
pub(super) use create::create_object;
pub(super) use update::{check_name, update_object, Update, Updated};

/// How often a write is tried again when another one came between. Each round somebody wins, so this is
/// reached only by hundreds of writers of one object.
pub(super) const ATTEMPTS: usize = 256;

/// An object as it was stored, in the version of the request.
pub struct Written {
    /// Header and body.
    pub value: Bytes,
    /// Its revision; `None` for a dry-run create, which has none.
    pub revision: Option<Revision>,
}

/// Who sets `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ownership {
    /// This write: what it changes belongs to its manager.
    Track,
    /// The apply that made the tree has set them.
    Applied,
}

/// Whether a refusal came of a state that other replicas may have left behind: then the most recent one is
/// here now. A failure is none: after it, a write may be under way.
async fn is_judged_again(cx: &Context, refusal: &ApiError) -> Result<bool, ApiError> {
    Ok(refusal.code < 500 && cx.catch_up().await?)
}

/// What a warning of owners adds that admission brought in twice.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Leaves each owner once, and says so.
fn dedup_owners(cx: &Context, tree: &mut Value, when: &str) {
    let twice = metadata::dedup_owners(tree);
    if !twice.is_empty() {
        cx.warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// At create the status belongs to the server where it is a subresource.
pub fn clear_status(cx: &Context, tree: &mut Value) {
    let strategy = cx.resource.strategy;
    if cx.resource.row.subresource("status").is_some() && !strategy.status_at_create {
        if let Some(object) = tree.as_object_mut() {
            match &cx.resource.zero_status {
                Some(status) => object.insert("status", status.clone()),
                None => object.remove("status"),
            };
        }
    }
}

/// What a definition says of its objects. Rules that take long are asked in a place beside the requests of
/// everybody.
async fn custom_errors(cx: &Context, new: &Value, old: Option<&Value>) -> Result<Vec<Cause>, ApiError> {
    let Some(custom) = &cx.resource.custom else { return Ok(Vec::new()) };
    let ask = |brief| validate::errors(&cx.resource, custom, new, old, &cx.info.subresource, brief);
    match ask(Some(INLINE_COST))? {
        Some(errors) => Ok(errors),
        None => {
            let errors = Box::pin(cx.slot.run_long(&cx.server.large_requests, || ask(None))).await?;
            Ok(errors.unwrap_or_default())
        }
    }
}

/// Says what the kind has to warn of.
fn warn(cx: &Context, new: &Value, old: Option<&Value>) {
    let warnings = match (cx.resource.is_custom(), cx.info.subresource.is_empty()) {
        (true, true) => validate::finalizer_warnings(new, old),
        (false, true) => (cx.resource.strategy.warnings)(new, old),
        (false, false) if cx.info.subresource == "status" => (cx.resource.strategy.status_warnings)(new),
        (_, false) => Vec::new(),
    };
    warnings.into_iter().for_each(|text| cx.warnings.add(text));
}

fn refuse_errors(cx: &Context, tree: &Value, errors: Vec<Cause>) -> Result<(), ApiError> {
    match errors.is_empty() {
        true => Ok(()),
        false => {
            let name = metadata::text(tree, "name");
            // Upstream names what the object says it is.
            let kind = tree.str_at(&["kind"]).filter(|k| !k.is_empty()).unwrap_or(&cx.resource.row.kind);
            let group = cx.resource.strategy.error_group.unwrap_or_else(|| cx.resource.group());
            Err(ApiError::invalid(group, kind, name, errors))
        }
    }
}
