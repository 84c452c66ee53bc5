//! What Services hold: cluster addresses and node ports.
//!
//! Each is a key of the engine that is there while a Service holds it: an address is the IPAddress object of
//! its name (as in kubernetes `pkg/registry/core/service/ipallocator`), a node port a key that no API shows.
//! The keys are written and deleted in the transaction that writes or deletes the Service, on the condition
//! that they are absent. So nothing is ever held twice, and no crash leaves something held by nobody. A
//! repair of a damaged store may: it can lose a Service and keep what it held. An address or port whose
//! Service does not exist is given to the one that asks for it (upstream's repair loop,
//! `pkg/registry/core/service/ipallocator/controller/repairip.go`, deletes such IPAddresses). An allocation
//! that a Service lacks is restored by `controllers::allocations`.

use std::collections::HashSet;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use bytes::Bytes;
use ipnet::IpNet;
use plinth_codec::{json, tree, Value};
use plinth_engine::{At, Condition, Engine, Record, Transaction};

use super::networks::networks;
use crate::context::{Context, TransactionParts};
use plinth_api::{metadata_text, ApiError, Cause, Moment};
use plinth_kinds::service_addresses as service;
use plinth_kinds::service_families::set_families;
use plinth_kinds::service_ranges::nth;
use plinth_registry::{object_key, prefix_range, resource_prefix};
use plinth_storage::{decode_object, encode_object, unchanged, Fetched, Store, Stored};

/// Where the keys of node ports are.
const NODE_PORT_PREFIX: &str = "allocations/nodeports/";
/// How many free offsets are guessed at before all that are taken are read.
const GUESSES: usize = 16;
/// What a dry run answers for the first node port, as upstream: none that can be held.
const DRY_RUN_PORT: u16 = 32_769;

/// Gives a new or changed Service the addresses and ports that it wants and has not, and notes what it does
/// not want any more. Nothing is held before the transaction is committed; a dry run gets placeholders.
///
/// # Errors
/// 422 when something asked for is taken or outside the ranges, 500 when nothing is free.
pub(crate) async fn allocate(
    cx: &Context,
    old: Option<&Value>,
    new: &mut Value,
) -> Result<TransactionParts, ApiError> {
    let ranges = &cx.server.services;
    let families: Vec<&str> = ranges.addresses.iter().map(|range| service::family(range.addr())).collect();
    let errors = set_families(new, old, &families);
    if !errors.is_empty() {
        return Err(refuse(new, errors));
    }
    let held_addresses: Vec<IpAddr> = old.map(service::addresses).unwrap_or_default();
    let held_ports: Vec<u16> = old.map(service::node_ports).unwrap_or_default();
    let mut parts = TransactionParts::default();
    let mut addresses = service::addresses(new);
    let missing = service::missing_families(new);
    let networks = match missing.is_empty() && addresses.iter().all(|a| held_addresses.contains(a)) {
        true => Vec::new(),
        false => networks(cx).await?,
    };
    for address in &addresses {
        if held_addresses.contains(address) {
            continue;
        }
        let requester = Requester { old, new };
        let conditions = check_address(cx, &networks, *address, requester).await.map_err(|why| {
            let why = format!("failed to allocate IP {address}: {why}");
            refuse(new, vec![Cause::invalid("spec.clusterIPs", service::cluster_ips(new), &why)])
        })?;
        let (key, value) = address_key(cx, new, *address)?;
        hold(&mut parts, key, value, conditions);
    }
    for family in missing {
        let range = ranges.of_family(&family).ok_or_else(|| ApiError::internal("no range of the family"))?;
        let address = match cx.query.is_dry_run() {
            true => range.network(),
            false => free_address(cx, &networks, &family, &addresses).await?,
        };
        let (key, value) = address_key(cx, new, address)?;
        hold_free(&mut parts, key, value);
        addresses.push(address);
    }
    service::set_addresses(new, &addresses);
    allocate_ports(cx, old, new, &mut parts).await?;
    let (kept_addresses, kept_ports) = (service::addresses(new), service::node_ports(new));
    for address in held_addresses.iter().filter(|a| !kept_addresses.contains(a)) {
        parts.delete(address_name(*address));
    }
    // Both are sorted.
    for port in held_ports.iter().filter(|port| kept_ports.binary_search(port).is_err()) {
        parts.delete(port_key(*port));
    }
    Ok(parts)
}

/// Adds a key that a Service holds from now on.
fn hold(parts: &mut TransactionParts, key: Vec<u8>, value: Bytes, conditions: Vec<Condition>) {
    conditions.into_iter().for_each(|condition| parts.require(condition));
    parts.put(key, value);
}

/// Adds a key that was found absent and must still be.
fn hold_free(parts: &mut TransactionParts, key: Vec<u8>, value: Bytes) {
    let absent = Condition::Absent(key.clone().into());
    hold(parts, key, value, vec![absent]);
}

/// Releases what a deleted Service holds, and deletes its Endpoints.
pub(crate) fn release(service: &Value) -> TransactionParts {
    let mut parts = TransactionParts::default();
    service::addresses(service).into_iter().for_each(|address| parts.delete(address_name(address)));
    service::node_ports(service).into_iter().for_each(|port| parts.delete(port_key(port)));
    let prefix = resource_prefix("", "endpoints");
    let (namespace, name) = (metadata_text(service, "namespace"), metadata_text(service, "name"));
    parts.delete(object_key(&prefix, namespace, name));
    parts
}

fn refuse(service: &Value, causes: Vec<Cause>) -> ApiError {
    ApiError::invalid("", "Service", metadata_text(service, "name"), causes)
}

async fn allocate_ports(
    cx: &Context,
    old: Option<&Value>,
    new: &mut Value,
    parts: &mut TransactionParts,
) -> Result<(), ApiError> {
    let range = cx.server.services.node_ports.clone();
    let owner = format!("{}/{}", metadata_text(new, "namespace"), metadata_text(new, "name"));
    let mut mine: HashSet<u16> = old.map(service::node_ports).unwrap_or_default().into_iter().collect();
    for (port_field, wanted) in service::wanted_node_ports(new, old) {
        let port = u16::try_from(wanted).ok().filter(|port| range.contains(port));
        let allocated = || "provided port is already allocated".to_owned();
        let error = match port {
            // Entries share a port; health checks have one of their own.
            Some(port) if mine.contains(&port) && port_field != service::NodePortField::HealthCheck => {
                continue
            }
            Some(port) if mine.contains(&port) => allocated(),
            Some(port) => match holder(cx, port_key(port), Requester { old, new }).await? {
                Holder::Other => allocated(),
                Holder::None(conditions) => {
                    mine.insert(port);
                    hold(parts, port_key(port), owner.clone().into(), conditions);
                    continue;
                }
            },
            None => format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                range.start(),
                range.end()
            ),
        };
        return Err(refuse(new, vec![Cause::invalid(port_field.path(), wanted, &error)]));
    }
    let mut shared = service::SharedPorts::of(new);
    for port_field in service::missing_node_ports(new) {
        // A port that another entry of the Service has for another protocol is shared.
        let port = match shared.find(new, &port_field) {
            Some(port) => port,
            None if cx.query.is_dry_run() => {
                let highest = mine.iter().copied().max().unwrap_or(0);
                highest.max(DRY_RUN_PORT - 1).saturating_add(1)
            }
            None => {
                let port = free_port(cx, &range, &mine).await?;
                hold_free(parts, port_key(port), owner.clone().into());
                port
            }
        };
        mine.insert(port);
        shared.add(new, &port_field, port);
        service::set_node_port(new, &port_field, port);
    }
    Ok(())
}

async fn is_taken(cx: &Context, key: Vec<u8>) -> Result<bool, ApiError> {
    cx.server.store.read(move |engine| Ok(engine.get(&key, At::Latest)?.is_some())).await
}

/// The Service that asks for an address or port.
#[derive(Clone, Copy)]
struct Requester<'a> {
    old: Option<&'a Value>,
    new: &'a Value,
}

/// Who holds an address or port.
enum Holder {
    /// No Service that exists, as long as these conditions hold.
    None(Vec<Condition>),
    /// Another Service, or an object that is none.
    Other,
}

/// Who holds an address or port that `requester` asks for and does not hold as far as its object shows.
async fn holder(cx: &Context, key: Vec<u8>, requester: Requester<'_>) -> Result<Holder, ApiError> {
    let (wanted, store) = (key.clone(), cx.server.store.clone());
    // At one revision: a Service is created and deleted together with what it holds.
    let look = move |engine: &Engine| {
        let state = engine.snapshot(At::Latest)?;
        let Some(record) = state.get(&wanted)? else { return Ok(None) };
        let condition = unchanged(&record);
        let owner = match owner_of(&store, record) {
            None => None,
            Some((namespace, name)) => {
                let service = object_key(&resource_prefix("", "services"), &namespace, &name);
                let is_there = state.get(&service)?.is_some();
                Some((namespace, name, service, is_there))
            }
        };
        Ok(Some((condition, owner)))
    };
    let Some((condition, owner)) = cx.server.store.read(look).await? else {
        return Ok(Holder::None(vec![Condition::Absent(key.into())]));
    };
    let mut conditions = vec![condition];
    let Some((namespace, name, service, is_there)) = owner else { return Ok(Holder::Other) };
    let is_requester = [("namespace", &namespace), ("name", &name)]
        .into_iter()
        .all(|(field, text)| metadata_text(requester.new, field) == text);
    if requester.old.is_none() || !is_requester {
        if is_there {
            return Ok(Holder::Other);
        }
        conditions.push(Condition::Absent(service.into()));
    }
    tracing::warn!(
        key = %String::from_utf8_lossy(&key),
        namespace,
        name,
        "allocation belongs to a Service that does not hold it and is released"
    );
    Ok(Holder::None(conditions))
}

/// Namespace and name of the Service that a record of an address or port names; none where it names no
/// Service or cannot be read.
pub fn owner_of(store: &Store, record: Record) -> Option<(String, String)> {
    if record.key.starts_with(NODE_PORT_PREFIX.as_bytes()) {
        let (namespace, name) = std::str::from_utf8(&record.value).ok()?.split_once('/')?;
        return Some((namespace.to_owned(), name.to_owned()));
    }
    let fetched = store.fetched(record).ok()?;
    let object = json::parse(Stored::parse(&fetched.value).ok()?.body()).ok()?;
    let parent = |field: &str| object.str_at(&["spec", "parentRef", field]).unwrap_or_default().to_owned();
    let is_service = parent("group").is_empty() && parent("resource") == "services";
    is_service.then(|| (parent("namespace"), parent("name")))
}

/// The conditions under which an address that was asked for can be taken, or why it cannot.
async fn check_address(
    cx: &Context,
    networks: &[IpNet],
    address: IpAddr,
    requester: Requester<'_>,
) -> Result<Vec<Condition>, String> {
    let in_range = |range: &IpNet| range.contains(&address) && !is_reserved(range, address);
    if !networks.iter().any(in_range) {
        return Err("the provided network does not match the current range".into());
    }
    match holder(cx, address_name(address), requester).await {
        Ok(Holder::None(conditions)) => Ok(conditions),
        Ok(Holder::Other) => Err("provided IP is already allocated".into()),
        Err(error) => Err(error.message),
    }
}

/// The network's own address and, in IPv4, the broadcast address.
fn is_reserved(range: &IpNet, address: IpAddr) -> bool {
    address == range.network() || (matches!(range, IpNet::V4(_)) && address == range.broadcast())
}

fn address_name(address: IpAddr) -> Vec<u8> {
    object_key(&resource_prefix("networking.k8s.io", "ipaddresses"), "", &address.to_string())
}

fn port_key(port: u16) -> Vec<u8> {
    format!("{NODE_PORT_PREFIX}{port}").into_bytes()
}

/// The IPAddress that names the holder of the address, as it is stored.
fn address_key(cx: &Context, owner: &Value, address: IpAddr) -> Result<(Vec<u8>, Bytes), ApiError> {
    let resource = cx.registry.internal("networking.k8s.io", "v1", "ipaddresses");
    let resource = resource.ok_or_else(ApiError::no_such_resource)?;
    let moment = Moment::present();
    let labels = tree!({
        "ipaddress.kubernetes.io/ip-family": service::family(address),
        "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
    });
    let parent = tree!({
        "resource": "services",
        "namespace": metadata_text(owner, "namespace"),
        "name": metadata_text(owner, "name"),
    });
    let object = tree!({
        "metadata": tree!({
            "name": address.to_string(),
            "uid": moment.uid,
            "creationTimestamp": moment.now,
            "labels": labels,
        }),
        "spec": tree!({ "parentRef": parent }),
    });
    let key = address_name(address);
    let value = cx.server.store.seal(&key, encode_object(resource, object)?)?;
    Ok((key, value))
}

/// How much of a range's start is left for what Services ask for by number (upstream's static band): a part
/// of it, 16 at least.
fn static_band(size: u128, part: u128, most: u128) -> u128 {
    const LEAST: u128 = 16;
    match size <= LEAST {
        true => 0,
        false => (size / part).clamp(LEAST, most),
    }
}

/// How many addresses of a range can be held; those of a large IPv6 range beyond 2^32 are never looked at.
fn size(range: &IpNet) -> u128 {
    let bits = u32::from(range.max_prefix_len() - range.prefix_len()).min(32);
    let all = 1u128 << bits;
    all.saturating_sub(if matches!(range, IpNet::V4(_)) { 2 } else { 1 })
}

/// An address of the first network of a family that has one free.
async fn free_address(
    cx: &Context,
    networks: &[IpNet],
    family: &str,
    mine: &[IpAddr],
) -> Result<IpAddr, ApiError> {
    let prefix = resource_prefix("networking.k8s.io", "ipaddresses");
    for range in networks.iter().filter(|range| service::family(range.addr()) == family) {
        let count = size(range);
        let band = static_band(count, 16, 256);
        let at = |n: u128| nth(range, n + 1).filter(|address| !mine.contains(address));
        let name = |n: u128| at(n).map(address_name);
        if let Some(n) = free_offset(cx, count, band, prefix.clone().into_bytes(), &name).await? {
            return at(n).ok_or_else(|| ApiError::internal("address outside its range"));
        }
    }
    Err(ApiError::internal("failed to allocate a serviceIP: range is full"))
}

async fn free_port(cx: &Context, range: &RangeInclusive<u16>, mine: &HashSet<u16>) -> Result<u16, ApiError> {
    let count = range.len() as u128;
    let band = static_band(count, 32, 128);
    let at = |n: u128| {
        let port = range.start().checked_add(u16::try_from(n).ok()?)?;
        (!mine.contains(&port)).then_some(port)
    };
    let name = |n: u128| at(n).map(port_key);
    match free_offset(cx, count, band, NODE_PORT_PREFIX.as_bytes().to_vec(), &name).await? {
        Some(n) => at(n).ok_or_else(|| ApiError::internal("node port outside its range")),
        None => Err(ApiError::internal("failed to allocate a nodePort: range is full")),
    }
}

/// An offset of `0..count` whose key is absent: by chance above the band, and when chance fails the first
/// free one above it, then in it.
async fn free_offset(
    cx: &Context,
    count: u128,
    band: u128,
    prefix: Vec<u8>,
    name: &(dyn Fn(u128) -> Option<Vec<u8>> + Send + Sync),
) -> Result<Option<u128>, ApiError> {
    for _ in 0..GUESSES {
        if band >= count {
            break;
        }
        let n = band + uuid::Uuid::new_v4().as_u128() % (count - band);
        if let Some(key) = name(n) {
            if !is_taken(cx, key).await? {
                return Ok(Some(n));
            }
        }
    }
    let taken = keys_below(cx, prefix).await?;
    // More offsets than there are keys cannot be taken.
    let is_free = |n: &u128| name(*n).is_some_and(|key| !taken.contains(key.as_slice()));
    Ok((band..count).chain(0..band.min(count)).find(is_free))
}

async fn keys_below(cx: &Context, prefix: Vec<u8>) -> Result<HashSet<Bytes>, ApiError> {
    let range = prefix_range(&prefix);
    let (keys, _) = cx.server.store.scan(range, |entry| Some(Bytes::copy_from_slice(entry.key))).await?;
    Ok(keys.into_iter().collect())
}

/// The keys of all addresses and node ports that are allocated.
///
/// # Errors
/// When they cannot be read.
pub async fn allocated_keys(cx: &Context) -> Result<HashSet<Bytes>, ApiError> {
    let addresses = resource_prefix("networking.k8s.io", "ipaddresses");
    let mut keys = keys_below(cx, addresses.into_bytes()).await?;
    keys.extend(keys_below(cx, NODE_PORT_PREFIX.into()).await?);
    Ok(keys)
}

/// Allocates the addresses and node ports of a stored Service that are not among `allocated`. Nothing is
/// written when the Service, or one of them, has changed since it was read.
///
/// # Errors
/// When the Service cannot be read, or the write fails.
pub async fn restore_allocations(
    cx: &Context,
    record: &Fetched,
    allocated: &HashSet<Bytes>,
) -> Result<(), ApiError> {
    let service = decode_object(&cx.resource, record)?;
    let (namespace, name) = (metadata_text(&service, "namespace"), metadata_text(&service, "name"));
    let owner = Bytes::from(format!("{namespace}/{name}"));
    let ports = service::node_ports(&service).into_iter();
    let ports = ports.map(|port| Ok((port_key(port), owner.clone())));
    let addresses = service::addresses(&service).into_iter();
    let addresses = addresses.map(|address| address_key(cx, &service, address));
    let mut transaction = Transaction::new().require(unchanged(record));
    let mut missing = Vec::new();
    for used in addresses.chain(ports) {
        let (key, value) = used?;
        if !allocated.contains(key.as_slice()) {
            missing.push(String::from_utf8_lossy(&key).into_owned());
            transaction = transaction.require(Condition::Absent(key.clone().into())).put(key, value);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    tracing::warn!(
        namespace,
        name,
        ?missing,
        "Service used addresses or node ports that were not allocated; restored the allocations"
    );
    cx.server.store.commit_by(transaction, cx.deadline).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ranges() {
        let range: IpNet = "10.0.0.0/24".parse().unwrap();
        assert_eq!(size(&range), 254);
        assert_eq!(nth(&range, 1), Some("10.0.0.1".parse().unwrap()));
        assert!(is_reserved(&range, "10.0.0.0".parse().unwrap()));
        assert!(is_reserved(&range, "10.0.0.255".parse().unwrap()));
        assert!(!is_reserved(&range, "10.0.0.254".parse().unwrap()));
        let range: IpNet = "fd00::/108".parse().unwrap();
        assert_eq!(size(&range), (1 << 20) - 1);
        assert!(!is_reserved(&range, "fd00::f:ffff".parse().unwrap()));
    }

    #[test]
    fn the_start_of_a_range_is_its_static_band() {
        let rows = [(254, 16, 256, 16), (2768, 32, 128, 86), (10, 16, 256, 0), (1 << 20, 16, 256, 256)];
        for (size, part, most, band) in rows {
            assert_eq!(static_band(size, part, most), band, "{size}");
        }
    }
}
