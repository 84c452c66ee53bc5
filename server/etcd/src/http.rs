//! What is served beside gRPC: `/health`, `/livez`, `/readyz`, `/version`, `/metrics`, as etcd has them
//! (etcd's `server/etcdserver/api/etcdhttp`).

use std::sync::Arc;

use bytes::Bytes;
use http::header::{HeaderValue, ALLOW, CONTENT_TYPE};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use tonic::body::Body;

use crate::member::Member;
use crate::serves::Serves;
use crate::versions::{CLUSTER_VERSION, VERSION};
use crate::wire::maintenance::alarm;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers a request that is not one of gRPC.
pub(crate) async fn answer<B>(member: &Arc<Member>, serves: Serves, request: Request<B>) -> Response<Body> {
    if request.method() != Method::GET {
        let mut refused = respond(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Method Not Allowed\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return refused;
    }
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    match path {
        "/health" => health(member, query),
        "/livez" | "/readyz" => checks(member, path, query),
        "/version" if serves == Serves::Clients => {
            let versions = format!(
                r#"{{"etcdserver":"{VERSION}","etcdcluster":"{CLUSTER_VERSION}","storage":"{CLUSTER_VERSION}"}}"#
            );
            respond(StatusCode::OK, JSON, versions)
        }
        "/metrics" => {
            let measured = Arc::clone(member);
            let rendered = tokio::task::spawn_blocking(move || measured.render_metrics()).await;
            match rendered {
                Ok(text) => respond(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", text),
                Err(_) => respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, "server stopped\n"),
            }
        }
        _ => respond(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
    }
}

fn respond(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(body.into())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The values of a parameter that may be given several times.
fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    query.split('&').filter_map(move |pair| pair.strip_prefix(name)?.strip_prefix('='))
}

fn health(member: &Member, query: &str) -> Response<Body> {
    let reason = member.alarms.list(alarm::NONE).into_iter().find_map(|raised| {
        let (name, reason) = match raised.alarm {
            alarm::NOSPACE => ("NOSPACE", "ALARM NOSPACE"),
            alarm::CORRUPT => ("CORRUPT", "ALARM CORRUPT"),
            _ => ("", "ALARM UNKNOWN"),
        };
        (!values(query, "exclude").any(|excluded| excluded == name)).then(|| reason.to_owned())
    });
    let failure = || Some(format!("RANGE ERROR:{}", member.engine.failure()?));
    match reason.or_else(failure) {
        None => {
            member.metrics.health_checks.inc();
            respond(StatusCode::OK, JSON, r#"{"health":"true","reason":""}"#)
        }
        Some(reason) => {
            member.metrics.health_failures.inc();
            let reason = reason.replace(['"', '\\'], "'");
            let body = format!("{{\"health\":\"false\",\"reason\":\"{reason}\"}}\n");
            respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, body)
        }
    }
}

/// The checks of a probe, as text where one fails or `verbose` is given.
fn checks(member: &Member, path: &str, query: &str) -> Response<Body> {
    let reads = !member.engine.is_over();
    let mut checks = vec![("serializable_read", reads)];
    if path == "/readyz" {
        checks.insert(0, ("data_corruption", !member.alarms.is_corrupt()));
        checks.push(("linearizable_read", reads));
        checks.push(("non_learner", true));
    }
    checks.retain(|(name, _)| !values(query, "exclude").any(|excluded| excluded == *name));
    let passed = checks.iter().all(|(_, passed)| *passed);
    let mut text: String = checks
        .iter()
        .map(|(name, passed)| match passed {
            true => format!("[+]{name} ok\n"),
            false => format!("[-]{name} failed: server stopped\n"),
        })
        .collect();
    if !passed {
        return respond(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
    }
    let is_verbose = query.split('&').any(|pair| pair == "verbose" || pair.starts_with("verbose="));
    if !is_verbose {
        text.clear();
    }
    text.push_str("ok\n");
    respond(StatusCode::OK, TEXT, text)
}
