//! Addresses and networks that are read and written in another form: leading zeros, IPv4 within IPv6, bits beyond a prefix
//! (k8s.io/apimachinery `pkg/util/validation/ip.go`).

use std::net::IpAddr;

use plinth_codec::Value;

use super::Found;
use crate::validation::address::{mask, sloppy, split};

fn is_mapped(address: IpAddr) -> bool {
    plain(address) != address
}

/// IPv4 in the form of IPv4.
fn plain(address: IpAddr) -> IpAddr {
    address.to_canonical()
}

/// Of an address that stands at the path.
pub(super) fn one(shown: &str, path: &str, found: &mut Found) {
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

/// Of a list of addresses that stands at the path.
pub(super) fn each(list: &[Value], path: &str, found: &mut Found) {
    for (i, shown) in list.iter().enumerate() {
        one(shown.as_str().unwrap_or_default(), &format!("{path}[{i}]"), found);
    }
}

/// Of a network that stands at the path.
pub(super) fn network(shown: &str, path: &str, found: &mut Found) {
    let Some((address, length)) = split(shown, sloppy) else { return };
    let first = mask(address, length);
    // An IPv4 network in the form of an IPv6 one has 96 bits more.
    let form = match is_mapped(first) {
        true => format!("{}/{}", plain(first), length.saturating_sub(96)),
        false => format!("{first}/{length}"),
    };
    let before = found.0.len();
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
        Some((address, length)) if found.0.len() == before && address.is_ipv6() => {
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

/// Of a list of networks that stands at the path.
pub(super) fn networks(list: &[Value], path: &str, found: &mut Found) {
    for (i, shown) in list.iter().enumerate() {
        network(shown.as_str().unwrap_or_default(), &format!("{path}[{i}]"), found);
    }
}
