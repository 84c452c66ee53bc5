//! The administrator's kubeconfig file.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;

/// Where clients on this machine find a listener: they cannot connect to an unspecified address.
pub fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

/// A kubeconfig for one cluster and one user, credentials inline. `server` is the URL, the rest PEM.
pub fn render(server: &str, user: &str, ca: &str, cert: &str, key: &str) -> String {
    let [ca, cert, key] = [ca, cert, key].map(|pem| STANDARD.encode(pem));
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: plinth
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {cert}
    client-key-data: {key}
contexts:
- name: plinth
  context:
    cluster: plinth
    user: {user}
current-context: plinth
"
    )
}

/// Whether a kubeconfig has the server, authority and credentials of a rendered one, whatever else it
/// contains.
pub fn is_equivalent(present: &str, rendered: &str) -> bool {
    const PARTS: [&str; 4] =
        ["server:", "certificate-authority-data:", "client-certificate-data:", "client-key-data:"];
    let parts = |text: &'_ str| {
        let lines =
            text.lines().map(str::trim).filter(|line| PARTS.iter().any(|part| line.starts_with(part)));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let present = parts(present);
    parts(rendered).iter().all(|part| present.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_are_no_difference_and_other_credentials_are() {
        let ours = render("https://127.0.0.1:6443", "admin", "ca", "cert", "key");
        let with_namespace = ours.replace("    user: admin\n", "    namespace: plane\n    user: admin\n");
        assert_ne!(with_namespace, ours);
        assert!(is_equivalent(&with_namespace, &ours));
        for other in [
            render("https://127.0.0.1:6444", "admin", "ca", "cert", "key"),
            render("https://127.0.0.1:6443", "admin", "ca", "newer", "key"),
            String::new(),
        ] {
            assert!(!is_equivalent(&other, &ours));
        }
    }
}
