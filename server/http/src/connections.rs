//! Limits on the number of connections, and of half-open ones.
//!
//! A connection is half open until its TLS handshake is done: the cheapest thing for a malicious client to
//! hold. When an address has too many of them, the oldest one is closed, not the newest: an honest client's
//! handshake takes milliseconds, so it is never the oldest for long, even behind the same address.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of half-open connections per address.
const HALF_OPEN_PER_CLIENT: usize = 256;
/// Maximum number of half-open connections in all.
const HALF_OPEN: usize = 2048;

/// All connections. The lock is held for a few lookups when a connection is accepted, opened or closed.
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
    /// Oldest first; dropping the sender closes the connection.
    half_open: VecDeque<(u64, oneshot::Sender<()>)>,
}

/// A connection's slot; released on drop.
#[derive(Debug)]
pub struct ConnectionSlot {
    connections: Arc<Connections>,
    client: IpAddr,
    /// Set while the connection is half open.
    half_open: Option<u64>,
}

impl Connections {
    /// Limits in all and per address.
    pub fn new(most: usize, most_per_client: usize) -> Arc<Connections> {
        Arc::new(Connections { most, most_per_client, state: Mutex::default() })
    }

    /// Reserves a slot for an accepted connection. The receiver resolves when the half-open slot is given to
    /// another connection. `None` when a limit is reached.
    pub fn admit(self: &Arc<Connections>, client: IpAddr) -> Option<(ConnectionSlot, oneshot::Receiver<()>)> {
        // Every address of a machine without NAT is one client; IPv6 clients have whole networks of them.
        let client = client_network(client);
        let mut state = self.state.lock();
        let own = state.clients.get(&client).map_or(0, |c| c.total);
        if state.total >= self.most || own >= self.most_per_client {
            return None;
        }
        if state.half_open >= HALF_OPEN {
            // The address with the most half-open connections loses its oldest one.
            let busiest = state.clients.iter().max_by_key(|(_, c)| c.half_open.len()).map(|(ip, _)| *ip);
            if let Some(busiest) = busiest {
                state.close_oldest_half_open(busiest);
            }
        }
        if state.clients.get(&client).is_some_and(|c| c.half_open.len() >= HALF_OPEN_PER_CLIENT) {
            state.close_oldest_half_open(client);
        }
        let (stay, go) = oneshot::channel();
        let number = state.next;
        state.next += 1;
        state.total += 1;
        state.half_open += 1;
        let own = state.clients.entry(client).or_default();
        own.total += 1;
        own.half_open.push_back((number, stay));
        Some((ConnectionSlot { connections: self.clone(), client, half_open: Some(number) }, go))
    }
}

impl State {
    fn close_oldest_half_open(&mut self, client: IpAddr) {
        if self.clients.get_mut(&client).and_then(|c| c.half_open.pop_front()).is_some() {
            self.half_open -= 1;
        }
    }

    /// Removes a connection from the half-open ones; ignored if it was removed already.
    fn remove_half_open(&mut self, client: IpAddr, number: u64) {
        let Some(own) = self.clients.get_mut(&client) else { return };
        if let Some(at) = own.half_open.iter().position(|(n, _)| *n == number) {
            own.half_open.remove(at);
            self.half_open -= 1;
        }
    }
}

impl ConnectionSlot {
    /// Called when the handshake is done.
    pub fn opened(&mut self) {
        if let Some(number) = self.half_open.take() {
            self.connections.state.lock().remove_half_open(self.client, number);
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        if let Some(number) = self.half_open.take() {
            state.remove_half_open(self.client, number);
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

/// The unit of per-client limits: an IPv4 address, or the /64 network of an IPv6 address.
pub fn client_network(address: IpAddr) -> IpAddr {
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
        let first = connections.admit(ip(1)).unwrap();
        let _second = connections.admit(ip(1)).unwrap();
        assert!(connections.admit(ip(1)).is_none());
        let _third = connections.admit(ip(2)).unwrap();
        assert!(connections.admit(ip(3)).is_none());
        drop(first);
        assert!(connections.admit(ip(3)).is_some());
    }

    #[test]
    fn the_oldest_half_open_connection_goes_first() {
        let connections = Connections::new(10_000, 10_000);
        let mut held: Vec<_> = (0..HALF_OPEN_PER_CLIENT).map(|_| connections.admit(ip(1)).unwrap()).collect();
        held[1].0.opened();
        let _more = connections.admit(ip(1)).unwrap();
        assert!(
            held[0].1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty),
            "there was room"
        );
        let _more = connections.admit(ip(1)).unwrap();
        let is_closed = |slot: &mut (ConnectionSlot, oneshot::Receiver<()>)| {
            slot.1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed)
        };
        assert!(is_closed(&mut held[0]), "the oldest");
        assert!(!is_closed(&mut held[2]), "nobody else");
        let _other = connections.admit(ip(2)).unwrap();
        assert!(!is_closed(&mut held[2]), "another address has its own");
    }

    #[test]
    fn a_flood_from_many_addresses_takes_from_the_busiest() {
        let connections = Connections::new(10_000, 10_000);
        let mut busy: Vec<_> = (0..200).map(|_| connections.admit(ip(0)).unwrap()).collect();
        let mut others = Vec::new();
        for n in 0..HALF_OPEN - 200 {
            let address: IpAddr = [10, 1, (n / 100) as u8, 1].into();
            others.push(connections.admit(address).unwrap());
        }
        let _new = connections.admit(ip(9)).unwrap();
        assert!(busy[0].1.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
        drop((busy, others, _new));
        let state = connections.state.lock();
        assert_eq!((state.total, state.half_open, state.clients.len()), (0, 0, 0));
    }

    #[test]
    fn an_ipv6_network_is_one_client() {
        let connections = Connections::new(10, 1);
        let _first = connections.admit("2001:db8::1".parse().unwrap()).unwrap();
        assert!(connections.admit("2001:db8::2".parse().unwrap()).is_none());
        assert!(connections.admit("2001:db8:0:1::2".parse().unwrap()).is_some());
        let _v4 = connections.admit("::ffff:10.0.0.1".parse().unwrap()).unwrap();
        assert!(connections.admit(ip(1)).is_none());
    }
}
