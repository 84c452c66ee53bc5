//! Warnings about addresses and networks that are not in canonical form: leading zeros, IPv4-mapped IPv6,
//! bits beyond the prefix (k8s.io/apimachinery `pkg/util/validation/ip.go`).

use std::net::IpAddr;

use plinth_codec::Value;

use crate::checks::address::{mask, sloppy, split};
use crate::warnings::Warnings;

fn is_mapped(address: IpAddr) -> bool {
    plain(address) != address
}

/// Converts an IPv4-mapped IPv6 address to IPv4.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Adds a warning about an address that is not canonical.
pub(crate) fn warn_ip(shown: &str, path: &str, found: &mut Warnings) {
    let Some(address) = sloppy(shown) else { return };
    match shown.parse::<IpAddr>() {
        Ok(parsed) if !is_mapped(parsed) => {
            let form = parsed.to_string();
            if parsed.is_ipv6() && form != shown {
                found.add(format!(
                    "{path}: IPv6 address {shown:?} should be in RFC 5952 canonical format ({form:?})"
                ));
            }
        }
        _ => {
            let form = plain(address).to_string();
            found.add(format!("{path}: non-standard IP address {shown:?} is invalid: use {form:?}"));
        }
    }
}

/// As [`warn_ip`], for each address of a list.
pub(crate) fn warn_ips(list: &[Value], path: &str, found: &mut Warnings) {
    for (i, shown) in list.iter().enumerate() {
        warn_ip(shown.as_str().unwrap_or_default(), &format!("{path}[{i}]"), found);
    }
}

/// Adds warnings about a network that is not canonical.
pub(crate) fn warn_cidr(shown: &str, path: &str, found: &mut Warnings) {
    let Some((address, length)) = split(shown, sloppy) else { return };
    let first = mask(address, length);
    // The prefix of an IPv4-mapped IPv6 network is 96 bits longer.
    let form = match is_mapped(first) {
        true => format!("{}/{}", plain(first), length.saturating_sub(96)),
        false => format!("{first}/{length}"),
    };
    let before = found.len();
    if first != address {
        let single = format!("{}/{}", plain(address), if address.is_ipv4() { 32 } else { 128 });
        found.add(format!(
            "{path}: CIDR value {shown:?} is ambiguous in this context (should be {form:?} or {single:?}?)"
        ));
    }
    let zeros = shown.rsplit('/').next().is_some_and(|digits| digits.len() > 1 && digits.starts_with('0'));
    let strict = split(shown, |text| text.parse().ok()).filter(|_| !zeros);
    match strict.filter(|(address, _)| !is_mapped(*address)) {
        None => found.add(format!("{path}: non-standard CIDR value {shown:?} is invalid: use {form:?}")),
        Some((address, length)) if found.len() == before && address.is_ipv6() => {
            let form = format!("{address}/{length}");
            if form != shown {
                found.add(format!(
                    "{path}: IPv6 CIDR value {shown:?} should be in RFC 5952 canonical format ({form:?})"
                ));
            }
        }
        Some(_) => {}
    }
}

/// As [`warn_cidr`], for each network of a list.
pub(crate) fn warn_cidrs(list: &[Value], path: &str, found: &mut Warnings) {
    for (i, shown) in list.iter().enumerate() {
        warn_cidr(shown.as_str().unwrap_or_default(), &format!("{path}[{i}]"), found);
    }
}
