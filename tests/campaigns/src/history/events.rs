//! Checks that watches, lists and acknowledged writes agree on one sequence of changes.
//!
//! [`History::check`] is given what happened since the last check, at a moment when nothing is under way and
//! every watch of all objects has passed the revision of a last write (a barrier). The events of all watches
//! together are the sequence of changes; each watch must have seen all of it between where it began and where
//! it is, every acknowledged write must be in it, and every list must be what the changes up to its revision
//! make.
//!
//! Where history is compacted, every watch of all objects may expire at once, and nobody saw what changed
//! before their new lists. Then each watch, each object's requests and the order in time are checked, and the
//! next piece begins with a list.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound::{Excluded, Included};

use super::linear::{Answer, Operation, Register, Request, State};
use super::observations::{Change, Event, Listed, Objects, Piece, Scope, Watch};
use super::{violation, Violation};

/// Everything that was checked so far.
#[derive(Debug, Default, Clone)]
pub struct History {
    /// By version, with when it was first seen.
    changes: BTreeMap<u64, (u64, Event)>,
    /// All changes up to this version are in `changes` and checked.
    checked: u64,
    /// The objects at `checked`.
    objects: Objects,
    registers: HashMap<String, Register>,
    /// Object and time of the call of writes that have no event yet and may have one.
    writes: HashMap<u64, (String, u64)>,
    /// Versions by content.
    versions: HashMap<u64, u64>,
    /// The newest version that was seen.
    newest: u64,
    /// Not all changes up to this version were seen.
    unseen: u64,
}

impl History {
    /// A history that begins at a version at which there were no objects.
    pub fn after(version: u64) -> History {
        History { checked: version, ..History::default() }
    }

    /// Everything up to this version has been checked.
    pub fn checked(&self) -> u64 {
        self.checked
    }

    /// How many changes were seen.
    pub fn changes(&self) -> usize {
        self.changes.len()
    }

    /// Checks what happened up to the revision of the barrier, `upto`, at which `there` is what a list says.
    /// Nothing is under way. Whether all changes were seen.
    ///
    /// # Errors
    /// When the observations contradict each other.
    pub fn check(&mut self, piece: &Piece, upto: u64, there: &Objects) -> Result<bool, Violation> {
        for (object, operation) in &piece.operations {
            if let Some(content) = operation.request.content() {
                self.writes.insert(content, (object.clone(), operation.called));
            }
        }
        for watch in &piece.watches {
            self.merge(watch)?;
        }
        for watch in &piece.watches {
            self.no_gap(watch, upto)?;
        }
        self.in_time(piece)?;
        let complete = self.is_complete(piece, upto);
        if complete {
            self.acknowledged(piece)?;
            self.replay(piece, upto)?;
            listed(&Scope::All, upto, there, &self.objects)?;
        } else {
            let seen = self.changes.range((Excluded(self.checked), Included(upto)));
            let written = seen.filter(|(_, (_, event))| event.change != Change::Deleted);
            self.versions.extend(written.map(|(version, (_, event))| (event.content, *version)));
            self.versions.extend(there.values().copied());
            self.objects = there.clone();
            self.writes.clear();
            (self.checked, self.unseen) = (upto, upto);
        }
        self.linear(piece)?;
        Ok(complete)
    }

    /// Whether watches of all objects together saw everything since the last check.
    fn is_complete(&self, piece: &Piece, upto: u64) -> bool {
        let all = piece.watches.iter().filter(|watch| watch.scope == Scope::All);
        let mut spans: Vec<(u64, u64)> = all.map(|watch| (watch.from, watch.position)).collect();
        spans.sort_unstable();
        let mut seen = self.checked;
        for (from, position) in spans {
            if from <= seen {
                seen = seen.max(position);
            }
        }
        seen >= upto
    }

    /// One version, one change, whoever sees it and when.
    fn merge(&mut self, watch: &Watch) -> Result<(), Violation> {
        for (seen, event) in &watch.events {
            match self.changes.get_mut(&event.version) {
                None if event.version <= self.unseen => {}
                None if event.version <= self.checked => {
                    return Err(violation!(
                        "{event:?} is new, and everything up to {} was seen",
                        self.checked
                    ));
                }
                None => drop(self.changes.insert(event.version, (*seen, event.clone()))),
                Some((first, known)) if known == event => *first = (*first).min(*seen),
                Some((_, known)) => {
                    return Err(violation!("version {} is {known:?} and {event:?}", event.version));
                }
            }
        }
        Ok(())
    }

    fn no_gap(&self, watch: &Watch, upto: u64) -> Result<(), Violation> {
        let end = watch.position.min(upto);
        if watch.from >= end {
            return Ok(());
        }
        let mut seen = watch.events.iter().map(|(_, event)| event).peekable();
        for (version, (_, change)) in self.changes.range((Excluded(watch.from), Included(end))) {
            if !watch.scope.has(&change.object) {
                continue;
            }
            if seen.next_if(|event| event.version == *version).is_none() {
                return Err(violation!(
                    "the watch of {:?} from {} to {} did not see {change:?}",
                    watch.scope,
                    watch.from,
                    watch.position
                ));
            }
        }
        Ok(())
    }

    fn acknowledged(&self, piece: &Piece) -> Result<(), Violation> {
        for (object, operation) in &piece.operations {
            let (Some(content), Answer::Done(Some(version))) =
                (operation.request.content(), operation.answer)
            else {
                continue;
            };
            let change = self.changes.get(&version).map(|(_, event)| event);
            if !change.is_some_and(|event| event.object == *object && event.content == content) {
                return Err(violation!("{object}: {operation:?} was acknowledged, its event is {change:?}"));
            }
        }
        Ok(())
    }

    /// What is called after something was seen is newer.
    fn in_time(&mut self, piece: &Piece) -> Result<(), Violation> {
        // Of equal times demands come first: what is seen in the same moment is not seen before.
        let mut moments: Vec<(u64, bool, u64, bool)> = Vec::new();
        for (_, operation) in &piece.operations {
            match operation.answer {
                Answer::Done(Some(version)) => {
                    moments.push((operation.called, false, version, true));
                    moments.push((operation.returned, true, version, false));
                }
                Answer::Found { version, .. } => moments.push((operation.returned, true, version, false)),
                _ => {}
            }
        }
        for list in &piece.lists {
            if list.most_recent {
                moments.push((list.called, false, list.version, false));
            }
            moments.push((list.returned, true, list.version, false));
        }
        for watch in &piece.watches {
            moments.extend(watch.events.iter().map(|(seen, event)| (*seen, true, event.version, false)));
            moments.extend(watch.marks.iter().map(|(seen, version)| (*seen, true, *version, false)));
        }
        moments.sort_unstable();
        for (_, is_seen, version, is_write) in moments {
            if is_seen {
                self.newest = self.newest.max(version);
            } else if version < self.newest || (is_write && version == self.newest) {
                let what = if is_write { "a write" } else { "a list" };
                return Err(violation!(
                    "{what} got version {version}, and {} was seen before it",
                    self.newest
                ));
            }
        }
        Ok(())
    }

    /// Replays the changes in order: each must fit the state before it, and each list must equal the state at
    /// its revision.
    fn replay(&mut self, piece: &Piece, upto: u64) -> Result<(), Violation> {
        let mut lists: Vec<&Listed> = piece.lists.iter().collect();
        lists.sort_by_key(|list| list.version);
        let mut lists = lists.into_iter().skip_while(|list| list.version < self.checked).peekable();
        let mut deleted: HashMap<&str, usize> = HashMap::new();
        for (version, (seen, event)) in self.changes.range((Excluded(self.checked), Included(upto))) {
            while let Some(list) = lists.next_if(|list| list.version < *version) {
                listed(&list.scope, list.version, &list.objects, &self.objects)?;
            }
            let before = self.objects.get(&event.object).copied();
            match event.change {
                Change::Added | Change::Modified => {
                    if before.is_some() != (event.change == Change::Modified) {
                        return Err(violation!("{event:?}, and before it there was {before:?}"));
                    }
                    let Some((object, called)) = self.writes.remove(&event.content) else {
                        return Err(violation!("{event:?} shows a write that nobody made, or not any more"));
                    };
                    if object != event.object || *seen < called {
                        return Err(violation!(
                            "{event:?} at {seen} shows a write of {object} called at {called}"
                        ));
                    }
                    self.versions.insert(event.content, *version);
                    self.objects.insert(event.object.clone(), (event.content, *version));
                }
                Change::Deleted => {
                    if before.map(|(content, _)| content) != Some(event.content) {
                        return Err(violation!("{event:?}, and before it there was {before:?}"));
                    }
                    self.objects.remove(&event.object);
                    *deleted.entry(&event.object).or_default() += 1;
                }
            }
        }
        // Beyond the barrier other kinds are written, and none of these objects.
        for list in lists {
            listed(&list.scope, list.version, &list.objects, &self.objects)?;
        }
        deletions(piece, &deleted)?;
        // Nothing is under way: what has no event by now never took effect.
        self.writes.clear();
        self.checked = upto;
        Ok(())
    }

    fn linear(&mut self, piece: &Piece) -> Result<(), Violation> {
        let mut by_object: HashMap<&str, Vec<Operation>> = HashMap::new();
        for (object, operation) in &piece.operations {
            by_object.entry(object).or_default().push(*operation);
        }
        for (object, operations) in by_object {
            let register = self.registers.entry(object.to_owned()).or_default();
            register.extend(&operations, &self.versions).map_err(|v| violation!("{object}: {v}"))?;
            let state = match self.objects.get(object) {
                Some((content, version)) => State::Present { content: *content, version: Some(*version) },
                None => State::Absent,
            };
            let states = register.states();
            if !states.contains(&state) {
                return Err(violation!(
                    "{object}: by the events {state:?}, by the answers one of {states:?}"
                ));
            }
            *register = Register::new(state);
        }
        Ok(())
    }
}

/// A list must equal the objects of its scope.
fn listed(scope: &Scope, version: u64, said: &Objects, objects: &Objects) -> Result<(), Violation> {
    let there: Objects = objects.iter().filter(|(o, _)| scope.has(o)).map(|(o, c)| (o.clone(), *c)).collect();
    if there == *said {
        return Ok(());
    }
    let missing: Vec<_> = there.iter().filter(|(o, c)| said.get(*o) != Some(c)).collect();
    let other: Vec<_> = said.iter().filter(|(o, c)| there.get(*o) != Some(c)).collect();
    Err(violation!(
        "a list of {scope:?} at {version} differs from the events: there is {missing:?}, it says {other:?}"
    ))
}

/// As many objects are deleted as deletions were acknowledged, or might have been.
fn deletions(piece: &Piece, deleted: &HashMap<&str, usize>) -> Result<(), Violation> {
    let mut requested: HashMap<&str, (usize, usize)> = HashMap::new();
    for (object, operation) in &piece.operations {
        let (done, unknown) = requested.entry(object).or_default();
        match (operation.request, operation.answer) {
            (Request::Delete { .. }, Answer::Done(_)) => *done += 1,
            (Request::Delete { .. }, Answer::Unknown) => *unknown += 1,
            _ => {}
        }
    }
    let objects: std::collections::BTreeSet<&str> = requested.keys().chain(deleted.keys()).copied().collect();
    for object in objects {
        let (done, unknown) = requested.get(object).copied().unwrap_or_default();
        let events = deleted.get(object).copied().unwrap_or_default();
        if events < done || events > done + unknown {
            return Err(violation!(
                "{object}: {done} deletions acknowledged, {unknown} unknown, {events} events of deletions"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(change: Change, name: &str, content: u64, version: u64) -> Event {
        Event { change, object: format!("a/{name}"), content, version }
    }

    fn write(name: &str, called: u64, request: Request, answer: Answer) -> (String, Operation) {
        (format!("a/{name}"), Operation { called, returned: called + 1, request, answer })
    }

    fn watch(from: u64, events: &[(u64, Event)]) -> Watch {
        let mut watch = Watch::new(Scope::All, from);
        for (seen, event) in events {
            watch.event(*seen, event.clone()).unwrap();
        }
        watch
    }

    /// x is created at 10 and updated at 12, y is created at 11 and deleted at 13.
    fn sound() -> Piece {
        let update = Request::Update { content: 3, expected: Some(10) };
        let gone = Request::Delete { expected: None };
        let operations = vec![
            write("x", 100, Request::Create(1), Answer::Done(Some(10))),
            write("y", 110, Request::Create(2), Answer::Unknown),
            write("x", 120, update, Answer::Done(Some(12))),
            write("y", 130, gone, Answer::Done(None)),
        ];
        let seen = [
            (102, event(Change::Added, "x", 1, 10)),
            (112, event(Change::Added, "y", 2, 11)),
            (122, event(Change::Modified, "x", 3, 12)),
            (132, event(Change::Deleted, "y", 2, 13)),
        ];
        let objects = Objects::from([("a/x".to_owned(), (3, 12)), ("a/y".to_owned(), (2, 11))]);
        let list =
            Listed { called: 124, returned: 125, most_recent: true, scope: Scope::All, version: 12, objects };
        Piece { operations, lists: vec![list], watches: vec![watch(9, &seen), watch(11, &seen[2..])] }
    }

    fn check(piece: &Piece) -> Result<bool, Violation> {
        let there = Objects::from([("a/x".to_owned(), (3, 12))]);
        History::after(9).check(piece, 13, &there)
    }

    #[test]
    fn a_sound_history_is_explained() {
        assert_eq!(check(&sound()), Ok(true));
    }

    #[test]
    fn gaps_doubles_and_turned_orders_are_found() {
        for gap in 0..4 {
            let mut piece = sound();
            piece.watches[0].events.remove(gap);
            // Where no other watch saw it either, the acknowledged write or the deletion reveals the gap.
            assert!(check(&piece).is_err(), "{gap}");
        }
        let mut twice = Watch::new(Scope::All, 9);
        twice.event(1, event(Change::Added, "x", 1, 10)).unwrap();
        assert!(twice.event(2, event(Change::Added, "x", 1, 10)).is_err());
        assert!(twice.event(2, event(Change::Added, "y", 2, 9)).is_err());
        assert!(twice.bookmark(3, 9).is_err());
        twice.bookmark(3, 20).unwrap();
        assert!(twice.event(4, event(Change::Added, "y", 2, 20)).is_err());
        let mut other = Watch::new(Scope::Namespace("b".into()), 9);
        assert!(other.event(1, event(Change::Added, "x", 1, 10)).is_err());
    }

    #[test]
    fn a_gap_behind_a_bookmark_is_found() {
        let mut piece = sound();
        let mut late = watch(9, &[]);
        late.bookmark(140, 12).unwrap();
        piece.watches.push(late);
        assert!(check(&piece).is_err());
    }

    #[test]
    fn a_version_with_two_contents_is_found() {
        let mut piece = sound();
        piece.watches[1].events[0].1.content = 9;
        assert!(check(&piece).is_err());
        // Reused after a kill: the version is behind what was checked.
        let there = Objects::from([("a/x".to_owned(), (3, 12))]);
        let mut history = History::after(9);
        history.check(&sound(), 13, &there).unwrap();
        let again = Piece {
            operations: vec![write("z", 200, Request::Create(7), Answer::Done(Some(12)))],
            watches: vec![watch(11, &[(202, event(Change::Added, "z", 7, 12))])],
            lists: Vec::new(),
        };
        assert!(history.check(&again, 14, &there).is_err());
    }

    #[test]
    fn an_event_before_its_write_or_of_none_is_found() {
        let mut piece = sound();
        piece.watches[0].events[1].0 = 109;
        assert!(check(&piece).is_err());
        let mut piece = sound();
        piece.operations.remove(1);
        assert!(check(&piece).is_err());
        // An unknown outcome that shows after it was known not to have taken effect.
        let there = Objects::from([("a/x".to_owned(), (3, 12))]);
        let mut history = History::after(9);
        let mut never = sound();
        never.operations.push(write("z", 131, Request::Create(5), Answer::Unknown));
        history.check(&never, 13, &there).unwrap();
        let late = Piece {
            watches: vec![watch(13, &[(300, event(Change::Added, "z", 5, 15))])],
            ..Piece::default()
        };
        assert!(history.check(&late, 15, &there).is_err());
    }

    #[test]
    fn events_that_do_not_fit_what_was_there_are_found() {
        let mut piece = sound();
        piece
            .watches
            .iter_mut()
            .for_each(|w| w.events.iter_mut().for_each(|(_, e)| e.change = Change::Added));
        assert!(check(&piece).is_err());
        let mut piece = sound();
        for watch in &mut piece.watches {
            watch.events.iter_mut().filter(|(_, e)| e.version == 13).for_each(|(_, e)| e.content = 1);
        }
        assert!(check(&piece).is_err());
        let mut piece = sound();
        piece.operations.pop();
        assert!(check(&piece).is_err(), "a deletion that nobody requested");
    }

    #[test]
    fn versions_that_go_back_in_time_are_found() {
        let mut piece = sound();
        piece.lists[0].called = 134;
        piece.lists[0].returned = 135;
        assert!(check(&piece).is_err(), "13 was seen at 132");
        piece.lists[0].most_recent = false;
        assert_eq!(check(&piece), Ok(true), "a list at an exact revision may be old");
        let mut piece = sound();
        piece.operations[0].1.called = 123;
        piece.operations[0].1.returned = 124;
        assert!(check(&piece).is_err(), "12 was acknowledged before 10 was called");
    }

    #[test]
    fn lists_that_differ_are_found() {
        let mut piece = sound();
        piece.lists[0].objects.remove("a/y");
        assert!(check(&piece).is_err());
        let mut piece = sound();
        piece.lists[0].objects.insert("a/x".into(), (1, 10));
        assert!(check(&piece).is_err());
        let mut piece = sound();
        piece.lists[0].version = 13;
        assert!(check(&piece).is_err());
    }

    #[test]
    fn answers_that_the_events_contradict_are_found() {
        let mut piece = sound();
        let read = Answer::Found { content: 1, version: 10 };
        piece.operations.push(write("x", 126, Request::Read, read));
        assert!(check(&piece).is_err(), "12 was acknowledged at 121");
        let mut piece = sound();
        piece.operations.push(write("y", 140, Request::Read, Answer::Found { content: 2, version: 11 }));
        assert!(check(&piece).is_err(), "deleted at 131");
    }

    /// Both watches got 410 and began again with lists.
    #[test]
    fn what_nobody_could_see_is_not_missed_and_the_rest_is_checked() {
        let there = Objects::from([("a/x".to_owned(), (3, 12))]);
        let gap = || {
            let mut piece = sound();
            piece.watches[0].events.truncate(1);
            piece.watches[0].position = 10;
            piece.watches[1].events.remove(0);
            piece.watches[1].from = 12;
            piece
        };
        assert_eq!(check(&gap()), Ok(false));
        let mut piece = gap();
        piece.operations[0].1.answer = Answer::Done(Some(12));
        assert!(check(&piece).is_err(), "12 is acknowledged twice");
        let other = Objects::from([("a/x".to_owned(), (1, 10))]);
        assert!(History::after(9).check(&gap(), 13, &other).is_err(), "the update was acknowledged");
        // The next piece goes on from the list.
        let mut history = History::after(9);
        history.check(&gap(), 13, &there).unwrap();
        let gone = write("x", 200, Request::Delete { expected: Some(12) }, Answer::Done(None));
        let seen = [(202, event(Change::Deleted, "x", 3, 15))];
        let next = |operations| Piece { operations, watches: vec![watch(13, &seen)], lists: Vec::new() };
        assert_eq!(history.clone().check(&next(vec![gone]), 15, &Objects::new()), Ok(true));
        assert!(history.check(&next(Vec::new()), 15, &Objects::new()).is_err());
    }
}
