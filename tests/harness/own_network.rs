//! Tests whose servers need an address that is not loopback run once more, as a process of their own, in a
//! network with such an address.

use std::net::Ipv4Addr;
use std::process::Command;

/// The address of a server, in the network.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 9, 9, 9);
/// Set where a test runs in that network.
const INSIDE: &str = "PLINTH_E2E_OWN_NETWORK";

/// Whether the test is to go on: in a network that has loopback and [`ADDRESS`] only. If it is not there, it
/// runs there as a process of its own.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let network = format!("ip link set lo up && ip addr add {ADDRESS}/32 dev lo");
    let unshare = ["--user", "--map-root-user", "--net", "sh", "-c"];
    let probe = Command::new("unshare").args(unshare).arg(&network).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("skipped: this user may not make a network");
        return false;
    }
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new("unshare");
    command.args(unshare).arg(format!("{network} && exec \"$0\" \"$@\"")).arg(program);
    command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("unshare runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    let why = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && shown.contains("1 passed"), "{shown}{why}");
    false
}
