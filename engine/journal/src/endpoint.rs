//! Where the members of a journal are, and how a connection to them is secured: what the options of every
//! journal on a network have.

use std::fmt;

/// TLS of the connections to the members.
#[derive(Clone, PartialEq, Eq)]
pub struct Tls {
    /// The certificates that those of the members must be signed by, PEM.
    pub certificate_authority: Vec<u8>,
    /// Certificate and private key of this client, PEM.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
}

/// Without the private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("has_identity", &self.identity.is_some()).finish_non_exhaustive()
    }
}

/// The beginning of a URL as it may be shown: without user and password, and without anything that may be
/// one.
pub fn shown_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").map_or(("", url), |(scheme, rest)| (scheme, rest));
    let shown = match rest.rsplit_once('@') {
        Some((_, rest)) => format!("{scheme}://…@{rest}"),
        None => url.to_owned(),
    };
    shown.chars().take(256).collect()
}

/// Whether a text is `host:port`, the host a name, an IPv4 address or an IPv6 address in brackets.
pub fn is_address(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_host = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        }
    };
    is_host && port.parse::<u16>().is_ok_and(|port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (url, shown) in [
            ("etcd://h:1/p", "etcd://h:1/p"),
            ("etcd://user:hunter2@h:1/p", "etcd://…@h:1/p"),
            ("kafka://user:hunter@2/3@h:1,h:2/t", "kafka://…@h:1,h:2/t"),
            ("user:hunter2@h", "://…@h"),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }
}
