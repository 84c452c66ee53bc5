//! Linearizability of one object: a register that is created, read, compared and set, and deleted.
//!
//! The search is that of Wing and Gong in Lowe's form (just-in-time linearization): calls and returns are
//! taken in order of time, and the set of possible configurations (a state, and which of the requests under
//! way have taken effect already) is carried along. At a return the request must have taken effect: now,
//! after any others that are under way, or before. No configuration left means that no order explains the
//! answers.
//!
//! Every write of a history has unique content (a number), so that an answer identifies its write. What
//! clients of servers see (`tests/campaigns/`) and what clients of simulated replicas see
//! (`engine/tests/replicas_simulated/`) is checked with it.

use std::collections::{BTreeSet, HashMap, VecDeque};

/// A contradiction in a history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

macro_rules! violation {
    ($($argument:tt)*) => { Violation(format!($($argument)*)) };
}

/// Requests that a violation is reported with.
const CONTEXT: usize = 40;
/// More configurations than this are not followed: the load that made them must be thinned out.
const MOST_CONFIGURATIONS: usize = 200_000;

/// What an object is: absent, or present with the content of some write and the version that this write got
/// (where known).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// There is no such object.
    Absent,
    /// There is one.
    Present {
        /// Which write made it so.
        content: u64,
        /// Its resourceVersion; `None` when no answer had it.
        version: Option<u64>,
    },
}

/// What was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// POST of this content.
    Create(u64),
    /// GET of the object.
    Read,
    /// PUT or PATCH of what must be there, at this version when one is given.
    Update {
        /// The new content.
        content: u64,
        /// The resourceVersion in the body.
        expected: Option<u64>,
    },
    /// Server-side apply: creates or updates.
    Apply(u64),
    /// DELETE, with a precondition on the version when one is given.
    Delete {
        /// The resourceVersion of the preconditions.
        expected: Option<u64>,
    },
}

impl Request {
    /// What a write makes the object's content.
    pub fn content(self) -> Option<u64> {
        match self {
            Request::Create(content) | Request::Apply(content) | Request::Update { content, .. } => {
                Some(content)
            }
            Request::Read | Request::Delete { .. } => None,
        }
    }
}

/// The answer to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Success; writes other than deletions return the version that they made.
    Done(Option<u64>),
    /// 200, with the object.
    Found {
        /// Which write made it so.
        content: u64,
        /// The resourceVersion that the answer has.
        version: u64,
    },
    /// 404: there is no such object.
    NotFound,
    /// 409 `AlreadyExists`.
    AlreadyExists,
    /// 409 `Conflict`.
    Conflict,
    /// The connection broke: the outcome is unknown.
    Unknown,
}

/// One request with its answer, and when both were. Times are of one clock of the client's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// Before it was sent.
    pub called: u64,
    /// After its answer was read. Of an unknown outcome: when the process that it was sent to was gone, or
    /// `u64::MAX` where it may take effect at any later time.
    pub returned: u64,
    /// What was called.
    pub request: Request,
    /// What it returned.
    pub answer: Answer,
}

/// A state, and which of the requests under way (by number) have taken effect in it.
type Configuration = (State, BTreeSet<usize>);

/// The check of one object, fed in pieces: all requests of a piece have returned (or have an unknown outcome)
/// before those of the next are called.
#[derive(Debug, Clone)]
pub struct Register {
    configurations: BTreeSet<Configuration>,
    /// Those of unknown outcome that may take effect yet.
    open: HashMap<usize, Operation>,
    next: usize,
    recent: VecDeque<Operation>,
}

impl Default for Register {
    fn default() -> Register {
        Register::new(State::Absent)
    }
}

impl Register {
    /// An object that is known to be in a state.
    pub fn new(state: State) -> Register {
        Register {
            configurations: BTreeSet::from([(state, BTreeSet::new())]),
            open: HashMap::new(),
            next: 0,
            recent: VecDeque::new(),
        }
    }

    /// The states that the object may be in.
    pub fn states(&self) -> BTreeSet<State> {
        self.configurations.iter().map(|(state, _)| *state).collect()
    }

    /// Applies requests. `versions` are the versions of contents that are known from other sources: without
    /// them a write of unknown outcome has one that nobody knows, and comparisons with it are not checked.
    ///
    /// # Errors
    /// When no order explains the answers.
    pub fn extend(
        &mut self,
        operations: &[Operation],
        versions: &HashMap<u64, u64>,
    ) -> Result<(), Violation> {
        // Of equal times calls come first: the requests count as concurrent.
        let mut moments: Vec<(u64, bool, usize)> = Vec::new();
        let first = self.next;
        for operation in operations {
            let number = self.next;
            self.next += 1;
            moments.push((operation.called, false, number));
            if operation.returned < u64::MAX {
                moments.push((operation.returned, true, number));
            }
        }
        moments.sort_unstable();
        for (_, is_return, number) in moments {
            let operation = operations[number - first];
            if is_return {
                self.take_effect(number, versions)?;
                self.open.remove(&number);
            } else {
                self.recent.push_back(operation);
                if self.recent.len() > CONTEXT {
                    self.recent.pop_front();
                }
                self.open.insert(number, operation);
            }
        }
        Ok(())
    }

    /// Every configuration in which the request has taken effect by now.
    fn take_effect(&mut self, number: usize, versions: &HashMap<u64, u64>) -> Result<(), Violation> {
        let mut reached = BTreeSet::new();
        let mut seen: BTreeSet<Configuration> = BTreeSet::new();
        let mut queue: Vec<Configuration> = self.configurations.iter().cloned().collect();
        while let Some((state, done)) = queue.pop() {
            if done.contains(&number) {
                let mut done = done;
                done.remove(&number);
                reached.insert((state, done));
                continue;
            }
            for (other, operation) in &self.open {
                if done.contains(other) {
                    continue;
                }
                for next in outcomes(state, operation, versions).into_iter().flatten() {
                    let mut done = done.clone();
                    done.insert(*other);
                    let configuration = (next, done);
                    if seen.insert(configuration.clone()) {
                        queue.push(configuration);
                    }
                }
            }
            if seen.len() > MOST_CONFIGURATIONS {
                return Err(violation!(
                    "too many requests under way at once to be checked: {}",
                    self.open.len()
                ));
            }
        }
        if reached.is_empty() {
            return Err(violation!(
                "no order explains the answer {:?}\n  states before: {:?}\n  requests up to it: {:#?}",
                self.open[&number],
                self.states(),
                self.recent
            ));
        }
        self.configurations = reached;
        Ok(())
    }
}

/// The states after a request with this answer: none when it cannot have been answered so in this state.
fn outcomes(state: State, operation: &Operation, versions: &HashMap<u64, u64>) -> [Option<State>; 2] {
    let written = |content: u64, version: Option<u64>| {
        Some(State::Present { content, version: version.or_else(|| versions.get(&content).copied()) })
    };
    // The state, where a comparison with `expected` succeeds in it.
    let matching = |expected: Option<u64>| match (state, expected) {
        (State::Absent, _) => None,
        (State::Present { version: Some(version), .. }, Some(expected)) if version != expected => None,
        _ => Some(state),
    };
    let differing = |expected: Option<u64>| match (state, expected) {
        (State::Present { version, .. }, Some(expected)) => version != Some(expected),
        _ => false,
    };
    let one = |next: Option<State>| [next, None];
    let unchanged = |holds: bool| one(holds.then_some(state));
    let absent = state == State::Absent;
    match (operation.request, operation.answer) {
        (Request::Create(content), Answer::Done(version)) if absent => one(written(content, version)),
        (Request::Create(_), Answer::AlreadyExists) => unchanged(!absent),
        (Request::Read, Answer::Found { content, version }) => match state {
            State::Present { content: here, version: known } if here == content => match known {
                Some(known) if known != version => [None; 2],
                _ => one(Some(State::Present { content, version: Some(version) })),
            },
            _ => [None; 2],
        },
        (Request::Read | Request::Update { .. } | Request::Delete { .. }, Answer::NotFound) => {
            unchanged(absent)
        }
        (Request::Update { content, expected }, Answer::Done(version)) => {
            one(matching(expected).and_then(|_| written(content, version)))
        }
        (Request::Apply(content), Answer::Done(version)) => one(written(content, version)),
        (Request::Delete { expected }, Answer::Done(_)) => one(matching(expected).map(|_| State::Absent)),
        (Request::Update { expected, .. } | Request::Delete { expected }, Answer::Conflict) => {
            unchanged(differing(expected))
        }
        (request, Answer::Unknown) => {
            let effect = match request {
                Request::Create(content) if absent => written(content, None),
                Request::Update { content, expected } => {
                    matching(expected).and_then(|_| written(content, None))
                }
                Request::Apply(content) => written(content, None),
                Request::Delete { expected } => matching(expected).map(|_| State::Absent),
                _ => None,
            };
            [Some(state), effect.filter(|effect| *effect != state)]
        }
        _ => [None; 2],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(called: u64, returned: u64, request: Request, answer: Answer) -> Operation {
        Operation { called, returned, request, answer }
    }

    fn create(called: u64, returned: u64, content: u64, version: u64) -> Operation {
        at(called, returned, Request::Create(content), Answer::Done(Some(version)))
    }

    fn found(called: u64, returned: u64, content: u64, version: u64) -> Operation {
        at(called, returned, Request::Read, Answer::Found { content, version })
    }

    fn check(operations: &[Operation]) -> Result<BTreeSet<State>, Violation> {
        let mut register = Register::default();
        register.extend(operations, &HashMap::new())?;
        Ok(register.states())
    }

    const GONE: (Request, Answer) = (Request::Delete { expected: None }, Answer::Done(None));

    #[test]
    fn sequences_are_explained() {
        let update = Request::Update { content: 2, expected: Some(10) };
        let history = [
            create(0, 1, 1, 10),
            found(2, 3, 1, 10),
            at(4, 5, update, Answer::Done(Some(11))),
            at(6, 7, Request::Create(9), Answer::AlreadyExists),
            at(8, 9, Request::Update { content: 3, expected: Some(10) }, Answer::Conflict),
            at(10, 11, GONE.0, GONE.1),
            at(12, 13, Request::Read, Answer::NotFound),
            at(14, 15, Request::Apply(4), Answer::Done(Some(15))),
        ];
        assert_eq!(check(&history), Ok(BTreeSet::from([State::Present { content: 4, version: Some(15) }])));
    }

    #[test]
    fn a_lost_write_is_found() {
        let lost = [create(0, 1, 1, 10), at(2, 3, Request::Read, Answer::NotFound)];
        assert!(check(&lost).is_err());
        let old = Request::Update { content: 2, expected: None };
        let stale = [create(0, 1, 1, 10), at(2, 3, old, Answer::Done(Some(11))), found(4, 5, 1, 10)];
        assert!(check(&stale).is_err());
        let back = [create(0, 1, 1, 10), at(2, 3, GONE.0, GONE.1), found(4, 5, 1, 10)];
        assert!(check(&back).is_err());
    }

    #[test]
    fn two_winners_of_one_comparison_are_found() {
        let update = |content| Request::Update { content, expected: Some(10) };
        let history = [
            create(0, 1, 1, 10),
            at(2, 9, update(2), Answer::Done(Some(11))),
            at(3, 8, update(3), Answer::Done(Some(12))),
        ];
        assert!(check(&history).is_err());
        let creates = [create(0, 5, 1, 10), create(0, 5, 2, 11)];
        assert!(check(&creates).is_err());
        let deletes = [create(0, 1, 1, 10), at(2, 9, GONE.0, GONE.1), at(2, 9, GONE.0, GONE.1)];
        assert!(check(&deletes).is_err());
    }

    #[test]
    fn answers_that_refuse_without_a_reason_are_found() {
        let conflict = at(2, 3, Request::Update { content: 2, expected: Some(10) }, Answer::Conflict);
        assert!(check(&[create(0, 1, 1, 10), conflict]).is_err());
        assert!(check(&[at(0, 1, Request::Create(1), Answer::AlreadyExists)]).is_err());
        let unasked = at(2, 3, Request::Update { content: 2, expected: None }, Answer::Conflict);
        assert!(check(&[create(0, 1, 1, 10), unasked]).is_err());
    }

    #[test]
    fn concurrent_requests_have_any_order_and_sequential_ones_have_theirs() {
        let reads = [create(0, 10, 1, 10), at(1, 9, Request::Read, Answer::NotFound), found(2, 8, 1, 10)];
        assert!(check(&reads).is_ok());
        // Seen, and then not yet there.
        let turned = [create(0, 10, 1, 10), found(1, 3, 1, 10), at(4, 9, Request::Read, Answer::NotFound)];
        assert!(check(&turned).is_err());
    }

    #[test]
    fn an_unknown_outcome_happened_or_did_not_but_not_both() {
        let unknown =
            |returned| at(2, returned, Request::Update { content: 2, expected: None }, Answer::Unknown);
        let first = create(0, 1, 1, 10);
        assert!(check(&[first, unknown(5), found(6, 7, 1, 10)]).is_ok());
        assert!(check(&[first, unknown(5), found(6, 7, 2, 11)]).is_ok());
        // At any later time.
        assert!(check(&[first, unknown(u64::MAX), found(6, 7, 1, 10), found(8, 9, 2, 11)]).is_ok());
        // But not after the process that had it was gone, and not taken back.
        assert!(check(&[first, unknown(5), found(6, 7, 1, 10), found(8, 9, 2, 11)]).is_err());
        assert!(check(&[first, unknown(u64::MAX), found(6, 7, 2, 11), found(8, 9, 1, 10)]).is_err());
    }

    #[test]
    fn versions_known_from_other_answers_are_compared() {
        let mut register = Register::default();
        let unknown = at(0, 1, Request::Create(1), Answer::Unknown);
        let conflict = at(2, 3, Request::Update { content: 2, expected: Some(10) }, Answer::Conflict);
        let known = HashMap::from([(1, 10)]);
        assert!(register.clone().extend(&[unknown, conflict], &known).is_err());
        assert!(register.extend(&[unknown, conflict], &HashMap::new()).is_ok());
    }

    #[test]
    fn states_are_carried_from_piece_to_piece() {
        let mut register = Register::default();
        let none = HashMap::new();
        register.extend(&[create(0, 1, 1, 10), at(2, 4, GONE.0, Answer::Unknown)], &none).unwrap();
        assert_eq!(register.states().len(), 2);
        register.extend(&[found(5, 6, 1, 10)], &none).unwrap();
        assert_eq!(register.states().len(), 1);
        assert!(register.extend(&[at(7, 8, Request::Read, Answer::NotFound)], &none).is_err());
    }
}
