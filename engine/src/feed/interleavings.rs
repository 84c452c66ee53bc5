//! Feeds under loom: every interleaving of publisher, subscribers, feeder and closing.
//!
//! A wake-up that is lost shows as a deadlock: loom reports a model in which all threads wait. Bounds on
//! preemptions and how to lift them: docs/reliability.md.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use bytes::Bytes;

use crate::error::{Error, Result};
use crate::feed::event::{Commit, Event, EventKind};
use crate::feed::feeder::{CatchUp, Chunk, Feeder, History};
use crate::feed::hub::Hub;
use crate::feed::subscription::{Feed, Subscribe, Subscription};
use crate::feed::wait::WaitFor;
use crate::feed::wake::Wakeup;
use crate::range::KeyRange;
use crate::revision::Revision;

/// Runs `model` in every interleaving with at most `preemptions` preemptions. The environment variable
/// `LOOM_MAX_PREEMPTIONS` overrides the bound.
pub(crate) fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

/// Runs a future on a thread of the model.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Notified(loom::sync::Notify);
    impl Wake for Notified {
        fn wake(self: Arc<Self>) {
            self.0.notify();
        }
    }
    let notified = Arc::new(Notified(loom::sync::Notify::new()));
    let waker = Waker::from(Arc::clone(&notified));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        notified.0.wait();
    }
}

fn event(revision: u64, key: &'static str) -> Arc<Event> {
    let kind = EventKind::Put {
        value: Bytes::new(),
        create_revision: Revision::new(revision),
        version: 1,
        expires_at_ms: None,
    };
    Arc::new(Event::new(Revision::new(revision), Bytes::from_static(key.as_bytes()), kind, None))
}

/// A commit of one key.
pub(crate) fn commit(revision: u64, key: &'static str) -> Arc<Commit> {
    Arc::new(Commit::new(Revision::new(revision), vec![event(revision, key)]))
}

/// The log on disk: every revision up to the latest changed `a/key`.
struct Log(Arc<Hub>);

impl History for Log {
    fn read(&self, catch_up: &CatchUp) -> Result<Chunk> {
        let latest = self.0.latest();
        let events = (catch_up.after.get() + 1..=latest.get()).map(|revision| event(revision, "a/key"));
        Ok(Chunk { events: events.collect(), through: latest.max(catch_up.after) })
    }
}

const RING: usize = 1 << 20;

/// A hub and the feeder behind it.
struct Feeds {
    hub: Arc<Hub>,
    feeder: Feeder,
}

impl Feeds {
    /// Feeds of a store at revision 5, without a feeder thread.
    fn new() -> Feeds {
        Feeds::with_feeder(5, RING).0
    }

    /// Feeds of a store at `latest`, with a ring of `ring` bytes, and the body of the feeder's thread.
    fn with_feeder(latest: u64, ring: usize) -> (Feeds, impl FnOnce() + Send + 'static) {
        let hub = Arc::new(Hub::new(Revision::new(latest), ring));
        let (feeder, run) = Feeder::new(Log(Arc::clone(&hub)));
        (Feeds { hub, feeder }, run)
    }

    /// Subscribes to the keys below `a/` after revision 5.
    fn subscribe(&self) -> Subscription {
        self.subscription(Subscribe::new(KeyRange::prefix("a/")).after(Revision::new(5)))
    }

    fn subscription(&self, subscribe: Subscribe) -> Subscription {
        Subscription::new(Arc::clone(&self.hub), self.feeder.clone(), subscribe)
    }
}

/// Publishes a commit of `key` and wakes its subscribers.
fn publish(hub: &Hub, revision: u64, key: &'static str) {
    hub.publish(&[commit(revision, key)]).into_iter().for_each(Waker::wake);
}

/// The revisions that a subscription delivers up to `last`.
fn revisions(subscription: &mut Subscription, last: u64) -> Vec<u64> {
    let mut revisions = Vec::new();
    while revisions.last().is_none_or(|seen| *seen < last) {
        match block_on(subscription.next()).unwrap() {
            Feed::Events(events) => revisions.extend(events.iter().map(|event| event.revision.get())),
            Feed::Progress(_) => {}
        }
    }
    revisions
}

#[test]
fn a_live_subscriber_gets_every_event_and_misses_no_wake_up() {
    check(3, || {
        let feeds = Feeds::new();
        let mut subscription = feeds.subscribe();
        let publisher = Arc::clone(&feeds.hub);
        let publisher = loom::thread::spawn(move || {
            publish(&publisher, 6, "a/key");
            publish(&publisher, 7, "b/key");
            publish(&publisher, 8, "a/key");
        });
        assert_eq!(revisions(&mut subscription, 8), [6, 8]);
        publisher.join().unwrap();
    });
}

#[test]
fn subscribers_of_one_range_are_all_woken() {
    check(2, || {
        let feeds = Feeds::new();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let mut subscription = feeds.subscribe();
                loom::thread::spawn(move || assert_eq!(revisions(&mut subscription, 7), [6, 7]))
            })
            .collect();
        publish(&feeds.hub, 6, "a/key");
        publish(&feeds.hub, 7, "a/key");
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Many subscribers are woken by a thread of their own; no wake-up is lost on the way through it.
#[test]
fn the_waking_thread_loses_nothing_and_ends() {
    check(2, || {
        let feeds = Feeds::new();
        let (wakeup, wake) = Wakeup::new();
        let waking = loom::thread::spawn(wake);
        let mut subscription = feeds.subscribe();
        let subscriber = loom::thread::spawn(move || assert_eq!(revisions(&mut subscription, 7), [6, 7]));
        wakeup.wake(feeds.hub.publish(&[commit(6, "a/key")]));
        wakeup.wake(feeds.hub.publish(&[commit(7, "a/key")]));
        subscriber.join().unwrap();
        wakeup.stop();
        waking.join().unwrap();
    });
}

#[test]
fn who_joins_while_events_are_published_gets_those_behind_its_position() {
    check(3, || {
        let feeds = Feeds::new();
        let joiner = Feeds { hub: Arc::clone(&feeds.hub), feeder: feeds.feeder.clone() };
        let joiner = loom::thread::spawn(move || {
            let mut subscription = joiner.subscription(Subscribe::new(KeyRange::prefix("a/")));
            let from = subscription.position().get();
            if from < 7 {
                let expected: Vec<u64> = (from + 1..=7).collect();
                assert_eq!(revisions(&mut subscription, 7), expected);
            }
        });
        publish(&feeds.hub, 6, "a/key");
        publish(&feeds.hub, 7, "a/key");
        joiner.join().unwrap();
    });
}

/// With a ring of one commit, a subscriber that lags reads the log and returns to the ring.
#[test]
fn a_subscriber_who_falls_behind_catches_up_by_way_of_the_feeder() {
    check(2, || {
        let (feeds, run) = Feeds::with_feeder(5, 1);
        let feeding = loom::thread::spawn(run);
        let mut subscription = feeds.subscribe();
        let subscriber = loom::thread::spawn(move || assert_eq!(revisions(&mut subscription, 7), [6, 7]));
        publish(&feeds.hub, 6, "a/key");
        publish(&feeds.hub, 7, "a/key");
        subscriber.join().unwrap();
        feeds.feeder.stop();
        feeding.join().unwrap();
    });
}

#[test]
fn progress_comes_after_the_events_that_it_covers() {
    check(3, || {
        let feeds = Feeds::new();
        let mut subscription = feeds.subscribe();
        let publisher = Arc::clone(&feeds.hub);
        let publisher = loom::thread::spawn(move || {
            publish(&publisher, 6, "a/key");
        });
        subscription.request_progress();
        let (mut seen, mut progress) = (None, None);
        while seen.is_none() || progress.is_none() {
            match block_on(subscription.next()).unwrap() {
                Feed::Events(events) => seen = events.last().map(|event| event.revision.get()),
                Feed::Progress(at) => {
                    assert_eq!(seen.unwrap_or(5), at.get());
                    progress = Some(at);
                }
            }
        }
        publisher.join().unwrap();
    });
}

#[test]
fn who_waits_for_a_revision_is_woken_by_it() {
    check(3, || {
        let hub = Arc::new(Hub::new(Revision::new(5), RING));
        let waiters: Vec<_> = [6, 7]
            .into_iter()
            .map(|revision| {
                let wait = WaitFor::new(Arc::clone(&hub), Revision::new(revision));
                loom::thread::spawn(move || assert!(block_on(wait).unwrap().get() >= revision))
            })
            .collect();
        publish(&hub, 6, "a/key");
        publish(&hub, 7, "a/key");
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn closing_ends_whoever_waits() {
    check(2, || {
        let feeds = Feeds::new();
        let mut subscription = feeds.subscribe();
        let subscriber = loom::thread::spawn(move || loop {
            match block_on(subscription.next()) {
                Ok(Feed::Events(events)) => assert_eq!(events.len(), 1),
                Ok(Feed::Progress(_)) => {}
                Err(error) => return assert!(matches!(error, Error::Closed), "{error}"),
            }
        });
        let wait = WaitFor::new(Arc::clone(&feeds.hub), Revision::new(9));
        let waiter = loom::thread::spawn(move || assert!(matches!(block_on(wait), Err(Error::Closed))));
        publish(&feeds.hub, 6, "a/key");
        feeds.hub.end(Error::Closed);
        subscriber.join().unwrap();
        waiter.join().unwrap();
    });
}

/// A subscriber that waits for a piece of the log is answered before the feeder's thread ends.
#[test]
fn closing_ends_whoever_reads_the_log() {
    check(2, || {
        let (feeds, run) = Feeds::with_feeder(7, 1);
        let feeding = loom::thread::spawn(run);
        let mut subscription = feeds.subscribe();
        let subscriber = loom::thread::spawn(move || loop {
            match block_on(subscription.next()) {
                Ok(_) => {}
                Err(error) => return assert!(matches!(error, Error::Closed), "{error}"),
            }
        });
        feeds.hub.end(Error::Closed);
        feeds.feeder.stop();
        subscriber.join().unwrap();
        feeding.join().unwrap();
    });
}
