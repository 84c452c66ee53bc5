//! The objects that exist in every cluster, but for the ConfigMap of `trust`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;

use plinth_codec::time::Timestamp;
use plinth_codec::{tree, Value};

use super::rbac;
use super::reconcile_object::reconcile_object;
use crate::members;
use plinth_api::{find_condition, is_deleting, metadata_text, set_condition, ApiError, Verb};
use plinth_apiserver::context::{Context, Server};
use plinth_apiserver::handlers::delete::delete_one;
use plinth_apiserver::handlers::internal::{ensure, update};
use plinth_apiserver::kind_handlers::service::DEFAULT_SERVICE_CIDR;
use plinth_storage::decode_object;

/// The namespaces that upstream creates.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// Creates missing system namespaces.
///
/// # Errors
/// When one cannot be written.
pub async fn ensure_system_namespaces(server: &Arc<Server>) -> Result<(), ApiError> {
    for name in NAMESPACES {
        let namespace = tree!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": tree!({ "name": *name }),
        });
        ensure(server, ("", "v1", "namespaces"), "", namespace).await?;
    }
    Ok(())
}

/// The system priority classes: name, value and description
/// (kubernetes `pkg/apis/scheduling/v1/helpers.go`).
const PRIORITY_CLASSES: &[(&str, i64, &str)] = &[
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
];

/// Creates missing system priority classes.
///
/// # Errors
/// When one cannot be written.
async fn ensure_priority_classes(server: &Arc<Server>) -> Result<(), ApiError> {
    for (name, value, description) in PRIORITY_CLASSES {
        let class = tree!({
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": tree!({ "name": *name }),
            "value": *value,
            "description": *description,
        });
        ensure(server, ("scheduling.k8s.io", "v1", "priorityclasses"), "", class).await?;
    }
    Ok(())
}

/// Creates missing priority classes, roles and bindings.
///
/// # Errors
/// When one cannot be written.
pub async fn ensure_classes_and_roles(server: &Arc<Server>) -> Result<(), ApiError> {
    ensure_priority_classes(server).await?;
    rbac::reconcile(server).await
}

/// Creates the Service `kubernetes` in namespace `default`, with which pods reach this server, and its
/// endpoints.
///
/// # Errors
/// When one cannot be written.
pub async fn ensure_kubernetes_service(server: &Arc<Server>, listening: SocketAddr) -> Result<(), ApiError> {
    const NAME: &str = "kubernetes";
    const NAMESPACE: &str = "default";
    let address = advertised(listening.ip(), prefers_ipv6(server));
    let servers = servers(server, SocketAddr::new(address, listening.port())).await?;
    // All have one port where each is on a machine of its own; a slice has one.
    let slice_port = servers.first_key_value().map_or(listening.port(), |(port, _)| *port);
    let port = i64::from(listening.port());
    let family = plinth_kinds::service_addresses::family(address);
    let cluster_ip = server.services.first_address().map(|ip| ip.to_string()).unwrap_or_default();
    let service_port = tree!({ "name": "https", "port": 443, "protocol": "TCP", "targetPort": port });
    let endpoint_port = |port: u16| tree!({ "name": "https", "port": i64::from(port), "protocol": "TCP" });
    let subsets: Vec<Value> = servers
        .iter()
        .map(|(port, addresses)| {
            let addresses: Vec<Value> = addresses.iter().map(|ip| tree!({ "ip": ip.to_string() })).collect();
            tree!({ "addresses": addresses, "ports": tree!([endpoint_port(*port)]) })
        })
        .collect();
    let ready: Vec<Value> = servers
        .get(&slice_port)
        .into_iter()
        .flatten()
        .map(|ip| tree!({ "addresses": tree!([ip.to_string()]), "conditions": tree!({ "ready": true }) }))
        .collect();
    let metadata = |key: &str, value: &str| {
        let labels: plinth_codec::Map = [(key.into(), Value::from(value))].into_iter().collect();
        tree!({ "name": NAME, "namespace": NAMESPACE, "labels": labels })
    };
    let service = tree!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": tree!({
            "name": NAME,
            "namespace": NAMESPACE,
            "labels": tree!({ "component": "apiserver", "provider": "kubernetes" }),
        }),
        "spec": tree!({
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "ipFamilyPolicy": "SingleStack",
            "sessionAffinity": "None",
            "ports": tree!([service_port]),
        }),
    });
    ensure(server, ("", "v1", "services"), NAMESPACE, service).await?;
    if servers.is_empty() {
        return Ok(());
    }
    let endpoints = tree!({
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": metadata("endpointslice.kubernetes.io/skip-mirror", "true"),
        "subsets": subsets,
    });
    reconcile_object(server, ("", "v1", "endpoints"), NAMESPACE, endpoints, &["subsets"]).await?;
    delete_slice_of_other_family(server, family).await?;
    let slice = tree!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata("kubernetes.io/service-name", NAME),
        "addressType": family,
        "endpoints": ready,
        "ports": tree!([endpoint_port(slice_port)]),
    });
    reconcile_object(
        server,
        ("discovery.k8s.io", "v1", "endpointslices"),
        NAMESPACE,
        slice,
        &["endpoints", "ports"],
    )
    .await
}

/// Deletes the slice of the Service `kubernetes` if its addresses are of another family than those of the
/// servers: a slice's family is immutable.
async fn delete_slice_of_other_family(server: &Arc<Server>, family: &str) -> Result<(), ApiError> {
    const SLICES: (&str, &str, &str) = ("discovery.k8s.io", "v1", "endpointslices");
    let cx = Context::internal(server, SLICES, "default", "kubernetes", Verb::Delete)?;
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(record) = server.store.get(form, "default", "kubernetes").await? else { return Ok(()) };
    let slice = decode_object(&cx.resource, &record)?;
    if slice.str_at(&["addressType"]) == Some(family) {
        return Ok(());
    }
    match delete_one(&cx, "Background", metadata_text(&slice, "uid"), Some(record.mod_revision)).await {
        // The next round repairs what it is now.
        Err(error) if error.has_changed() => Ok(()),
        deleted => deleted,
    }
}

/// Whether others can reach this server: whether the machine has an address that endpoints may have.
#[must_use]
pub fn is_reachable(server: &Server, listening: SocketAddr) -> bool {
    may_be_endpoint(advertised(listening.ip(), prefers_ipv6(server)))
}

/// Whether the endpoints of the Service `kubernetes` should have addresses of IPv6: as its own address.
fn prefers_ipv6(server: &Server) -> bool {
    server.services.first_address().is_some_and(|address| address.is_ipv6())
}

/// Endpoints may not have addresses of one machine or of one link.
fn may_be_endpoint(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !address.is_loopback() && !address.is_unspecified() && !is_link_local
}

/// The servers of the cluster that are up, this one among them: their addresses by port. One that
/// others cannot reach is left out.
async fn servers(server: &Server, own: SocketAddr) -> Result<BTreeMap<u16, BTreeSet<IpAddr>>, ApiError> {
    let mut servers: BTreeMap<u16, BTreeSet<IpAddr>> = BTreeMap::new();
    let others = match server.store.engine().is_replica() {
        true => members::live(&server.store).await?,
        false => Vec::new(),
    };
    for address in others.into_iter().map(|member| member.address).chain([own]) {
        let reachable = advertised(address.ip(), own.is_ipv6());
        if reachable.is_ipv4() == own.is_ipv4() && may_be_endpoint(reachable) {
            servers.entry(address.port()).or_default().insert(reachable);
        }
    }
    Ok(servers)
}

/// Creates the ConfigMap with the date since when the use of legacy tokens is tracked: cleaners of such
/// Secrets must not rely on data from before (kubernetes `pkg/controlplane/controller/legacytokentracking`).
///
/// # Errors
/// When it cannot be written.
pub async fn ensure_token_tracking(server: &Arc<Server>) -> Result<(), ApiError> {
    const DATE: usize = "2006-01-02".len();
    let today = Timestamp::now().to_rfc3339();
    let data = tree!({ "since": today.get(..DATE).unwrap_or_default() });
    let object = tree!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": tree!({
            "name": "kube-apiserver-legacy-service-account-token-tracking",
            "namespace": "kube-system",
        }),
        "data": data,
    });
    ensure(server, ("", "v1", "configmaps"), "kube-system", object).await
}

/// Creates the ServiceCIDR `kubernetes` with the ranges of cluster addresses, and sets it ready. One with
/// other ranges is not changed, except to add the second range of a dual-stack cluster (kubernetes
/// `pkg/controlplane/controller/defaultservicecidr`).
///
/// # Errors
/// When it cannot be written.
pub async fn ensure_service_cidr(server: &Arc<Server>) -> Result<(), ApiError> {
    const RESOURCE: (&str, &str, &str) = ("networking.k8s.io", "v1", "servicecidrs");
    let ranges = &server.services.addresses;
    let networks: Value =
        ranges.iter().map(|range| Value::from(range.trunc().to_string())).collect::<Vec<_>>().into();
    let object = tree!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": tree!({ "name": DEFAULT_SERVICE_CIDR }),
        "spec": tree!({ "cidrs": networks.clone() }),
    });
    ensure(server, RESOURCE, "", object).await?;
    let cx = Context::internal(server, RESOURCE, "", DEFAULT_SERVICE_CIDR, Verb::Update)?;
    let widened = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let shown = new.list_at(&["spec", "cidrs"]).to_vec();
        let all = networks.as_array().unwrap_or_default();
        if shown.len() < all.len() && all.starts_with(&shown) {
            if let Some(spec) = new.object_at_mut(&["spec"]) {
                spec.insert("cidrs", networks.clone());
            }
        }
        Ok(new)
    };
    let ready = |live: Option<&Value>| {
        let mut new = live.cloned().unwrap_or_default();
        let condition = find_condition(&new, "Ready");
        let is_set = condition.is_some_and(|condition| condition.str_at(&["status"]) != Some("Unknown"));
        let differs = new.at(&["spec", "cidrs"]) != Some(&networks);
        if is_set || differs || is_deleting(&new) {
            return Ok(new);
        }
        set_condition(&mut new, "Ready", "True", "", "Kubernetes default Service CIDR is ready");
        Ok(new)
    };
    let ignore_not_found = |outcome: Result<(), ApiError>| match outcome {
        Err(error) if error.is_not_found() => Ok(()),
        outcome => outcome,
    };
    ignore_not_found(update(&cx, &widened).await)?;
    let cx = cx.at_subresource("status");
    ignore_not_found(update(&cx, &ready).await)?;
    warn_of_other_networks(server, &cx, &networks).await
}

/// Reports as an Event that the ServiceCIDR `kubernetes` has other networks than the flag: addresses are
/// allocated from those of the object. It is made again when it has expired.
async fn warn_of_other_networks(
    server: &Arc<Server>,
    cx: &Context,
    networks: &Value,
) -> Result<(), ApiError> {
    const RESOURCE: (&str, &str, &str) = ("", "v1", "events");
    const NAMESPACE: &str = "default";
    const COMPONENT: &str = "kubernetes-service-cidr-controller";
    let Some(form) = &cx.resource.storage else { return Ok(()) };
    let Some(record) = server.store.get(form, "", DEFAULT_SERVICE_CIDR).await? else { return Ok(()) };
    let live = decode_object(&cx.resource, &record)?;
    let shown = live.list_at(&["spec", "cidrs"]);
    let expected = networks.as_array().unwrap_or_default();
    if shown == expected || is_deleting(&live) {
        return Ok(());
    }
    let list = |networks: &[Value]| networks.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ");
    let (shown, expected) = (list(shown), list(expected));
    let message = format!(
        "The default ServiceCIDR [{shown}] does not match the controller flag configurations [{expected}]"
    );
    let (uid, now) = (metadata_text(&live, "uid"), Timestamp::now().to_rfc3339());
    let name = format!("{DEFAULT_SERVICE_CIDR}.{}", uid.get(..8).unwrap_or_default());
    let events = Context::internal(server, RESOURCE, NAMESPACE, &name, Verb::Get)?;
    let Some(form) = &events.resource.storage else { return Ok(()) };
    if server.store.get(form, NAMESPACE, &name).await?.is_some() {
        return Ok(());
    }
    tracing::warn!(%shown, %expected, "ServiceCIDR kubernetes differs from --service-cluster-ip-range: set the flag to its networks or delete it");
    let involved = tree!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "name": DEFAULT_SERVICE_CIDR,
        "uid": uid,
        "resourceVersion": metadata_text(&live, "resourceVersion"),
    });
    let event = tree!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": tree!({ "name": name, "namespace": NAMESPACE }),
        "involvedObject": involved,
        "reason": "KubernetesDefaultServiceCIDRInconsistent",
        "message": message,
        "type": "Warning",
        "count": 1,
        "firstTimestamp": now.clone(),
        "lastTimestamp": now,
        "source": tree!({ "component": COMPONENT }),
        "reportingComponent": COMPONENT,
    });
    ensure(server, RESOURCE, NAMESPACE, event).await
}

/// The address at which others reach this server: the bind address, or, if that is unspecified, this
/// machine's address on its default route (as upstream chooses its advertise address), of the family of the
/// Service `kubernetes` if there is one.
fn advertised(listening: IpAddr, prefers_ipv6: bool) -> IpAddr {
    if !listening.is_loopback() && !listening.is_unspecified() {
        return listening;
    }
    let families = if prefers_ipv6 { [true, false] } else { [false, true] };
    families.into_iter().find_map(on_default_route).unwrap_or(listening)
}

/// This machine's address on its default route of a family.
fn on_default_route(is_ipv6: bool) -> Option<IpAddr> {
    // Addresses for documentation: connecting a datagram socket sends nothing, it only looks up the route.
    let (own, somewhere) = if is_ipv6 { ("[::]:0", "[2001:db8::1]:9") } else { ("0.0.0.0:0", "192.0.2.1:9") };
    let socket = UdpSocket::bind(own).ok()?;
    socket.connect(somewhere).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|ip| !ip.is_unspecified())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_machine_or_link_are_no_endpoints() {
        let rows = [
            ("10.0.0.1", true),
            ("2001:db8::1", true),
            ("127.0.0.1", false),
            ("::1", false),
            ("0.0.0.0", false),
            ("169.254.1.2", false),
            ("fe80::1", false),
        ];
        for (address, expected) in rows {
            assert_eq!(may_be_endpoint(address.parse().unwrap()), expected, "{address}");
        }
    }
}
