//! Requests that are forwarded to a kubelet, a pod or a service: log, exec, attach, portforward and proxy.
//!
//! `options` decodes the query, `log_options` validates those of a log, `location` resolves the destination,
//! `log_answer` reads a log, which `log_messages` sends over WebSocket, `forward` forwards HTTP or splices an
//! upgraded connection (SPDY, WebSocket), `proxied` keeps redirects of proxied servers below the proxy, and
//! `html_body` and `html_links` the links in their pages.
//! Upstream: kubernetes `pkg/registry/core/pod/rest` and k8s.io/apimachinery `pkg/util/proxy`.

mod forward;
mod html_body;
mod html_links;
mod location;
mod log_answer;
mod log_messages;
mod log_options;
mod options;
mod proxied;

use std::borrow::Cow;

use hyper::header::{HeaderValue, LOCATION};
use hyper::{Method, Response, StatusCode};
use percent_encoding::{percent_decode_str, utf8_percent_encode, AsciiSet, CONTROLS};
use plinth_codec::schema::GVK;
use plinth_codec::Value;

use crate::authz::{Attributes, RequestAttributes};
use crate::context::{AdmissionRequest, Context, Operation};
use crate::egress::forward::requested_upgrade;
use plinth_api::{ApiError, Verb};
use plinth_http::{Body, RequestBody};
use plinth_storage::decode_object;

/// Subresources that need an upgrade, and the `create` permission for GET, too.
const STREAMS: &[&str] = &["attach", "exec", "portforward"];

/// Forwards a request.
///
/// # Errors
/// 400 and 404 without a destination, and for a stream without an upgrade; 500 and 503 when it is
/// unreachable.
pub(super) async fn connect(mut cx: Box<Context>, body: RequestBody) -> Result<Response<Body>, ApiError> {
    let upgrade = requested_upgrade(cx.upgrade.take(), &mut cx.headers);
    let is_stream = STREAMS.contains(&cx.info.subresource.as_str());
    if is_stream {
        authorize_create(&cx).await?;
    }
    let mut options = options_of(&cx)?;
    if cx.info.subresource == "log" {
        log_options::validate(&options, &cx.info.name)?;
    } else {
        admit(&cx, &mut options).await?;
    }
    let destination = match (cx.resource.plural(), cx.info.subresource.as_str()) {
        (plural, "proxy") => {
            let path = proxy_path(&cx.info.tail).sent;
            let path = if path.is_empty() { "/" } else { &*path };
            let destination = match plural {
                "pods" => location::of_pod_port(&cx, path).await?,
                "services" => location::of_service(&cx, path).await?,
                _ => location::of_node(&cx, path).await?,
            };
            // As upstream: only with a destination and without an upgrade (k8s.io/apimachinery
            // `pkg/util/proxy/upgradeaware.go`).
            let is_read = matches!(cx.method, Method::GET | Method::HEAD);
            if cx.info.tail.is_empty() && is_read && upgrade.is_none() {
                return redirect(&cx);
            }
            destination
        }
        (_, subresource) => {
            let pod = read_pod(&cx).await?;
            match location::of_container(&cx, &pod, subresource, &options).await? {
                Some(destination) if subresource == "log" => {
                    return log_answer::read(&cx, upgrade, destination).await
                }
                Some(destination) => destination,
                // A pod without a node has no log yet: an empty one, as kube-apiserver was recorded to
                // answer.
                None => return Ok(Response::new(Body::empty())),
            }
        }
    };
    if is_stream && upgrade.is_none() {
        return Err(ApiError::bad_request("Upgrade request required"));
    }
    forward::forward(&cx, upgrade, body, destination).await
}

/// Runs admission over the options of a connection: what it makes of them is what is connected to.
///
/// # Errors
/// 400 for a dry run, which there is none of; what admission refuses.
async fn admit(cx: &Context, options: &mut Value) -> Result<(), ApiError> {
    if cx.query.is_dry_run() {
        return Err(ApiError::bad_request("dryRun is not supported"));
    }
    let requested = options.clone();
    let call = AdmissionRequest::new(cx, Operation::Connect, None);
    cx.server.admission.mutate(&call, options).await?;
    cx.server.admission.validate(&call, options).await?;
    // A path is passed on as it was sent.
    if cx.info.subresource == "proxy" && *options != requested {
        return Err(ApiError::internal("admission has changed the path of a proxy, which cannot be applied"));
    }
    Ok(())
}

/// Requires the `create` permission whatever the method: a WebSocket starts with GET, so a user with read
/// permission could run commands otherwise (kubernetes `pkg/registry/core/pod/rest/authorize.go`).
async fn authorize_create(cx: &Context) -> Result<(), ApiError> {
    if cx.info.verb == Verb::Create {
        return Ok(());
    }
    let request_attributes = RequestAttributes::read(&cx.method, None, None);
    let attributes =
        Attributes { verb: Verb::Create.as_str(), ..request_attributes.of_resource(&cx.user, &cx.info) };
    let decision = cx.server.authorizer.authorize(&attributes).await;
    match (decision.allowed(), decision.error) {
        (true, _) => Ok(()),
        (false, Some(error)) => Err(ApiError::internal(error)),
        (false, None) => {
            let (group, plural) = (&cx.info.group, &cx.info.resource);
            Err(ApiError::forbidden(group, plural, &cx.info.name, &decision.reason.to_string()))
        }
    }
}

async fn read_pod(cx: &Context) -> Result<Value, ApiError> {
    let record = cx.newest(&cx.info.object_key(&cx.resource)?).await?;
    decode_object(&cx.resource, &record.ok_or_else(|| cx.not_found())?)
}

/// A path below a proxy: as admission sees it, and as the other side gets it.
struct ProxyPath<'t> {
    shown: Cow<'t, str>,
    sent: Cow<'t, str>,
}

/// What is sent means what admission has seen: a path with empty or dot segments, escaped ones among them, is
/// cleaned, as upstream does with each (k8s.io/apimachinery `pkg/util/net`, `JoinPreservingTrailingSlash`).
fn proxy_path(tail: &str) -> ProxyPath<'_> {
    let decoded = percent_decode_str(tail).decode_utf8_lossy();
    let inner = decoded.strip_prefix('/').unwrap_or(&decoded);
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if decoded.len() <= 1 || !inner.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
        return ProxyPath { shown: decoded, sent: Cow::Borrowed(tail) };
    }
    let mut kept = Vec::new();
    for segment in decoded.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    let end = if decoded.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    let clean = format!("/{}{end}", kept.join("/"));
    let sent = utf8_percent_encode(&clean, ESCAPED_IN_PATHS).to_string();
    ProxyPath { shown: Cow::Owned(clean), sent: Cow::Owned(sent) }
}

/// What a path cannot have as it is.
const ESCAPED_IN_PATHS: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`')
    .add(b'{')
    .add(b'}');

/// The options of a connection, for admission and the kubelet.
///
/// # Errors
/// 400 for a malformed value.
fn options_of(cx: &Context) -> Result<Value, ApiError> {
    let row = cx.resource.row.subresource(&cx.info.subresource).ok_or_else(ApiError::no_such_resource)?;
    let kind: &GVK = row.text_options.as_ref().unwrap_or(&row.gvk);
    if cx.info.subresource != "proxy" {
        return options::decode(kind, cx.raw_query.as_deref().unwrap_or_default());
    }
    // The path is the only option, and the query is the other side's.
    let path = proxy_path(&cx.info.tail).shown;
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("path", &path).finish();
    options::decode(kind, &query)
}

/// Redirects to a path with a trailing slash, which relative links need.
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
    fn what_is_sent_means_what_admission_sees() {
        for (tail, shown, sent) in [
            ("", "", ""),
            ("/", "/", "/"),
            ("/run/x", "/run/x", "/run/x"),
            ("/run/x/", "/run/x/", "/run/x/"),
            ("/%72un/a%20b", "/run/a b", "/%72un/a%20b"),
            ("/a%2Fb", "/a/b", "/a%2Fb"),
            ("//run/x", "/run/x", "/run/x"),
            ("/%2Frun/a%20b", "/run/a b", "/run/a%20b"),
            ("/a/../run/", "/run/", "/run/"),
            ("/a/%2e%2e/run", "/run", "/run"),
            ("/a%2F..%2Frun%3Fx", "/run?x", "/run%3Fx"),
            ("/./run/.", "/run", "/run"),
            ("/..", "/", "/"),
            ("//", "/", "/"),
        ] {
            let path = proxy_path(tail);
            assert_eq!((&*path.shown, &*path.sent), (shown, sent), "{tail}");
        }
    }
}
