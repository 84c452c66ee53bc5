//! Who may have how many connections, and how many may be half open.
//!
//! A connection is half open until its TLS handshake is done: the cheapest thing to hold for a client that means ill. When
//! an address has too many of them, its oldest one goes, not the newest: an honest client's handshake takes
//! milliseconds, so it is never the oldest for long, even behind the same address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Half-open connections of one address.
const HALF_OPEN_PER_CLIENT: usize = 256;
/// Half-open connections in all.
const HALF_OPEN: usize = 2048;

/// All connections. The lock is held for a few lookups when a connection comes, is open, or goes.
#[derive(Debug)]
pub struct Connections {
    most: usize,
    most_per_client: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    total: usize,
    clients: HashMap<IpAddr, Client>,
    half_open: usize,
    next: u64,
}

#[derive(Debug, Default)]
struct Client {
    total: usize,
    /// The oldest first; dropping the sender closes the connection.
    half_open: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A connection's place; given back when it is dropped.
#[derive(Debug)]
pub struct Place {
    connections: Arc<Connections>,
    client: IpAddr,
    /// Its number while it is half open.
    half_open: Option<u64>,
}

impl Connections {
    /// Limits of so many connections in all and of one address.
    pub fn new(most: usize, most_per_client: usize) -> Arc<Connections> {
        Arc::new(Connections { most, most_per_client, state: Mutex::default() })
    }

    /// A place for a connection that has come, and what tells it to go when others need its half-open place. None when
    /// there are too many.
    pub fn enter(self: &Arc<Connections>, client: IpAddr) -> Option<(Place, oneshot::Receiver<()>)> {
        // Every address of a machine without NAT counts alike; IPv6 clients have whole networks of them.
        let client = network(client);
        let mut state = self.state.lock();
        let own = state.clients.get(&client).map_or(0, |c| c.total);
        if state.total >= self.most || own >= self.most_per_client {
            return None;
        }
        if state.half_open >= HALF_OPEN {
            // The address with the most half-open connections gives one up.
            let busiest = state.clients.iter().max_by_key(|(_, c)| c.half_open.len()).map(|(ip, _)| *ip);
            if let Some(busiest) = busiest {
                state.give_up_oldest(busiest);
            }
        }
        if state.clients.get(&client).is_some_and(|c| c.half_open.len() >= HALF_OPEN_PER_CLIENT) {
            state.give_up_oldest(client);
        }
        let (stay, go) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.total += 1;
        state.half_open += 1;
        let own = state.clients.entry(client).or_default();
        own.total += 1;
        own.half_open.push_back((number, stay));
        Some((Place { connections: self.clone(), client, half_open: Some(number) }, go))
    }
}

impl State {
    fn give_up_oldest(&mut self, client: IpAddr) {
        if self.clients.get_mut(&client).and_then(|c| c.half_open.pop_front()).is_some() {
            self.half_open -= 1;
        }
    }

    /// The connection is half open no longer; one that was given up is not any more.
    fn settle(&mut self, client: IpAddr, number: u64) {
        let Some(own) = self.clients.get_mut(&client) else { return };
        if let Some(at) = own.half_open.iter().position(|(n, _)| *n == number) {
            own.half_open.remove(at);
            self.half_open -= 1;
        }
    }
}

impl Place {
    /// The handshake is done.
    pub fn opened(&mut self) {
        if let Some(number) = self.half_open.take() {
            self.connections.state.lock().settle(self.client, number);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        if let Some(number) = self.half_open.take() {
            state.settle(self.client, number);
        }
        state.total -= 1;
        if let Some(own) = state.clients.get_mut(&self.client) {
            own.total -= 1;
            if own.total == 0 {
                state.clients.remove(&self.client);
            }
        }
    }
}

/// What counts as one client: an IPv4 address, or the /64 network of an IPv6 address.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(n: u8) -> IpAddr {
        [10, 0, 0, n].into()
    }

    #[test]
    fn limits_hold_in_all_and_for_each_address() {
        let connections = Connections::new(3, 2);
        let first = connections.enter(ip(1)).unwrap();
        let _second = connections.enter(ip(1)).unwrap();
        assert!(connections.enter(ip(1)).is_none());
        let _third = connections.enter(ip(2)).unwrap();
        assert!(connections.enter(ip(3)).is_none());
        drop(first);
        assert!(connections.enter(ip(3)).is_some());
    }

    #[test]
    fn the_oldest_half_open_connection_goes_first() {
        let connections = Connections::new(10_000, 10_000);
        let mut held: Vec<_> = (0..HALF_OPEN_PER_CLIENT).map(|_| connections.enter(ip(1)).unwrap()).collect();
        held[1].0.opened();
        let _more = connections.enter(ip(1)).unwrap();
        assert!(
            held[0].1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty),
            "there was room"
        );
        let _more = connections.enter(ip(1)).unwrap();
        let is_told = |place: &mut (Place, oneshot::Receiver<()>)| {
            place.1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed)
        };
        assert!(is_told(&mut held[0]), "the oldest");
        assert!(!is_told(&mut held[2]), "nobody else");
        let _other = connections.enter(ip(2)).unwrap();
        assert!(!is_told(&mut held[2]), "another address has its own");
    }

    #[test]
    fn a_flood_from_many_addresses_takes_from_the_busiest() {
        let connections = Connections::new(10_000, 10_000);
        let mut busy: Vec<_> = (0..200).map(|_| connections.enter(ip(0)).unwrap()).collect();
        let mut others = Vec::new();
        for n in 0..HALF_OPEN - 200 {
            let address: IpAddr = [10, 1, (n / 100) as u8, 1].into();
            others.push(connections.enter(address).unwrap());
        }
        let _new = connections.enter(ip(9)).unwrap();
        assert!(busy[0].1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
        drop((busy, others, _new));
        let state = connections.state.lock();
        assert_eq!((state.total, state.half_open, state.clients.len()), (0, 0, 0));
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let connections = Connections::new(10, 1);
        let _first = connections.enter("2001:db8::1".parse().unwrap()).unwrap();
        assert!(connections.enter("2001:db8::2".parse().unwrap()).is_none());
        assert!(connections.enter("2001:db8:0:1::2".parse().unwrap()).is_some());
        let _v4 = connections.enter("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(connections.enter(ip(1)).is_none());
    }
}
