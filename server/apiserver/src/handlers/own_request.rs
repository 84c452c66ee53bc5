//! Requests of the server's own in the audit log: as those of a client over loopback, which upstream's are.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use hyper::header::{HeaderMap, USER_AGENT};
use hyper::{Method, Response, StatusCode, Uri};
use plinth_codec::negotiate::Shape;
use plinth_codec::{Map, Value};

use super::respond::{respond_status, respond_written};
use super::write::Written;
use crate::audit::{self, ReceivedRequest, Recorder};
use crate::context::Context;
use crate::egress::client::DEFAULT_AGENT;
use plinth_api::{parse_route, success_status, ApiError, RequestInfo, Route, Verb};
use plinth_http::Body;

/// A request of the server's own, and what is recorded of it: nothing where the policy asks for nothing, or
/// until something is about to be written.
pub(super) struct OwnRequest<'a> {
    given: &'a Context,
    /// The same with a recorder.
    recorded: Option<Box<Context>>,
    is_begun: AtomicBool,
}

impl<'a> OwnRequest<'a> {
    /// A request with that verb for what `given` names.
    pub(super) fn new(given: &'a Context, verb: Verb) -> OwnRequest<'a> {
        let audit = match given.server.audit.is_on() {
            true => recorder(given, verb),
            false => Recorder::default(),
        };
        let recorded = audit.is_on().then(|| Box::new(given.recorded_by(audit)));
        OwnRequest { given, recorded, is_begun: AtomicBool::new(false) }
    }

    /// What to process it with.
    pub(super) fn cx(&self) -> &Context {
        self.recorded.as_deref().unwrap_or(self.given)
    }

    pub(super) fn is_recorded(&self) -> bool {
        self.recorded.is_some()
    }

    /// Records that this object is about to be written.
    pub(super) async fn begin_write(&self, object: &Value) {
        let Some(cx) = &self.recorded else { return };
        self.begin().await;
        cx.audit.request_object(object, |object| cx.resource.strategy.default(object));
    }

    /// Records that something is about to be deleted, with these options.
    pub(super) async fn begin_delete(&self, mut options: Map) {
        let Some(cx) = &self.recorded else { return };
        self.begin().await;
        options.insert("kind", "DeleteOptions");
        options.insert("apiVersion", "meta.k8s.io/__internal");
        cx.audit.request_object(&options.into(), |_| {});
    }

    /// Records that the request begins, once.
    async fn begin(&self) {
        let Some(cx) = &self.recorded else { return };
        if !self.is_begun.swap(true, Ordering::Relaxed) {
            cx.audit.begin_own().await;
            // As that of a client, which has been authorized after it was received.
            cx.audit.annotate(audit::DECISION, "allow");
            cx.audit.annotate(audit::REASON, "");
        }
    }

    /// Records the outcome: what a client would be answered.
    pub(super) async fn end<T>(
        self,
        outcome: &Result<T, ApiError>,
        answer: impl FnOnce(&Context, &T) -> Result<Response<Body>, ApiError>,
    ) {
        let Some(cx) = self.recorded.as_deref().filter(|_| self.is_begun.load(Ordering::Relaxed)) else {
            return;
        };
        let answered = match outcome {
            Ok(done) => answer(cx, done),
            Err(error) => Err(error.clone()),
        };
        match &answered {
            Ok(response) => cx.audit.record_own(response, None),
            Err(error) => {
                let mut response = Response::new(Body::empty());
                let status = StatusCode::from_u16(error.code);
                *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                cx.audit.record_own(&response, Some(error));
            }
        }
        drop(answered);
        cx.audit.end_own().await;
    }
}

impl Drop for OwnRequest<'_> {
    fn drop(&mut self) {
        if let Some(cx) = self.recorded.as_deref().filter(|_| !self.is_begun.load(Ordering::Relaxed)) {
            cx.audit.discard();
        }
    }
}

/// The answer with an object that was written.
pub(super) fn written(cx: &Context, code: StatusCode, written: &Written) -> Result<Response<Body>, ApiError> {
    respond_written(&cx.representation(Shape::Object)?, code, written)
}

/// The answer of something that was done.
pub(super) fn done(cx: &Context) -> Result<Response<Body>, ApiError> {
    let mut status = success_status();
    status.insert("code", i64::from(StatusCode::OK.as_u16()));
    respond_status(&cx.representation(Shape::Object)?, StatusCode::OK, &status.into())
}

/// The recorder of a request, as one that arrived over loopback and was allowed.
fn recorder(given: &Context, verb: Verb) -> Recorder {
    let mut info = (*given.info).clone();
    // Those that name it in their object or not at all.
    if matches!(verb, Verb::Create | Verb::DeleteCollection) {
        info.name.clear();
    }
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, DEFAULT_AGENT);
    let path = path(&info);
    let method = match verb {
        Verb::Create => Method::POST,
        Verb::Delete | Verb::DeleteCollection => Method::DELETE,
        _ => Method::PUT,
    };
    // As the path of a client is read.
    let name = info.name.clone();
    let route = parse_route(&method, &path, None);
    given.server.audit.begin(&ReceivedRequest {
        user: Some(&given.user),
        route: &route.unwrap_or(Route::Resource(info)),
        verb: verb.as_str(),
        name: &name,
        uri: &path.parse::<Uri>().unwrap_or_default(),
        headers: &headers,
        remote: IpAddr::V4(Ipv4Addr::LOCALHOST),
        id: &audit::id(&headers),
        received: SystemTime::now(),
    })
}

fn path(info: &RequestInfo) -> String {
    let mut path = match info.group.as_str() {
        "" => format!("/api/{}", info.version),
        group => format!("/apis/{group}/{}", info.version),
    };
    if info.is_below_namespace {
        path = format!("{path}/namespaces/{}", info.namespace);
    }
    for part in [&info.resource, &info.name, &info.subresource] {
        if !part.is_empty() {
            path = format!("{path}/{part}");
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_clients() {
        for path_of_client in [
            "/api/v1/namespaces/a",
            "/api/v1/namespaces/a/status",
            "/api/v1/namespaces/a/secrets/b",
            "/apis/apps/v1/namespaces/a/deployments/b/scale",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node",
        ] {
            let Ok(Route::Resource(info)) = parse_route(&Method::GET, path_of_client, None) else {
                panic!("{path_of_client}")
            };
            assert_eq!(path(&info), path_of_client);
        }
    }
}
