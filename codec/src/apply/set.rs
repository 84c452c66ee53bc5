//! Sets of field paths, stored flat.
//!
//! A set is one vector in pre-order: each entry is a step ([`PathElement`]), whether the path up to it is a
//! member of the set, and how many entries the subtree below it has. Siblings are sorted. So a set of a
//! hundred paths is one allocation, and union, intersection and difference are merges of two sorted runs that
//! append to a third.
//!
//! ```text
//! .spec.replicas, .spec.ports[port=80], .spec.ports[port=80].name
//!
//!   spec            size 5
//!     ports         size 3
//!       [port=80]   size 2, member
//!         name      size 1, member
//!     replicas      size 1, member
//! ```

use std::cmp::Ordering;

use super::path::PathElement;

/// A set of paths. The empty path is never a member: a whole object has no owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    element: PathElement,
    member: bool,
    /// Entries of this subtree: itself and all below it.
    size: u32,
}

/// A read-only view of the subtree below one path.
#[derive(Clone, Copy, Debug)]
pub struct View<'s> {
    entries: &'s [Entry],
}

/// One step in a [`View`]: the element, whether it is a member, what is below.
#[derive(Clone, Copy, Debug)]
pub struct SetNode<'s> {
    /// The step from the parent to this node.
    pub element: &'s PathElement,
    /// Whether the path that ends here is in the set.
    pub member: bool,
    /// The paths below this one.
    pub below: View<'s>,
    /// This node and all below it.
    whole: &'s [Entry],
}

impl Set {
    /// The empty set.
    pub fn new() -> Set {
        Set::default()
    }

    /// A set of paths in any order.
    pub fn of<'p>(paths: impl IntoIterator<Item = &'p [PathElement]>) -> Set {
        paths.into_iter().fold(Set::new(), |set, path| {
            let mut one = Builder::default();
            path.iter().for_each(|element| one.enter(element.clone()));
            if !path.is_empty() {
                one.add();
            }
            path.iter().for_each(|_| one.leave());
            set.union(&one.finish())
        })
    }

    /// Whether there is no path in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many paths there are.
    pub fn len(&self) -> usize {
        self.entries.iter().filter(|e| e.member).count()
    }

    /// A view of the whole set.
    pub fn view(&self) -> View<'_> {
        View { entries: &self.entries }
    }

    /// Whether the path is a member.
    pub fn contains(&self, path: &[PathElement]) -> bool {
        let Some((last, parents)) = path.split_last() else { return false };
        let below = parents.iter().try_fold(self.view(), |view, element| view.get(element).map(|n| n.below));
        below.and_then(|view| view.get(last)).is_some_and(|n| n.member)
    }

    /// The paths in either.
    pub fn union(&self, other: &Set) -> Set {
        combine(self.view(), other.view(), &mut union)
    }

    /// The paths in both.
    pub fn intersection(&self, other: &Set) -> Set {
        combine(self.view(), other.view(), &mut intersection)
    }

    /// The paths in `self` but not in `other`.
    pub fn difference(&self, other: &Set) -> Set {
        combine(self.view(), other.view(), &mut difference)
    }

    /// Whether every path is in `other`.
    pub fn is_subset(&self, other: &Set) -> bool {
        fn within(a: View<'_>, b: View<'_>) -> bool {
            let mut b = b.nodes().peekable();
            a.nodes().all(|a| {
                while b.next_if(|b| b.element < a.element).is_some() {}
                match b.next_if(|b| b.element == a.element) {
                    Some(b) => (!a.member || b.member) && within(a.below, b.below),
                    None => false,
                }
            })
        }
        within(self.view(), other.view())
    }

    /// Every path in upstream's order: at each level the members first, then the paths below.
    pub fn paths(&self) -> Vec<Vec<PathElement>> {
        fn walk(view: View<'_>, path: &mut Vec<PathElement>, out: &mut Vec<Vec<PathElement>>) {
            for node in view.nodes().filter(|n| n.member) {
                path.push(node.element.clone());
                out.push(path.clone());
                path.pop();
            }
            for node in view.nodes() {
                path.push(node.element.clone());
                walk(node.below, path, out);
                path.pop();
            }
        }
        let mut out = Vec::new();
        walk(self.view(), &mut Vec::new(), &mut out);
        out
    }
}

impl<'s> View<'s> {
    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The steps of this level, sorted.
    pub fn nodes(self) -> impl Iterator<Item = SetNode<'s>> {
        let mut rest = self.entries;
        std::iter::from_fn(move || {
            let first = rest.first()?;
            // Sizes are set by `Builder` alone and never pass the end.
            let (whole, next) = rest.split_at(first.size as usize);
            rest = next;
            Some(SetNode {
                element: &first.element,
                member: first.member,
                below: View { entries: &whole[1..] },
                whole,
            })
        })
    }

    /// The step with that element. Linear in the number of siblings.
    pub fn get(self, element: &PathElement) -> Option<SetNode<'s>> {
        self.nodes().find(|n| n.element >= element).filter(|n| n.element == element)
    }
}

/// Merges two sorted levels: `pick` is called for each element of either, with both nodes.
type Pick<'f> = &'f mut dyn FnMut(Option<SetNode<'_>>, Option<SetNode<'_>>, &mut Builder);

fn zip(a: View<'_>, b: View<'_>, out: &mut Builder, pick: Pick<'_>) {
    let (mut a, mut b) = (a.nodes().peekable(), b.nodes().peekable());
    loop {
        let order = match (a.peek(), b.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(a), Some(b)) => a.element.cmp(b.element),
        };
        let a = if order.is_le() { a.next() } else { None };
        let b = if order.is_ge() { b.next() } else { None };
        pick(a, b, out);
    }
}

fn combine(a: View<'_>, b: View<'_>, pick: Pick<'_>) -> Set {
    let mut out = Builder::default();
    zip(a, b, &mut out, pick);
    out.finish()
}

fn union(a: Option<SetNode<'_>>, b: Option<SetNode<'_>>, out: &mut Builder) {
    match (a, b) {
        (Some(a), Some(b)) => {
            out.enter(a.element.clone());
            if a.member || b.member {
                out.add();
            }
            zip(a.below, b.below, out, &mut union);
            out.leave();
        }
        (Some(one), None) | (None, Some(one)) => out.copy(one),
        (None, None) => {}
    }
}

fn intersection(a: Option<SetNode<'_>>, b: Option<SetNode<'_>>, out: &mut Builder) {
    if let (Some(a), Some(b)) = (a, b) {
        out.enter(a.element.clone());
        if a.member && b.member {
            out.add();
        }
        zip(a.below, b.below, out, &mut intersection);
        out.leave();
    }
}

fn difference(a: Option<SetNode<'_>>, b: Option<SetNode<'_>>, out: &mut Builder) {
    match (a, b) {
        (Some(a), Some(b)) => {
            out.enter(a.element.clone());
            if a.member && !b.member {
                out.add();
            }
            zip(a.below, b.below, out, &mut difference);
            out.leave();
        }
        (Some(a), None) => out.copy(a),
        (None, _) => {}
    }
}

/// Builds a set in order, for walks that maintain their path themselves (and build several sets at once).
/// Elements of one level must be added in ascending order.
#[derive(Debug, Default)]
pub struct Rows {
    entries: Vec<Entry>,
    /// The index in `entries` of each step of the path that has one: always a prefix of the path.
    placed: Vec<u32>,
}

impl Rows {
    /// Adds a path. The empty path is ignored.
    pub fn add(&mut self, path: &[PathElement]) {
        self.place(path);
        if let Some(entry) = self.placed.last().and_then(|&i| self.entries.get_mut(i as usize)) {
            entry.member = true;
        }
    }

    /// To be called when the walk is back at `depth` steps below the root.
    pub fn leave(&mut self, depth: usize) {
        while self.placed.len() > depth {
            if let Some(i) = self.placed.pop() {
                let end = self.entries.len() as u32;
                if let Some(entry) = self.entries.get_mut(i as usize) {
                    entry.size = end - i;
                }
            }
        }
    }

    /// How many entries there are, to see whether something was added.
    pub fn added(&self) -> usize {
        self.entries.len()
    }

    /// The set of all that was added.
    pub fn finish(mut self) -> Set {
        self.leave(0);
        Set { entries: self.entries }
    }

    fn place(&mut self, path: &[PathElement]) {
        for element in path.iter().skip(self.placed.len()) {
            self.placed.push(self.entries.len() as u32);
            self.entries.push(Entry { element: element.clone(), member: false, size: 0 });
        }
    }
}

/// [`Rows`] with a path of its own: enter an element, add it or elements below it, leave it. An element
/// without additions is omitted.
#[derive(Debug, Default)]
pub struct Builder {
    rows: Rows,
    path: Vec<PathElement>,
}

impl Builder {
    /// Enters an element.
    pub fn enter(&mut self, element: PathElement) {
        self.path.push(element);
    }

    /// Adds the path that leads here.
    pub fn add(&mut self) {
        self.rows.add(&self.path);
    }

    /// Leaves an element.
    pub fn leave(&mut self) {
        self.path.pop();
        self.rows.leave(self.path.len());
    }

    /// How many entries there are, to see whether something was added.
    pub fn added(&self) -> usize {
        self.rows.added()
    }

    /// Adds a node of another set with all below it.
    pub fn copy(&mut self, node: SetNode<'_>) {
        self.rows.place(&self.path);
        self.rows.entries.extend_from_slice(node.whole);
    }

    /// The set. Elements that were not left count as left.
    pub fn finish(self) -> Set {
        self.rows.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Vec<PathElement> {
        text.split(' ').map(|key| PathElement::parse(key).unwrap().unwrap()).collect()
    }

    fn set(paths: &[&str]) -> Set {
        let paths: Vec<_> = paths.iter().map(|p| path(p)).collect();
        Set::of(paths.iter().map(Vec::as_slice))
    }

    #[test]
    fn operations_by_table() {
        type Op = fn(&Set, &Set) -> Set;
        type Row =
            (&'static str, Op, &'static [&'static str], &'static [&'static str], &'static [&'static str]);
        let rows: &[Row] = &[
            ("union of apart", Set::union, &["f:a"], &["f:b f:c"], &["f:a", "f:b f:c"]),
            ("union of parent and child", Set::union, &["f:a"], &["f:a f:b"], &["f:a", "f:a f:b"]),
            ("union with nothing", Set::union, &["f:a f:b"], &[], &["f:a f:b"]),
            (
                "intersection",
                Set::intersection,
                &["f:a", "f:b", "f:c f:d"],
                &["f:b", "f:c f:d", "f:e"],
                &["f:b", "f:c f:d"],
            ),
            ("intersection of parent and child is empty", Set::intersection, &["f:a"], &["f:a f:b"], &[]),
            ("difference", Set::difference, &["f:a", "f:b", "f:c f:d"], &["f:b", "f:c f:d"], &["f:a"]),
            (
                "difference keeps children of what goes",
                Set::difference,
                &["f:a", "f:a f:b"],
                &["f:a"],
                &["f:a f:b"],
            ),
            (
                "difference keeps the parent of what goes",
                Set::difference,
                &["f:a", "f:a f:b"],
                &["f:a f:b"],
                &["f:a"],
            ),
            (
                "elements of all kinds",
                Set::union,
                &["f:l k:{\"n\":1}", "f:l i:0"],
                &["f:l v:1", "f:l k:{\"n\":0}"],
                &["f:l k:{\"n\":0}", "f:l k:{\"n\":1}", "f:l v:1", "f:l i:0"],
            ),
        ];
        for (what, op, a, b, want) in rows {
            let (a, b, want) = (set(a), set(b), set(want));
            assert_eq!(op(&a, &b), want, "{what}");
            // There are no entries without members.
            assert_eq!(op(&a, &b).is_empty(), want.paths().is_empty(), "{what}");
        }
    }

    #[test]
    fn laws_hold_on_random_sets() {
        let mut seed = 7u32;
        let mut random = move |n: u32| {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 16) % n
        };
        for _ in 0..300 {
            let mut make = || {
                let paths: Vec<Vec<PathElement>> = (0..random(12))
                    .map(|_| {
                        (0..=random(3))
                            .map(|_| PathElement::field(["a", "b", "c"][random(3) as usize]))
                            .collect()
                    })
                    .collect();
                Set::of(paths.iter().map(Vec::as_slice))
            };
            let (a, b) = (make(), make());
            let all = a.union(&b);
            assert_eq!(all, b.union(&a));
            assert_eq!(a.difference(&b).union(&a.intersection(&b)), a);
            assert!(a.is_subset(&all) && b.is_subset(&all));
            assert_eq!(a.is_subset(&b), a.difference(&b).is_empty());
            for path in all.paths() {
                assert!(a.contains(&path) || b.contains(&path));
                assert_eq!(a.intersection(&b).contains(&path), a.contains(&path) && b.contains(&path));
                assert_eq!(a.difference(&b).contains(&path), a.contains(&path) && !b.contains(&path));
            }
        }
    }

    #[test]
    fn members_come_before_what_is_below() {
        let paths: Vec<String> =
            set(&["f:a f:x", "f:b", "f:a"]).paths().iter().map(|p| super::super::path::describe(p)).collect();
        assert_eq!(paths, [".a", ".b", ".a.x"]);
    }
}
