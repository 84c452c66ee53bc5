//! A model of etcd: its semantics in the simplest form, with every state in memory.

use std::collections::BTreeMap;

use bytes::Bytes;
use plinth_etcd::wire::kv::compare::Operand;
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::response_op::Response;
use plinth_etcd::wire::kv::{
    compare_result, compare_target, sort_order, sort_target, Compare, DeleteRangeRequest,
    DeleteRangeResponse, Event, KeyValue, PutRequest, PutResponse, RangeRequest, RangeResponse, ResponseOp,
    TxnRequest, TxnResponse,
};
use plinth_etcd::wire::ResponseHeader;

type Keys = BTreeMap<Bytes, KeyValue>;

/// The text of an error.
pub(crate) type Refused = &'static str;

pub(crate) const COMPACTED: Refused = "etcdserver: mvcc: required revision has been compacted";
pub(crate) const FUTURE: Refused = "etcdserver: mvcc: required revision is a future revision";
const KEY_NOT_FOUND: Refused = "etcdserver: key not found";
const LEASE_NOT_FOUND: Refused = "etcdserver: requested lease not found";

/// All states of a store.
pub(crate) struct Model {
    /// The states after each revision, the first being that of an empty store at revision 1.
    states: Vec<Keys>,
    /// The events of each revision.
    pub events: Vec<(i64, Vec<Event>)>,
    pub compacted: i64,
    pub leases: BTreeMap<i64, ()>,
}

fn header(revision: i64) -> Option<ResponseHeader> {
    Some(ResponseHeader { revision, ..ResponseHeader::default() })
}

fn is_in(key: &Bytes, start: &Bytes, end: &Bytes) -> bool {
    match end.as_ref() {
        [] => key == start,
        [0] => key >= start,
        _ => key >= start && key < end,
    }
}

/// A transaction in progress.
struct Running {
    keys: Keys,
    base: i64,
    events: Vec<Event>,
}

impl Running {
    fn revision(&self) -> i64 {
        self.base + i64::from(!self.events.is_empty())
    }
}

impl Model {
    pub(crate) fn new() -> Model {
        let states = vec![Keys::new(), Keys::new()];
        Model { states, events: Vec::new(), compacted: -1, leases: BTreeMap::new() }
    }

    pub(crate) fn revision(&self) -> i64 {
        self.states.len() as i64 - 1
    }

    fn running(&self) -> Running {
        Running { keys: self.states.last().unwrap().clone(), base: self.revision(), events: Vec::new() }
    }

    fn finish(&mut self, running: Running) -> i64 {
        if !running.events.is_empty() {
            self.states.push(running.keys);
            self.events.push((self.revision(), running.events));
        }
        self.revision()
    }

    pub(crate) fn put(&mut self, request: &PutRequest) -> Result<PutResponse, Refused> {
        let mut running = self.running();
        let response = self.run_put(&mut running, request)?;
        self.finish(running);
        Ok(response)
    }

    pub(crate) fn delete(&mut self, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let mut running = self.running();
        let response = Model::run_delete(&mut running, request);
        self.finish(running);
        response
    }

    pub(crate) fn range(&self, request: &RangeRequest) -> Result<RangeResponse, Refused> {
        self.run_range(&self.running(), request)
    }

    pub(crate) fn txn(&mut self, request: &TxnRequest) -> Result<TxnResponse, Refused> {
        let before = self.running().keys;
        let mut running = self.running();
        let mut response = self.run_txn(&before, &mut running, request)?;
        response.header = header(running.revision());
        self.finish(running);
        Ok(response)
    }

    pub(crate) fn compact(&mut self, revision: i64) -> Result<(), Refused> {
        if revision <= self.compacted {
            return Err(COMPACTED);
        }
        if revision > self.revision() {
            return Err(FUTURE);
        }
        self.compacted = revision;
        Ok(())
    }

    pub(crate) fn revoke(&mut self, id: i64) -> Result<(), Refused> {
        self.leases.remove(&id).ok_or(LEASE_NOT_FOUND)?;
        let mut running = self.running();
        let attached: Vec<Bytes> =
            running.keys.values().filter(|kv| kv.lease == id).map(|kv| kv.key.clone()).collect();
        for key in attached {
            Model::run_delete(&mut running, &DeleteRangeRequest { key, ..Default::default() });
        }
        self.finish(running);
        Ok(())
    }

    fn run_put(&self, running: &mut Running, request: &PutRequest) -> Result<PutResponse, Refused> {
        if request.lease != 0 && !self.leases.contains_key(&request.lease) {
            return Err(LEASE_NOT_FOUND);
        }
        let old = running.keys.get(&request.key).cloned();
        if old.is_none() && (request.ignore_value || request.ignore_lease) {
            return Err(KEY_NOT_FOUND);
        }
        let revision = running.base + 1;
        let of_old = |field: fn(&KeyValue) -> i64| old.as_ref().map(field);
        let new = KeyValue {
            key: request.key.clone(),
            create_revision: of_old(|kv| kv.create_revision).unwrap_or(revision),
            mod_revision: revision,
            version: of_old(|kv| kv.version).unwrap_or(0) + 1,
            value: match &old {
                Some(old) if request.ignore_value => old.value.clone(),
                _ => request.value.clone(),
            },
            lease: if request.ignore_lease { of_old(|kv| kv.lease).unwrap() } else { request.lease },
        };
        running.keys.insert(request.key.clone(), new.clone());
        running.events.push(Event { kind: Event::PUT, kv: Some(new), prev_kv: old.clone() });
        Ok(PutResponse { header: header(revision), prev_kv: old.filter(|_| request.prev_kv) })
    }

    fn run_delete(running: &mut Running, request: &DeleteRangeRequest) -> DeleteRangeResponse {
        let revision = running.base + 1;
        let deleted: Vec<KeyValue> = running
            .keys
            .values()
            .filter(|kv| is_in(&kv.key, &request.key, &request.range_end))
            .cloned()
            .collect();
        for kv in &deleted {
            running.keys.remove(&kv.key);
            let gone = KeyValue { key: kv.key.clone(), mod_revision: revision, ..Default::default() };
            running.events.push(Event { kind: Event::DELETE, kv: Some(gone), prev_kv: Some(kv.clone()) });
        }
        DeleteRangeResponse {
            header: header(running.revision()),
            deleted: deleted.len() as i64,
            prev_kvs: if request.prev_kv { deleted } else { Vec::new() },
        }
    }

    fn run_range(&self, running: &Running, request: &RangeRequest) -> Result<RangeResponse, Refused> {
        if request.revision > running.base {
            return Err(FUTURE);
        }
        if request.revision > 0 && request.revision < self.compacted {
            return Err(COMPACTED);
        }
        let keys = match request.revision {
            revision if revision > 0 => &self.states[revision as usize],
            _ => &running.keys,
        };
        let within = |kv: &&KeyValue| is_in(&kv.key, &request.key, &request.range_end);
        let mut kvs: Vec<KeyValue> = keys.values().filter(within).cloned().collect();
        let count = kvs.len() as i64;
        kvs.retain(|kv| {
            let at_least = |bound, value| bound == 0 || value >= bound;
            let at_most = |bound, value| bound == 0 || value <= bound;
            at_least(request.min_mod_revision, kv.mod_revision)
                && at_most(request.max_mod_revision, kv.mod_revision)
                && at_least(request.min_create_revision, kv.create_revision)
                && at_most(request.max_create_revision, kv.create_revision)
        });
        match request.sort_target {
            sort_target::VERSION => kvs.sort_by_key(|kv| kv.version),
            sort_target::CREATE => kvs.sort_by_key(|kv| kv.create_revision),
            sort_target::MOD => kvs.sort_by_key(|kv| kv.mod_revision),
            sort_target::VALUE => kvs.sort_by_key(|kv| kv.value.clone()),
            _ => {}
        }
        if request.sort_order == sort_order::DESCEND {
            kvs.reverse();
        }
        let limit = if request.limit > 0 { request.limit as usize } else { usize::MAX };
        let more = kvs.len() > limit && !request.count_only;
        kvs.truncate(limit);
        if request.count_only {
            kvs.clear();
        }
        if request.keys_only {
            kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
        }
        Ok(RangeResponse { header: header(running.revision()), kvs, more, count })
    }

    fn run_txn(
        &self,
        before: &Keys,
        running: &mut Running,
        request: &TxnRequest,
    ) -> Result<TxnResponse, Refused> {
        let succeeded = request.compare.iter().all(|compare| holds(before, compare));
        let operations = if succeeded { &request.success } else { &request.failure };
        let mut responses = Vec::new();
        for operation in operations {
            let response = match operation.request.as_ref().unwrap() {
                Request::Range(request) => Response::Range(self.run_range(running, request)?),
                Request::Put(request) => Response::Put(self.run_put(running, request)?),
                Request::DeleteRange(request) => Response::DeleteRange(Model::run_delete(running, request)),
                Request::Txn(request) => Response::Txn(self.run_txn(before, running, request)?),
            };
            responses.push(ResponseOp { response: Some(response) });
        }
        Ok(TxnResponse { header: header(0), succeeded, responses })
    }
}

fn holds(keys: &Keys, compare: &Compare) -> bool {
    let absent = KeyValue::default();
    let found: Vec<&KeyValue> =
        keys.values().filter(|kv| is_in(&kv.key, &compare.key, &compare.range_end)).collect();
    if found.is_empty() {
        return compare.target != compare_target::VALUE && holds_for(&absent, compare);
    }
    found.into_iter().all(|kv| holds_for(kv, compare))
}

fn holds_for(kv: &KeyValue, compare: &Compare) -> bool {
    let order = match compare.operand.as_ref().unwrap() {
        Operand::Version(version) => kv.version.cmp(version),
        Operand::CreateRevision(revision) => kv.create_revision.cmp(revision),
        Operand::ModRevision(revision) => kv.mod_revision.cmp(revision),
        Operand::Value(value) => kv.value.cmp(value),
        Operand::Lease(lease) => kv.lease.cmp(lease),
    };
    match compare.result {
        compare_result::EQUAL => order.is_eq(),
        compare_result::NOT_EQUAL => order.is_ne(),
        compare_result::GREATER => order.is_gt(),
        _ => order.is_lt(),
    }
}
