//! The ranges of Services' cluster IPs and node ports.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;

use super::addresses;

/// The ranges that Services' addresses and ports are allocated from.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// Cluster IPs (`--service-cluster-ip-range`): one range, or one per IP family; the first is the primary.
    pub addresses: Vec<IpNet>,
    /// Node ports (`--service-node-port-range`).
    pub node_ports: RangeInclusive<u16>,
}

impl Ranges {
    /// The cluster IP of the Service `kubernetes`.
    pub fn first_address(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|range| nth(range, 1))
    }

    /// The range of an IP family (`IPv4`, `IPv6`).
    pub fn of_family(&self, family: &str) -> Option<&IpNet> {
        self.addresses.iter().find(|range| addresses::family(range.addr()) == family)
    }
}

/// The n-th address of a range.
pub fn nth(range: &IpNet, n: u128) -> Option<IpAddr> {
    match range {
        IpNet::V4(net) => {
            let address = u32::from(net.network()).checked_add(u32::try_from(n).ok()?)?;
            Some(IpAddr::from(address.to_be_bytes()))
        }
        IpNet::V6(net) => Some(IpAddr::from(u128::from(net.network()).checked_add(n)?.to_be_bytes())),
    }
}
