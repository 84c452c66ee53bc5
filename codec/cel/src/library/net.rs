//! IP addresses and networks (k8s.io/apiserver `pkg/cel/library/ip.go`, `cidr.go`).

use std::net::IpAddr;

use plinth_codec::error::quoted;

use super::arguments::text;
use crate::context::{Context, EvalError, Outcome};
use crate::opaque::{Network, OpaqueValue};
use crate::value::Val;

fn parse_ip(text: &str) -> Result<IpAddr, EvalError> {
    if let Some((address, _)) = text.split_once('%') {
        if address.parse::<IpAddr>().is_ok_and(|a| a.is_ipv6()) {
            return Err(EvalError::other(format!(
                "IP address {} with zone value is not allowed",
                quoted(text)
            )));
        }
    }
    let address: IpAddr = text.parse().map_err(|_| {
        let quoted = quoted(text);
        EvalError::other(format!(
            "IP Address {quoted} parse error during conversion from string: ParseAddr({quoted}): unable to parse IP"
        ))
    })?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(EvalError::other(format!("IPv4-mapped IPv6 address {} is not allowed", quoted(text))))
        }
        address => Ok(address),
    }
}

fn parse_network(text: &str) -> Result<Network, EvalError> {
    let error = |why: String| {
        let prefix = "network address parse error during conversion from string: ";
        EvalError::other(format!("{prefix}{prefix}netip.ParsePrefix({}): {why}", quoted(text)))
    };
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| error("no '/'".into()))?;
    let parsed: IpAddr =
        address.parse().map_err(|_| error(format!("ParseAddr({}): unable to parse IP", quoted(address))))?;
    if bits.len() > 1 && !matches!(bits.as_bytes()[0], b'1'..=b'9') {
        return Err(error(format!("bad bits after slash: {}", quoted(bits))));
    }
    let bits: u8 = bits.parse().map_err(|_| error(format!("bad bits after slash: {}", quoted(bits))))?;
    if bits > if parsed.is_ipv4() { 32 } else { 128 } {
        return Err(error("prefix length out of range".into()));
    }
    match parsed {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => Err(EvalError::other(format!(
            "network address parse error during conversion from string: IPv4-mapped IPv6 address {} is not allowed",
            quoted(text)
        ))),
        address => Ok(Network { address, bits }),
    }
}

fn address(args: &[Val<'_>]) -> Result<IpAddr, EvalError> {
    match args {
        [Val::Opaque(thing)] => match &**thing {
            OpaqueValue::Ip(ip) => Ok(*ip),
            _ => Err(EvalError::NoSuchOverload),
        },
        _ => Err(EvalError::NoSuchOverload),
    }
}

fn network(value: Option<&Val<'_>>) -> Result<Network, EvalError> {
    match value.and_then(|v| v.as_opaque()) {
        Some(OpaqueValue::Network(network)) => Ok(*network),
        _ => Err(EvalError::NoSuchOverload),
    }
}

pub(super) fn ip<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    match args {
        [Val::String(s)] => Ok(Val::opaque(OpaqueValue::Ip(parse_ip(s.as_str())?))),
        _ => Ok(Val::opaque(OpaqueValue::Ip(network(args.first())?.address))),
    }
}

pub(super) fn is_ip<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(parse_ip(text(args)?).is_ok()))
}

pub(super) fn is_canonical<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let text = text(args)?;
    Ok(Val::Bool(parse_ip(text)?.to_string() == text))
}

pub(super) fn family<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(if address(args)?.is_ipv4() { 4 } else { 6 }))
}

pub(super) fn is_unspecified<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(address(args)?.is_unspecified()))
}

pub(super) fn is_loopback<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(address(args)?.is_loopback()))
}

pub(super) fn is_link_local_multicast<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(match address(args)? {
        IpAddr::V4(a) => a.octets()[..3] == [224, 0, 0],
        IpAddr::V6(a) => a.segments()[0] & 0xff0f == 0xff02,
    }))
}

pub(super) fn is_link_local_unicast<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(link_local(address(args)?)))
}

fn link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 == 0xfe80,
    }
}

pub(super) fn is_global_unicast<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let address = address(args)?;
    let broadcast = matches!(address, IpAddr::V4(a) if a.is_broadcast());
    Ok(Val::Bool(
        !broadcast
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !link_local(address),
    ))
}

pub(super) fn cidr<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::opaque(OpaqueValue::Network(parse_network(text(args)?)?)))
}

pub(super) fn is_cidr<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Bool(parse_network(text(args)?).is_ok()))
}

pub(super) fn contains_ip<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let network = network(args.first())?;
    let address = match args.get(1) {
        Some(Val::String(s)) => parse_ip(s.as_str())?,
        _ => address(args.get(1..).unwrap_or_default())?,
    };
    Ok(Val::Bool(network.contains(address)))
}

pub(super) fn contains_cidr<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    let outer = network(args.first())?;
    let inner = match args.get(1) {
        Some(Val::String(s)) => parse_network(s.as_str())?,
        value => network(value)?,
    };
    Ok(Val::Bool(outer.bits <= inner.bits && outer.contains(inner.address)))
}

pub(super) fn prefix_length<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::Int(i64::from(network(args.first())?.bits)))
}

pub(super) fn masked<'a>(_: &mut Context<'a>, args: &[Val<'a>]) -> Outcome<'a> {
    Ok(Val::opaque(OpaqueValue::Network(network(args.first())?.masked())))
}
