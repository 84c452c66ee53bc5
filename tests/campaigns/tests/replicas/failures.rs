//! What happens to replicas, members and the links between them.

use std::time::Duration;

use plinth_benches::api::objects::Rng;

use super::cluster::{Cluster, SIDE};

/// One kind of failure. Nodes are numbered, replicas first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// Processes are killed.
    Kill(Vec<usize>),
    /// Processes are stopped, and go on later.
    Stop(Vec<usize>),
    /// A process runs for a fifth of the time.
    Slow(usize),
    /// What the first sends to the others is lost.
    OneWay(usize, Vec<usize>),
    /// Nothing passes between the first and the others.
    Cut(usize, Vec<usize>),
    /// Of what the first exchanges with all others much is lost.
    Loss(usize),
    /// A disk is full.
    FullDisk(usize),
    /// The clock of a replica is moved by milliseconds.
    Clock(usize, i64),
}

/// How long a lossy link loses and a slow process stands still, and how long they do not.
const LOSES: Duration = Duration::from_millis(20);
const PASSES: Duration = Duration::from_millis(60);
const STANDS: Duration = Duration::from_millis(40);
const RUNS: Duration = Duration::from_millis(10);

impl Failure {
    /// Any, of those that the cluster's network allows.
    pub(super) fn any(rng: &mut Rng, network: bool) -> Failure {
        let replica = rng.below(SIDE as u64) as usize;
        let member = SIDE + rng.below(SIDE as u64) as usize;
        let node = rng.below(2 * SIDE as u64) as usize;
        let members: Vec<usize> = (SIDE..2 * SIDE).collect();
        let replicas: Vec<usize> = (0..SIDE).collect();
        let another = members[(member + 1) % SIDE];
        let others: Vec<usize> = members.iter().copied().filter(|other| *other != member).collect();
        match rng.below(if network { 21 } else { 9 }) {
            0 => Failure::Kill(vec![replica]),
            1 => Failure::Kill(vec![member]),
            2 => Failure::Kill(others),
            3 => Failure::Kill(if rng.below(2) == 0 { replicas } else { members }),
            4 => Failure::Stop(vec![replica]),
            5 => Failure::Stop(vec![member]),
            6 => Failure::Stop(if rng.below(2) == 0 { others } else { members }),
            7 => Failure::Slow(node),
            // Less than what certificates are dated back by, more than any time limit.
            8 => Failure::Clock(replica, [-200_000, 20_000, 3_600_000][rng.below(3) as usize]),
            9 => Failure::Cut(replica, vec![member]),
            10 => Failure::Cut(replica, members),
            11 => Failure::OneWay(replica, members),
            12 => Failure::OneWay(member, vec![replica]),
            13 => Failure::OneWay(member, replicas),
            14 => Failure::Cut(member, vec![another]),
            15 => Failure::Cut(member, others),
            16 => Failure::OneWay(member, others),
            17 => Failure::Cut(member, replicas),
            18 => Failure::Loss(node),
            19 => Failure::FullDisk(replica),
            _ => Failure::FullDisk(member),
        }
    }

    /// The kind, for figures.
    pub(super) fn kind(&self) -> &'static str {
        let replicas = |nodes: &[usize]| nodes.iter().all(|node| *node < SIDE);
        match self {
            Failure::Kill(nodes) if replicas(nodes) && nodes.len() == 1 => "a replica killed",
            Failure::Kill(nodes) if replicas(nodes) => "all replicas killed",
            Failure::Kill(nodes) if nodes.len() == 1 => "a member killed",
            Failure::Kill(_) => "most or all members killed",
            Failure::Stop(nodes) if replicas(nodes) => "a replica stopped",
            Failure::Stop(nodes) if nodes.len() == 1 => "a member stopped",
            Failure::Stop(_) => "most or all members stopped",
            Failure::Slow(_) => "a process slow",
            Failure::OneWay(..) => "a direction of links lost",
            Failure::Cut(..) => "links cut",
            Failure::Loss(_) => "packets lost",
            Failure::FullDisk(node) if *node < SIDE => "a replica's disk full",
            Failure::FullDisk(_) => "a member's disk full",
            Failure::Clock(..) => "a clock moved",
        }
    }

    /// Lets it happen, and lasts as long as it does.
    pub(super) async fn happen(&self, cluster: &mut Cluster, lasting: Duration) {
        match self {
            Failure::Kill(nodes) => nodes.iter().for_each(|node| cluster.kill(*node)),
            Failure::Stop(nodes) => nodes.iter().for_each(|node| cluster.signal(*node, "-STOP")),
            Failure::FullDisk(node) => cluster.fill(*node),
            Failure::Clock(replica, millis) => cluster.set_clock(*replica, *millis),
            Failure::OneWay(from, to) => network(cluster).drop_packets(*from, to),
            Failure::Cut(one, others) => {
                network(cluster).drop_packets(*one, others);
                others.iter().for_each(|other| network(cluster).drop_packets(*other, &[*one]));
            }
            Failure::Slow(node) => {
                let end = tokio::time::Instant::now() + lasting;
                while tokio::time::Instant::now() < end {
                    cluster.signal(*node, "-STOP");
                    tokio::time::sleep(STANDS).await;
                    cluster.signal(*node, "-CONT");
                    tokio::time::sleep(RUNS).await;
                }
                return;
            }
            Failure::Loss(node) => {
                let all: Vec<usize> = (0..2 * SIDE).collect();
                let end = tokio::time::Instant::now() + lasting;
                while tokio::time::Instant::now() < end {
                    network(cluster).drop_packets(*node, &all);
                    all.iter().for_each(|other| network(cluster).drop_packets(*other, &[*node]));
                    tokio::time::sleep(LOSES).await;
                    network(cluster).heal();
                    tokio::time::sleep(PASSES).await;
                }
                return;
            }
        }
        tokio::time::sleep(lasting).await;
    }

    /// Ends it. What was killed, or ended for want of room, is started by the cluster.
    pub(super) fn end(&self, cluster: &Cluster) {
        match self {
            Failure::Stop(nodes) => nodes.iter().for_each(|node| cluster.signal(*node, "-CONT")),
            Failure::FullDisk(node) => cluster.empty(*node),
            Failure::Clock(replica, _) => cluster.set_clock(*replica, 0),
            Failure::OneWay(..) | Failure::Cut(..) => network(cluster).heal(),
            Failure::Kill(_) | Failure::Slow(_) | Failure::Loss(_) => {}
        }
    }
}

fn network(cluster: &Cluster) -> &super::network::Network {
    cluster.network.as_ref().expect("failures of links are chosen where there is a network")
}
