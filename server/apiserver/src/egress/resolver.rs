//! Resolves the Service that a webhook or an APIService refers to, to an address: the cluster IP, or an
//! endpoint with `--enable-aggregator-routing`.
//!
//! Upstream: k8s.io/apiserver `pkg/util/proxy/proxy.go`.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use plinth_codec::url::join_host_port;
use plinth_codec::Value;

use plinth_api::ApiError;
use plinth_registry::ServicePort;
use plinth_storage::{decode_object, Header, Store};

/// The Service of the API server itself.
const OWN_SERVICE: (&str, &str, u16) = ("default", "kubernetes", 443);
/// Label of an EndpointSlice: the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Slices of a Service among whose endpoints one is chosen: users make as many as they like.
const MAX_SLICES: usize = 100;

/// Why a Service has no address, with upstream's messages.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the texts say it
pub enum ResolveError {
    /// There is no such Service.
    #[error("service {0:?} not found")]
    NotFound(String),
    /// The Service has no such port.
    #[error("no service port {port} found for service {name:?}")]
    NoPort {
        port: u16,
        /// Name of the Service.
        name: String,
    },
    /// No endpoint of the Service is ready.
    #[error("no endpoints available for service {0:?}")]
    NoEndpoints(String),
    /// A headless Service.
    #[error("cannot route to service with ClusterIP \"None\"")]
    Headless,
    /// A type of Service that cannot be routed to.
    #[error("unsupported service type {0:?}")]
    Type(String),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] ApiError),
}

/// Host and port to connect to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&join_host_port(&self.host, self.port))
    }
}

/// A random place to start from.
fn offset() -> usize {
    uuid::Uuid::new_v4().as_fields().0 as usize
}

/// Resolves Services. Immutable.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServiceResolver {
    /// Whether an endpoint is chosen instead of the cluster IP.
    pub by_endpoints: bool,
    /// Where the Service of the API server itself leads to.
    pub own: Option<SocketAddr>,
}

impl ServiceResolver {
    /// Resolves a port of a Service.
    ///
    /// # Errors
    /// [`ResolveError`].
    pub async fn resolve(&self, store: &Store, target: &ServicePort) -> Result<Address, ResolveError> {
        if let Some(own) = self.own.filter(|_| is_own(target)) {
            return Ok(Address { host: own.ip().to_string(), port: own.port() });
        }
        let service =
            read(store, target).await?.ok_or_else(|| ResolveError::NotFound(target.name.clone()))?;
        match self.by_endpoints {
            false => cluster_address(&service, target),
            true => {
                let port = routed_port(&service, target)?;
                let family = service.list_at(&["spec", "ipFamilies"]).first().and_then(Value::as_str);
                let found = find_endpoint(store, (&target.namespace, &target.name), port, family).await?;
                found.ok_or_else(|| ResolveError::NoEndpoints(target.name.clone()))
            }
        }
    }
}

/// Whether a reference leads to the API server itself.
pub fn is_own(target: &ServicePort) -> bool {
    (target.namespace.as_str(), target.name.as_str(), target.port) == OWN_SERVICE
}

/// Reads a Service.
///
/// # Errors
/// When the store cannot be read.
pub async fn read(store: &Store, target: &ServicePort) -> Result<Option<Value>, ApiError> {
    let registry = store.registry();
    let Some(services) = registry.internal("", "v1", "services") else { return Ok(None) };
    let Some(form) = &services.storage else { return Ok(None) };
    let record = store.get(form, &target.namespace, &target.name).await?;
    record.map(|record| decode_object(services, &record)).transpose()
}

/// The EndpointSlices of a Service: the first, and those with a ready endpoint, a hundred at most.
///
/// # Errors
/// When the store cannot be read.
pub async fn slices(store: &Store, namespace: &str, service: &str) -> Result<Vec<Value>, ApiError> {
    slices_that(store, (namespace, service), |earlier, slice| earlier.is_empty() || has_ready(slice)).await
}

/// A ready endpoint of a Service with the named port, any of them; the name is empty for a port without one.
/// Those of `family`, if given, are preferred.
///
/// # Errors
/// When the store cannot be read.
pub(crate) async fn find_endpoint(
    store: &Store,
    service: (&str, &str),
    port: &str,
    family: Option<&str>,
) -> Result<Option<Address>, ApiError> {
    let wanted = port.to_owned();
    let is_usable = move |_: &[Value], slice: &Value| port_of(slice, &wanted).is_some() && has_ready(slice);
    let slices = slices_that(store, service, is_usable).await?;
    Ok(endpoint(&slices, port, family, offset()))
}

/// The EndpointSlices of a Service that `is_wanted` beside those before, a hundred at most.
async fn slices_that(
    store: &Store,
    (namespace, service): (&str, &str),
    is_wanted: impl Fn(&[Value], &Value) -> bool + Send + 'static,
) -> Result<Vec<Value>, ApiError> {
    let registry = store.registry();
    let Some(slices) = registry.internal("discovery.k8s.io", "v1", "endpointslices") else {
        return Ok(Vec::new());
    };
    let service = service.to_owned();
    let is_own = move |header: &Header<'_>| header.label(SERVICE_NAME) == Some(&*service);
    let add = move |found: &mut Vec<Value>, slice: Value| {
        if is_wanted(found, &slice) {
            found.push(slice);
        }
        if found.len() < MAX_SLICES {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    };
    store.visit(slices, namespace, is_own, Vec::new(), add).await
}

fn cluster_address(service: &Value, target: &ServicePort) -> Result<Address, ResolveError> {
    let kind = service.str_at(&["spec", "type"]).unwrap_or("ClusterIP");
    if kind == "ExternalName" {
        let host = service.str_at(&["spec", "externalName"]).unwrap_or_default();
        return Ok(Address { host: host.to_owned(), port: target.port });
    }
    let address = service.str_at(&["spec", "clusterIP"]).unwrap_or_default();
    // Go would take an empty address for the local machine.
    if kind == "ClusterIP" && matches!(address, "" | "None") {
        return Err(ResolveError::Headless);
    }
    routed_port(service, target)?;
    Ok(Address { host: address.to_owned(), port: target.port })
}

/// Name of the port of a Service that is reached through addresses of its own.
fn routed_port<'s>(service: &'s Value, target: &ServicePort) -> Result<&'s str, ResolveError> {
    let kind = service.str_at(&["spec", "type"]).unwrap_or("ClusterIP");
    if !matches!(kind, "ClusterIP" | "LoadBalancer" | "NodePort") {
        return Err(ResolveError::Type(kind.to_owned()));
    }
    let missing = || ResolveError::NoPort { port: target.port, name: target.name.clone() };
    port_name(service, target.port).ok_or_else(missing)
}

/// Name of the port of a Service with that number; empty for one without a name.
pub fn port_name(service: &Value, number: u16) -> Option<&str> {
    let ports = service.list_at(&["spec", "ports"]);
    let port = ports.iter().find(|p| p.get("port").and_then(Value::as_int) == Some(i64::from(number)))?;
    Some(port.str_at(&["name"]).unwrap_or_default())
}

/// Whether some slice has a ready endpoint and the named port.
pub fn has_available_endpoint(slices: &[Value], port: &str) -> bool {
    slices.iter().any(|slice| has_ready(slice) && port_of(slice, port).is_some())
}

fn has_ready(slice: &Value) -> bool {
    slice.list_at(&["endpoints"]).iter().any(is_ready)
}

/// A ready endpoint with the named port, from the slices of the family first. `offset` spreads requests over
/// endpoints.
fn endpoint(slices: &[Value], port: &str, family: Option<&str>, offset: usize) -> Option<Address> {
    let is_preferred = |slice: &&Value| family.is_none() || slice.str_at(&["addressType"]) == family;
    let (mut preferred, mut others): (Vec<&Value>, Vec<&Value>) = slices.iter().partition(is_preferred);
    for list in [&mut preferred, &mut others] {
        let at = offset % list.len().max(1);
        list.rotate_left(at);
    }
    preferred.into_iter().chain(others).find_map(|slice| {
        let number = port_of(slice, port)?;
        let endpoints = slice.list_at(&["endpoints"]);
        let (before, from) = endpoints.split_at(offset % endpoints.len().max(1));
        let ready = from.iter().chain(before).find(|endpoint| is_ready(endpoint))?;
        let host = ready.list_at(&["addresses"]).first()?.as_str()?.to_owned();
        Some(Address { host, port: number })
    })
}

fn is_ready(endpoint: &Value) -> bool {
    endpoint.at(&["conditions", "ready"]).and_then(Value::as_bool) != Some(false)
}

fn port_of(slice: &Value, name: &str) -> Option<u16> {
    let ports = slice.list_at(&["ports"]);
    let port = ports.iter().find(|p| p.str_at(&["name"]).unwrap_or_default() == name)?;
    u16::try_from(port.get("port").and_then(Value::as_int)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    fn target(port: u16) -> ServicePort {
        ServicePort { namespace: "n".into(), name: "s".into(), port }
    }

    #[test]
    fn services_without_endpoint_routing() {
        let rows = [
            (r#"{"spec":{"clusterIP":"10.0.0.7","ports":[{"port":443}]}}"#, 443, Ok(("10.0.0.7", 443))),
            (
                r#"{"spec":{"type":"LoadBalancer","clusterIP":"fd00::7","ports":[{"port":443}]}}"#,
                443,
                Ok(("fd00::7", 443)),
            ),
            (r#"{"spec":{"type":"ExternalName","externalName":"a.example"}}"#, 8443, Ok(("a.example", 8443))),
            (
                r#"{"spec":{"clusterIP":"10.0.0.7","ports":[{"port":443}]}}"#,
                80,
                Err(r#"no service port 80 found for service "s""#),
            ),
            (
                r#"{"spec":{"clusterIP":"None"}}"#,
                443,
                Err(r#"cannot route to service with ClusterIP "None""#),
            ),
            (
                r#"{"spec":{"type":"Odd","clusterIP":"10.0.0.7"}}"#,
                443,
                Err(r#"unsupported service type "Odd""#),
            ),
        ];
        for (service, port, expected) in rows {
            let found = cluster_address(&parse(service), &target(port));
            let found = found.map(|address| (address.host, address.port)).map_err(|error| error.to_string());
            let expected = expected.map(|(host, port)| (host.to_owned(), port)).map_err(str::to_owned);
            assert_eq!(found, expected, "{service}");
        }
    }

    #[test]
    fn endpoints_are_ready_ones_of_the_primary_family_first() {
        let slice = |family: &str, port: &str, endpoints: &str| {
            let port = format!(r#"[{{"name":"{port}","port":8443}},{{"port":9}}]"#);
            parse(&format!(r#"{{"addressType":"{family}","ports":{port},"endpoints":[{endpoints}]}}"#))
        };
        let ready = |address: &str| format!(r#"{{"addresses":["{address}"]}}"#);
        let unready = r#"{"addresses":["10.0.0.9"],"conditions":{"ready":false}}"#.to_owned();
        let slices = [
            slice("IPv6", "https", &ready("fd00::1")),
            slice("IPv4", "https", &unready),
            slice("IPv4", "https", &[unready.clone(), ready("10.0.0.1"), ready("10.0.0.2")].join(",")),
            slice("IPv4", "other", &ready("10.0.0.3")),
        ];
        let mut found = std::collections::BTreeSet::new();
        for offset in 0..60 {
            let address = endpoint(&slices, "https", Some("IPv4"), offset).unwrap();
            assert_eq!(address.port, 8443);
            found.insert(address.host);
        }
        assert_eq!(found.into_iter().collect::<Vec<_>>(), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(endpoint(&slices[..2], "https", Some("IPv4"), 0).unwrap().host, "fd00::1");
        assert_eq!(endpoint(&slices, "", None, 0).unwrap().port, 9, "a port without a name");
        let named =
            parse(r#"{"ports":[{"name":"https","port":1}],"endpoints":[{"addresses":["10.0.0.1"]}]}"#);
        assert_eq!(endpoint(&[named], "", None, 0), None, "no port without a name");
        assert!(
            endpoint(&slices[1..2], "https", None, 3).is_none() && endpoint(&[], "https", None, 3).is_none()
        );
        assert!(has_available_endpoint(&slices, "https") && has_available_endpoint(&slices, "other"));
        assert!(!has_available_endpoint(&slices[1..2], "https") && !has_available_endpoint(&slices, "no"));
    }
}
