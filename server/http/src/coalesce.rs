//! Writes put together, so that many small frames leave in few TLS records and few system calls.
//!
//! The HTTP/2 library flushes after every DATA frame. A commit that a thousand watches of ten connections wait for would
//! be a thousand records and a thousand system calls, and each frame of a long list would be a full record and one of nine
//! bytes. So what hyper sees as the stream takes its writes into a buffer of `HELD` bytes (four full records), says yes to
//! every flush, and really flushes when the buffer is full or when the connection's task has nothing more to do: see
//! [`drive`]. Nothing waits longer than that one turn of the task.

use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
use std::pin::{pin, Pin};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::heads::{Came, Head, LargeHeads};
use super::idle_frames::IdleFrames;

/// Bytes that are held back at most: four TLS records of 16 KiB, which rustls hands to the socket in one call.
const HELD: usize = 64 << 10;
/// A buffer up to this size stays with an idle connection, in bytes.
const KEPT: usize = 4 << 10;

/// How long a turn of the connection reads on. A client could send faster than we read, and nobody else would be served.
const READING: Duration = Duration::from_micros(100);
/// Bytes of one read at most, so that what is made of them is done in a fraction of a millisecond even where they are a thousand
/// frames.
const READ: usize = 4 << 10;
/// Reads of a turn of what nobody wants any more.
const DISCARDS: usize = 16;
/// Requests of a connection at once from which on their frames are worth waiting for.
const CROWD: usize = 2;
/// How long a client may take to read what is still held when its connection has ended.
const LAST_FLUSH: Duration = Duration::from_secs(10);
/// How long what a client still sends is taken from it after an answer that did not wait for it: a socket that is closed with
/// unread bytes is reset, and the answer lost (net/http `rstAvoidanceDelay`).
const LINGER: Duration = Duration::from_millis(500);

/// The stream as hyper sees it. The lock is shared with [`drive`], which runs in the same task, so nobody ever waits for it.
pub struct Coalesced<S> {
    state: Arc<Mutex<State<S>>>,
}

/// The other end of a [`Coalesced`] stream, for [`drive`].
pub struct Flusher<S> {
    state: Arc<Mutex<State<S>>>,
}

struct State<S> {
    stream: S,
    /// Bytes that hyper has written; those before `sent` have gone on to the stream.
    held: Vec<u8>,
    sent: usize,
    /// Whether [`drive`] sees to the flushing. It does not any more once the connection is upgraded.
    driven: bool,
    /// A flush failed while hyper was not looking.
    failed: Option<io::ErrorKind>,
    /// When this turn has read for the first time.
    reading_since: Option<Instant>,
    /// Of HTTP/2: the frames that ask for nothing.
    idle_frames: Option<IdleFrames>,
    /// The head that is coming.
    head: Head,
}

/// Wraps a stream; of one of HTTP/2 the frames that ask for nothing are counted. Also returned: what is to be told when a head of
/// HTTP/1.1 is whole, and when the protocol is switched.
pub fn coalesce<S>(stream: S, is_http2: bool, heads: LargeHeads) -> (Coalesced<S>, Flusher<S>, Came) {
    let head = Head::new(heads);
    let came = head.came();
    let idle_frames = is_http2.then(IdleFrames::new);
    let state = State {
        stream,
        held: Vec::new(),
        sent: 0,
        driven: true,
        failed: None,
        reading_since: None,
        idle_frames,
        head,
    };
    let state = Arc::new(Mutex::new(state));
    (Coalesced { state: state.clone() }, Flusher { state }, came)
}

/// Runs the connection that owns the [`Coalesced`] end, and flushes whenever it has nothing more to do. While it is crowded, it waits
/// for what others may have to send with it.
pub async fn drive<S, C>(connection: C, flusher: Flusher<S>, requests: impl Fn() -> usize) -> C::Output
where
    S: AsyncRead + AsyncWrite + Unpin,
    C: Future,
{
    let mut connection = pin!(connection);
    let mut waited = false;
    let output = poll_fn(|cx| {
        // The first of a thousand watches that has something to send wakes the connection. One round through the queue
        // of tasks lets the others put theirs beside it; when there are none it costs a fraction of a microsecond.
        waited = !waited && requests() >= CROWD;
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
    // An upgraded connection lives on in other hands: what it was answered goes out, from then on flushes count.
    flusher.state.lock().driven = false;
    // Whoever goes on with the stream meets the same error; who does not read is not waited for.
    let _ = tokio::time::timeout(LAST_FLUSH, poll_fn(|cx| flusher.state.lock().poll_flush(cx))).await;
    if flusher.state.lock().head.is_cut_short() {
        let _ = tokio::time::timeout(LINGER, poll_fn(|cx| flusher.state.lock().poll_discard(cx))).await;
    }
    output
}

impl<S: AsyncRead + AsyncWrite + Unpin> State<S> {
    /// Hands everything that is held to the stream.
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.held.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.sent += written,
            }
        }
        self.sent = 0;
        self.held.clear();
        Poll::Ready(Ok(()))
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_drain(cx))?;
        self.held.shrink_to(KEPT);
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    /// Reads until the client has ended or closed.
    fn poll_discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = [0u8; READ];
        for _ in 0..DISCARDS {
            let mut part = ReadBuf::new(&mut bytes);
            match ready!(Pin::new(&mut self.stream).poll_read(cx, &mut part)) {
                Ok(()) if !part.filled().is_empty() => {}
                _ => return Poll::Ready(()),
            }
        }
        // Others first.
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Room for some of `wanted` bytes, made by sending what is held when there is none.
    fn poll_room(&mut self, wanted: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(kind) = self.failed {
            return Poll::Ready(Err(kind.into()));
        }
        if self.held.len() >= HELD {
            ready!(self.poll_drain(cx))?;
        }
        let needed = self.held.len() + wanted;
        if needed > self.held.capacity() {
            let size = if needed > KEPT { HELD } else { KEPT };
            self.held.reserve_exact(size - self.held.len());
        }
        Poll::Ready(Ok(HELD - self.held.len()))
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
        if state.reading_since.get_or_insert_with(Instant::now).elapsed() > READING {
            // Others first.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let size = state.idle_frames.as_ref().map_or(state.head.size(), IdleFrames::open_head);
        ready!(state.head.poll_room(size, cx));
        let room = READ.min(buf.remaining());
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
        ready!(Pin::new(&mut state.stream).poll_read(cx, &mut part))?;
        let read = part.filled();
        if state.idle_frames.as_mut().is_some_and(|frames| frames.take(read)) {
            tracing::debug!("a connection sends too many frames that ask for nothing");
            state.failed = Some(io::ErrorKind::ConnectionAborted);
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let read = read.len();
        state.head.took(read);
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
        state.head.answers(bufs.first().map_or(&[], |part| &part[..]));
        let wanted = bufs.iter().map(|buf| buf.len()).sum();
        let room = ready!(state.poll_room(wanted, cx))?;
        let before = state.held.len();
        for buf in bufs {
            let taken = room - (state.held.len() - before);
            state.held.extend_from_slice(buf.get(..taken).unwrap_or(buf));
        }
        Poll::Ready(Ok(state.held.len() - before))
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
        let (mut io, flusher, _) = coalesce(counted, true, LargeHeads::default());
        let (go_on, wait) = tokio::sync::oneshot::channel::<()>();
        let connection = async move {
            for frame in 0..100u8 {
                io.write_all(&[frame; 10]).await.unwrap();
                io.flush().await.unwrap();
            }
            // Nothing more to do for now: everything goes out although the connection goes on.
            wait.await.unwrap();
            io.write_all(&[7; 200_000]).await.unwrap();
            io.shutdown().await.unwrap();
        };
        let driven = tokio::spawn(drive(connection, flusher, || CROWD));
        let mut first = vec![0; 1000];
        far.read_exact(&mut first).await.unwrap();
        assert!(first.chunks(10).enumerate().all(|(n, frame)| frame == [n as u8; 10]));
        assert_eq!(*writes.lock(), [1000]);
        go_on.send(()).unwrap();
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, vec![7; 200_000]);
        assert!(writes.lock().iter().all(|n| *n <= HELD));
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_the_writer_up() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut io, flusher, _) = coalesce(near, false, LargeHeads::default());
        let written = Arc::new(Mutex::new(0));
        let count = written.clone();
        let connection = async move {
            for _ in 0..1000 {
                io.write_all(&[1; 1000]).await.unwrap();
                *count.lock() += 1000;
            }
            io.shutdown().await.unwrap();
        };
        let driven = tokio::spawn(drive(connection, flusher, || CROWD));
        far.read_exact(&mut [0; 1]).await.unwrap();
        tokio::task::yield_now().await;
        assert!(*written.lock() <= HELD + 3000);
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest.len(), 999_999);
        driven.await.unwrap();
    }

    #[tokio::test]
    async fn who_only_sends_settings_is_cut_off() {
        for (is_http2, cut) in [(true, true), (false, false)] {
            let (near, mut far) = tokio::io::duplex(64 << 10);
            let (mut io, flusher, _) = coalesce(near, is_http2, LargeHeads::default());
            let reading = async move { tokio::io::copy(&mut io, &mut tokio::io::sink()).await };
            let driven = tokio::spawn(drive(reading, flusher, || 0));
            let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0].repeat(20_000);
            let _ = far.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
            // The other end breaks off when it has had enough.
            let _ = far.write_all(&settings).await;
            drop(far);
            let read = driven.await.unwrap();
            assert_eq!(read.is_err(), cut, "{is_http2}: {read:?}");
        }
    }

    #[tokio::test]
    async fn after_an_upgrade_flushes_count() {
        let (near, mut far) = tokio::io::duplex(1000);
        let (mut io, flusher, _) = coalesce(near, false, LargeHeads::default());
        let mut io = drive(
            async move {
                io.write_all(b"switching").await.unwrap();
                io
            },
            flusher,
            || CROWD,
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
