//! The queues in virtual time: a model of clients that send requests, wait and are served.

use std::collections::BinaryHeap;

use super::*;
use crate::flow_control::shuffle::hash_flow;

const SECOND: Nanos = 1_000_000_000;
const MILLISECOND: Nanos = 1_000_000;

fn queued(queues: usize, hand: usize, length: usize) -> Queuing {
    Queuing::Queue { dealer: Dealer::new(queues, hand).unwrap(), queues, length }
}

/// A kind of client: a number of them, each sending the next request as soon as it has an answer.
struct Clients {
    flow: &'static str,
    count: usize,
    seats: u32,
    takes: Nanos,
}

/// Service that the clients of one flow received.
#[derive(Clone, Debug, Default)]
struct Got {
    served: u64,
    seat_time: u64,
    rejected: u64,
    longest_wait: Nanos,
}

/// Simulates the clients on a level for a while. Deterministic.
fn run(set: &mut QueueSet<(usize, Nanos)>, clients: &[Clients], until: Nanos) -> Vec<Got> {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    enum Step {
        Ends(usize),
        Asks(usize),
    }
    let mut got = vec![Got::default(); clients.len()];
    // Ordered by time, then by insertion; `Reverse` makes it a min-heap.
    let mut agenda = BinaryHeap::new();
    let mut tickets: Vec<Option<Ticket>> = Vec::new();
    let mut made = 0u64;
    let mut at = |agenda: &mut BinaryHeap<_>, when: Nanos, step: Step| {
        made += 1;
        agenda.push(std::cmp::Reverse((when, made, step)));
    };
    for (kind, clients) in clients.iter().enumerate() {
        for _ in 0..clients.count {
            at(&mut agenda, 0, Step::Asks(kind));
        }
    }
    let mut owners: Vec<usize> = Vec::new();
    while let Some(std::cmp::Reverse((now, _, step))) = agenda.pop() {
        if now >= until {
            break;
        }
        let mut starts: Vec<(usize, Ticket)> = Vec::new();
        match step {
            Step::Ends(slot) => {
                let ticket = tickets[slot].take().unwrap();
                set.finish(ticket, now);
                at(&mut agenda, now, Step::Asks(owners[slot]));
            }
            Step::Asks(kind) => {
                let c = &clients[kind];
                match set.arrive(hash_flow("schema", c.flow), c.seats, now, || (kind, now)) {
                    Ok(Arrival::Served(ticket)) => starts.push((kind, ticket)),
                    Ok(Arrival::Waits(_)) => {}
                    Err(_) => {
                        got[kind].rejected += 1;
                        at(&mut agenda, now + 10 * MILLISECOND, Step::Asks(kind));
                    }
                }
            }
        }
        for ((kind, asked), ticket) in set.take_ready() {
            got[kind].longest_wait = got[kind].longest_wait.max(now - asked);
            starts.push((kind, ticket));
        }
        for (kind, ticket) in starts {
            let c = &clients[kind];
            got[kind].served += 1;
            got[kind].seat_time += c.takes * u64::from(c.seats);
            tickets.push(Some(ticket));
            owners.push(kind);
            at(&mut agenda, now + c.takes, Step::Ends(tickets.len() - 1));
        }
        assert!(set.seats_in_use() <= 10, "more seats than there are");
    }
    got
}

/// Two flows that always exceed their share get equal seats, whatever the number of their clients and the
/// duration or width of their requests.
#[test]
fn greedy_flows_get_equal_shares() {
    let rows: &[(Clients, Clients)] = &[
        (
            Clients { flow: "a", count: 40, seats: 1, takes: 10 * MILLISECOND },
            Clients { flow: "b", count: 40, seats: 1, takes: 10 * MILLISECOND },
        ),
        (
            Clients { flow: "a", count: 20, seats: 1, takes: 10 * MILLISECOND },
            Clients { flow: "b", count: 200, seats: 1, takes: 10 * MILLISECOND },
        ),
        (
            Clients { flow: "a", count: 40, seats: 1, takes: 50 * MILLISECOND },
            Clients { flow: "b", count: 40, seats: 1, takes: 5 * MILLISECOND },
        ),
        (
            Clients { flow: "a", count: 40, seats: 3, takes: 10 * MILLISECOND },
            Clients { flow: "b", count: 40, seats: 1, takes: 10 * MILLISECOND },
        ),
    ];
    for (first, second) in rows {
        let name = format!("{}x{} {}x{}", first.count, first.takes, second.count, second.takes);
        let clients = [Clients { flow: first.flow, ..*first }, Clients { flow: second.flow, ..*second }];
        let mut set = QueueSet::new(queued(64, 1, 400), 10, 0);
        let got = run(&mut set, &clients, 20 * SECOND);
        let total: u64 = got.iter().map(|g| g.seat_time).sum();
        let share = got[0].seat_time as f64 / total as f64;
        assert!((0.42..0.58).contains(&share), "{name}: {share}");
        // No seat is idle while requests wait, except what a wide request has to wait for.
        assert!(total as f64 > 0.9 * (10 * 20 * SECOND) as f64, "{name}: {total}");
    }
}

/// A flow with little demand gets all of it at once, next to one that floods the level.
#[test]
fn a_modest_flow_is_not_starved_by_a_flood() {
    let clients = [
        Clients { flow: "flood", count: 3000, seats: 1, takes: 10 * MILLISECOND },
        Clients { flow: "modest", count: 2, seats: 1, takes: 10 * MILLISECOND },
    ];
    // Hands that do not share a queue, the usual case.
    let dealer = Dealer::new(64, 6).unwrap();
    let (flood, modest) =
        (dealer.deal(hash_flow("schema", "flood")).0, dealer.deal(hash_flow("schema", "modest")).0);
    assert!(modest[..6].iter().any(|queue| !flood[..6].contains(queue)));
    let mut set = QueueSet::new(queued(64, 6, 50), 10, 0);
    let got = run(&mut set, &clients, 10 * SECOND);
    assert!(got[0].rejected > 0, "the flood finds its queues full");
    assert_eq!(got[1].rejected, 0);
    // Alone it would get 1,000 requests per second and client.
    assert!(got[1].longest_wait <= 40 * MILLISECOND, "{:?}", got[1]);
    assert!(got[1].served > 500, "{:?}", got[1]);
}

/// Many flows against one: the one with many clients gets no more than its share.
#[test]
fn clients_do_not_buy_shares() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let mut clients: Vec<Clients> =
        names.iter().map(|flow| Clients { flow, count: 5, seats: 1, takes: 10 * MILLISECOND }).collect();
    clients.push(Clients { flow: "elephant", count: 500, seats: 1, takes: 10 * MILLISECOND });
    // One queue per flow, without collisions, so that shares can be measured.
    let dealer = Dealer::new(512, 1).unwrap();
    let mut hands: Vec<usize> =
        clients.iter().map(|c| dealer.deal(hash_flow("schema", c.flow)).0[0]).collect();
    hands.sort_unstable();
    hands.dedup();
    assert_eq!(hands.len(), clients.len());
    let mut set = QueueSet::new(queued(512, 1, 1000), 10, 0);
    let got = run(&mut set, &clients, 20 * SECOND);
    let total: u64 = got.iter().map(|g| g.seat_time).sum();
    for (got, client) in got.iter().zip(&clients) {
        let share = got.seat_time as f64 / total as f64;
        assert!((0.08..0.15).contains(&share), "{}: {share}", client.flow);
    }
}

#[test]
fn a_level_without_queues_refuses_what_finds_no_seat() {
    let mut set: QueueSet<()> = QueueSet::new(Queuing::Reject, 2, 0);
    let served = |set: &mut QueueSet<()>, seats| match set.arrive(1, seats, 0, || ()) {
        Ok(Arrival::Served(ticket)) => Ok(ticket),
        Ok(Arrival::Waits(_)) => panic!("nobody waits here"),
        Err(why) => Err(why),
    };
    let first = served(&mut set, 1).unwrap();
    served(&mut set, 1).unwrap();
    assert_eq!(served(&mut set, 1), Err(Rejected::ConcurrencyLimit));
    set.finish(first, 5);
    served(&mut set, 1).unwrap();
}

#[test]
fn a_wide_request_waits_until_it_is_alone() {
    let mut set: QueueSet<&str> = QueueSet::new(queued(4, 1, 10), 3, 0);
    let Ok(Arrival::Served(narrow)) = set.arrive(1, 1, 0, || "narrow") else { panic!() };
    let Ok(Arrival::Waits(_)) = set.arrive(1, 10, 0, || "wide") else { panic!() };
    let Ok(Arrival::Waits(_)) = set.arrive(1, 1, 0, || "after") else { panic!() };
    assert!(!set.has_ready());
    set.finish(narrow, 10);
    let ready = set.take_ready();
    assert_eq!(ready.len(), 1);
    assert_eq!(ready[0].0, "wide");
    set.finish(ready[0].1, 20);
    assert_eq!(set.take_ready()[0].0, "after");
}

#[test]
fn who_gives_up_waits_no_longer() {
    let mut set: QueueSet<u32> = QueueSet::new(queued(4, 2, 10), 1, 0);
    let Ok(Arrival::Served(ticket)) = set.arrive(1, 1, 0, || 0) else { panic!() };
    let Ok(Arrival::Waits(gone)) = set.arrive(1, 1, 1, || 1) else { panic!() };
    let Ok(Arrival::Waits(stays)) = set.arrive(1, 1, 2, || 2) else { panic!() };
    assert!(set.leave(gone, 3));
    assert!(!set.leave(gone, 3));
    set.finish(ticket, 4);
    let ready = set.take_ready();
    assert_eq!(ready.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [2]);
    assert!(!set.leave(stays, 5), "it has its ticket");
    set.finish(ready[0].1, 6);
    assert!(set.is_idle());
    assert_eq!((set.seats_in_use(), set.waiting()), (0, 0));
}

#[test]
fn fewer_queues_lose_nobody() {
    let mut set: QueueSet<u32> = QueueSet::new(queued(64, 1, 10), 1, 0);
    let Ok(Arrival::Served(ticket)) = set.arrive(hash_flow("s", "x"), 1, 0, || 0) else { panic!() };
    for n in 1..=20 {
        let Ok(Arrival::Waits(_)) = set.arrive(hash_flow("s", &n.to_string()), 1, 0, || n) else { panic!() };
    }
    set.configure(queued(2, 1, 10), 1);
    let Ok(Arrival::Waits(_)) = set.arrive(hash_flow("s", "late"), 1, 2, || 21) else { panic!() };
    let (mut now, mut last, mut served) = (3, ticket, Vec::new());
    loop {
        set.finish(last, now);
        let mut ready = set.take_ready();
        let Some((who, ticket)) = ready.pop() else { break };
        assert!(ready.is_empty(), "one seat");
        served.push(who);
        (now, last) = (now + 1, ticket);
    }
    served.sort_unstable();
    assert_eq!(served, (1..=21).collect::<Vec<_>>());
    set.configure(Queuing::Reject, now);
    assert!(set.is_idle());
}

#[test]
fn more_seats_wake_those_that_wait() {
    let mut set: QueueSet<u32> = QueueSet::new(queued(8, 2, 10), 1, 0);
    for n in 0..5 {
        set.arrive(n.into(), 1, 0, || n).unwrap();
    }
    set.set_limit(4, 1);
    assert_eq!(set.take_ready().len(), 3);
    assert_eq!((set.seats_in_use(), set.waiting()), (4, 1));
}
