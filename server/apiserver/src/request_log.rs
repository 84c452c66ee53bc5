//! The log of requests at verbosity 3 and above, with upstream's fields (k8s.io/apiserver
//! `pkg/server/httplog`): a line for each request when its response begins. Without that verbosity a request
//! costs one comparison.

use std::fmt;
use std::net::IpAddr;
use std::time::Instant;

use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Method, Request, StatusCode, Uri};
use plinth_api::{parse_route, Route, User};

/// Target of the lines, for filters.
pub const TARGET: &str = "plinth::requests";
/// Length at which a URI or user agent is cut, in bytes: the client chooses them.
const MAX_TEXT: usize = 2048;

/// What is logged of a request once it is answered.
pub(crate) struct RequestLog {
    agent: Option<HeaderValue>,
    remote: IpAddr,
    received: Instant,
}

impl RequestLog {
    /// Notes a request that is to be logged; `None` when none are.
    pub(crate) fn begin<B>(request: &Request<B>, remote: IpAddr, received: Instant) -> Option<RequestLog> {
        tracing::enabled!(target: TARGET, tracing::Level::DEBUG).then(|| RequestLog {
            agent: request.headers().get(USER_AGENT).cloned(),
            remote,
            received,
        })
    }

    /// Logs the request. A stream goes on after that: the latency is that of its first byte.
    pub(crate) fn answered(
        &self,
        target: &LoggedTarget,
        code: StatusCode,
        user: Option<&User>,
        audit_id: &HeaderValue,
    ) {
        let uri = target.uri.path_and_query().map_or("/", |uri| uri.as_str());
        let agent = self.agent.as_ref().map(|agent| String::from_utf8_lossy(agent.as_bytes()));
        tracing::debug!(
            target: TARGET,
            method = %target.method,
            uri = cut(uri),
            code = code.as_u16(),
            duration_ms = self.received.elapsed().as_secs_f64() * 1e3,
            user = user.map(|user| user.name.as_str()),
            audit_id = audit_id.to_str().unwrap_or_default(),
            source_ip = %self.remote,
            user_agent = cut(agent.as_deref().unwrap_or_default()),
            "HTTP request"
        );
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

/// Method and URI of a request. Shown as the error log names it: `create apps/v1/deployments/scale`.
pub(crate) struct LoggedTarget {
    method: Method,
    uri: Uri,
}

impl LoggedTarget {
    pub(crate) fn of<B>(request: &Request<B>) -> LoggedTarget {
        LoggedTarget { method: request.method().clone(), uri: request.uri().clone() }
    }
}

impl fmt::Display for LoggedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(Route::Resource(info)) = parse_route(&self.method, self.uri.path(), self.uri.query()) else {
            return write!(f, "{} {}", self.method, cut(self.uri.path()));
        };
        f.write_str(info.verb.as_str())?;
        let parts = [&info.group, &info.version, &info.resource, &info.subresource];
        for (n, part) in parts.into_iter().filter(|part| !part.is_empty()).enumerate() {
            write!(f, "{}{}", if n == 0 { " " } else { "/" }, cut(part))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_by_table() {
        let rows = [
            ("GET", "/api/v1/pods?limit=1", "list v1/pods"),
            ("PUT", "/apis/apps/v1/namespaces/a/deployments/b/scale", "update apps/v1/deployments/scale"),
            ("GET", "/metrics", "GET /metrics"),
        ];
        for (method, uri, expected) in rows {
            let request = Request::builder().method(method).uri(uri).body(()).unwrap();
            assert_eq!(LoggedTarget::of(&request).to_string(), expected);
        }
        assert_eq!(cut(&"ä".repeat(MAX_TEXT)).len(), MAX_TEXT);
    }
}
