//! A watch that moves from replica to replica.

use plinth_engine::{At, Engine, Error, Feed, KeyRange, Revision, Subscribe, Subscription};

use crate::common::{change, drain, Change};

pub(crate) struct Watcher {
    pub replica: usize,
    pub subscription: Option<Subscription>,
    pub position: u64,
    /// Events by revision, and ranges of revisions that compaction has cut off.
    pub events: Vec<(u64, Change)>,
    pub skipped: Vec<(u64, u64)>,
}

impl Watcher {
    pub(crate) fn follow(&mut self, engine: &Engine, to_the_end: bool) {
        loop {
            let subscription = match &mut self.subscription {
                Some(subscription) => subscription,
                None => {
                    let subscribe =
                        Subscribe::new(KeyRange::all()).after(Revision::new(self.position)).previous(true);
                    match engine.subscribe(subscribe) {
                        Ok(subscription) => self.subscription.insert(subscription),
                        Err(Error::Compacted { oldest, .. }) => {
                            self.skip(oldest.get());
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            };
            if to_the_end && self.position <= engine.compacted_revision().get() {
                // Cut off by a compaction before it could read on.
                if let Err(Error::Compacted { oldest, .. }) =
                    engine.snapshot(At::Exact(Revision::new(self.position)))
                {
                    self.subscription = None;
                    self.skip(oldest.get());
                    continue;
                }
            }
            if to_the_end {
                let events = drain(subscription, engine.current_revision());
                self.events.extend(events);
                return;
            }
            match subscription.try_next() {
                Ok(Some(Feed::Events(events))) => {
                    self.position = events.last().map_or(self.position, |event| event.revision.get());
                    self.events.extend(events.iter().map(|event| change(event)));
                }
                Ok(Some(Feed::Progress(_)) | None) => return,
                Err(Error::Compacted { oldest, .. }) => {
                    self.subscription = None;
                    self.skip(oldest.get());
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn skip(&mut self, oldest: u64) {
        self.skipped.push((self.position, oldest));
        self.position = oldest;
    }
}
