//! A change of an object, and how much more it uses.

use plinth_codec::time::Timestamp;
use plinth_codec::Value;

use super::super::resource_list::ResourceList;
use super::usage::{self, Counted};

/// An object as it is to be, and what it is to use.
pub(super) struct Change<'a> {
    pub counted: Counted<'a>,
    pub object: &'a Value,
    old: Option<&'a Value>,
    pub used: ResourceList,
    used_before: ResourceList,
}

impl<'a> Change<'a> {
    pub(super) fn new(counted: Counted<'a>, object: &'a Value, old: Option<&'a Value>) -> Change<'a> {
        let now = Timestamp::now();
        let used_before = old.map(|old| usage::of(counted, old, now)).unwrap_or_default();
        Change { counted, object, old, used: usage::of(counted, object, now), used_before }
    }

    /// By how much usage increases. A decrease is counted by the controller.
    fn increase(&self) -> ResourceList {
        let more = self.used.0.iter().map(|(name, amount)| {
            (name.clone(), self.used_before.get(name).map_or(*amount, |before| amount.minus(before)))
        });
        ResourceList(more.filter(|(_, more)| more.sign() > 0).collect())
    }

    /// By how much the usage of a quota that concerns the object increases: by all that it uses where it was
    /// not in the quota's scope before.
    pub(super) fn increase_in(&self, quota: &Value) -> ResourceList {
        match self.old.is_some_and(|old| usage::in_scope(quota, self.counted, old)) {
            true => self.increase(),
            false => ResourceList(
                self.used.0.iter().map(|(n, q)| (n.clone(), *q)).filter(|(_, q)| q.sign() > 0).collect(),
            ),
        }
    }

    /// Whether it adds to the usage of one of the quotas, or uses more where there is none.
    pub(super) fn adds<'q>(&self, quotas: impl ExactSizeIterator<Item = &'q Value>) -> bool {
        let mut quotas = quotas;
        match quotas.len() {
            0 => !self.increase().0.is_empty(),
            _ => quotas.any(|quota| !self.increase_in(quota).0.is_empty()),
        }
    }
}
