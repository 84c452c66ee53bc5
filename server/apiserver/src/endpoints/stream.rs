//! Bodies that are written while they are sent.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode};

use super::text;
use crate::context::Server;
use plinth_api::{ApiError, Reason};
use plinth_http::{chunk_channel, Body, BodyError, ChunkSender, StreamThread};

/// Bytes per chunk.
const CHUNK: usize = 256 << 10;
/// Chunks buffered for a slow client.
const CHUNKS_IN_FLIGHT: usize = 4;

/// Longest response: the client may write to a slow disk.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Reserves what sending such a body takes: a thread.
///
/// # Errors
/// 429 when all threads are in use.
pub(super) fn reserve(server: &Server) -> Result<StreamThread, ApiError> {
    server.stream_threads.try_reserve().ok_or_else(|| {
        let message = "too many backups and checkpoints are being sent, please try again later";
        ApiError::new(429, Reason::TooManyRequests, message).retry_after(10)
    })
}

/// Sends what `write` writes on the thread, which waits for the client. When it fails the body ends with an
/// error.
///
/// # Errors
/// 500 when the system creates no thread.
pub(super) fn respond<E: std::fmt::Display>(
    server: &Server,
    thread: StreamThread,
    write: impl FnOnce(&mut Chunks) -> Result<(), E> + Send + 'static,
) -> Result<Response<Body>, ApiError> {
    let (send, rest) = chunk_channel(CHUNKS_IN_FLIGHT, LONGEST, &server.stream_threads);
    // The store is closed when the thread has ended.
    let counted = server.tasks.token();
    let run = move || {
        let mut out = Chunks { send, buffer: Vec::with_capacity(CHUNK), is_client_gone: false };
        let outcome = write(&mut out);
        let last = out.hand_over();
        if let Some(error) = outcome.err().map(|e| e.to_string()).or(last.err().map(|e| e.to_string())) {
            if !out.is_client_gone {
                tracing::warn!(error, "response aborted, its content could not be produced");
            }
            out.send.send(Err(BodyError(error)));
        }
        drop(counted);
    };
    thread.run(run).map_err(ApiError::internal)?;
    Ok(text(StatusCode::OK, "application/octet-stream", Body::Channel { first: None, rest }))
}

/// A writer into the body's channel.
pub(super) struct Chunks {
    send: ChunkSender<Bytes, BodyError>,
    buffer: Vec<u8>,
    /// A send has failed.
    is_client_gone: bool,
}

impl Chunks {
    fn hand_over(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        match self.send.send(Ok(chunk)) {
            true => Ok(()),
            false => {
                self.is_client_gone = true;
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }
}

impl io::Write for Chunks {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= CHUNK {
            self.hand_over()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
