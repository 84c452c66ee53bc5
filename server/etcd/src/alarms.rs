//! The alarms that are raised: of which kind, for which member. Any member may be named, as in etcd, and each
//! raised alarm counts for the whole cluster, which has one member.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use plinth_engine::{Engine, Error, Transaction};
use tonic::Status;

use crate::errors;
use crate::numbers::{pages, PAGE};
use crate::wire::maintenance::{alarm, AlarmMember};

/// What the names of their numbers begin with: `alarm.N` for the member itself, `alarm.N.ID` for another.
const PREFIX: &str = "alarm.";
/// Alarms that may be raised at a time: the ids of members are those of requests.
const MAX_ALARMS: usize = 1024;

/// The alarms of a store.
pub(crate) struct Alarms {
    own_id: u64,
    /// Kind and member of each. Locked for as long as it takes to change or copy them.
    raised: Mutex<BTreeSet<(i32, u64)>>,
    /// One change is stored at a time.
    changing: tokio::sync::Mutex<()>,
    no_space: AtomicBool,
    corrupt: AtomicBool,
}

impl Alarms {
    /// Reads them from disk.
    pub(crate) fn load(engine: &Engine, own_id: u64) -> Result<Alarms, Error> {
        let mut raised = BTreeSet::new();
        for page in pages(engine, PREFIX.as_bytes(), PAGE) {
            for (name, number) in page? {
                if let Some(alarm) = parse_name(&name, own_id).filter(|_| number == 1) {
                    raised.insert(alarm);
                }
            }
        }
        let alarms = Alarms {
            own_id,
            raised: Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            no_space: AtomicBool::default(),
            corrupt: AtomicBool::default(),
        };
        alarms.replace(raised);
        Ok(alarms)
    }

    fn replace(&self, raised: BTreeSet<(i32, u64)>) {
        let has = |kind| raised.iter().any(|(raised, _)| *raised == kind);
        self.no_space.store(has(alarm::NOSPACE), Ordering::Release);
        self.corrupt.store(has(alarm::CORRUPT), Ordering::Release);
        *self.raised.lock() = raised;
    }

    /// Whether NOSPACE is raised.
    pub(crate) fn is_full(&self) -> bool {
        self.no_space.load(Ordering::Acquire)
    }

    /// Whether CORRUPT is raised.
    pub(crate) fn is_corrupt(&self) -> bool {
        self.corrupt.load(Ordering::Acquire)
    }

    /// Those of a kind, or all for `NONE`, in the order of kinds.
    pub(crate) fn list(&self, kind: i32) -> Vec<AlarmMember> {
        let raised = self.raised.lock();
        let matching = raised.iter().filter(|(raised, _)| kind == alarm::NONE || kind == *raised);
        matching.map(|(alarm, member_id)| AlarmMember { member_id: *member_id, alarm: *alarm }).collect()
    }

    /// What raises or disarms an alarm: it holds once its transaction is committed. None where nothing
    /// changes.
    pub(crate) async fn change(
        &self,
        AlarmMember { member_id, alarm }: AlarmMember,
        is_raised: bool,
    ) -> Result<Option<(AlarmChange<'_>, Transaction)>, Status> {
        let one_at_a_time = self.changing.lock().await;
        let mut raised = self.raised.lock().clone();
        let is_changed = match is_raised {
            true if raised.len() >= MAX_ALARMS => return Err(errors::too_many_requests()),
            true => raised.insert((alarm, member_id)),
            false => raised.remove(&(alarm, member_id)),
        };
        if !is_changed {
            return Ok(None);
        }
        let name = match member_id == self.own_id {
            true => format!("{PREFIX}{alarm}"),
            false => format!("{PREFIX}{alarm}.{member_id}"),
        };
        let transaction = match is_raised {
            true => Transaction::new().set_number(name, 1),
            false => Transaction::new().remove_number(name),
        };
        Ok(Some((AlarmChange { alarms: self, raised, _one_at_a_time: one_at_a_time }, transaction)))
    }
}

/// A change of the alarms that is being committed. No other one is made meanwhile.
pub(crate) struct AlarmChange<'a> {
    alarms: &'a Alarms,
    raised: BTreeSet<(i32, u64)>,
    _one_at_a_time: tokio::sync::MutexGuard<'a, ()>,
}

impl AlarmChange<'_> {
    /// Makes it hold, after its transaction was committed.
    pub(crate) fn committed(self) {
        self.alarms.replace(self.raised);
    }
}

/// Kind and member of an alarm from the name of its number.
fn parse_name(name: &[u8], own_id: u64) -> Option<(i32, u64)> {
    let name = std::str::from_utf8(name).ok()?.strip_prefix(PREFIX)?;
    match name.split_once('.') {
        None => Some((name.parse().ok()?, own_id)),
        Some((kind, id)) => Some((kind.parse().ok()?, id.parse().ok()?)),
    }
}
