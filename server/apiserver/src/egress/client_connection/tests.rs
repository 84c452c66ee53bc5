//! Clients of services that choose HTTP/2, or do not, over TLS.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::Method;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::ServerConfig;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Barrier, Notify};
use tokio_rustls::server::TlsStream;
use tokio_rustls::TlsAcceptor;

use super::super::client::{Bounds, CallError, Client, Origin};
use super::super::tls::{self, ServerTrust};
use super::*;

const BOUNDS: Bounds = Bounds { time: Duration::from_secs(60), answer: 64 };

/// TLS on a port, and a client for it.
async fn listen(protocols: &[&[u8]]) -> (TcpListener, TlsAcceptor, Client) {
    let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(plinth_pki::crypto_provider());
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
    config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let origin = Origin::of_url(&url, Some(tls::config(ServerTrust::Anyone, None).unwrap())).unwrap();
    (listener, TlsAcceptor::from(Arc::new(config)), Client::new(origin))
}

fn request(method: Method, path: &'static str) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new("body".into()));
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().unwrap();
    request
}

/// A service that answers with version, authority and path of a request; `/together` when as many requests
/// are under way as its barrier wants, `/held` when it is notified, `/never` not at all.
struct Service {
    client: Client,
    connections: AtomicUsize,
    together: Barrier,
    arrived: Notify,
    held: Notify,
    /// Most requests at a time on one connection.
    most: AtomicUsize,
}

async fn service(protocols: &[&[u8]], streams: u32, together: usize) -> Arc<Service> {
    let (listener, acceptor, client) = listen(protocols).await;
    let service = Arc::new(Service {
        client,
        connections: AtomicUsize::new(0),
        together: Barrier::new(together),
        arrived: Notify::new(),
        held: Notify::new(),
        most: AtomicUsize::new(0),
    });
    let served = service.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            served.connections.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(served.clone(), acceptor.clone(), stream, streams));
        }
    });
    service
}

async fn serve(service: Arc<Service>, acceptor: TlsAcceptor, stream: TcpStream, streams: u32) {
    let stream = acceptor.accept(stream).await.unwrap();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let running = Arc::new(AtomicUsize::new(0));
    let answer = service_fn(move |request: Request<Incoming>| {
        let (service, running) = (service.clone(), running.clone());
        async move {
            service.most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            service.arrived.notify_one();
            match request.uri().path() {
                "/together" => {
                    service.together.wait().await;
                }
                "/held" => service.held.notified().await,
                "/never" => std::future::pending().await,
                _ => {}
            }
            running.fetch_sub(1, Ordering::SeqCst);
            let host = request.headers().get("host").map(|host| host.to_str().unwrap().to_owned());
            let shown = format!("{:?} {} {host:?}", request.version(), request.uri());
            Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(shown))))
        }
    });
    let io = TokioIo::new(stream);
    // The end of a connection is no failure.
    match is_http2 {
        true => {
            let mut builder = http2::Builder::new(TokioExecutor::new());
            drop(builder.max_concurrent_streams(streams).serve_connection(io, answer).await);
        }
        false => drop(http1::Builder::new().serve_connection(io, answer).await),
    }
}

#[tokio::test]
async fn the_service_chooses_the_protocol() {
    let offers: [(&[&[u8]], bool); 4] =
        [(&[b"h2", b"http/1.1"], true), (&[b"h2"], true), (&[b"http/1.1"], false), (&[], false)];
    for (protocols, is_http2) in offers {
        let service = service(protocols, 100, 1).await;
        let authority = {
            let url = service.client.call(request(Method::POST, "/a?b=c"), BOUNDS).await.unwrap();
            String::from_utf8(url.to_vec()).unwrap()
        };
        let port = authority.rsplit("127.0.0.1:").next().unwrap();
        let port = &port[..port.find(|c: char| !c.is_ascii_digit()).unwrap()];
        let wanted = match is_http2 {
            true => format!("HTTP/2.0 https://127.0.0.1:{port}/a?b=c None"),
            false => format!("HTTP/1.1 /a?b=c Some(\"127.0.0.1:{port}\")"),
        };
        assert_eq!(authority, wanted, "{protocols:?}");
        for _ in 0..3 {
            service.client.call(request(Method::POST, "/a"), BOUNDS).await.unwrap();
        }
        assert_eq!(service.connections.load(Ordering::SeqCst), 1, "{protocols:?}");
        let short = service.client.call(request(Method::GET, "/"), Bounds { answer: 8, ..BOUNDS }).await;
        assert!(matches!(short, Err(CallError::Answer(8))), "{short:?}");
    }
}

/// As many requests as the service allows share a connection; others go over further ones.
#[tokio::test]
async fn requests_share_a_connection_up_to_the_limit_of_the_service() {
    const CALLS: usize = 6;
    for (streams, most) in [(100, CALLS), (2, 2)] {
        let service = service(&[b"h2"], streams, CALLS).await;
        // Its settings are known after the first response.
        service.client.call(request(Method::POST, "/a"), BOUNDS).await.unwrap();
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let service = service.clone();
                tokio::spawn(async move {
                    service.client.call(request(Method::POST, "/together"), BOUNDS).await.unwrap();
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let connections = service.connections.load(Ordering::SeqCst);
        assert!(service.most.load(Ordering::SeqCst) <= most, "{streams}");
        match streams {
            100 => assert_eq!(connections, 1),
            _ => assert!((CALLS / most..=CALLS).contains(&connections), "{connections}"),
        }
    }
}

/// The service may be gone: others do not wait for it as well, and those that wait already may be answered.
#[tokio::test]
async fn a_connection_on_which_a_request_was_given_up_gets_no_others() {
    let service = service(&[b"h2"], 100, 1).await;
    service.client.call(request(Method::POST, "/a"), BOUNDS).await.unwrap();
    service.arrived.notified().await;
    let other = service.clone();
    let held =
        tokio::spawn(async move { other.client.call(request(Method::POST, "/held"), BOUNDS).await.unwrap() });
    service.arrived.notified().await;
    let soon = Bounds { time: Duration::from_millis(50), ..BOUNDS };
    let given_up = service.client.call(request(Method::POST, "/never"), soon).await;
    assert!(matches!(given_up, Err(CallError::Timeout)), "{given_up:?}");
    assert_eq!(service.connections.load(Ordering::SeqCst), 1);
    service.client.call(request(Method::POST, "/a"), BOUNDS).await.unwrap();
    assert_eq!(service.connections.load(Ordering::SeqCst), 2);
    service.held.notify_one();
    held.await.unwrap();
    service.client.call(request(Method::POST, "/a"), BOUNDS).await.unwrap();
    assert_eq!(service.connections.load(Ordering::SeqCst), 2, "the second one is kept");
}

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn go_away(last: u32, reason: u32) -> Vec<u8> {
    frame(7, 0, 0, &[last.to_be_bytes(), reason.to_be_bytes()].concat())
}

fn reset(stream: u32, reason: u32) -> Vec<u8> {
    frame(3, 0, stream, &reason.to_be_bytes())
}

/// What a service does with a request instead of answering it.
#[derive(Clone)]
struct Failure {
    /// As the how many-th request of its first connection it comes.
    at: usize,
    /// Sent in the place of a response.
    frames: Vec<u8>,
    is_closed: bool,
}

/// Serves a connection; returns how many requests came. Without a failure all are answered.
async fn serve_frames(mut stream: TlsStream<TcpStream>, failure: Option<Failure>, requests: &AtomicUsize) {
    let mut preface = [0; 24];
    if stream.read_exact(&mut preface).await.is_err() {
        return;
    }
    stream.write_all(&frame(4, 0, 0, &[])).await.unwrap();
    let mut heads = HashMap::new();
    let mut count = 0;
    loop {
        let mut head = [0; 9];
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut payload = vec![0; usize::from(head[1]) << 8 | usize::from(head[2])];
        stream.read_exact(&mut payload).await.unwrap();
        let (kind, flags) = (head[3], head[4]);
        let id = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        if (kind, flags) == (4, 0) {
            stream.write_all(&frame(4, 1, 0, &[])).await.unwrap();
        }
        if kind == 1 {
            heads.insert(id, ());
        }
        // The end of a request's body.
        if kind == 0 && flags & 1 == 1 && heads.remove(&id).is_some() {
            requests.fetch_add(1, Ordering::SeqCst);
            count += 1;
            match failure.as_ref().filter(|failure| failure.at == count) {
                // :status is 200.
                None => stream.write_all(&frame(1, 5, id, &[0x88])).await.unwrap(),
                Some(failure) => {
                    stream.write_all(&failure.frames).await.unwrap();
                    if failure.is_closed {
                        drop(stream.shutdown().await);
                        // What is not read would become a reset, before which the frames may be lost.
                        drop(stream.read_to_end(&mut Vec::new()).await);
                        return;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn only_what_was_certainly_not_processed_is_sent_again() {
    // What the service does with its second request, whether it closes the connection then, and how often a
    // POST and a GET arrive.
    let rows: [(&str, Vec<u8>, bool, usize, usize); 8] = [
        ("a GOAWAY with the request before", go_away(1, 0), false, 2, 2),
        ("the same, and it closes", go_away(1, 0), true, 2, 2),
        ("a GOAWAY with an error", go_away(1, 11), true, 2, 2),
        ("a GOAWAY with this request, and it closes", go_away(3, 0), true, 1, 2),
        ("a GOAWAY with all requests, and it closes", go_away(0x7fff_ffff, 0), true, 1, 2),
        ("REFUSED_STREAM", reset(3, 7), false, 2, 2),
        ("INTERNAL_ERROR", reset(3, 2), false, 1, 2),
        ("it closes", Vec::new(), true, 1, 2),
    ];
    for (name, frames, is_closed, posts, gets) in rows {
        for (method, wanted) in [(Method::POST, posts), (Method::GET, gets)] {
            let (listener, acceptor, client) = listen(&[b"h2"]).await;
            let requests = Arc::new(AtomicUsize::new(0));
            let counted = requests.clone();
            let mut failure = Some(Failure { at: 2, frames: frames.clone(), is_closed });
            tokio::spawn(async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let stream = acceptor.accept(stream).await.unwrap();
                    let (failure, counted) = (failure.take(), counted.clone());
                    tokio::spawn(async move { serve_frames(stream, failure, &counted).await });
                }
            });
            client.call(request(Method::POST, "/first"), BOUNDS).await.unwrap();
            let outcome = client.call(request(method.clone(), "/second"), BOUNDS).await;
            assert_eq!(requests.load(Ordering::SeqCst), 1 + wanted, "{name}: {method} {outcome:?}");
            match wanted {
                1 => assert!(matches!(outcome, Err(CallError::Http(_))), "{name}: {method} {outcome:?}"),
                _ => assert!(outcome.is_ok(), "{name}: {method} {outcome:?}"),
            }
            // It goes on afterwards.
            client.call(request(Method::POST, "/third"), BOUNDS).await.unwrap();
        }
    }
}

/// What a service does with its first answer; the next request goes over another connection at once.
#[tokio::test]
async fn a_connection_that_ends_while_it_is_idle_gets_no_request() {
    let no_streams = frame(4, 0, 0, &[0, 3, 0, 0, 0, 0]);
    // Frames before the answer, whether the service closes the connection, and whether the client does.
    let rows: [(&str, Vec<u8>, bool, bool); 4] = [
        ("it closes", Vec::new(), true, true),
        ("a GOAWAY, and it closes", go_away(1, 0), true, true),
        ("a GOAWAY", go_away(0x7fff_ffff, 0), false, true),
        ("it allows no streams from now on", no_streams, false, false),
    ];
    for (name, mut frames, is_closed, ends) in rows {
        let (listener, acceptor, client) = listen(&[b"h2"]).await;
        let (requests, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let (counted, end) = (requests.clone(), ended.clone());
        frames.extend(frame(1, 5, 1, &[0x88]));
        tokio::spawn(async move {
            let mut first = Some(Failure { at: 1, frames, is_closed });
            while let Ok((stream, _)) = listener.accept().await {
                let stream = acceptor.accept(stream).await.unwrap();
                let (failure, counted, end) = (first.take(), counted.clone(), end.clone());
                tokio::spawn(async move {
                    serve_frames(stream, failure, &counted).await;
                    end.notify_one();
                });
            }
        });
        client.call(request(Method::POST, "/first"), BOUNDS).await.unwrap();
        if ends {
            // The service has seen the client's end, so the client has seen that of the service.
            ended.notified().await;
        }
        client.call(request(Method::POST, "/second"), BOUNDS).await.unwrap();
        assert_eq!(requests.load(Ordering::SeqCst), 2, "{name}");
    }
}

/// One that refuses everything is left alone.
#[tokio::test]
async fn a_request_is_not_sent_for_ever() {
    let (listener, acceptor, client) = listen(&[b"h2"]).await;
    let requests = Arc::new(AtomicUsize::new(0));
    let counted = requests.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let stream = acceptor.accept(stream).await.unwrap();
            let failure = Failure { at: 1, frames: go_away(0, 0), is_closed: false };
            let counted = counted.clone();
            tokio::spawn(async move { serve_frames(stream, Some(failure), &counted).await });
        }
    });
    let outcome = client.call(request(Method::POST, "/"), BOUNDS).await;
    let error = outcome.unwrap_err();
    assert!(matches!(error, CallError::Http(_)), "{error:?}");
    let text = "http2 error: connection error received: not a result of an error";
    assert_eq!(error.to_string(), text);
    assert_eq!(requests.load(Ordering::SeqCst), 3);
}
