//! Where the cluster addresses and node ports of Services come from.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use plinth_kinds::service_allocation as service;

/// Where addresses and ports come from.
#[derive(Clone, Debug)]
pub struct Ranges {
    /// Cluster addresses (`--service-cluster-ip-range`): one range, or one of each family; the first is the primary.
    pub addresses: Vec<IpNet>,
    /// Node ports (`--service-node-port-range`).
    pub node_ports: RangeInclusive<u16>,
}

impl Ranges {
    /// The address that the Service `kubernetes` has.
    pub fn first_address(&self) -> Option<IpAddr> {
        self.addresses.first().and_then(|range| nth(range, 1))
    }

    /// The range of an IP family (`IPv4`, `IPv6`).
    pub fn of_family(&self, family: &str) -> Option<&IpNet> {
        self.addresses.iter().find(|range| service::family(range.addr()) == family)
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
