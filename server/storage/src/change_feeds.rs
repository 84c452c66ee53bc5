//! How caches follow stored objects: the changes of some keys, applied up to a position.
//!
//! The engine publishes a commit before it acknowledges it. So what has applied everything that was published
//! reflects every write that was acknowledged before.

use std::sync::Arc;

use plinth_engine::{Engine, Event, Feed, Revision, Subscribe, Subscription};

/// The change feeds of some ranges of keys.
pub struct ChangeFeeds(Vec<Subscription>);

impl ChangeFeeds {
    /// Starts the feeds.
    ///
    /// # Errors
    /// When the engine is closed or has failed.
    pub fn subscribe(
        engine: &Engine,
        feeds: impl IntoIterator<Item = Subscribe>,
    ) -> Result<ChangeFeeds, plinth_engine::Error> {
        let feeds = feeds.into_iter().map(|feed| engine.subscribe(feed));
        feeds.collect::<Result<_, _>>().map(ChangeFeeds)
    }

    /// Passes on what was published since the last call, and returns the revision up to which that is
    /// everything. It is below the current one when a feed is so far behind that it reads from disk: then a
    /// new start is cheaper than the backlog.
    ///
    /// # Errors
    /// When a feed has failed, or `apply` has.
    pub fn drain<E: From<plinth_engine::Error>>(
        &mut self,
        mut apply: impl FnMut(&[Arc<Event>]) -> Result<(), E>,
    ) -> Result<Revision, E> {
        let mut reached = Revision::new(u64::MAX);
        for feed in &mut self.0 {
            while let Some(next) = feed.try_next()? {
                if let Feed::Events(events) = next {
                    apply(&events)?;
                }
            }
            reached = reached.min(feed.position());
        }
        Ok(reached)
    }
}
