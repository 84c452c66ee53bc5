//! [`Connector`]: connections whose received bytes are counted, which tell a slow path from a member that
//! stands still.

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

/// Connects to a member.
pub(crate) struct Connector {
    connector: HttpConnector,
    received: Arc<AtomicU64>,
}

/// A connection that adds what it receives to a number of bytes.
pub(crate) struct Counted {
    stream: TcpStream,
    received: Arc<AtomicU64>,
}

impl Connector {
    /// Connections count together.
    pub(crate) fn new(received: Arc<AtomicU64>) -> Connector {
        let mut connector = HttpConnector::new();
        // TLS is put around it.
        connector.enforce_http(false);
        connector.set_nodelay(true);
        Connector { connector, received }
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
        let (connected, received) = (self.connector.call(uri), Arc::clone(&self.received));
        Box::pin(async move {
            let stream = connected.await?.into_inner();
            Ok(TokioIo::new(Counted { stream, received }))
        })
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
        self.received.fetch_add(u64::try_from(bytes).unwrap_or(0), Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Counted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
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
