//! The bytes of a connection, between socket and HTTP: how long a client may take to begin, and how often it
//! may ping (`--grpc-keepalive-min-time`, as gRPC for Go enforces it).

use std::future::Future as _;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::Duration;

use plinth_http::{FrameHeader, FrameHeaders, PREFACE};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tokio::time::{sleep, Instant, Sleep};

use crate::admission::Admission;

/// Pings that come too early and are forgiven (grpc-go `maxPingStrikes`).
const STRIKES: u8 = 2;
/// The flag of the answer to a ping.
const ACK: u8 = 1;
/// GOAWAY with the last stream that there can be, ENHANCE_YOUR_CALM and the text that clients know: those of
/// gRPC ping less often then.
const GO_AWAY: &[u8] = b"\x00\x00\x16\x07\x00\x00\x00\x00\x00\x7f\xff\xff\xff\x00\x00\x00\x0btoo_many_pings";
/// How long what a refused client sends is discarded: a socket that is closed with unread bytes is reset, and
/// what was sent before is lost.
const CLOSE_DELAY: Duration = Duration::from_millis(500);

/// What is known of the client's pings.
#[derive(Debug)]
struct Pings {
    min_time: Duration,
    last: Option<Instant>,
    strikes: u8,
    /// Whether something was sent to the client since its last ping.
    has_sent: bool,
}

impl Pings {
    /// Notes one; returns whether there were too many.
    fn ping(&mut self, now: Instant) -> bool {
        let last = self.last.replace(now);
        if std::mem::take(&mut self.has_sent) {
            self.strikes = 0;
        } else if last.is_some_and(|last| now < last + self.min_time) {
            self.strikes += 1;
        }
        self.strikes > STRIKES
    }
}

enum State {
    /// So many bytes of the preface of HTTP/2 have come.
    Opening {
        matched: usize,
        deadline: Pin<Box<Sleep>>,
        opened: Option<oneshot::Sender<()>>,
    },
    /// HTTP/1.1, which has limits of its own.
    Http1,
    Http2,
    /// The client pings too often.
    Refused {
        until: Pin<Box<Sleep>>,
    },
}

/// A connection with a client.
pub(crate) struct ClientStream<S> {
    stream: S,
    state: State,
    received: FrameHeaders,
    sent: FrameHeaders,
    pings: Pings,
    /// Learns what the socket has taken.
    admission: Arc<Admission>,
}

impl<S> ClientStream<S> {
    /// `opened` is sent when it is known which protocol the client speaks, for which it has `time`.
    pub(crate) fn new(
        stream: S,
        (time, ping_min_time): (Duration, Duration),
        admission: Arc<Admission>,
        opened: oneshot::Sender<()>,
    ) -> ClientStream<S> {
        let deadline = Box::pin(sleep(time));
        ClientStream {
            stream,
            state: State::Opening { matched: 0, deadline, opened: Some(opened) },
            received: FrameHeaders::of_client(),
            sent: FrameHeaders::default(),
            pings: Pings { min_time: ping_min_time, last: None, strikes: 0, has_sent: false },
            admission,
        }
    }

    /// Looks at what the client has sent. Returns whether it is to be refused.
    fn receive(&mut self, mut bytes: &[u8]) -> bool {
        if let State::Opening { matched, opened, .. } = &mut self.state {
            let expected = PREFACE.get(*matched..).unwrap_or_default();
            let compared = expected.len().min(bytes.len());
            let is_http2 = expected.get(..compared) == bytes.get(..compared);
            *matched += compared;
            if is_http2 && *matched < PREFACE.len() {
                self.received.next(&mut bytes);
                return false;
            }
            // Nobody waits for it if the server is being stopped.
            let _ = opened.take().map(|opened| opened.send(()));
            self.state = if is_http2 { State::Http2 } else { State::Http1 };
        }
        if !matches!(self.state, State::Http2) {
            return false;
        }
        while let Some(frame) = self.received.next(&mut bytes) {
            if frame.kind == FrameHeader::RST_STREAM {
                self.admission.reset();
            }
            if frame.kind == FrameHeader::PING && frame.flags & ACK == 0 && self.pings.ping(Instant::now()) {
                return true;
            }
        }
        false
    }

    /// Notes what was sent.
    fn send(&mut self, mut bytes: &[u8]) {
        if !matches!(self.state, State::Http2) {
            return;
        }
        while let Some(frame) = self.sent.next(&mut bytes) {
            if frame.kind == FrameHeader::RST_STREAM {
                self.admission.reset();
            }
            self.pings.has_sent |= [FrameHeader::DATA, FrameHeader::HEADERS].contains(&frame.kind);
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream<S> {
    /// Sends why the connection is closed, if nothing else is on its way.
    fn refuse(&mut self, cx: &mut Context<'_>) {
        tracing::debug!("connection is closed, its client pings too often");
        if self.sent.is_between_frames() {
            // A socket that has no room has a client that does not read.
            let _ = Pin::new(&mut self.stream).poll_write(cx, GO_AWAY);
            let _ = Pin::new(&mut self.stream).poll_flush(cx);
        }
        self.state = State::Refused { until: Box::pin(sleep(CLOSE_DELAY)) };
    }

    /// Discards what a refused client sends, until it has had time to read why.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State::Refused { until } = &mut self.state else { return Poll::Pending };
        if until.as_mut().poll(cx).is_pending() {
            let mut discarded = [0; 4096];
            let mut buffer = ReadBuf::new(&mut discarded);
            // At its own end, or at that of the time.
            while let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                if read.is_err() || buffer.filled().is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                buffer.clear();
            }
            return Poll::Pending;
        }
        Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ClientStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.state, State::Refused { .. }) {
            return this.poll_discard(cx);
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        if let (State::Opening { deadline, .. }, true) = (&mut this.state, read.is_pending()) {
            ready!(deadline.as_mut().poll(cx));
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(read)?;
        let bytes = buffer.filled().get(before..).unwrap_or_default();
        if !this.receive(bytes) {
            return Poll::Ready(Ok(()));
        }
        buffer.set_filled(before);
        this.refuse(cx);
        this.poll_discard(cx)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ClientStream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.state, State::Refused { .. }) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.admission.wrote(written);
        this.send(bytes.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if matches!(this.state, State::Refused { .. }) {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.admission.wrote(written);
        let mut left = written;
        for slice in slices {
            let sent = slice.get(..left.min(slice.len())).unwrap_or_default();
            this.send(sent);
            left -= sent.len();
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{duplex, AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stream(
        time: Duration,
        min_time: Duration,
    ) -> (DuplexStream, ClientStream<DuplexStream>, oneshot::Receiver<()>) {
        let (client, server) = duplex(1 << 16);
        let (opened, is_open) = oneshot::channel();
        let admission = Arc::new(Admission::new());
        (client, ClientStream::new(server, (time, min_time), admission, opened), is_open)
    }

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 0], payload].concat()
    }

    #[tokio::test]
    async fn who_does_not_begin_in_time_is_closed() {
        for (sent, is_http1) in
            [(&b""[..], false), (b"P", false), (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r", false), (b"GET", true)]
        {
            let (mut client, mut server, mut is_open) = stream(Duration::from_millis(50), SECOND);
            client.write_all(sent).await.unwrap();
            let mut received = vec![0; 64];
            let mut count = 0;
            while count < sent.len() {
                count += server.read(&mut received[count..]).await.unwrap();
            }
            assert_eq!(is_open.try_recv().is_ok(), is_http1);
            let ended = tokio::time::timeout(Duration::from_millis(500), server.read(&mut received)).await;
            match is_http1 {
                true => assert!(ended.is_err(), "it has limits of its own"),
                false => assert_eq!(ended.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut),
            }
        }
    }

    #[tokio::test]
    async fn bytes_pass_however_they_come() {
        let sent = [PREFACE, &frame(4, 0, &[0; 6]), &frame(6, 0, &[7; 8]), &frame(1, 4, &[1; 20])].concat();
        for size in [1, 5, 24, 25, 100] {
            let (mut client, mut server, mut is_open) = stream(SECOND, SECOND);
            let mut received = Vec::new();
            for part in sent.chunks(size) {
                client.write_all(part).await.unwrap();
                let mut piece = vec![0; part.len()];
                server.read_exact(&mut piece).await.unwrap();
                received.extend(piece);
            }
            assert!(received == sent && is_open.try_recv().is_ok(), "{size}");
        }
    }

    #[tokio::test]
    async fn who_pings_too_often_gets_the_reason_and_is_closed() {
        let (mut client, mut server, _is_open) = stream(SECOND, Duration::from_secs(3600));
        client.write_all(PREFACE).await.unwrap();
        let mut buffer = vec![0; 1024];
        assert!(server.read(&mut buffer).await.unwrap() > 0);
        let ping = frame(FrameHeader::PING, 0, &[1; 8]);
        // Between those that follow what was sent, and answers to ours, none counts.
        for _ in 0..10 {
            server.write_all(&frame(FrameHeader::DATA, 0, b"data")).await.unwrap();
            client.write_all(&ping).await.unwrap();
            client.write_all(&frame(FrameHeader::PING, ACK, &[1; 8])).await.unwrap();
            assert!(server.read(&mut buffer).await.unwrap() > 0);
        }
        for _ in 0..STRIKES {
            client.write_all(&ping).await.unwrap();
            assert!(server.read(&mut buffer).await.unwrap() > 0);
        }
        client.write_all(&ping).await.unwrap();
        assert_eq!(server.read(&mut buffer).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
        drop(server);
        let mut received = Vec::new();
        client.read_to_end(&mut received).await.unwrap();
        assert!(received.ends_with(GO_AWAY));
        assert_eq!(GO_AWAY.len(), 9 + 0x16);
    }

    #[test]
    fn pings_in_their_time_are_as_many_as_they_are() {
        let start = Instant::now();
        let mut pings = Pings { min_time: SECOND, last: None, strikes: 0, has_sent: false };
        assert!((0..100).all(|n| !pings.ping(start + SECOND * n)));
        assert!(!pings.ping(start + SECOND * 99) && !pings.ping(start + SECOND * 99));
        assert!(pings.ping(start + SECOND * 99));
    }
}
