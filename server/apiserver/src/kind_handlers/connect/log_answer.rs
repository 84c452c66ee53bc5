//! The log of a container as its client gets it: text, with nothing of what else the kubelet answers, or
//! messages over WebSocket. An answer that is no log is an error of this server's, with the kubelet's
//! words.
//!
//! Upstream: k8s.io/apiserver `pkg/registry/generic/rest` (`LocationStreamer`, `GenericHttpResponseChecker`),
//! `pkg/endpoints/handlers/responsewriters` (`StreamObject`), k8s.io/apimachinery `pkg/api/errors`
//! (`NewGenericServerResponse`).

use std::borrow::Cow;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::header::{HeaderValue, CONTENT_TYPE, HOST, LOCATION};
use hyper::{Request, Response, StatusCode};
use plinth_codec::url::join_host_port;

use super::forward::{connect, ConnectFailure, Connected};
use super::location::Destination;
use super::log_messages;
use crate::context::Context;
use crate::egress::forward::ForwardedBody;
use plinth_api::{ApiError, Reason};
use plinth_http::{wants_websocket, Body, Upgrade};

/// What is read of an answer that is no log.
const MAX_ERROR_TEXT: usize = 50_000;

/// Reads the log and returns the response.
///
/// # Errors
/// 500 when the kubelet is unreachable or redirects; the kubelet's own error.
pub(super) async fn read(
    cx: &Context,
    upgrade: Option<Upgrade>,
    destination: Destination,
) -> Result<Response<Body>, ApiError> {
    let host = join_host_port(&destination.host, destination.port);
    let url = format!("https://{host}{}", destination.target);
    // Upstream's error has no reason: it is not an API status.
    let failed = |why: String| ApiError::new(500, Reason::Unknown, format!("Get {url:?}: {why}"));
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = destination.target.parse().map_err(ApiError::internal)?;
    request.headers_mut().insert(HOST, HeaderValue::try_from(host).map_err(ApiError::internal)?);
    let Connected { mut connection, slot } = match connect(cx, &destination).await {
        Ok(connected) => connected,
        Err(ConnectFailure::Refused(error)) => return Err(error),
        Err(ConnectFailure::Unreachable(why)) => return Err(failed(why)),
    };
    let response = connection.send(request).await.map_err(|error| failed(error.to_string()))?;
    let status = response.status();
    if status.is_redirection() && response.headers().contains_key(LOCATION) {
        return Err(failed("redirects forbidden".to_owned()));
    }
    if !(200..=206).contains(&status.as_u16()) {
        return Err(refusal(status, &error_text(response.into_body()).await?, &cx.info.name));
    }
    // The connection lives as long as its body.
    let body = ForwardedBody::new(response.into_body(), connection, slot);
    if let Some(upgrade) = upgrade.filter(|_| wants_websocket(&cx.headers)) {
        return Ok(log_messages::answer(&cx.headers, upgrade, &cx.user, body));
    }
    let mut response = Response::new(body.into_body());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}

/// The beginning of an answer that is no log.
async fn error_text(mut body: Incoming) -> Result<String, ApiError> {
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(ApiError::internal)?;
        text.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
        if text.len() >= MAX_ERROR_TEXT {
            text.truncate(MAX_ERROR_TEXT);
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The error for an answer with another status than that of a log.
fn refusal(status: StatusCode, text: &str, pod: &str) -> ApiError {
    let code = status.as_u16();
    let (reason, message): (Reason, Cow<'_, str>) = match code {
        400 => return ApiError::bad_request(text),
        500 => return ApiError::internal(text),
        401 => (Reason::Unauthorized, "the server has asked for the client to provide credentials".into()),
        403 => (Reason::Forbidden, text.into()),
        404 => (Reason::NotFound, "the server could not find the requested resource".into()),
        405 => (
            Reason::MethodNotAllowed,
            "the server does not allow this method on the requested resource".into(),
        ),
        406 if matches!(text, "" | "unknown") => (
            Reason::NotAcceptable,
            "the server was unable to respond with a content type that the client supports".into(),
        ),
        406 => (Reason::NotAcceptable, text.into()),
        409 => (Reason::Conflict, "the server reported a conflict".into()),
        415 => (Reason::UnsupportedMediaType, text.into()),
        422 => (Reason::Invalid, "the server rejected our request due to an error in our request".into()),
        429 => (
            Reason::TooManyRequests,
            "the server has received too many requests and has asked us to try again later".into(),
        ),
        503 => (Reason::ServiceUnavailable, "the server is currently unable to handle the request".into()),
        504 => (
            Reason::Timeout,
            "the server was unable to return a response in the time allotted, but may still be processing \
             the request"
                .into(),
        ),
        501.. => (
            Reason::InternalError,
            format!("an error on the server ({text:?}) has prevented the request from succeeding").into(),
        ),
        _ => {
            let what = "but did not return more information";
            (Reason::Unknown, format!("the server responded with the status code {code} {what}").into())
        }
    };
    // A status that is no error, which upstream passes on, is an error of the kubelet.
    let code = if code < 400 { 502 } else { code };
    ApiError::new(code, reason, format!("{message} ( pods/log {pod})")).about("", "pods/log", pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_have_upstreams_words() {
        // status, the kubelet's text, status of the answer, reason, message
        let rows = [
            (400, "no", 400, Reason::BadRequest, "no"),
            (500, "oops", 500, Reason::InternalError, "Internal error occurred: oops"),
            (404, "x", 404, Reason::NotFound, "the server could not find the requested resource ( pods/log p)"),
            (403, "not you", 403, Reason::Forbidden, "not you ( pods/log p)"),
            (406, "", 406, Reason::NotAcceptable, "the server was unable to respond with a content type that the client supports ( pods/log p)"),
            (502, "a\"b", 502, Reason::InternalError, "an error on the server (\"a\\\"b\") has prevented the request from succeeding ( pods/log p)"),
            (418, "x", 418, Reason::Unknown, "the server responded with the status code 418 but did not return more information ( pods/log p)"),
            (302, "x", 502, Reason::Unknown, "the server responded with the status code 302 but did not return more information ( pods/log p)"),
        ];
        for (status, text, code, reason, message) in rows {
            let error = refusal(StatusCode::from_u16(status).unwrap(), text, "p");
            assert_eq!((error.code, error.reason, error.message.as_str()), (code, reason, message));
        }
    }
}
