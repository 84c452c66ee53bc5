//! Requests that go on to a kubelet, a pod or a service: log, exec, attach, portforward and proxy.
//!
//! `location` says where to, `forward` carries the bytes, HTTP or whatever an `Upgrade` makes of the connection (SPDY,
//! WebSocket). What comes back is passed on as it is: links in proxied HTML are not rewritten. Upstream: kubernetes
//! `pkg/registry/core/pod/rest` and k8s.io/apimachinery `pkg/util/proxy`.

mod forward;
mod location;
pub mod options;

use hyper::body::Incoming;
use hyper::header::{HeaderValue, LOCATION};
use hyper::{Response, StatusCode};
use plinth_codec::{tree, Value};

use super::{write, Context};
use crate::admission::{self, Call, Operation};
use crate::http::body::Body;
use crate::status::ApiError;
use crate::storage::object;

/// The subresources that go on to somewhere else.
pub const SUBRESOURCES: &[&str] = &["attach", "exec", "log", "portforward", "proxy"];

/// Passes a request on.
///
/// # Errors
/// 400 and 404 where there is nowhere to go, 500 and 503 when nobody is there.
pub(super) async fn connect(mut cx: Context, body: Incoming) -> Result<Response<Body>, ApiError> {
    let upgrade = cx.upgrade.take();
    let options = options_of(&cx);
    let operation = if cx.info.subresource == "log" { None } else { Some(Operation::Connect) };
    if let Some(operation) = operation {
        let mut options = options.clone();
        let call = Call::new(&cx, operation, None);
        admission::mutate(&call, &mut options).await?;
        admission::validate(&call, &options).await?;
    }
    let destination = match (cx.resource.plural(), cx.info.subresource.as_str()) {
        ("pods", "proxy") => {
            let path = match rest_of(cx.uri.path(), "proxy") {
                Rest::None => return redirect(&cx),
                Rest::Path(path) => path,
            };
            location::of_pod_port(&cx, path).await?
        }
        ("services", _) => {
            let path = match rest_of(cx.uri.path(), "proxy") {
                Rest::None => return redirect(&cx),
                Rest::Path(path) => path,
            };
            location::of_service(&cx, path).await?
        }
        ("nodes", _) => {
            let path = match rest_of(cx.uri.path(), "proxy") {
                Rest::None => return redirect(&cx),
                Rest::Path(path) => path,
            };
            location::of_node(&cx, path).await?
        }
        (_, subresource) => {
            let pod = read_pod(&cx).await?;
            match location::of_container(&cx, &pod, subresource, &options).await? {
                Some(destination) => destination,
                // A pod without a node has said nothing yet.
                None => return Ok(Response::new(Body::empty())),
            }
        }
    };
    forward::forward(&cx, upgrade, body, destination).await
}

async fn read_pod(cx: &Context) -> Result<Value, ApiError> {
    let record = cx.server.store.get(write::storage(cx)?, &cx.info.namespace, &cx.info.name).await?;
    object::to_tree(&cx.resource, &record.ok_or_else(|| cx.not_found())?)
}

/// The options of a connection, from its query: what admission looks at, and what the kubelet is asked.
fn options_of(cx: &Context) -> Value {
    let kind = cx.resource.row.subresource(&cx.info.subresource).map_or("", |row| row.gvk.kind.as_str());
    let mut options = tree!({ "kind": kind, "apiVersion": "v1" });
    let Some(object) = options.as_object_mut() else { return options };
    let mut command = Vec::new();
    for (key, value) in form_urlencoded::parse(cx.raw_query.as_deref().unwrap_or_default().as_bytes()) {
        match &*key {
            "command" => command.push(Value::from(&*value)),
            "container" | "path" | "stream" | "sinceTime" => {
                object.insert(&*key, &*value);
            }
            "stdin" | "stdout" | "stderr" | "tty" | "follow" | "previous" | "timestamps" => {
                object.insert(&*key, !matches!(&*value, "false" | "0"));
            }
            "sinceSeconds" | "tailLines" | "limitBytes" => {
                if let Ok(number) = value.parse::<i64>() {
                    object.insert(&*key, number);
                }
            }
            _ => {}
        }
    }
    if !command.is_empty() {
        object.insert("command", command);
    }
    options
}

/// What follows the subresource in a path.
#[derive(Debug, PartialEq, Eq)]
enum Rest<'a> {
    /// Not even a slash.
    None,
    /// The rest, from the slash on.
    Path(&'a str),
}

/// The path behind `/NAME/proxy`.
fn rest_of<'a>(path: &'a str, subresource: &str) -> Rest<'a> {
    let marker = format!("/{subresource}");
    let Some(start) = path.find(&format!("{marker}/")).map(|at| at + marker.len()) else { return Rest::None };
    Rest::Path(&path[start..])
}

/// Relative links only work below a slash.
fn redirect(cx: &Context) -> Result<Response<Body>, ApiError> {
    let query = cx.raw_query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
    let target = HeaderValue::try_from(format!("{}/{query}", cx.uri.path())).map_err(ApiError::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
    response.headers_mut().insert(LOCATION, target);
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_path_is_kept_as_it_is() {
        let rows = [
            ("/api/v1/namespaces/n/services/s:80/proxy", Rest::None),
            ("/api/v1/namespaces/n/services/s:80/proxy/", Rest::Path("/")),
            ("/api/v1/nodes/a/proxy/logs/x%2Fy/", Rest::Path("/logs/x%2Fy/")),
        ];
        for (path, rest) in rows {
            assert_eq!(rest_of(path, "proxy"), rest, "{path}");
        }
    }
}
