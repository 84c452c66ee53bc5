//! The core of every write: check, store, answer.
//!
//! | module | step |
//! |---|---|
//! | `create`, `update` | fill in, admit, validate a new object, or the change of one |
//! | `commit` | store it, or not: dry runs and changes of nothing are decided there |

mod commit;
mod create;
mod update;

use std::future::ready;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use plinth_codec::Value;
use plinth_engine::Revision;

use super::Context;
use crate::authz::ObjectKey;
use crate::large_requests::INLINE_COST;
use plinth_api::{metadata_text, ApiError, Cause};
use plinth_registry::{definition_errors, finalizer_warnings};
use plinth_storage::Fetched;

pub(super) use commit::{put, Commit, Committed};
pub(super) use create::create_object;
pub(super) use update::{check_name, update_object, Update, Updated};

/// Makes the new object of the live one, or the one to create of none. Called for each attempt. A closure is
/// one that waits for nothing.
pub(super) trait Transform: Send {
    fn make<'b>(&'b mut self, live: Option<&'b Value>) -> BoxFuture<'b, Result<Value, ApiError>>;
}

impl<F: FnMut(Option<&Value>) -> Result<Value, ApiError> + Send> Transform for F {
    fn make<'b>(&'b mut self, live: Option<&'b Value>) -> BoxFuture<'b, Result<Value, ApiError>> {
        Box::pin(ready(self(live)))
    }
}

/// What a subresource shows in place of an object, which admission gets then.
pub(super) trait ShownAs: Send + Sync {
    /// The object as the subresource shows it.
    fn show(&self, object: &Value) -> Result<Value, ApiError>;

    /// Applies what admission has made of it.
    fn store(&self, shown: Value, object: &mut Value) -> Result<(), ApiError>;
}

/// How often a write is tried again when another one was committed between. Each round somebody wins, so this
/// is reached only by hundreds of writers of one object.
const ATTEMPTS: usize = 256;

/// The attempts of a write of one object that is stored, each on what is stored then: the loop of every such
/// write, which ends where an attempt is not in conflict with another write.
pub(super) struct Attempts<'a> {
    cx: &'a Context,
    key: ObjectKey,
    left: usize,
    /// The error when others never stop changing the object; a 409 at first.
    pub last_error: ApiError,
}

impl Attempts<'_> {
    pub(super) fn new<'a>(cx: &'a Context, key: ObjectKey, name: &str) -> Attempts<'a> {
        let last_error = ApiError::modified(cx.resource.group(), cx.resource.plural(), name);
        Attempts { cx, key, left: ATTEMPTS, last_error }
    }

    /// The object for the next attempt; `None` where it is absent.
    ///
    /// # Errors
    /// When there were too many attempts, or the object cannot be read.
    pub(super) async fn next(&mut self) -> Result<Option<Fetched>, ApiError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.last_error.clone())?;
        self.cx.newest(&self.key).await
    }
}

/// An object as it was stored, in the version of the request.
pub(crate) struct Written {
    /// Header and body.
    pub value: Bytes,
    /// Its revision; `None` for a dry-run create, which has none.
    pub revision: Option<Revision>,
}

/// Who sets `managedFields`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ManagedFields {
    /// This write: what it changes belongs to its manager.
    Track,
    /// The apply that made the tree has set them.
    Applied,
}

/// Whether a refusal follows from a state that other replicas may have left behind: then the most recent one
/// is here now. A failure is none: after it, a write may be under way.
async fn should_retry_on_latest(cx: &Context, refusal: &ApiError) -> Result<bool, ApiError> {
    Ok(refusal.code < 500 && cx.sync_to_latest().await?)
}

/// The part of the warning for owners that admission has duplicated.
const AFTER_ADMISSION: &str = " after mutating admission happens";

/// Removes duplicate owners, with a warning.
fn dedup_owners(cx: &Context, tree: &mut Value, when: &str) {
    let twice = plinth_api::dedup_owners(tree);
    if !twice.is_empty() {
        cx.warnings.add(format!(
            ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        ));
    }
}

/// An empty list that admission has left is none.
fn drop_empty_managed_fields(tree: &mut Value) {
    let managed_fields = tree.at(&["metadata", "managedFields"]).and_then(Value::as_array);
    if managed_fields.is_some_and(<[Value]>::is_empty) {
        if let Some(metadata) = tree.object_at_mut(&["metadata"]) {
            metadata.remove("managedFields");
        }
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

/// Errors of a custom resource by its definition. Rules that take long are evaluated in a slot of the
/// large-request limiter.
async fn custom_errors(cx: &Context, new: &Value, old: Option<&Value>) -> Result<Vec<Cause>, ApiError> {
    let Some(custom) = &cx.resource.custom else { return Ok(Vec::new()) };
    let validate = |limit| definition_errors(&cx.resource, custom, new, old, &cx.info.subresource, limit);
    match validate(Some(INLINE_COST))? {
        Some(errors) => Ok(errors),
        None => {
            let errors = Box::pin(cx.slot.run_long(&cx.server.large_requests, || validate(None))).await?;
            Ok(errors.unwrap_or_default())
        }
    }
}

/// Adds the warnings of the kind to the response.
fn warn(cx: &Context, new: &Value, old: Option<&Value>) {
    let warnings = match (cx.resource.is_custom(), cx.info.subresource.is_empty()) {
        (true, true) => finalizer_warnings(new, old),
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
            let name = metadata_text(tree, "name");
            // Upstream names the kind that is in the object.
            let kind = tree.str_at(&["kind"]).filter(|k| !k.is_empty()).unwrap_or(&cx.resource.row.kind);
            let group = cx.resource.strategy.error_group.unwrap_or_else(|| cx.resource.group());
            Err(ApiError::invalid(group, kind, name, errors))
        }
    }
}
