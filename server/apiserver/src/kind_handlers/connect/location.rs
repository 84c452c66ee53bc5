//! Resolves the destination of a connection: the kubelet of a node, a port of a pod, an endpoint of a
//! service.
//!
//! Upstream: kubernetes `pkg/registry/core/{pod,node,service}/strategy.go` and `…/storage`,
//! `pkg/kubelet/client`.

use std::net::IpAddr;

use plinth_codec::Value;

use super::log_options;
use super::options::is_set;
use crate::context::Context;
use crate::egress::resolver::{find_endpoint, Address};
use plinth_api::{metadata_text, ApiError, Reason, Verb};
use plinth_storage::decode_object;

/// Default port of a kubelet.
const KUBELET_PORT: i64 = 10250;

/// Protocol and certificate verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    /// Plain HTTP.
    Http,
    /// TLS without verification.
    Https,
    /// TLS as configured by the kubelet flags.
    Kubelet,
    /// The same without verification of the kubelet's certificate.
    UnverifiedKubelet,
}

/// Address and request target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub scheme: Scheme,
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub target: String,
    /// Whether the client chose the address: it must then not be an address of this machine.
    pub guarded: bool,
    /// Prefix of the message of a failed connection.
    pub failure: &'static str,
}

const BACKEND: &str = "error dialing backend";
const SERVICE: &str = "error trying to reach service";

/// `scheme:name:port`, `name:port` or `name` (k8s.io/apimachinery `util/net`, `SplitSchemeNamePort`).
fn split(id: &str) -> Option<(Scheme, &str, &str)> {
    let parts: Vec<&str> = id.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme, name, port] => (*scheme, *name, *port),
        _ => return None,
    };
    let scheme = match scheme {
        "" | "http" => Scheme::Http,
        "https" => Scheme::Https,
        _ => return None,
    };
    (!name.is_empty()).then_some((scheme, name, port))
}

/// Whether an address may be proxied to: not addresses that are local to this machine, as upstream
/// (kubernetes `pkg/proxy/util`, `IsProxyableIP`).
pub(super) fn is_proxyable(address: IpAddr) -> bool {
    // ::ffff:127.0.0.1 is 127.0.0.1.
    let address = address.to_canonical();
    let is_link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        IpAddr::V6(v6) => (v6.segments()[0] & 0xffc0) == 0xfe80,
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

/// 400 for an address that may not be proxied to.
pub(super) fn not_allowed() -> ApiError {
    ApiError::bad_request("address not allowed")
}

/// Reads an object, of the request's namespace or cluster-scoped, that determines the destination.
async fn read(cx: &Context, plural: &str, name: &str) -> Result<Value, ApiError> {
    let read = cx.on_behalf(("", "v1", plural), name, Verb::Get)?;
    let record = cx.newest(&read.info.object_key(&read.resource)?).await?;
    let record = record.ok_or_else(|| ApiError::not_found("", plural, name))?;
    decode_object(&read.resource, &record)
}

/// Host and port of a node's kubelet.
fn kubelet(node: &Value, preferred: &[String]) -> Result<(String, u16), String> {
    let addresses = node.list_at(&["status", "addresses"]);
    let of_type = |kind: &String| {
        let found = addresses.iter().find(|a| a.str_at(&["type"]) == Some(kind));
        found.and_then(|a| a.str_at(&["address"])).filter(|address| !address.is_empty())
    };
    let host = preferred.iter().find_map(of_type).ok_or_else(|| {
        let known: Vec<String> = addresses
            .iter()
            .map(|a| {
                format!(
                    "{{{} {}}}",
                    a.str_at(&["type"]).unwrap_or_default(),
                    a.str_at(&["address"]).unwrap_or_default()
                )
            })
            .collect();
        format!("no preferred addresses found; known addresses: [{}]", known.join(" "))
    })?;
    let port = node.at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]).and_then(Value::as_int);
    let port = port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT);
    Ok((host.to_owned(), u16::try_from(port).map_err(|_| format!("port {port} is out of range"))?))
}

async fn kubelet_of(cx: &Context, node: &str, target: String) -> Result<Destination, ApiError> {
    let node = read(cx, "nodes", node).await?;
    // Upstream's error has no reason: it is not an API status.
    let (host, port) = kubelet(&node, cx.server.kubelets.address_types())
        .map_err(|why| ApiError::new(500, Reason::Unknown, why))?;
    Ok(Destination { scheme: Scheme::Kubelet, host, port, target, guarded: false, failure: BACKEND })
}

/// The requested container, or the only one.
fn container<'a>(pod: &'a Value, options: &'a Value) -> Result<&'a str, ApiError> {
    let names = |part: &str| {
        let list = pod.list_at(&["spec", part]);
        list.iter().map(|container| container.str_at(&["name"]).unwrap_or_default())
    };
    let all = || ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(names);
    let pod_name = metadata_text(pod, "name");
    let given = options.str_at(&["container"]).unwrap_or_default();
    if !given.is_empty() {
        return match all().any(|name| name == given) {
            true => Ok(given),
            false => Err(ApiError::bad_request(format!("container {given} is not valid for pod {pod_name}"))),
        };
    }
    let missing = format!("a container name must be specified for pod {pod_name}");
    match names("containers").collect::<Vec<_>>().as_slice() {
        [only] => Ok(only),
        [] => Err(ApiError::bad_request(missing)),
        _ => {
            let names = all().collect::<Vec<_>>().join(" ");
            Err(ApiError::bad_request(format!("{missing}, choose one of: [{names}]")))
        }
    }
}

/// The kubelet of a container; `None` for the log of a pod without a node.
pub(super) async fn of_container(
    cx: &Context,
    pod: &Value,
    subresource: &str,
    options: &Value,
) -> Result<Option<Destination>, ApiError> {
    let (namespace, name) = (metadata_text(pod, "namespace"), metadata_text(pod, "name"));
    let container = match subresource {
        "portforward" => "",
        _ => container(pod, options)?,
    };
    let node = pod.str_at(&["spec", "nodeName"]).unwrap_or_default();
    if node.is_empty() {
        return match subresource {
            "log" => Ok(None),
            _ => Err(ApiError::bad_request(format!("pod {name} does not have a host assigned"))),
        };
    }
    let verb = match subresource {
        "log" => "containerLogs",
        "portforward" => "portForward",
        verb => verb,
    };
    let mut target = format!("/{verb}/{namespace}/{name}");
    if !container.is_empty() {
        target = format!("{target}/{container}");
    }
    let query = match subresource {
        "portforward" => port_query(options),
        "log" => log_options::query(options),
        _ => stream_query(options),
    };
    if !query.is_empty() {
        target = format!("{target}?{query}");
    }
    let mut destination = kubelet_of(cx, node, target).await?;
    if subresource == "log" && log_options::skips_verification(options) {
        destination.scheme = Scheme::UnverifiedKubelet;
    }
    Ok(Some(destination))
}

/// The kubelet's name of the ports (kubernetes `pkg/registry/core/pod/strategy.go`, `streamParams`).
fn port_query(options: &Value) -> String {
    let ports = options.list_at(&["ports"]).iter().filter_map(Value::as_int);
    let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
    let mut query = form_urlencoded::Serializer::new(String::new());
    if !ports.is_empty() {
        query.append_pair("port", &ports.join(","));
    }
    query.finish()
}

/// The kubelet's names of the streams of exec and attach, in the order of `url.Values`.
fn stream_query(options: &Value) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let command = options.list_at(&["command"]);
    for word in command.iter().filter_map(Value::as_str) {
        query.append_pair("command", word);
    }
    let streams = [("stderr", "error"), ("stdin", "input"), ("stdout", "output"), ("tty", "tty")];
    for (_, theirs) in streams.iter().filter(|(ours, _)| is_set(options, ours)) {
        query.append_pair(theirs, "1");
    }
    query.finish()
}

fn with_query(cx: &Context, path: &str) -> String {
    match &cx.raw_query {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    }
}

/// A port of a pod: the given one, or the first port of a container.
pub(super) async fn of_pod_port(cx: &Context, path: &str) -> Result<Destination, ApiError> {
    let id = &cx.info.name;
    let invalid = || ApiError::bad_request(format!("invalid pod request {id:?}"));
    let (scheme, name, port) = split(id).ok_or_else(invalid)?;
    let pod = read(cx, "pods", name).await?;
    let host = pod.str_at(&["status", "podIP"]).unwrap_or_default();
    let ports = pod.list_at(&["spec", "containers"]);
    let first = ports.iter().flat_map(|c| c.list_at(&["ports"])).next();
    let first = first.and_then(|p| p.get("containerPort")).and_then(Value::as_int);
    let default = match scheme {
        Scheme::Http => 80,
        _ => 443,
    };
    let port = match port {
        "" => first.and_then(|port| u16::try_from(port).ok()).unwrap_or(default),
        port => port.parse().map_err(|_| invalid())?,
    };
    if !host.parse().is_ok_and(is_proxyable) {
        return Err(not_allowed());
    }
    let target = with_query(cx, path);
    Ok(Destination { scheme, host: host.to_owned(), port, target, guarded: true, failure: SERVICE })
}

/// A ready endpoint of a service, by name or number of its port; without either, of a port that has no name.
pub(super) async fn of_service(cx: &Context, path: &str) -> Result<Destination, ApiError> {
    let id = &cx.info.name;
    let invalid = || ApiError::bad_request(format!("invalid service request {id:?}"));
    let (scheme, name, port) = split(id).ok_or_else(invalid)?;
    let service = read(cx, "services", name).await?;
    let ports = service.list_at(&["spec", "ports"]);
    // A number is mapped to the port's name; endpoints have names only.
    let by_number = port.parse::<i64>().ok();
    let wanted = match by_number {
        Some(number) => {
            let found = ports.iter().find(|p| p.get("port").and_then(Value::as_int) == Some(number));
            let missing = || {
                ApiError::new(
                    503,
                    Reason::ServiceUnavailable,
                    format!("no service port {number} found for service {name:?}"),
                )
            };
            found.and_then(|p| p.str_at(&["name"]).or(Some(""))).ok_or_else(missing)?
        }
        None => port,
    };
    let found = find_endpoint(&cx.server.store, (&cx.info.namespace, name), wanted, None).await?;
    let none = || {
        let what = format!("no endpoints available for service {id:?}");
        ApiError::new(503, Reason::ServiceUnavailable, what)
    };
    let Address { host, port } = found.ok_or_else(none)?;
    Ok(Destination { scheme, host, port, target: with_query(cx, path), guarded: true, failure: SERVICE })
}

/// The kubelet, or another port of its node.
pub(super) async fn of_node(cx: &Context, path: &str) -> Result<Destination, ApiError> {
    let id = &cx.info.name;
    let invalid = || ApiError::bad_request(format!("invalid node request {id:?}"));
    let (scheme, name, port) = split(id).ok_or_else(invalid)?;
    let mut destination = kubelet_of(cx, name, with_query(cx, path)).await?;
    // A host name is resolved, and its address checked, when connecting.
    if destination.host.parse().is_ok_and(|address| !is_proxyable(address)) {
        return Err(not_allowed());
    }
    destination.failure = SERVICE;
    destination.guarded = true;
    if !port.is_empty() {
        let port: u16 = port.parse().map_err(|_| invalid())?;
        if port != destination.port {
            destination.port = port;
            destination.scheme = scheme;
        }
    }
    Ok(destination)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_codec::json;

    fn parse(text: &str) -> Value {
        json::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn names_with_scheme_and_port() {
        let rows = [
            ("web", Some((Scheme::Http, "web", ""))),
            ("web:http", Some((Scheme::Http, "web", "http"))),
            ("https:web:443", Some((Scheme::Https, "web", "443"))),
            ("ftp:web:21", None),
            (":80", None),
            ("a:b:c:d", None),
        ];
        for (id, expected) in rows {
            assert_eq!(split(id), expected, "{id}");
        }
    }

    #[test]
    fn a_kubelet_has_the_first_preferred_address() {
        let preferred: Vec<String> = ["Hostname", "InternalIP"].map(str::to_owned).to_vec();
        let rows = [
            (
                r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"n"}]}}"#,
                Ok(("n".to_owned(), 10250)),
            ),
            (
                r#"{"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.1"}],"daemonEndpoints":{"kubeletEndpoint":{"Port":1234}}}}"#,
                Ok(("10.0.0.1".to_owned(), 1234)),
            ),
            (
                r#"{"status":{"addresses":[{"type":"ExternalIP","address":"1.2.3.4"}]}}"#,
                Err("no preferred addresses found; known addresses: [{ExternalIP 1.2.3.4}]".to_owned()),
            ),
        ];
        for (node, expected) in rows {
            assert_eq!(kubelet(&parse(node), &preferred), expected, "{node}");
        }
    }

    #[test]
    fn which_container_is_meant() {
        let pod = |containers: &str| parse(&format!(r#"{{"metadata":{{"name":"p"}},"spec":{containers}}}"#));
        // spec, options, container or message
        let rows = [
            (r#"{"containers":[{"name":"a"}]}"#, "{}", Ok("a")),
            (r#"{"containers":[{"name":"a"},{"name":"b"}]}"#, r#"{"container":"b"}"#, Ok("b")),
            (
                r#"{"containers":[{"name":"a"},{"name":"b"}],"initContainers":[{"name":"i"}],
                    "ephemeralContainers":[{"name":"e"}]}"#,
                "{}",
                Err("a container name must be specified for pod p, choose one of: [i a b e]"),
            ),
            (r#"{"containers":[]}"#, "{}", Err("a container name must be specified for pod p")),
            (
                r#"{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]}"#,
                r#"{"container":"i"}"#,
                Ok("i"),
            ),
            (r#"{"containers":[{"name":"a"}],"initContainers":[{"name":"i"}]}"#, "{}", Ok("a")),
            (
                r#"{"containers":[{"name":"a"}]}"#,
                r#"{"container":"z"}"#,
                Err("container z is not valid for pod p"),
            ),
        ];
        for (spec, options, expected) in rows {
            let (pod, options) = (pod(spec), parse(options));
            let found = container(&pod, &options).map_err(|e| e.message);
            assert_eq!(found, expected.map_err(str::to_owned), "{spec} {options:?}");
        }
    }

    #[test]
    fn the_query_for_a_kubelet() {
        let options = parse(r#"{"stdin":true,"stdout":true,"tty":false,"command":["sh","-c","a b"]}"#);
        assert_eq!(stream_query(&options), "command=sh&command=-c&command=a+b&input=1&output=1");
    }
}
