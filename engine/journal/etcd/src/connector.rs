//! [`Connector`]: connections whose bytes are counted, which tell a slow path from a member that stands
//! still.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tonic::transport::Uri;
use tower_service::Service;

/// Bytes that have passed to a member and from it. What it has not made room for is not sent.
#[derive(Default)]
pub(crate) struct Traffic {
    pub received: AtomicU64,
    pub sent: AtomicU64,
}

/// Connects to a member.
pub(crate) struct Connector {
    connector: HttpConnector,
    traffic: Arc<Traffic>,
}

/// A connection that adds its bytes to those of others.
pub(crate) struct Counted {
    stream: TcpStream,
    traffic: Arc<Traffic>,
}

impl Connector {
    /// Connections count together.
    pub(crate) fn new(traffic: Arc<Traffic>) -> Connector {
        let mut connector = HttpConnector::new();
        // TLS is put around it.
        connector.enforce_http(false);
        connector.set_nodelay(true);
        Connector { connector, traffic }
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Counted>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Counted>, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.connector.poll_ready(context)
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (connected, traffic) = (self.connector.call(uri), Arc::clone(&self.traffic));
        Box::pin(async move {
            let stream = connected.await?.into_inner();
            Ok(TokioIo::new(Counted { stream, traffic }))
        })
    }
}

impl Counted {
    fn count_sent(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.traffic.sent.fetch_add(u64::try_from(*bytes).unwrap_or(0), Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let bytes = buffer.filled().len().saturating_sub(before);
        self.traffic.received.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count_sent(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.count_sent(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
