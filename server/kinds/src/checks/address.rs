//! IP addresses and networks in fields of objects.
//!
//! Fields that are older than the canonical forms take leading zeros and IPv4-mapped IPv6
//! (k8s.io/apimachinery `pkg/util/validation/ip.go`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plinth_api::{Cause, FieldPath};

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

const NO_NETWORK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an address; leading zeros are accepted, as earlier versions of Kubernetes did.
pub(crate) fn sloppy(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let parts: Vec<u8> = text.split('.').map_while(|part| part.parse().ok()).collect();
    match (<[u8; 4]>::try_from(parts), text.split('.').count()) {
        (Ok(parts), 4) => Some(Ipv4Addr::from(parts).into()),
        _ => None,
    }
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// Errors of an address: malformed, with leading zeros, or IPv4-mapped IPv6.
pub(crate) fn legacy(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let why = match (sloppy(text), text.parse::<IpAddr>()) {
        (None, _) => NO_ADDRESS,
        (Some(_), Err(_)) => "must not have leading 0s",
        (Some(_), Ok(address)) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        (Some(_), Ok(_)) => return,
    };
    errors.push(Cause::invalid(path, text, why));
}

/// As [`legacy`], and the address must be in canonical form.
pub(crate) fn canonical(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let before = errors.len();
    legacy(text, path, errors);
    if let (true, Ok(address)) = (errors.len() == before, text.parse::<IpAddr>()) {
        if address.to_string() != text {
            let why = format!("must be in canonical form (\"{address}\")");
            errors.push(Cause::invalid(path, text, &why));
        }
    }
}

/// Splits a CIDR into address and prefix length.
pub(crate) fn split(text: &str, parse: fn(&str) -> Option<IpAddr>) -> Option<(IpAddr, u8)> {
    let (address, length) = text.split_once('/')?;
    let address = parse(address)?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length: u8 = length.parse().ok().filter(|length| *length <= most)?;
    Some((address, length))
}

/// The first address of a network.
pub(crate) fn mask(address: IpAddr, length: u8) -> IpAddr {
    let ones = u32::from(length);
    match address {
        IpAddr::V4(a) => Ipv4Addr::from(u32::from(a) & u32::MAX.checked_shl(32 - ones).unwrap_or(0)).into(),
        IpAddr::V6(a) => {
            Ipv6Addr::from(u128::from(a) & u128::MAX.checked_shl(128 - ones).unwrap_or(0)).into()
        }
    }
}

/// Errors of a CIDR: malformed, with leading zeros, or with bits beyond its prefix.
pub(crate) fn network(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let leading_zero =
        |text: &str| text.rsplit('/').next().is_some_and(|l| l.len() > 1 && l.starts_with('0'));
    let why = match (split(text, sloppy), split(text, |a| a.parse().ok())) {
        (None, _) => NO_NETWORK,
        (Some(_), None) => "must not have leading 0s in IP or prefix length",
        (Some(_), Some(_)) if leading_zero(text) => "must not have leading 0s in IP or prefix length",
        (_, Some((address, _))) if is_mapped(address) => "must not have an IPv4-mapped IPv6 address",
        (_, Some((address, length))) if mask(address, length) != address => {
            "must not have bits set beyond the prefix length"
        }
        _ => return,
    };
    errors.push(Cause::invalid(path, text, why));
}

/// As [`network`], and the CIDR must be in canonical form.
pub(crate) fn canonical_network(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let before = errors.len();
    network(text, path, errors);
    if let (true, Some((address, length))) = (errors.len() == before, split(text, |a| a.parse().ok())) {
        let form = format!("{address}/{length}");
        if form != text {
            errors.push(Cause::invalid(path, text, &format!("must be in canonical form (\"{form}\")")));
        }
    }
}

/// Validates the address of an interface with the length of its prefix, in canonical form
/// (`IsValidInterfaceAddress`).
pub(crate) fn of_interface(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    const NO_INTERFACE: &str = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
    let Some((address, length)) = split(text, sloppy) else {
        errors.push(Cause::invalid(path, text, NO_INTERFACE));
        return;
    };
    let form = match address {
        // Upstream's type has no IPv4-mapped addresses.
        IpAddr::V6(mapped) if is_mapped(address) => {
            let length = if length > 32 { length.saturating_sub(96) } else { length };
            format!("{}/{length}", mapped.to_canonical())
        }
        _ => format!("{address}/{length}"),
    };
    if form != text {
        errors.push(Cause::invalid(path, text, &format!("must be in canonical form (\"{form}\")")));
    }
}

/// Whether the first network strictly contains the second one.
pub(crate) fn contains(outer: &str, inner: &str) -> bool {
    match (split(outer, sloppy), split(inner, sloppy)) {
        (Some((net, length)), Some((part, inner_length))) => {
            net.is_ipv4() == part.is_ipv4()
                && length < inner_length
                && mask(part, length) == mask(net, length)
        }
        _ => false,
    }
}

/// Validates an address of an endpoint: none that is special to a node.
pub(crate) fn endpoint(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let before = errors.len();
    legacy(text, path, errors);
    if errors.len() == before {
        endpoint_range(text, path, errors);
    }
}

/// Errors of an address of an endpoint that is unspecified, loopback, link-local or link-local multicast.
pub(crate) fn endpoint_range(text: &str, path: FieldPath<'_>, errors: &mut Vec<Cause>) {
    let Some(address) = sloppy(text) else {
        errors.push(Cause::invalid(path, text, "must be a valid IP address"));
        return;
    };
    let link_local = match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.is_unicast_link_local(),
    };
    let link_multicast = match address {
        IpAddr::V4(a) => a.octets()[..3] == [224, 0, 0],
        IpAddr::V6(a) => a.segments()[0] & 0xff0f == 0xff02,
    };
    let rows = [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (link_multicast, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned()),
    ];
    errors.extend(rows.iter().filter(|(wrong, _)| *wrong).map(|(_, why)| Cause::invalid(path, text, why)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_addresses_and_networks() {
        type Rule = fn(&str, FieldPath<'_>, &mut Vec<Cause>);
        // rule, text, part of the message or nothing
        let rows: [(Rule, &str, &str); 19] = [
            (legacy, "10.0.0.1", ""),
            (legacy, "010.0.0.1", "leading 0s"),
            (legacy, "10.0.0", "valid IP address"),
            (legacy, "::ffff:10.0.0.1", "IPv4-mapped"),
            (legacy, "2001:DB8::1", ""),
            (canonical, "2001:DB8::1", "canonical form"),
            (canonical, "2001:db8::1", ""),
            (network, "10.0.0.0/8", ""),
            (network, "10.0.0.1/8", "beyond the prefix"),
            (network, "10.0.0.0/33", "valid CIDR"),
            (network, "010.0.0.0/8", "leading 0s"),
            (network, "0.0.0.0/0", ""),
            (network, "::/0", ""),
            (canonical_network, "2001:DB8::/32", "canonical form (\"2001:db8::/32\")"),
            (endpoint, "127.0.0.1", "loopback"),
            (endpoint, "fe80::1", "link-local range"),
            (endpoint, "224.0.0.1", "multicast"),
            (endpoint, "0.0.0.0", "unspecified (0.0.0.0)"),
            (endpoint, "10.1.2.3", ""),
        ];
        for (rule, text, part) in rows {
            let mut errors = Vec::new();
            rule(text, format_args!("f"), &mut errors);
            match part.is_empty() {
                true => assert_eq!(errors, [], "{text}"),
                false => assert!(errors.iter().any(|f| f.message.contains(part)), "{text}: {errors:?}"),
            }
        }
        assert!(contains("10.0.0.0/8", "10.1.0.0/16") && !contains("10.1.0.0/16", "10.0.0.0/8"));
        assert!(!contains("10.0.0.0/8", "10.0.0.0/8") && !contains("10.0.0.0/8", "::/0"));
    }
}
