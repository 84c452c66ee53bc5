//! What clients observe of a server: events of watches, lists, and requests with their answers.

use std::collections::{BTreeMap, HashMap};

use super::linear::{Answer, Operation, Request};
use super::{violation, Violation};

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// `ADDED`.
    Added,
    /// `MODIFIED`.
    Modified,
    /// `DELETED`.
    Deleted,
}

/// An event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// `namespace/name`.
    pub object: String,
    /// Which write made the object's content; of a deletion, the content that was deleted.
    pub content: u64,
    /// The resourceVersion that the event has.
    pub version: u64,
}

/// Which objects a watch or a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Objects of all namespaces.
    All,
    /// Those of a namespace.
    Namespace(String),
    /// One, `namespace/name`.
    Object(String),
}

impl Scope {
    pub(super) fn has(&self, object: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Namespace(namespace) => object.split_once('/').is_some_and(|(n, _)| n == namespace),
            Scope::Object(name) => object == name,
        }
    }
}

/// Content and version by `namespace/name`.
pub type Objects = BTreeMap<String, (u64, u64)>;

/// What one watch saw, over as many connections as it took.
#[derive(Debug, Clone)]
pub struct Watch {
    /// What it watches.
    pub scope: Scope,
    /// Everything after this version was to be seen.
    pub(super) from: u64,
    /// Up to which it has seen everything.
    pub(super) position: u64,
    pub(super) events: Vec<(u64, Event)>,
    /// Bookmarks, for the order of versions in time.
    pub(super) marks: Vec<(u64, u64)>,
}

impl Watch {
    /// A watch that begins after a version.
    pub fn new(scope: Scope, from: u64) -> Watch {
        Watch { scope, from, position: from, events: Vec::new(), marks: Vec::new() }
    }

    /// The version to go on from.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// An event came.
    ///
    /// # Errors
    /// When it does not come after all before it, or is none of this watch.
    pub fn event(&mut self, seen: u64, event: Event) -> Result<(), Violation> {
        if event.version <= self.position {
            return Err(violation!(
                "watch of {:?}: {event:?} came after version {}",
                self.scope,
                self.position
            ));
        }
        if !self.scope.has(&event.object) {
            return Err(violation!("watch of {:?}: {event:?} is none of it", self.scope));
        }
        self.position = event.version;
        self.events.push((seen, event));
        Ok(())
    }

    /// A bookmark came.
    ///
    /// # Errors
    /// When it goes back.
    pub fn bookmark(&mut self, seen: u64, version: u64) -> Result<(), Violation> {
        if version < self.position {
            return Err(violation!(
                "watch of {:?}: a bookmark at {version} after version {}",
                self.scope,
                self.position
            ));
        }
        self.position = version;
        self.marks.push((seen, version));
        Ok(())
    }

    /// How many events it saw.
    pub fn events(&self) -> usize {
        self.events.len()
    }

    /// What was seen since the last call; the watch itself goes on.
    pub fn take(&mut self) -> Watch {
        let rest = Watch::new(self.scope.clone(), self.position);
        std::mem::replace(self, rest)
    }
}

/// A list that was answered: its revision and its objects.
#[derive(Debug, Clone)]
pub struct Listed {
    /// When it was requested.
    pub called: u64,
    /// When its last page had been read.
    pub returned: u64,
    /// Whether it had to be as new as everything answered before it was requested.
    pub most_recent: bool,
    /// What it lists.
    pub scope: Scope,
    /// `metadata.resourceVersion` of the list.
    pub version: u64,
    /// The listed objects.
    pub objects: Objects,
}

/// What happened between two checks.
#[derive(Debug, Default)]
pub struct Piece {
    /// Requests by object.
    pub operations: Vec<(String, Operation)>,
    /// What lists have returned.
    pub lists: Vec<Listed>,
    /// What watches saw.
    pub watches: Vec<Watch>,
}

impl Piece {
    /// Gives writes of unknown outcome the one that events show, where watches saw every change up to now:
    /// made before it was first seen, or never. What deletions of unknown outcome did stays open, until now.
    /// Returns the writes that were never made.
    pub fn settle(&mut self, now: u64) -> Vec<(String, Operation)> {
        let mut never = Vec::new();
        let mut written: HashMap<u64, (u64, u64)> = HashMap::new();
        let mut deleted: HashMap<&str, u64> = HashMap::new();
        for (seen, event) in self.watches.iter().flat_map(|watch| &watch.events) {
            if event.change == Change::Deleted {
                let last = deleted.entry(&event.object).or_default();
                *last = (*last).max(*seen);
            } else {
                let (_, first) = written.entry(event.content).or_insert((event.version, *seen));
                *first = (*first).min(*seen);
            }
        }
        self.operations.retain_mut(|(object, operation)| {
            if operation.answer != Answer::Unknown {
                return true;
            }
            match operation.request.content() {
                Some(content) => match written.get(&content) {
                    None => {
                        never.push((object.clone(), *operation));
                        false
                    }
                    Some((version, seen)) => {
                        operation.answer = Answer::Done(Some(*version));
                        operation.returned = *seen;
                        true
                    }
                },
                None if operation.request == Request::Read => false,
                None => {
                    operation.returned = now;
                    deleted.get(object.as_str()).is_some_and(|last| *last >= operation.called)
                }
            }
        });
        never
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_events_show_settles_what_no_answer_said() {
        let unknown = |called, request| {
            ("a/x".to_owned(), Operation { called, returned: u64::MAX, request, answer: Answer::Unknown })
        };
        let seen = |change, content, version| Event { change, object: "a/x".into(), content, version };
        let mut watch = Watch::new(Scope::All, 0);
        watch.event(20, seen(Change::Added, 1, 10)).unwrap();
        watch.event(40, seen(Change::Deleted, 1, 11)).unwrap();
        let mut late = Watch::new(Scope::All, 0);
        late.event(30, seen(Change::Added, 1, 10)).unwrap();
        let mut piece = Piece {
            operations: vec![
                unknown(5, Request::Create(1)),
                unknown(6, Request::Apply(2)),
                unknown(35, Request::Delete { expected: None }),
                unknown(50, Request::Delete { expected: None }),
            ],
            watches: vec![late, watch],
            ..Piece::default()
        };
        assert_eq!(piece.settle(60).len(), 1);
        let settled: Vec<Operation> = piece.operations.iter().map(|(_, operation)| *operation).collect();
        assert_eq!(settled.len(), 2, "{settled:?}");
        assert_eq!((settled[0].returned, settled[0].answer), (20, Answer::Done(Some(10))));
        assert_eq!((settled[1].called, settled[1].returned, settled[1].answer), (35, 60, Answer::Unknown));
    }
}
