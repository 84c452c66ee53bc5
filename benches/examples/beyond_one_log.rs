//! Where one log ends: what clusters of some sizes write, what a replica and a log take, and into how many
//! logs the writes have to be divided. `docs/design/0036-beyond-one-log.md` has the tables and what follows
//! from them.
//!
//!     cargo run --release -p plinth-benches --example beyond_one_log
//!
//! Measured here: the bytes of journal records and the processor time of a replica that proposes and
//! applies them over a simulated journal. Computed: everything else, from the assumptions below.

use std::sync::Arc;
use std::time::Duration;

use plinth_engine::{Engine, Options, Replica, Stepper, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::simulated::SimulatedJournal;

/// A kind of write.
#[derive(Debug, Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Bytes of the stored object.
    bytes: usize,
    /// Keys that are written over and over; none for a key of its own for each write.
    keys: Option<u64>,
    /// Time after which the object expires.
    ttl: Option<Duration>,
    /// Whether it can be in a log of its own: nothing is decided by it together with other objects.
    is_separable: bool,
}

const LEASE: Kind =
    Kind { name: "Lease renewal", bytes: 600, keys: Some(10_000), ttl: None, is_separable: true };
const STATUS: Kind =
    Kind { name: "Node status", bytes: 12_000, keys: Some(1_000), ttl: None, is_separable: false };
const POD: Kind = Kind { name: "Pod write", bytes: 6_000, keys: Some(5_000), ttl: None, is_separable: false };
const EVENT: Kind =
    Kind { name: "Event", bytes: 900, keys: None, ttl: Some(Duration::from_secs(3600)), is_separable: true };
const KINDS: [Kind; 4] = [LEASE, STATUS, POD, EVENT];

/// Assumptions about a cluster. Upstream's defaults: a Lease is renewed every 10 s, a status that does not
/// change is reported every 5 minutes.
const LEASE_SECONDS: f64 = 10.0;
const STATUS_SECONDS: f64 = 300.0;
const PODS_PER_NODE: f64 = 30.0;
/// A pod lives so long on average; it is created, bound, updated three times and deleted, with five Events.
const POD_SECONDS: f64 = 3600.0;
const WRITES_PER_POD: f64 = 6.0;
const EVENTS_PER_POD: f64 = 5.0;

/// Assumptions about a log of three members: bytes a second that a member syncs, synced appends a second,
/// and the part of a processor that applying may use on each replica.
const LOG_BYTES: f64 = 100e6;
const LOG_APPENDS: f64 = 1000.0;
const APPLY_SHARE: f64 = 0.7;

/// Prices, assumed: a processor for an hour, a GB between zones (sent and received), a GB-month of a fast
/// disk.
const PROCESSOR_HOUR: f64 = 0.04;
const ZONE_GB: f64 = 0.02;
const DISK_GB_MONTH: f64 = 0.08;
const HOURS: f64 = 730.0;

/// Writes of each kind a second, in the order of [`KINDS`].
struct Load {
    name: &'static str,
    rates: [f64; 4],
}

impl Load {
    fn of_nodes(name: &'static str, nodes: f64) -> Load {
        let pods = nodes * PODS_PER_NODE / POD_SECONDS;
        // Each Event is deleted once it has expired.
        let events = pods * EVENTS_PER_POD * 2.0;
        Load { name, rates: [nodes / LEASE_SECONDS, nodes / STATUS_SECONDS, pods * WRITES_PER_POD, events] }
    }
}

/// What one write costs.
#[derive(Debug, Clone, Copy)]
struct Cost {
    /// Bytes in the journal.
    bytes: f64,
    /// Seconds of processors, on the replica that proposes and on each other one.
    proposing: f64,
    applying: f64,
}

/// Seconds that the threads of this process have run.
fn processor_seconds() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let nanos = tasks.filter_map(|task| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<f64>().ok()
    });
    nanos.sum::<f64>() / 1e9
}

fn open(dir: &tempfile::TempDir, journal: &SimulatedJournal, id: u16) -> (Engine, Stepper) {
    let cluster = ClusterId(*b"beyond one log--");
    let replica = Replica { journal: Arc::new(journal.client(id)), cluster, id: ReplicaId(id) };
    Engine::open_stepped(Options::new(dir.path()).expire_keys(false), replica).expect("a new replica opens")
}

/// Text that does not compress, as names and hashes do not.
fn text(n: u64, bytes: usize) -> String {
    let mut state = n;
    let mut out = String::with_capacity(bytes + 16);
    while out.len() < bytes {
        state =
            (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb).wrapping_add(0x9e37_79b9_7f4a_7c15);
        out.push_str(&format!("{state:016x}"));
    }
    out.truncate(bytes);
    out
}

/// Writes of a kind in groups of `group`: one replica proposes and applies, another one applies.
fn measure(kind: Kind, group: u64, writes: u64) -> Cost {
    let dirs = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
    let journal = SimulatedJournal::new(1);
    let (proposer, mut first) = open(&dirs[0], &journal, 1);
    let (_follower, mut second) = open(&dirs[1], &journal, 2);
    let run = |stepper: &mut Stepper| while stepper.propose() || stepper.apply().expect("it applies") {};
    run(&mut first);
    let skipped = journal.records().len();
    let before = processor_seconds();
    for at in (0..writes).step_by(group as usize) {
        let proposals: Vec<_> = (at..at + group)
            .map(|n| {
                let key =
                    format!("group/resource/namespace/{:020}", kind.keys.map_or(n, |keys| n * 7919 % keys));
                let value = text(n, kind.bytes);
                proposer.transact(match kind.ttl {
                    Some(ttl) => Transaction::new().put_expiring(key, value, ttl),
                    None => Transaction::new().put(key, value),
                })
            })
            .collect();
        run(&mut first);
        proposals.into_iter().for_each(|proposal| drop(proposal.wait().expect("it commits")));
    }
    let between = processor_seconds();
    while second.apply().expect("it applies") {}
    let after = processor_seconds();
    let bytes: usize = journal.records().iter().skip(skipped).map(bytes::Bytes::len).sum();
    let writes = writes as f64;
    Cost {
        bytes: bytes as f64 / writes,
        proposing: (between - before) / writes,
        applying: (after - between) / writes,
    }
}

/// What a log and each replica have to take, for some of the kinds.
struct Demand {
    writes: f64,
    bytes: f64,
    processors: f64,
}

fn demand(load: &Load, costs: &[Cost; 4], of: impl Fn(&Kind) -> bool) -> Demand {
    let mut demand = Demand { writes: 0.0, bytes: 0.0, processors: 0.0 };
    for ((kind, cost), rate) in KINDS.iter().zip(costs).zip(load.rates) {
        if of(kind) {
            demand.writes += rate;
            demand.bytes += rate * cost.bytes;
            demand.processors += rate * cost.applying;
        }
    }
    demand
}

/// How many logs carry it: none of them with more bytes, or more work for its one applying thread, than it
/// takes.
fn logs(demand: &Demand) -> f64 {
    (demand.bytes / LOG_BYTES).max(demand.processors / APPLY_SHARE).ceil().max(f64::from(demand.writes > 0.0))
}

fn main() {
    println!("| write | bytes of the object | group | bytes in the journal | proposing, µs | applying, µs |");
    println!("|---|---|---|---|---|---|");
    let mut costs = Vec::new();
    for kind in KINDS {
        for group in [1, 64] {
            let cost = measure(kind, group, if kind.bytes > 2_000 { 6_400 } else { 19_200 });
            println!(
                "| {} | {} | {group} | {:.0} | {:.0} | {:.0} |",
                kind.name,
                kind.bytes,
                cost.bytes,
                cost.proposing * 1e6,
                cost.applying * 1e6
            );
            if group == 64 {
                costs.push(cost);
            }
        }
    }
    let costs: [Cost; 4] = costs.try_into().expect("one for each kind");
    let loads = [
        Load::of_nodes("10,000 nodes", 10_000.0),
        Load::of_nodes("100,000 nodes", 100_000.0),
        Load { name: "1 million Leases", rates: [1e6 / LEASE_SECONDS, 0.0, 0.0, 0.0] },
    ];
    println!("\n| cluster | division | writes/s | MB/s | group at {LOG_APPENDS:.0} appends/s | processors applying | logs |");
    println!("|---|---|---|---|---|---|---|");
    let divisions: [(&str, fn(&Kind) -> bool); 3] = [
        ("one log", |_| true),
        ("Leases and Events", |kind| kind.is_separable),
        ("the others", |kind| !kind.is_separable),
    ];
    for load in &loads {
        for (name, of) in divisions {
            let demand = demand(load, &costs, of);
            println!(
                "| {} | {name} | {:.0} | {:.1} | {:.0} | {:.2} | {:.0} |",
                load.name,
                demand.writes,
                demand.bytes / 1e6,
                demand.writes / LOG_APPENDS,
                demand.processors,
                logs(&demand)
            );
        }
    }
    println!(
        "\n| cluster | replicas' processors | between zones | log for 10 minutes, three members | a month |"
    );
    println!("|---|---|---|---|---|");
    for load in &loads {
        let demand = demand(load, &costs, |_| true);
        // Three replicas apply everything. A record goes to a member, from it to two others, and to three
        // replicas, of which two are in other zones each time.
        let processors = 3.0 * demand.processors * PROCESSOR_HOUR * HOURS;
        let zones = demand.bytes * 4.0 * 3600.0 * HOURS / 1e9 * ZONE_GB;
        let disk = demand.bytes * 600.0 * 3.0 / 1e9 * DISK_GB_MONTH;
        let sum = processors + zones + disk;
        println!("| {} | ${processors:.0} | ${zones:.0} | ${disk:.2} | ${sum:.0} |", load.name);
    }
}
