//! etcd's JSON gateway: `POST /v3/kv/range` and its like, for clients without gRPC.
//!
//! A request becomes a call of gRPC, which is answered as one that arrived over the socket; its response
//! becomes JSON. So each method is written once, and has one place where it is bounded. A response that is a
//! stream is a line of JSON for each of its messages.

mod json;
mod schema;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, TE};
use http::{HeaderValue, Method as Verb, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::body::Frame;
use hyper::body::Incoming;
use serde::de::DeserializeSeed as _;
use serde_json::Value;
use tonic::body::Body;
use tonic::{Code, Status};

use crate::answers::{self, Reservation};
use crate::grpc::{self, Peer, Services};
use crate::timed_body::REQUEST_TIME;
use crate::watch::OVERHEAD;
use schema::{Message, Method};

/// What the paths of the gateway begin with.
pub(crate) const PREFIX: &str = "/v3/";
/// Bytes of gRPC before a message: a flag and the length.
const PREFIX_BYTES: usize = 5;

/// Answers a request of the gateway.
pub(crate) async fn answer(services: &Services, request: Request<Incoming>) -> Response<Body> {
    let path = request.uri().path();
    let Some(method) = path.strip_prefix(PREFIX).and_then(schema::method) else {
        return refuse(StatusCode::NOT_FOUND, &Status::not_found("Not Found"));
    };
    if request.method() != Verb::POST {
        return refuse(StatusCode::NOT_IMPLEMENTED, &Status::unimplemented("Method Not Allowed"));
    }
    let token = request.headers().get(AUTHORIZATION).cloned();
    let peer = request.extensions().get::<Peer>().copied();
    // base64 adds a third.
    let limit = services.member.limits.request_bytes.saturating_mul(2).saturating_add(OVERHEAD);
    let body = Limited::new(request.into_body(), limit).collect();
    let body = match tokio::time::timeout(REQUEST_TIME, body).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) => return error_response(&Status::invalid_argument(error.to_string())),
        Err(_) => return error_response(&Status::deadline_exceeded("the request did not come in time")),
    };
    let messages = match messages(&method, &body) {
        Ok(messages) => messages,
        Err(reason) => return error_response(&Status::invalid_argument(reason)),
    };
    let mut call = Request::new(Body::new(Full::new(messages)));
    if let Some(peer) = peer {
        call.extensions_mut().insert(peer);
    }
    if let Some(token) = token {
        call.headers_mut().insert(AUTHORIZATION, token);
    }
    *call.method_mut() = Verb::POST;
    // It is one of the table's.
    let Ok(uri) = format!("/{}", method.call).parse() else {
        return error_response(&Status::internal("no path"));
    };
    *call.uri_mut() = uri;
    call.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    call.headers_mut().insert(TE, HeaderValue::from_static("trailers"));
    let response = grpc::answer(services, call).await;
    match Status::from_header_map(response.headers()) {
        Some(status) if status.code() != Code::Ok => error_response(&status),
        _ if method.is_stream => stream(method.response, response.into_body()),
        _ => {
            let held = services.member.answers.begin();
            unary(method.response, response.into_body(), held)
                .await
                .unwrap_or_else(|status| error_response(&status))
        }
    }
}

/// The messages of a body, as gRPC sends them: all values where the response is a stream, else the first. No
/// body stands for an empty one.
fn messages(method: &Method, body: &[u8]) -> Result<Bytes, String> {
    let mut out = Vec::new();
    let mut values = serde_json::Deserializer::from_slice(body);
    while (out.is_empty() || method.is_stream) && values.end().is_err() {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        let encoder = json::Encoder { message: method.request, out: &mut out };
        encoder.deserialize(&mut values).map_err(|error| error.to_string())?;
        end_message(&mut out, start)?;
    }
    if out.is_empty() {
        out.extend_from_slice(&[0; PREFIX_BYTES]);
    }
    Ok(out.into())
}

/// Writes the length of the message that begins at `start`.
fn end_message(out: &mut [u8], start: usize) -> Result<(), String> {
    let length = u32::try_from(out.len() - start - PREFIX_BYTES).map_err(|error| error.to_string())?;
    if let Some(prefix) = out.get_mut(start + 1..start + PREFIX_BYTES) {
        prefix.copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

/// The message at the beginning of what was received, if all of it is there.
fn take_message(received: &mut BytesMut) -> Option<Bytes> {
    let length = u32::from_be_bytes(*received.get(1..)?.first_chunk()?);
    let length = usize::try_from(length).ok()?;
    if received.len() - PREFIX_BYTES < length {
        return None;
    }
    received.advance(PREFIX_BYTES);
    Some(received.split_to(length).freeze())
}

/// A response that is no stream. What it takes counts until the client has read it.
async fn unary(
    response: &'static Message,
    mut body: Body,
    mut held: Reservation,
) -> Result<Response<Body>, Status> {
    let mut received = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => {
                held.add_bytes(data.len())?;
                received.put(data);
            }
            Err(frame) => match frame.trailers_ref().and_then(Status::from_header_map) {
                Some(status) if status.code() != Code::Ok => return Err(status),
                _ => {}
            },
        }
    }
    let mut out = Vec::new();
    let decoded = take_message(&mut received).map(|message| json::decode(response, &message, &mut out));
    let Some(Ok(())) = decoded else {
        return Err(Status::internal("the response cannot be shown as JSON"));
    };
    let mut response = respond(StatusCode::OK, out);
    if held.is_large() {
        answers::pace(&mut response, held);
    }
    Ok(response)
}

/// A stream that is being translated.
struct Lines {
    response: &'static Message,
    body: Body,
    received: BytesMut,
    has_ended: bool,
}

impl Lines {
    /// The next line, at the pace of the client.
    async fn next(mut self) -> Option<(Result<Frame<Bytes>, Status>, Lines)> {
        loop {
            if let Some(message) = take_message(&mut self.received) {
                let mut line = b"{\"result\":".to_vec();
                if json::decode(self.response, &message, &mut line).is_err() {
                    return None;
                }
                line.extend_from_slice(b"}\n");
                return Some((Ok(Frame::data(line.into())), self));
            }
            if self.has_ended {
                return None;
            }
            let failed = match self.body.frame().await {
                None => return None,
                Some(Err(status)) => Some(status),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        self.received.put(data);
                        None
                    }
                    Err(frame) => frame.trailers_ref().and_then(Status::from_header_map),
                },
            };
            if let Some(status) = failed.filter(|status| status.code() != Code::Ok) {
                self.has_ended = true;
                let line = format!("{{\"error\":{}}}\n", error_object(&status));
                return Some((Ok(Frame::data(line.into())), self));
            }
        }
    }
}

fn stream(response: &'static Message, body: Body) -> Response<Body> {
    let lines = Lines { response, body, received: BytesMut::new(), has_ended: false };
    let lines = futures_util::stream::unfold(lines, Lines::next);
    let mut response = respond(StatusCode::OK, Vec::new());
    *response.body_mut() = Body::new(StreamBody::new(lines));
    response
}

fn respond(status: StatusCode, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::from(body)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn error_object(status: &Status) -> Value {
    serde_json::json!({
        "code": i32::from(status.code()),
        "message": status.message(),
    })
}

fn refuse(code: StatusCode, status: &Status) -> Response<Body> {
    respond(code, error_object(status).to_string().into_bytes())
}

/// The code of HTTP that gRPC's gateway has for one of gRPC.
fn error_response(status: &Status) -> Response<Body> {
    let code = match status.code() {
        Code::InvalidArgument | Code::FailedPrecondition | Code::OutOfRange => StatusCode::BAD_REQUEST,
        Code::NotFound => StatusCode::NOT_FOUND,
        Code::AlreadyExists | Code::Aborted => StatusCode::CONFLICT,
        Code::PermissionDenied => StatusCode::FORBIDDEN,
        Code::Unauthenticated => StatusCode::UNAUTHORIZED,
        Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
        Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        Code::DeadlineExceeded => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    refuse(code, status)
}
