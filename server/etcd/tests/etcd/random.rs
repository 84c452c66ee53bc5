//! Random requests: the server answers what the model of etcd answers, and watches deliver its events.

use plinth_etcd::wire::kv::compare::Operand;
use plinth_etcd::wire::kv::request_op::Request;
use plinth_etcd::wire::kv::response_op::Response;
use plinth_etcd::wire::kv::{
    CompactionRequest, Compare, DeleteRangeRequest, DeleteRangeResponse, Event, PutRequest, RangeRequest,
    RangeResponse, TxnRequest, TxnResponse,
};
use plinth_etcd::wire::lease::{LeaseGrantRequest, LeaseGrantResponse, LeaseRequest};
use plinth_etcd::wire::watch::WatchCreateRequest;
use plinth_etcd::wire::{HeaderResponse, ResponseHeader};
use tonic::Status;

use crate::model::Model;
use crate::real::RealEtcd;
use crate::support::{bytes, op, server, Client, TestServer};

/// Requests of one run.
const REQUESTS: usize = 600;

/// A generator of small random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }

    fn key(&mut self) -> bytes::Bytes {
        const KEYS: [&str; 8] = ["a", "a/1", "a/2", "b", "b/1", "c", "\0", "~"];
        bytes(KEYS[self.below(KEYS.len() as u64) as usize])
    }

    /// None of most requests, any end of the others.
    fn end(&mut self) -> bytes::Bytes {
        match self.below(6) {
            0 => bytes("\0"),
            1 => self.key(),
            2 => bytes("a0"),
            _ => bytes(""),
        }
    }

    fn put(&mut self, leases: &[i64]) -> PutRequest {
        let (ignore_value, ignore_lease) = (self.one_in(6), self.one_in(6));
        let lease = match leases {
            [] => 0,
            _ if ignore_lease || !self.one_in(3) => 0,
            leases => leases[self.below(leases.len() as u64) as usize],
        };
        PutRequest {
            key: self.key(),
            value: if ignore_value { bytes("") } else { bytes(&format!("v{}", self.below(5))) },
            lease,
            prev_kv: self.one_in(2),
            ignore_value,
            ignore_lease,
        }
    }

    fn delete(&mut self) -> DeleteRangeRequest {
        DeleteRangeRequest { key: self.key(), range_end: self.end(), prev_kv: self.one_in(2) }
    }

    /// A range without an end escapes etcd's check that a transaction changes a key once, and can end etcd.
    fn delete_with_end(&mut self) -> DeleteRangeRequest {
        let mut request = self.delete();
        if request.range_end == "\0" {
            request.range_end = bytes("\u{7f}");
        }
        request
    }

    fn range(&mut self, revision: i64) -> RangeRequest {
        let near = |random: &mut Random| random.below(revision as u64 + 2) as i64;
        let mut request = RangeRequest { key: self.key(), range_end: self.end(), ..Default::default() };
        if self.one_in(3) {
            request.revision = near(self);
        }
        if self.one_in(4) {
            request.limit = self.below(4) as i64;
        }
        match self.below(8) {
            0 => request.keys_only = true,
            1 => request.count_only = true,
            2 => request.min_mod_revision = near(self),
            3 => request.max_create_revision = near(self),
            4 => request.sort_order = self.below(3) as i32,
            // The only other target without ties is the mod revision, of single changes.
            _ => {}
        }
        request
    }

    fn compare(&mut self, revision: i64) -> Compare {
        let target = self.below(5) as i32;
        let near = self.below(revision as u64 + 2) as i64;
        let operand = match target {
            0 => Operand::Version(near % 4),
            1 => Operand::CreateRevision(if self.one_in(2) { 0 } else { near }),
            2 => Operand::ModRevision(if self.one_in(2) { 0 } else { near }),
            3 => Operand::Value(bytes(&format!("v{}", near % 5))),
            _ => Operand::Lease(near % 3),
        };
        Compare {
            result: self.below(4) as i32,
            target,
            key: self.key(),
            operand: Some(operand),
            range_end: self.end(),
        }
    }

    fn txn(&mut self, revision: i64, leases: &[i64], depth: u32) -> TxnRequest {
        let branch = |random: &mut Random| -> Vec<_> {
            (0..random.below(4))
                .map(|_| {
                    op(match random.below(6) {
                        0 | 1 => Request::Put(random.put(leases)),
                        2 => Request::DeleteRange(random.delete_with_end()),
                        3 if depth > 0 => Request::Txn(random.txn(revision, leases, depth - 1)),
                        _ => Request::Range(random.range(revision)),
                    })
                })
                .collect()
        };
        TxnRequest {
            success: branch(self),
            failure: branch(self),
            compare: (0..self.below(3)).map(|_| self.compare(revision)).collect(),
        }
    }
}

/// Removes from a header what the model does not know.
fn bare(header: &mut Option<ResponseHeader>) {
    if let Some(header) = header {
        *header = ResponseHeader { revision: header.revision, ..ResponseHeader::default() };
    }
}

/// Removes the leases of keys without values: etcd 3.7 no longer returns them, 3.6 does.
fn without_leases(response: &mut RangeResponse) {
    response.kvs.iter_mut().filter(|kv| kv.value.is_empty()).for_each(|kv| kv.lease = 0);
}

fn bare_range(mut response: RangeResponse) -> RangeResponse {
    bare(&mut response.header);
    without_leases(&mut response);
    response
}

fn bare_txn(mut response: TxnResponse) -> TxnResponse {
    bare(&mut response.header);
    for operation in &mut response.responses {
        match &mut operation.response {
            Some(Response::Range(range)) => without_leases(range),
            Some(Response::Txn(nested)) => *nested = bare_txn(std::mem::take(nested)),
            _ => {}
        }
    }
    response
}

fn text<T>(answer: Result<T, Status>) -> Result<T, String> {
    answer.map_err(|status| status.message().to_owned())
}

fn expected<T>(answer: Result<T, &'static str>) -> Result<T, String> {
    answer.map_err(ToOwned::to_owned)
}

async fn step(client: &Client, model: &mut Model, random: &mut Random) {
    let leases: Vec<i64> = (1..=3).collect();
    let revision = model.revision();
    match random.below(20) {
        0..=5 => {
            let request = random.put(&leases);
            let mut answer = text(client.call("KV/Put", request.clone()).await);
            if let Ok(put) = &mut answer {
                let put: &mut plinth_etcd::wire::kv::PutResponse = put;
                bare(&mut put.header);
            }
            assert_eq!(answer, expected(model.put(&request)), "{request:?}");
        }
        6 | 7 => {
            let request = random.delete();
            let mut answer: DeleteRangeResponse =
                client.call("KV/DeleteRange", request.clone()).await.unwrap();
            bare(&mut answer.header);
            assert_eq!(answer, model.delete(&request), "{request:?}");
        }
        8..=11 => {
            let request = random.range(revision);
            let answer = text(client.range(request.clone()).await.map(bare_range));
            assert_eq!(answer, expected(model.range(&request).map(bare_range)), "{request:?}");
        }
        12..=16 => {
            let request = random.txn(revision, &leases, 2);
            match text(client.txn(request.clone()).await.map(bare_txn)) {
                // Refused for its form, which the model does not check.
                Err(error) if error.contains("duplicate key") => {}
                answer => assert_eq!(answer, expected(model.txn(&request).map(bare_txn)), "{request:?}"),
            }
        }
        17 => {
            let revision = revision - random.below(12) as i64;
            let request = CompactionRequest { revision, physical: random.one_in(2) };
            let answer = text(client.call::<_, HeaderResponse>("KV/Compact", request.clone()).await);
            assert_eq!(answer.map(|_| ()), expected(model.compact(revision)), "{request:?}");
        }
        18 => {
            let id = 1 + random.below(3) as i64;
            let request = LeaseGrantRequest { ttl: 1000, id };
            let answer = text(client.call::<_, LeaseGrantResponse>("Lease/LeaseGrant", request).await);
            assert_eq!(answer.is_ok(), model.leases.insert(id, ()).is_none());
        }
        _ => {
            let id = 1 + random.below(3) as i64;
            let answer =
                text(client.call::<_, HeaderResponse>("Lease/LeaseRevoke", LeaseRequest { id }).await);
            assert_eq!(answer.map(|_| ()), expected(model.revoke(id)), "revoke {id}");
        }
    }
}

/// Reads all events from the compacted revision on, and compares them with those of the model.
async fn compare_events(client: &Client, model: &Model) {
    let mut watch = client.watch().await;
    let start = model.compacted.max(2);
    watch
        .create(WatchCreateRequest {
            key: bytes("\0"),
            range_end: bytes("\0"),
            start_revision: start,
            prev_kv: true,
            ..Default::default()
        })
        .await;
    let mut expected: Vec<Event> = model
        .events
        .iter()
        .filter(|(revision, _)| *revision >= start)
        .flat_map(|(_, events)| events.iter().cloned())
        .collect();
    for event in &mut expected {
        if event.kv.as_ref().unwrap().mod_revision <= model.compacted {
            event.prev_kv = None;
        }
    }
    let mut delivered: Vec<Event> = Vec::new();
    while delivered.len() < expected.len() {
        delivered.extend(watch.next().await.events);
    }
    assert_eq!(delivered, expected);
}

async fn run(seed: u64) {
    let (dir, mut server, mut client) = server(&[]).await;
    let mut model = Model::new();
    let mut random = Random(seed);
    for number in 1..=REQUESTS {
        step(&client, &mut model, &mut random).await;
        if number % 200 == 0 {
            compare_events(&client, &model).await;
            server.stop().await;
            server = TestServer::start(dir.path(), &[]).await;
            client = server.client().await;
        }
    }
    let all = client.all().await;
    assert_eq!(all.header.unwrap().revision, model.revision());
    server.stop().await;
}

/// The seeds of the runs; `PLINTH_SEED` repeats one.
fn seeds(runs: u64) -> Vec<u64> {
    match std::env::var("PLINTH_SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=runs).collect(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_requests_are_answered_as_by_the_model() {
    for seed in seeds(4) {
        eprintln!("PLINTH_SEED={seed}");
        run(seed).await;
    }
}

/// Needs an etcd, which `PLINTH_ETCD` names (`scripts/test-etcd`): what holds for our server holds for etcd.
#[tokio::test(flavor = "multi_thread")]
async fn etcd_answers_random_requests_as_the_model() {
    for seed in seeds(4) {
        let Some(mut etcd) = RealEtcd::start() else {
            eprintln!("not run: PLINTH_ETCD names no etcd");
            return;
        };
        eprintln!("PLINTH_SEED={seed}");
        let client = etcd.client().await;
        let (mut model, mut random) = (Model::new(), Random(seed));
        for _ in 0..REQUESTS {
            step(&client, &mut model, &mut random).await;
        }
        compare_events(&client, &model).await;
    }
}
