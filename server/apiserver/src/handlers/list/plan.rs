//! What a list reads: which keys, of which revision, and where its pages end.

use std::sync::Arc;

use bytes::Bytes;
use plinth_engine::{At, KeyRange, Revision, Snapshot};

use super::source::{self, Source};
use crate::context::{Context, Server};
use crate::handlers::get::{not_a_revision, wait_for_revision};
use crate::selection::Selection;
use plinth_api::ApiError;
use plinth_registry::prefix_range;
use plinth_storage::{parse_resource_version, ContinuePosition, ContinueTokenError};

/// What is read: range, state, limit.
pub(in crate::handlers) struct Plan {
    pub(in crate::handlers) at: At,
    pub(in crate::handlers) range: KeyRange,
    /// The resource's prefix, to make continue tokens relative.
    prefix: String,
    /// Key prefix of the collection.
    pub(super) collection: Vec<u8>,
    /// Items on the previous pages.
    returned: u64,
    /// 0 for no limit.
    pub(in crate::handlers) limit: u64,
    /// Whether the request has a continue token.
    continues: bool,
    /// The state that is read, once it is held.
    held: Option<Snapshot>,
    pub(in crate::handlers) selection: Selection,
    pub(super) resource: Arc<plinth_registry::ResourceType>,
    pub(super) server: Arc<Server>,
}

impl Plan {
    /// What a request reads.
    ///
    /// # Errors
    /// When its revision or its continue token is invalid, or that revision is not reached in time.
    pub(in crate::handlers) async fn new(cx: &Context, selection: Selection) -> Result<Plan, ApiError> {
        let Some(form) = &cx.resource.storage else { return Err(ApiError::method_not_allowed()) };
        let q = &cx.query;
        let prefix = form.prefix.clone();
        let collection = cx.info.collection_key(&cx.resource)?;
        let mut range = match selection.single_name().filter(|_| !collection_spans_namespaces(cx)) {
            Some(name) => {
                let mut one = collection.clone();
                one.extend_from_slice(name.as_bytes());
                KeyRange::key(one)
            }
            None => prefix_range(&collection),
        };
        let revision = parse_resource_version(&q.resource_version).map_err(|_| {
            ApiError::bad_request(format!(
                "invalid resource version: {}",
                not_a_revision(&q.resource_version)
            ))
        })?;
        // resourceVersion=0 accepts any state, and upstream then ignores the limit. A continue token is still
        // used: everything after it, at its revision.
        let any_state = revision == Some(Revision::ZERO);
        let mut limit = u64::try_from(q.limit).unwrap_or(0);
        let mut returned = 0;
        let at = match &q.continue_token {
            Some(token) => {
                if revision.is_some() && !any_state {
                    return Err(ApiError::bad_request(
                        "specifying resource version is not allowed when using continue",
                    ));
                }
                let position = cx.server.tokens.decode(token).map_err(|error| {
                    match error {
                    ContinueTokenError::Malformed(_) => {
                        ApiError::bad_request(format!("invalid continue token: {error}"))
                    }
                    // The token's content is not authenticated, so no new token can be issued for it
                    // (`continueExpired` in k8s.io/apiserver `pkg/storage/etcd3/errors.go`).
                    ContinueTokenError::OtherKey => ApiError::expired(
                        "The provided continue parameter is too old to display a consistent list result. You \
                            must start a new list without the continue parameter.",
                    ),
                }
                })?;
                let start = [prefix.as_bytes(), position.start.as_bytes()].concat();
                range = resumed(&range, start);
                returned = position.returned;
                position.revision.map_or(At::Latest, |r| At::Exact(Revision::new(r)))
            }
            None => match revision {
                None => At::Latest,
                Some(r) if r == Revision::ZERO => At::Latest,
                Some(r) => {
                    wait_for_revision(cx, r).await?;
                    let exact = q.resource_version_match == "Exact"
                        || (q.resource_version_match.is_empty() && limit > 0);
                    if exact {
                        At::Exact(r)
                    } else {
                        At::Latest
                    }
                }
            },
        };
        if any_state {
            limit = 0;
        }
        let (resource, server) = (cx.resource.clone(), cx.server.clone());
        let continues = q.continue_token.is_some();
        let held = None;
        Ok(Plan {
            at,
            range,
            prefix,
            collection,
            returned,
            limit,
            continues,
            held,
            selection,
            resource,
            server,
        })
    }

    /// Holds the state that is read: whatever is deleted or compacted from now on, the list shows it.
    ///
    /// # Errors
    /// 410 when it was compacted.
    pub(in crate::handlers) fn hold(&mut self) -> Result<Snapshot, ApiError> {
        let snapshot = self.snapshot(self.at)?;
        self.at = At::Exact(snapshot.revision());
        self.held = Some(snapshot.clone());
        Ok(snapshot)
    }

    /// Whether the state was held before the list began: its objects may be gone by now.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether the list covers all namespaces from the beginning.
    pub(super) fn covers_resource(&self) -> bool {
        self.returned == 0
            && self.collection == self.prefix.as_bytes()
            && self.range.start() == self.collection.as_slice()
    }

    pub(in crate::handlers) fn snapshot(&self, at: At) -> Result<Snapshot, ApiError> {
        if let Some(held) = self.held.as_ref().filter(|_| at == self.at) {
            return Ok(held.clone());
        }
        match self.server.store.engine().snapshot(at) {
            Ok(snapshot) => Ok(snapshot),
            Err(plinth_engine::Error::Compacted { requested, oldest }) => {
                Err(self.expired(requested, oldest))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the latest state of a whole collection is read, with any selection.
    pub(super) fn is_latest_collection(&self) -> bool {
        self.at == At::Latest && self.limit == 0 && self.range == prefix_range(&self.collection)
    }

    /// The source of the objects. Blocks.
    pub(super) fn source(&self) -> Result<Source, ApiError> {
        if self.at == At::Latest {
            let found =
                Source::find(&self.server, &self.resource, &self.selection, &self.collection, &self.range);
            if let Some(source) = found {
                return Ok(source);
            }
        }
        let snapshot = self.snapshot(self.at)?;
        // A full scan can fill the header index.
        let indexes =
            self.is_latest_collection() && source::uses_header_index(&self.resource, &self.selection);
        Ok(Source { snapshot, keys: None, indexes: indexes.then(|| self.collection.clone()) })
    }

    /// 410, with a token for continuing at the latest revision instead of restarting.
    fn expired(&self, requested: Revision, oldest: Revision) -> ApiError {
        let start = self.range.start().strip_prefix(self.prefix.as_bytes()).map(String::from_utf8_lossy);
        match (&self.at, start) {
            (At::Exact(_), Some(start)) if self.continues => {
                let mut error = ApiError::expired(
                    "The provided continue parameter is too old to display a consistent list result. You \
                        can start a new list without the continue parameter, or use the continue token in \
                        this response to retrieve the remainder of the results. Continuing with the \
                        provided token results in an inconsistent list - objects that were created, \
                        modified, or deleted between the time the first chunk was returned and now may show \
                        up in the list.",
                );
                let position =
                    ContinuePosition { revision: None, start: start.into_owned(), returned: self.returned };
                error.continue_token = Some(self.server.tokens.encode(&position));
                error
            }
            _ => ApiError::expired(format!(
                "The resourceVersion for the provided list is too old: {requested} (oldest retained: \
                    {oldest})"
            )),
        }
    }

    /// Token and remaining count of the next page, which is not empty.
    pub(super) fn next_page(
        &self,
        revision: Revision,
        last: &[u8],
    ) -> Result<(String, Option<u64>), ApiError> {
        let rest = self.range.after(last);
        let returned = self.returned.saturating_add(self.limit);
        // With selectors the remaining count would need a full scan (upstream omits it too).
        let remaining = match self.selection.is_everything() {
            true => {
                let snapshot = self.snapshot(At::Exact(revision))?;
                let total = self.server.counts.total(&self.collection, &snapshot)?;
                Some(total.saturating_sub(returned).max(1))
            }
            false => None,
        };
        let start = rest.start().strip_prefix(self.prefix.as_bytes()).unwrap_or_default();
        let position = ContinuePosition {
            revision: Some(revision.get()),
            start: String::from_utf8_lossy(start).into_owned(),
            returned,
        };
        Ok((self.server.tokens.encode(&position), remaining))
    }
}

/// The part of a range from `start` on. A token of another collection cannot extend the range.
fn resumed(range: &KeyRange, start: Vec<u8>) -> KeyRange {
    let start = Bytes::from(start).max(range.start().clone());
    match range.end() {
        Some(end) => KeyRange::between(start, end.clone()),
        None => KeyRange::from(start),
    }
}

fn collection_spans_namespaces(cx: &Context) -> bool {
    cx.resource.row.namespaced && cx.info.namespace.is_empty()
}
