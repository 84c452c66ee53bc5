//! One connection: its TLS handshake, and its requests.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use plinth_http::{prepare_socket, ConnectionSlot};
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;
use tokio_io_timeout::TimeoutStream;
use tokio_util::either::Either;
use tonic::body::Body;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::admission::{Admission, Admitted, SEND_BUFFER};
use crate::answers::{self, PATIENCE};
use crate::client_stream::ClientStream;
use crate::gateway;
use crate::grpc::{self, CommonName, Peer, Services};
use crate::http as plain;
use crate::keepalive::Keepalive;
use crate::listeners::ClientSocket;
use crate::revocations::Revocations;
use crate::serves::Serves;
use crate::tls::Tls;

/// Time for a TLS handshake, for the first bytes after it, and for the head of a request of HTTP/1.1.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time for calls to end when the server stops.
pub(crate) const GRACE: Duration = Duration::from_secs(5);
/// Bytes that a client may send ahead on a stream, and on a connection.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 4 << 20;

/// A connection that was accepted.
pub(crate) struct Accepted {
    pub stream: ClientSocket,
    pub peer: IpAddr,
    pub tls: Option<Tls>,
    pub serves: Serves,
    pub slot: ConnectionSlot,
    /// Resolves when another connection gets the place of this one, which is not open yet.
    pub evicted: oneshot::Receiver<()>,
}

/// Serves a connection to its end.
pub(crate) async fn serve(accepted: Accepted, keepalive: Keepalive, services: Arc<Services>) {
    let Accepted { stream, peer, tls, serves, slot, mut evicted } = accepted;
    if matches!(&stream, Either::Left(stream) if prepare_socket(stream).is_err()) {
        return;
    }
    match tls {
        None => serve_requests(stream, (serves, peer, None), keepalive, services, (slot, evicted)).await,
        Some(tls) => {
            let accepted = tokio::select! {
                accepted = tokio::time::timeout(HANDSHAKE, tls.acceptor.accept(stream)) => accepted,
                _ = &mut evicted => return,
            };
            match accepted {
                Ok(Ok(stream)) => {
                    let certificates = stream.get_ref().1.peer_certificates();
                    if !is_admitted(tls.revocations, certificates).await {
                        return;
                    }
                    let name = common_name(certificates);
                    serve_requests(stream, (serves, peer, name), keepalive, services, (slot, evicted)).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake took too long"),
            }
        }
    }
}

/// Whether no certificate of a client is revoked.
async fn is_admitted(
    revocations: Option<Arc<Revocations>>,
    certificates: Option<&[CertificateDer<'static>]>,
) -> bool {
    let Some((revocations, certificates)) = revocations.zip(certificates) else { return true };
    let certificates = certificates.to_vec();
    let checked = tokio::task::spawn_blocking(move || revocations.check(&certificates)).await;
    match checked {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(%error, "client certificate is refused");
            false
        }
        Err(_) => false,
    }
}

/// The common name of a verified client certificate; of several the last one, as Go has it.
fn common_name(certificates: Option<&[CertificateDer<'_>]>) -> Option<CommonName> {
    let (_, certificate) = X509Certificate::from_der(certificates?.first()?).ok()?;
    let name = certificate.subject().iter_common_name().last()?.as_str().ok()?;
    (!name.is_empty()).then(|| CommonName(name.into()))
}

async fn serve_requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    (serves, peer, name): (Serves, IpAddr, Option<CommonName>),
    keepalive: Keepalive,
    services: Arc<Services>,
    (mut slot, mut evicted): (ConnectionSlot, oneshot::Receiver<()>),
) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(PATIENCE));
    let (opened, mut is_open) = oneshot::channel();
    let admission = Arc::new(Admission::new());
    let times = (HANDSHAKE, keepalive.min_time);
    let stream = ClientStream::new(Box::pin(stream), times, Arc::clone(&admission), opened);
    let stop = services.stop.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        let (services, admission) = (Arc::clone(&services), Arc::clone(&admission));
        request.extensions_mut().insert(Peer(peer));
        if let Some(name) = &name {
            request.extensions_mut().insert(name.clone());
        }
        async move {
            let permit = admission.admit(request.uri().path()).await;
            let response = answer(&services, serves, request).await;
            Ok::<_, Infallible>(response.map(|body| Body::new(Admitted::new(body, admission, permit))))
        }
    });
    let builder = http_builder(keepalive);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut is_half_open = true;
    let ended = loop {
        tokio::select! {
            ended = &mut connection => break ended,
            // Without the sender the connection has ended.
            _ = &mut is_open, if is_half_open => {
                slot.opened();
                is_half_open = false;
            }
            _ = &mut evicted, if is_half_open => return,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                match tokio::time::timeout(GRACE, connection).await {
                    Ok(ended) => break ended,
                    Err(_) => return,
                }
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

fn http_builder(keepalive: Keepalive) -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE);
    let mut http2 = builder.http2();
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(keepalive.streams)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    if let Some((interval, timeout)) = keepalive.ping {
        http2.keep_alive_interval(Some(interval)).keep_alive_timeout(timeout);
    }
    builder
}

async fn answer(services: &Services, serves: Serves, request: Request<Incoming>) -> Response<Body> {
    if serves == Serves::Metrics {
        return plain::answer(&services.member, serves, request).await;
    }
    let content_type = request.headers().get(CONTENT_TYPE).map(|value| value.as_bytes());
    if content_type.is_some_and(|value| value.starts_with(b"application/grpc")) {
        return answers::paced(grpc::answer(services, request.map(Body::new)).await);
    }
    match request.uri().path().starts_with(gateway::PREFIX) {
        true => answers::paced(gateway::answer(services, request).await),
        false => plain::answer(&services.member, serves, request).await,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_last_common_name_counts() {
        let named = |names: &[(DnType, &str)]| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            names.iter().for_each(|(kind, name)| params.distinguished_name.push(kind.clone(), *name));
            let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            common_name(Some(&[certificate.der().clone()])).map(|name| name.0.to_string())
        };
        let again = DnType::CustomDnType(vec![2, 5, 4, 3]);
        assert_eq!(named(&[(DnType::CommonName, "root")]).as_deref(), Some("root"));
        assert_eq!(named(&[(DnType::CommonName, "root"), (again, "u")]).as_deref(), Some("u"));
        assert_eq!(named(&[(DnType::OrganizationName, "root")]), None);
        assert_eq!(named(&[(DnType::CommonName, "")]), None);
        assert!(common_name(None).is_none());
    }
}
