//! What clients call, what they are answered, and whether that is right.
//!
//! Two checkers see each answer: one compares it with the interpreter of the journal, the other one knows of
//! calls and answers alone and looks for an order of them that explains all (`tests/linearizability/`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use plinth_engine::{At, Condition, Engine, Error, Proposal, ReadBarrier, Record, Revision, Transaction};
use plinth_linearizability::{Answer, Operation, Register, Request};

use crate::common::{change, Random};
use crate::specification::Specification;

/// Keys that clients write. There are two more that only transactions of several keys write.
pub(crate) const KEYS: u64 = 8;

/// A request that a client waits for.
pub(crate) enum Call {
    Write { proposal: Proposal, requests: Vec<(String, Request)> },
    Read { barrier: ReadBarrier, key: String },
}

pub(crate) struct Client {
    pub replica: usize,
    pub call: Option<Call>,
    /// The newest revision that anybody knew of when the call was made.
    known: u64,
    /// When it was made.
    called: u64,
}

impl Client {
    pub(crate) fn new(replica: usize) -> Client {
        Client { replica, call: None, known: 0, called: 0 }
    }
}

/// What a client has learned.
enum Fact {
    /// A transaction has this revision, and these operations.
    Committed { revision: u64, operations: Vec<(Vec<u8>, Option<Vec<u8>>)>, known: u64 },
    /// A condition on this key did not hold at some revision of this range, when this was the mod revision of
    /// the key.
    Conflict { key: Vec<u8>, modified: u64, known: u64, at_most: u64 },
    /// These contents were not written, and never will be.
    Refused { contents: Vec<u64> },
    /// The most recent state had this revision at least, and the key this mod revision in it.
    Read { revision: u64, key: Vec<u8>, modified: u64, known: u64 },
}

/// A deletion of an expired key that a replica has proposed.
struct Expiry {
    key: Vec<u8>,
    revision: u64,
    /// The time of the replica's engine.
    at_ms: u64,
}

/// Everything that clients have seen.
#[derive(Default)]
pub(crate) struct Observations {
    facts: Vec<Fact>,
    operations: Vec<(String, Operation)>,
    expiries: Vec<Expiry>,
    expired: HashSet<(String, u64)>,
    /// The newest revision that was returned to any client.
    known: u64,
    next_value: u64,
    /// Number of calls and answers so far: the clock of the clients.
    moment: u64,
}

/// The number in a value.
fn content(value: &[u8]) -> u64 {
    std::str::from_utf8(value).unwrap().strip_prefix("value ").unwrap().parse().unwrap()
}

impl Observations {
    fn moment(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// Makes a client's next call at `engine`.
    pub(crate) fn call(&mut self, client: &mut Client, engine: &Engine, random: &mut Random) {
        let key = format!("key/{}", random.below(KEYS));
        client.known = self.known;
        client.called = self.moment();
        let call = match random.below(10) {
            0..2 => Call::Read { barrier: engine.read_barrier(), key },
            choice => {
                let current = engine.get(key.as_bytes(), At::Latest).unwrap();
                let (transaction, requests) = self.transaction(choice, key, current, random);
                Call::Write { proposal: engine.transact(transaction), requests }
            }
        };
        client.call = Some(call);
    }

    fn transaction(
        &mut self,
        choice: u64,
        key: String,
        current: Option<Record>,
        random: &mut Random,
    ) -> (Transaction, Vec<(String, Request)>) {
        self.next_value += 1;
        let (new, content) = (Transaction::new(), self.next_value);
        let value = format!("value {content}");
        let at = |record: &Record| Condition::ModRevision {
            key: record.key.clone(),
            revision: record.mod_revision,
        };
        let one = |transaction, request| (transaction, vec![(key.clone(), request)]);
        match (choice, current) {
            (2, Some(record)) => {
                let expected = Some(record.mod_revision.get());
                one(new.require(at(&record)).delete(key.clone()), Request::Delete { expected })
            }
            (3, _) => {
                let exists = new.require(Condition::Exists(key.clone().into()));
                one(exists.delete(key.clone()), Request::Delete { expected: None })
            }
            (4, _) => {
                let ttl = Duration::from_millis(random.below(4_000));
                one(new.put_expiring(key.clone(), value, ttl), Request::Apply(content))
            }
            (5, Some(record)) => {
                let other = format!("key/{}", KEYS + random.below(2));
                let expected = Some(record.mod_revision.get());
                let both = new.require(at(&record)).put(key.clone(), value.clone());
                let requests = vec![
                    (key, Request::Update { content, expected }),
                    (other.clone(), Request::Apply(content)),
                ];
                (both.put(other, value), requests)
            }
            (6, _) => one(new.delete(key.clone()), Request::Delete { expected: None }),
            (7, Some(record)) => {
                // A holder of a lease: the deadline moves with each renewal.
                let expected = Some(record.mod_revision.get());
                let ttl = Duration::from_millis(500 + random.below(2_000));
                let renewal = new.require(at(&record)).put_expiring(key.clone(), value, ttl);
                one(renewal, Request::Update { content, expected })
            }
            (_, Some(record)) => {
                let expected = Some(record.mod_revision.get());
                let update = new.require(at(&record)).put(key.clone(), value).having_read(record);
                one(update, Request::Update { content, expected })
            }
            (_, None) => {
                let absent = new.require(Condition::Absent(key.clone().into()));
                one(absent.put(key.clone(), value), Request::Create(content))
            }
        }
    }

    /// Whether a client's call is answered; notes what was learned then.
    pub(crate) fn poll(&mut self, client: &mut Client, engine: &Engine) -> Option<&'static str> {
        let mut context = Context::from_waker(Waker::noop());
        let known = client.known;
        match client.call.as_mut()? {
            Call::Write { proposal, .. } => {
                let Poll::Ready(outcome) = Pin::new(proposal).poll(&mut context) else { return None };
                let Some(Call::Write { requests, .. }) = client.call.take() else { return None };
                let called = client.called;
                match outcome {
                    Ok(committed) => {
                        let revision = committed.revision.get();
                        let events = committed.commit.iter().flat_map(|commit| &commit.events);
                        let operations: Vec<_> = events
                            .map(|event| {
                                let (_, (key, new, _)) = change(event);
                                (key, new.map(|version| version.value))
                            })
                            .collect();
                        let answer = match operations.is_empty() {
                            true => Answer::NotFound,
                            false => Answer::Done(Some(revision)),
                        };
                        self.note(called, requests, |_| Some(answer));
                        self.facts.push(Fact::Committed { revision, operations, known });
                        self.known = self.known.max(revision);
                        Some("committed")
                    }
                    Err(Error::Conflict { key, current }) => {
                        let modified = current.map_or(0, |record| record.mod_revision.get());
                        let at_most = engine.current_revision().get();
                        self.note(called, requests, |(other, request)| {
                            // Of a transaction of several keys only the one with the condition is known.
                            (other.as_bytes() == &key[..]).then_some(match request {
                                Request::Create(_) => Answer::AlreadyExists,
                                _ if modified == 0 => Answer::NotFound,
                                _ => Answer::Conflict,
                            })
                        });
                        let key = key.to_vec();
                        self.facts.push(Fact::Conflict { key, modified, known, at_most });
                        Some("conflicts")
                    }
                    Err(Error::TooLarge { .. }) => {
                        let contents = requests.iter().filter_map(|(_, request)| request.content());
                        self.facts.push(Fact::Refused { contents: contents.collect() });
                        Some("too large")
                    }
                    Err(error) => panic!("{requests:?}: {error}"),
                }
            }
            Call::Read { barrier, .. } => {
                let Poll::Ready(outcome) = Pin::new(barrier).poll(&mut context) else { return None };
                outcome.unwrap();
                let Some(Call::Read { key, .. }) = client.call.take() else { return None };
                let snapshot = engine.snapshot(At::Latest).unwrap();
                let found = snapshot.get(key.as_bytes()).unwrap();
                let modified = found.as_ref().map_or(0, |record| record.mod_revision.get());
                let answer = found.map_or(Answer::NotFound, |record| Answer::Found {
                    content: content(&record.value),
                    version: record.mod_revision.get(),
                });
                self.note(client.called, vec![(key.clone(), Request::Read)], |_| Some(answer));
                let revision = snapshot.revision().get();
                self.facts.push(Fact::Read { revision, key: key.into_bytes(), modified, known });
                self.known = self.known.max(revision);
                Some("reads")
            }
        }
    }

    fn note(
        &mut self,
        called: u64,
        requests: Vec<(String, Request)>,
        answer: impl Fn(&(String, Request)) -> Option<Answer>,
    ) {
        let returned = self.moment();
        for request in requests {
            if let Some(answer) = answer(&request) {
                let (key, request) = request;
                self.operations.push((key, Operation { called, returned, request, answer }));
            }
        }
    }

    /// The replica that a client waits for has gone: its call may take effect later, or never.
    pub(crate) fn disconnect(&mut self, client: &mut Client) {
        let Some(Call::Write { requests, .. }) = client.call.take() else { return };
        let (called, returned, answer) = (client.called, u64::MAX, Answer::Unknown);
        let unknown = requests.into_iter();
        self.operations
            .extend(unknown.map(|(key, request)| (key, Operation { called, returned, request, answer })));
    }

    /// A replica has proposed to delete expired keys.
    pub(crate) fn expired(&mut self, at_ms: u64, due: Vec<(bytes::Bytes, Revision)>) {
        for (key, revision) in due {
            let revision = revision.get();
            self.expiries.push(Expiry { key: key.to_vec(), revision, at_ms });
            let key = String::from_utf8(key.to_vec()).unwrap();
            // One deletion of a version, whoever proposes it and how often.
            if !self.expired.insert((key.clone(), revision)) {
                continue;
            }
            let operation = Operation {
                called: self.moment(),
                returned: u64::MAX,
                request: Request::Delete { expected: Some(revision) },
                answer: Answer::Unknown,
            };
            self.operations.push((key, operation));
        }
    }

    /// Compares everything with what the journal's records mean, and looks for an order that explains it.
    pub(crate) fn check(self, specification: &Specification) {
        let (versions, _) = writes_of(specification);
        for fact in &self.facts {
            check_fact(fact, specification);
            if let Fact::Refused { contents } = fact {
                let is_written = contents.iter().any(|content| versions.contains_key(content));
                assert!(!is_written, "{contents:?} were found too large, and written");
            }
        }
        for Expiry { key, revision, at_ms } in &self.expiries {
            let deadline = specification.deadlines.get(&(key.clone(), *revision));
            assert!(
                deadline.is_some_and(|deadline| deadline <= at_ms),
                "expired early: {deadline:?} {at_ms}"
            );
        }
        check_order(self.operations, specification);
    }
}

/// The answers about each key have an order in which each call takes effect between call and answer.
fn check_order(operations: Vec<(String, Operation)>, specification: &Specification) {
    let (versions, deletions) = writes_of(specification);
    // A commit was made before a later one was returned to anybody.
    let mut returned_at: Vec<(u64, u64)> = operations
        .iter()
        .filter_map(|(_, operation)| match operation.answer {
            Answer::Done(Some(revision)) => Some((revision, operation.returned)),
            _ => None,
        })
        .collect();
    returned_at.sort_unstable();
    for at in (1..returned_at.len()).rev() {
        returned_at[at - 1].1 = returned_at[at - 1].1.min(returned_at[at].1);
    }
    let made_before = |revision: u64| {
        let at = returned_at.partition_point(|(other, _)| *other <= revision);
        returned_at.get(at).map_or(u64::MAX, |(_, returned)| *returned)
    };
    let mut by_key: BTreeMap<String, Vec<Operation>> = BTreeMap::new();
    for (key, mut operation) in operations {
        if operation.answer == Answer::Unknown {
            // What became of it is in the journal, unless it is a deletion of whatever was there.
            let (found, made) = match operation.request {
                Request::Delete { expected: Some(version) } => {
                    // By this call or by another one.
                    (deletions.get(&(key.clone().into_bytes(), version)), Answer::Unknown)
                }
                Request::Delete { expected: None } | Request::Read => {
                    by_key.entry(key).or_default().push(operation);
                    continue;
                }
                request => {
                    let found = request.content().and_then(|content| versions.get(&content));
                    (found, Answer::Done(found.copied()))
                }
            };
            let Some(revision) = found else { continue };
            (operation.returned, operation.answer) = (made_before(*revision), made);
            if operation.returned < operation.called {
                // Another call had deleted it before.
                continue;
            }
        }
        by_key.entry(key).or_default().push(operation);
    }
    for (key, operations) in by_key {
        if let Err(violation) = Register::default().extend(&operations, &versions) {
            panic!("{key}: {violation}");
        }
    }
}

/// Revisions by contents that were written, and by key and version that were deleted.
fn writes_of(specification: &Specification) -> (HashMap<u64, u64>, HashMap<(Vec<u8>, u64), u64>) {
    let (mut versions, mut deletions) = (HashMap::new(), HashMap::new());
    for (revision, changes) in specification.model.changes.iter().enumerate() {
        for (key, new, old) in changes {
            if let Some(new) = new {
                versions.insert(content(&new.value), revision as u64);
            } else if let Some(old) = old {
                deletions.insert((key.clone(), old.modified), revision as u64);
            }
        }
    }
    (versions, deletions)
}

fn check_fact(fact: &Fact, specification: &Specification) {
    match fact {
        Fact::Committed { revision, operations, known } => {
            if operations.is_empty() {
                // Nothing was to be deleted.
                assert!(revision >= known, "answered from the past");
                return;
            }
            assert!(revision > known, "revision {revision} for a call that began after {known}");
            let changes = &specification.model.changes[*revision as usize];
            let changes: Vec<_> = changes
                .iter()
                .map(|(key, new, _)| (key.clone(), new.as_ref().map(|new| new.value.clone())))
                .collect();
            assert_eq!(&changes, operations);
        }
        Fact::Conflict { key, modified, known, at_most } => {
            let held = (*known..=*at_most).any(|at| specification.modified(key, at) == *modified);
            assert!(held, "a conflict with a state that was not there between call and answer");
        }
        Fact::Refused { .. } => {}
        Fact::Read { revision, key, modified, known } => {
            assert!(revision >= known, "a read of {revision} that began after {known} was known");
            assert_eq!(specification.modified(key, *revision), *modified);
        }
    }
}
