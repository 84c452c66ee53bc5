//! Coalesces writes, so that many small frames leave in few TLS records and few system calls.
//!
//! The HTTP/2 library flushes after every DATA frame. A commit that a thousand watches of ten connections
//! wait for would be a thousand records and a thousand system calls, and each frame of a long list would be a
//! full record and one of nine bytes. So the stream that hyper sees buffers its writes (`BUFFERED` bytes,
//! four full records), accepts every flush without acting on it, and flushes when the buffer is full or when
//! the connection's task has nothing more to do: see [`drive_connection`]. Nothing is delayed longer than one
//! poll of that task.

use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::idle_frames::IdleFrames;
use super::unread_answers::ConnectionUnread;
use crate::header_limits::{LargeHeaderSlots, ReadPhase, RequestHeader};

/// Maximum number of buffered bytes: four TLS records of 16 KiB, which rustls hands to the socket in one
/// call.
const BUFFERED: usize = 64 << 10;
/// Maximum size of the buffer that an idle connection retains, in bytes.
const RETAINED: usize = 4 << 10;

/// Maximum time spent reading in one poll of the connection; a client that sends faster than the server reads
/// would starve the others.
const READ_TIME: Duration = Duration::from_micros(100);
/// Maximum size of one read, in bytes, so that processing it takes a fraction of a millisecond even if it
/// contains a thousand frames.
const READ: usize = 4 << 10;
/// Maximum number of reads per poll of data that is discarded.
const DISCARDS: usize = 16;
/// Number of concurrent requests of a connection from which on it is worth waiting for more frames before a
/// flush.
const BUSY: usize = 2;
/// Time limit for flushing the remaining buffered bytes when the connection has ended.
const LAST_FLUSH: Duration = Duration::from_secs(10);
/// How long data is read and discarded after an answer that did not wait for its request body: a socket that
/// is closed with unread bytes is reset, and the answer lost (net/http `rstAvoidanceDelay`).
const RST_AVOIDANCE_DELAY: Duration = Duration::from_millis(500);

/// The stream as hyper sees it. The lock is shared with [`drive_connection`], which runs in the same task, so
/// it is never contended.
pub struct Coalesced<S> {
    state: Arc<Mutex<State<S>>>,
}

/// The other end of a [`Coalesced`] stream, for [`drive_connection`].
pub struct Flusher<S> {
    state: Arc<Mutex<State<S>>>,
}

struct State<S> {
    stream: S,
    /// Bytes written by hyper; those before `sent` have been written to the stream.
    buffered: Vec<u8>,
    sent: usize,
    /// Whether [`drive_connection`] is responsible for flushing; false once the connection is upgraded.
    driven: bool,
    /// Error of a flush that [`drive_connection`] made, to be returned by the next operation.
    failed: Option<io::ErrorKind>,
    /// Time of the first read in this poll.
    reading_since: Option<Instant>,
    /// HTTP/2 only: limits frames that belong to no request.
    idle_frames: Option<IdleFrames>,
    /// HTTP/1.1 only: the request header that is being received.
    header: RequestHeader,
    /// Is given what the stream took.
    unread: Arc<ConnectionUnread>,
}

/// Wraps a stream. With HTTP/2, frames that belong to no request are counted. The [`ReadPhase`] must be
/// updated by the connection when a header of HTTP/1.1 is complete and when the protocol is switched.
pub fn coalesce_writes<S>(
    stream: S,
    is_http2: bool,
    slots: LargeHeaderSlots,
    unread: Arc<ConnectionUnread>,
) -> (Coalesced<S>, Flusher<S>, ReadPhase) {
    let header = RequestHeader::new(slots);
    let phase = header.phase();
    let idle_frames = is_http2.then(IdleFrames::new);
    let state = State {
        stream,
        buffered: Vec::new(),
        sent: 0,
        driven: true,
        failed: None,
        reading_since: None,
        idle_frames,
        header,
        unread,
    };
    let state = Arc::new(Mutex::new(state));
    (Coalesced { state: state.clone() }, Flusher { state }, phase)
}

/// Runs the connection that owns the [`Coalesced`] end, and flushes whenever it has nothing more to do. A
/// connection with several concurrent requests is polled once more first, so that their frames are sent
/// together.
pub async fn drive_connection<S, C>(
    connection: C,
    flusher: Flusher<S>,
    requests: impl Fn() -> usize,
) -> C::Output
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Future,
{
    let mut connection = pin!(connection);
    let mut waited = false;
    let output = poll_fn(|cx| {
        // The first of a thousand watches that has an event wakes the connection. One pass through the
        // runtime's queue lets the others add theirs; when there are none it costs a fraction of a
        // microsecond.
        waited = !waited && requests() >= BUSY;
        if waited {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        flusher.state.lock().reading_since = None;
        let ended = connection.as_mut().poll(cx);
        if ended.is_pending() {
            let mut state = flusher.state.lock();
            if let Poll::Ready(Err(error)) = state.poll_flush(cx) {
                state.failed = Some(error.kind());
                cx.waker().wake_by_ref();
            }
        }
        ended
    })
    .await;
    // An upgraded connection outlives this task: the buffered answer is sent, from now on flushes are
    // immediate.
    flusher.state.lock().driven = false;
    // The new owner of the stream gets the same error; a client that does not read is not waited for.
    let _ = tokio::time::timeout(LAST_FLUSH, poll_fn(|cx| flusher.state.lock().poll_flush(cx))).await;
    if flusher.state.lock().header.is_closing_early() {
        let _ =
            tokio::time::timeout(RST_AVOIDANCE_DELAY, poll_fn(|cx| flusher.state.lock().poll_discard(cx)))
                .await;
    }
    output
}

impl<S: AsyncRead + AsyncWrite + Unpin> State<S> {
    /// Writes everything that is buffered to the stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.buffered.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    self.sent += written;
                    self.unread.is_taken(written);
                }
            }
        }
        self.sent = 0;
        self.buffered.clear();
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        self.buffered.shrink_to(RETAINED);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Reads and discards until the client has closed its side.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0u8; READ];
        for _ in 0..DISCARDS {
            let mut part = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part)) {
                Ok(()) if !part.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
        // Yields to other tasks.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Number of bytes of `wanted` that can be buffered; writes buffered bytes to the stream when there is no
    /// room.
    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if self.buffered.len() >= BUFFERED {
            ready!(self.poll_drain(cx))?;
        }
        let needed = self.buffered.len() + wanted;
        if needed > self.buffered.capacity() {
            let size = if needed > RETAINED { BUFFERED } else { RETAINED };
            self.buffered.reserve_exact(size - self.buffered.len());
        }
        Poll::Ready(Ok(BUFFERED - self.buffered.len()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Coalesced<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        if let Some(kind) = state.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if !state.driven {
            return Pin::new(&mut state.stream).poll_read(cx, buf);
        }
        if state.reading_since.get_or_insert_with(Instant::now).elapsed() > READ_TIME {
            // Yields to other tasks.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = state.idle_frames.as_ref().map_or(state.header.size(), IdleFrames::incomplete_header);
        ready!(state.header.poll_room(size, cx));
        let room = READ.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut state.stream).poll_read(cx, &mut part))?;
        let read = part.filled();
        if state.idle_frames.as_mut().is_some_and(|frames| frames.record(read)) {
            tracing::debug!("client sent too many HTTP/2 control frames; connection is closed");
            state.failed = Some(io::ErrorKind::ConnectionAborted);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = read.len();
        state.header.record_read(read);
        buf.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Coalesced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.lock();
        state.header.record_response(bufs.first().map_or(&[], |part| &part[..]));
        let wanted = bufs.iter().map(|buf| buf.len()).sum();
        let room = ready!(state.poll_room(wanted, cx))?;
        let before = state.buffered.len();
        for buf in bufs {
            let taken = room - (state.buffered.len() - before);
            state.buffered.extend_from_slice(buf.get(..taken).unwrap_or(buf));
        }
        Poll::Ready(Ok(state.buffered.len() - before))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        match (state.failed, state.driven) {
            (Some(kind), _) => Poll::Ready(Err(kind.into())),
            (None, true) => Poll::Ready(Ok(())),
            (None, false) => state.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.lock();
        ready!(state.poll_drain(cx))?;
        Pin::new(&mut state.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use crate::unread_answers::UnreadAnswers;

    fn unread() -> Arc<ConnectionUnread> {
        UnreadAnswers::new(None).connection()
    }

    /// Counts the writes that reach it.
    struct Counted<S> {
        stream: S,
        writes: Arc<Mutex<Vec<usize>>>,
    }

    impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_read(cx, buf)
        }
    }

    impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
        fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, buf))?;
            self.writes.lock().push(written);
            Poll::Ready(Ok(written))
        }

        fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_flush(cx)
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            Pin::new(&mut self.stream).poll_shutdown(cx)
        }
    }

    #[tokio::test]
    async fn flushed_frames_of_one_turn_leave_together_and_in_order() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let writes = Arc::new(Mutex::new(Vec::new()));
        let counted = Counted { stream: near, writes: writes.clone() };
        let (mut io, flusher, _) = coalesce_writes(counted, true, LargeHeaderSlots::default(), unread());
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        let connection = async move {
            for frame in 0..100u8 {
                io.write_all(&[frame; 10]).await.unwrap();
                io.flush().await.unwrap();
            }
            // The task is idle: everything is flushed although the connection stays open.
            wait.await.unwrap();
            io.write_all(&[7; 200_000]).await.unwrap();
            io.shutdown().await.unwrap();
        };
        let driven = tokio::spawn(drive_connection(connection, flusher, || BUSY));
        let mut first = vec![0; 1000];
        far.read_exact(&mut first).await.unwrap();
        assert!(first.chunks(10).enumerate().all(|(n, frame)| frame == [n as u8; 10]));
        assert_eq!(*writes.lock(), [1000]);
        go_on.send(()).unwrap();
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, vec![7; 200_000]);
        assert!(writes.lock().iter().all(|n| *n <= BUFFERED));
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_blocks_the_writer() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut io, flusher, _) = coalesce_writes(near, false, LargeHeaderSlots::default(), unread());
        let written = Arc::new(Mutex::new(0));
        let count = written.clone();
        let connection = async move {
            for _ in 0..1000 {
                io.write_all(&[1; 1000]).await.unwrap();
                *count.lock() += 1000;
            }
            io.shutdown().await.unwrap();
        };
        let driven = tokio::spawn(drive_connection(connection, flusher, || BUSY));
        far.read_exact(&mut [0; 1]).await.unwrap();
        tokio::task::yield_now().await;
        assert!(*written.lock() <= BUFFERED + 3000);
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), 999_999);
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn a_client_that_only_sends_settings_is_disconnected() {
        for (is_http2, cut) in [(true, true), (false, false)] {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let (mut io, flusher, _) = coalesce_writes(near, is_http2, LargeHeaderSlots::default(), unread());
            let reading = async move { tokio::io::copy(&mut io, &mut tokio::io::sink()).await };
            let driven = tokio::spawn(drive_connection(reading, flusher, || 0));
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(20_000);
            let _ = far.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            // The other end closes the connection at the limit.
            let _ = far.write_all(&settings).await;
            drop(far);
            let read = driven.await.unwrap();
            assert_eq!(read.is_err(), cut, "{is_http2}: {read:?}");
        }
    }

    #[tokio::test]
    async fn after_an_upgrade_flushes_count() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut io, flusher, _) = coalesce_writes(near, false, LargeHeaderSlots::default(), unread());
        let mut io = drive_connection(
            async move {
                io.write_all(b"switching").await.unwrap();
                io
            },
            flusher,
            || BUSY,
        )
        .await;
        let mut answer = [0; 9];
        far.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"switching");
        io.write_all(b"event").await.unwrap();
        io.flush().await.unwrap();
        far.read_exact(&mut answer[..5]).await.unwrap();
        assert_eq!(&answer[..5], b"event");
    }
}
