//! A network namespace for each process, so that links between them can be taken away, one direction at a
//! time: the sender is told an address of the link layer that nobody has, so that its packets vanish without
//! a word.
//!
//! The test itself has to run in a network and a mount namespace of its own, as root, which
//! `scripts/campaign replication` sees to where it can (`PLINTH_NAMESPACES=1` says that it did).

use std::fmt::Write;
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// The namespaces of some nodes, which a bridge joins. They are gone when the test's namespace is.
pub(super) struct Network {
    nodes: usize,
}

impl Network {
    /// One for each of `nodes`, where this test runs in a namespace of its own.
    pub(super) fn create(nodes: usize) -> Option<Network> {
        std::env::var_os("PLINTH_NAMESPACES")?;
        // The names are files, which would stay.
        let names = "mkdir -p /run/netns && mount -t tmpfs tmpfs /run/netns";
        assert!(Command::new("sh").args(["-c", names]).status().expect("sh runs").success());
        ip(None, "link set lo up\nlink add plinth0 type bridge\nlink set plinth0 up\naddr add 10.99.0.1/24 dev plinth0\n");
        for node in 0..nodes {
            let (name, host, mac) = (Network::name(node), Network::host(node), mac(node));
            ip(None, &format!("netns add {name}\n"));
            ip(
                None,
                &format!(
                    "link add v{node} type veth peer name eth0 netns {name}\nlink set v{node} master plinth0\nlink set v{node} up\n"
                ),
            );
            ip(
                Some(node),
                &format!("link set lo up\nlink set eth0 address {mac}\nlink set eth0 up\naddr add {host}/24 dev eth0\n"),
            );
        }
        let network = Network { nodes };
        network.heal();
        Some(network)
    }

    /// The name of a node's namespace.
    pub(super) fn name(node: usize) -> String {
        format!("plinth-{node}")
    }

    /// The address of a node.
    pub(super) fn host(node: usize) -> IpAddr {
        IpAddr::V4(Ipv4Addr::new(10, 99, 0, 11 + u8::try_from(node).unwrap_or_default()))
    }

    /// What one node sends to others is lost.
    pub(super) fn drop_packets(&self, from: usize, to: &[usize]) {
        self.neighbours(from, to, |_| "02:00:00:00:00:ff".to_owned());
    }

    /// What one node sends to others arrives again.
    pub(super) fn restore(&self, from: usize, to: &[usize]) {
        self.neighbours(from, to, mac);
    }

    /// Everything arrives again.
    pub(super) fn heal(&self) {
        let all: Vec<usize> = (0..self.nodes).collect();
        all.iter().for_each(|node| self.restore(*node, &all));
    }

    fn neighbours(&self, from: usize, to: &[usize], address: impl Fn(usize) -> String) {
        let mut batch = String::new();
        for node in to.iter().filter(|node| **node != from) {
            let (host, address) = (Network::host(*node), address(*node));
            writeln!(batch, "neigh replace {host} lladdr {address} nud permanent dev eth0")
                .expect("a string");
        }
        ip(Some(from), &batch);
    }
}

fn mac(node: usize) -> String {
    format!("02:00:00:00:00:{:02x}", 0x11 + node)
}

/// Runs commands of `ip`, in a node's namespace where one is given.
fn ip(node: Option<usize>, batch: &str) {
    let mut command = Command::new("ip");
    if let Some(node) = node {
        command.args(["-n", &Network::name(node)]);
    }
    let mut child = command.args(["-batch", "-"]).stdin(Stdio::piped()).spawn().expect("ip runs");
    child.stdin.take().expect("a pipe").write_all(batch.as_bytes()).expect("written");
    assert!(child.wait().expect("ip ends").success(), "{batch}");
}
