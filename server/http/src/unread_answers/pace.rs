//! Requests that wait for their user to read earlier answers, or for their processor time.

use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::Duration;

use hyper::Request;

use super::answers::{ConnectionUnread, Entry, UnreadAnswers, UserUnread};

/// What a request that waits takes beside its head: its future and its stream.
pub(super) const REQUEST: usize = 16 << 10;
/// From so many streams on each of a connection counts. Clients that are no attackers have fewer for long.
pub(crate) const MANY_STREAMS: usize = 32;

impl ConnectionUnread {
    /// Waits until the user has read enough of earlier answers for a request to begin, for so long at most.
    /// `None` where that is not so, and where requests that wait would take more than the bound. What this
    /// gives is dropped when the request is answered.
    pub async fn wait_for_reader<B>(
        self: &Arc<Self>,
        user: &Arc<UserUnread>,
        request: &Request<B>,
        most: Duration,
    ) -> Option<BegunRequest> {
        if user.may_begin(&self.all) {
            return Some(BegunRequest::new(user));
        }
        if self.all.remaining() > self.all.most {
            return None;
        }
        let _counted = Entry::paced(self, REQUEST + head_bytes(request), &user.owner)?;
        let begins = async {
            // What is read between the check and the wait is remembered by `Notify`.
            while !user.may_begin(&self.all) {
                user.read.notified().await;
            }
            BegunRequest::new(user)
        };
        let begun = tokio::time::timeout(most, begins).await.ok();
        // The next one, if there is room for it, too.
        user.read.notify_one();
        begun
    }

    /// Counts a request that is not begun yet on a connection with so many streams, until what this gives is
    /// dropped.
    pub fn count_request<B>(
        self: &Arc<Self>,
        request: &Request<B>,
        streams: usize,
    ) -> Option<UnbegunRequest> {
        if streams < MANY_STREAMS {
            return None;
        }
        let owner = self.owner(self.first.get().map(|(_, user)| user));
        Entry::new(self, (REQUEST + head_bytes(request), 0), owner).map(|_entry| UnbegunRequest { _entry })
    }
}

impl UserUnread {
    fn may_begin(&self, all: &UnreadAnswers) -> bool {
        let (used, of_owner) = (all.bytes(), self.owner.bytes.load(Ordering::Acquire));
        let has_room = used <= all.most / 2 || of_owner <= all.most / 4;
        has_room || (self.bytes.load(Ordering::Acquire) == 0 && self.begun.load(Ordering::Acquire) == 0)
    }
}

/// A request that was begun, until it is answered.
pub struct BegunRequest(Arc<UserUnread>);

impl BegunRequest {
    fn new(user: &Arc<UserUnread>) -> BegunRequest {
        user.begun.fetch_add(1, Ordering::AcqRel);
        BegunRequest(Arc::clone(user))
    }
}

impl Drop for BegunRequest {
    fn drop(&mut self) {
        self.0.begun.fetch_sub(1, Ordering::AcqRel);
        self.0.read.notify_one();
    }
}

/// The bytes of a request's head.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter().map(|(name, value)| name.as_str().len() + value.len());
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    target + headers.sum::<usize>()
}

/// A request that counts until this is dropped, when it is begun.
pub struct UnbegunRequest {
    _entry: Entry,
}
