//! The dependency graph, as of the change feed's position.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;

use super::references::{self, Finalizer, Uid};
use plinth_storage::Stored;

/// Whether a dependent blocks its owner's foreground deletion. Those that do are sorted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    Blocks,
    Free,
}

/// An index from owner UIDs to the keys of their dependents, and the objects that wait for the collector.
///
/// One entry for each owner reference in the store: 16 bytes and the key. Written by the collector's own task
/// in the order of the feed; it may be behind the store, never ahead.
#[derive(Debug, Default)]
pub(super) struct Graph {
    dependents: BTreeSet<(Uid, Hold, Bytes)>,
    /// Objects being deleted that have one of the collector's finalizers.
    waiting: HashMap<Uid, Bytes>,
    waiting_keys: HashSet<Bytes>,
}

impl Graph {
    /// Applies a change; returns the keys to be reconciled because of it.
    pub(super) fn change(&mut self, key: &Bytes, old: Option<&Stored>, new: Option<&Stored>) -> Vec<Bytes> {
        let mut changed = Vec::new();
        self.change_references(key, old, new, &mut changed);
        // Deleted, or another object with the same name.
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.uid() != old.uid())) {
            let uid = Uid::of(old.uid());
            self.forget_waiting(uid);
            changed.extend(self.dependents(uid));
        }
        let Some(new) = new else { return changed };
        match references::pending(new) {
            Some(finalizer) => {
                let uid = Uid::of(new.uid());
                self.waiting_keys.insert(key.clone());
                let begins = self.waiting.insert(uid, key.clone()).is_none();
                if begins && finalizer == Finalizer::Foreground {
                    changed.extend(self.dependents(uid));
                }
                changed.push(key.clone());
            }
            None if new.deleting() => self.forget_waiting(Uid::of(new.uid())),
            None => {}
        }
        changed
    }

    fn change_references(
        &mut self,
        key: &Bytes,
        old: Option<&Stored>,
        new: Option<&Stored>,
        changed: &mut Vec<Bytes>,
    ) {
        let (before, after) = (old.map_or(&b""[..], references::raw), new.map_or(&b""[..], references::raw));
        if before == after {
            return;
        }
        let (before, after) = (references::parse(before), references::parse(after));
        for owner in &before {
            let uid = Uid::of(&owner.uid);
            self.dependents.remove(&(uid, Hold::Blocks, key.clone()));
            self.dependents.remove(&(uid, Hold::Free, key.clone()));
        }
        for owner in &after {
            let hold = if owner.blocks { Hold::Blocks } else { Hold::Free };
            self.dependents.insert((Uid::of(&owner.uid), hold, key.clone()));
        }
        // Owners that this dependent may have been the last to block.
        for uid in before.iter().map(|owner| Uid::of(&owner.uid)) {
            if let Some(owner) = self.waiting.get(&uid).filter(|_| !self.is_blocked(uid)) {
                changed.push(owner.clone());
            }
        }
        if !after.is_empty() {
            changed.push(key.clone());
        }
    }

    fn forget_waiting(&mut self, uid: Uid) {
        if let Some(key) = self.waiting.remove(&uid) {
            self.waiting_keys.remove(&key);
        }
    }

    /// The keys of the dependents of an owner.
    pub(super) fn dependents(&self, uid: Uid) -> Vec<Bytes> {
        let all = self.dependents.range((uid, Hold::Blocks, Bytes::new())..);
        all.take_while(|(owner, _, _)| *owner == uid).map(|(_, _, key)| key.clone()).collect()
    }

    /// Whether an owner has dependents that block its foreground deletion.
    pub(super) fn is_blocked(&self, uid: Uid) -> bool {
        let first = self.dependents.range((uid, Hold::Blocks, Bytes::new())..).next();
        first.is_some_and(|(owner, hold, _)| *owner == uid && *hold == Hold::Blocks)
    }

    /// Whether the feed has reported that this object waits for the collector: from then on the index
    /// contains every dependent that it had before it was marked.
    pub(super) fn is_waiting(&self, uid: Uid) -> bool {
        self.waiting.contains_key(&uid)
    }

    /// Whether any dependent of an owner waits for the collector, too: possibly a cycle.
    pub(super) fn has_waiting_dependents(&self, uid: Uid) -> bool {
        self.dependents(uid).iter().any(|key| self.waiting_keys.contains(key))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{deleting, dependent, plain};
    use super::*;

    fn put(graph: &mut Graph, key: &str, old: Option<&Bytes>, new: Option<&Bytes>) -> Vec<String> {
        let old = old.map(|v| Stored::parse(v).unwrap());
        let new = new.map(|v| Stored::parse(v).unwrap());
        let keys = graph.change(&Bytes::copy_from_slice(key.as_bytes()), old.as_ref(), new.as_ref());
        keys.iter().map(|k| String::from_utf8(k.to_vec()).unwrap()).collect()
    }

    #[test]
    fn the_dependents_of_a_deleted_owner_are_reconciled() {
        let mut graph = Graph::default();
        let owner = plain("o");
        assert!(put(&mut graph, "owner", None, Some(&owner)).is_empty());
        let (a, b) = (dependent("a", &[("o", false)]), dependent("b", &[("o", true), ("p", false)]));
        assert_eq!(put(&mut graph, "a", None, Some(&a)), ["a"]);
        assert_eq!(put(&mut graph, "b", None, Some(&b)), ["b"]);
        assert_eq!(put(&mut graph, "owner", Some(&owner), None), ["b", "a"]);
        assert!(put(&mut graph, "a", Some(&a), None).is_empty());
        assert_eq!(graph.dependents(Uid::of("o")), [&b"b"[..]]);
        assert!(put(&mut graph, "b", Some(&b), Some(&plain("b"))).is_empty());
        assert!(graph.dependents.is_empty());
    }

    #[test]
    fn other_changes_are_ignored() {
        let mut graph = Graph::default();
        let a = dependent("a", &[("o", false)]);
        put(&mut graph, "a", None, Some(&a));
        assert!(put(&mut graph, "a", Some(&a), Some(&a)).is_empty());
        let blocking = dependent("a", &[("o", true)]);
        assert_eq!(put(&mut graph, "a", Some(&a), Some(&blocking)), ["a"]);
        assert!(graph.is_blocked(Uid::of("o")));
        assert_eq!(graph.dependents(Uid::of("o")).len(), 1);
    }

    #[test]
    fn an_owner_in_the_foreground_is_reconciled_when_its_last_blocking_dependent_is_deleted() {
        let mut graph = Graph::default();
        let dependents: Vec<(String, Bytes)> =
            (0..3).map(|i| (format!("d{i}"), dependent(&format!("u{i}"), &[("o", i != 0)]))).collect();
        let owner = plain("o");
        put(&mut graph, "owner", None, Some(&owner));
        for (key, value) in &dependents {
            put(&mut graph, key, None, Some(value));
        }
        let marked = deleting("o", "foregroundDeletion");
        assert_eq!(put(&mut graph, "owner", Some(&owner), Some(&marked)), ["d1", "d2", "d0", "owner"]);
        assert!(graph.is_waiting(Uid::of("o")));
        assert!(put(&mut graph, "d1", Some(&dependents[1].1), None).is_empty());
        assert_eq!(put(&mut graph, "d2", Some(&dependents[2].1), None), ["owner"]);
        assert_eq!(put(&mut graph, "owner", Some(&marked), None), ["d0"]);
        assert!(!graph.is_waiting(Uid::of("o")) && graph.waiting_keys.is_empty());
    }

    #[test]
    fn an_orphaning_owner_is_reconciled_alone() {
        let mut graph = Graph::default();
        let (owner, marked) = (plain("o"), deleting("o", "orphan"));
        put(&mut graph, "d", None, Some(&dependent("d", &[("o", true)])));
        assert_eq!(put(&mut graph, "owner", Some(&owner), Some(&marked)), ["owner"]);
        let other = deleting("o", "example.com/hold");
        assert!(put(&mut graph, "owner", Some(&marked), Some(&other)).is_empty());
        assert!(!graph.is_waiting(Uid::of("o")));
    }
}
