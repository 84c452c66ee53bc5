//! `/plinth/backup`: the engine's archive, written while reads and writes go on.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Response, StatusCode};

use super::text;
use crate::context::Server;
use plinth_http::body::{Body, BodyError};
use plinth_http::chunks;

/// Bytes that are collected before they are sent.
const CHUNK: usize = 256 << 10;
/// Chunks that may wait for a slow client.
const CHUNKS_IN_FLIGHT: usize = 4;

/// How long a backup may take: administrators have slow disks, too.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Streams an archive that is consistent at one revision. An archive that breaks off is no archive: the body then
/// ends with an error, and its checksum is missing.
pub(super) fn serve(server: &Server) -> Response<Body> {
    let (send, rest) = chunks::channel(CHUNKS_IN_FLIGHT, LONGEST, &server.blocked_threads);
    let engine = server.store.engine().clone();
    tokio::task::spawn_blocking(move || {
        let mut out = Chunks { send, buffer: Vec::with_capacity(CHUNK) };
        let outcome = engine.backup(&mut out, |_| {});
        let last = out.hand_over();
        if let Some(error) = outcome.err().map(|e| e.to_string()).or(last.err().map(|e| e.to_string())) {
            // Nobody reading is no error: the client went away.
            out.send.send(Err(BodyError(error)));
        }
    });
    text(StatusCode::OK, "application/octet-stream", Body::Channel { first: None, rest })
}

/// A writer into the body's channel.
struct Chunks {
    send: chunks::Sender<Bytes, BodyError>,
    buffer: Vec<u8>,
}

impl Chunks {
    fn hand_over(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(CHUNK)));
        match self.send.send(Ok(chunk)) {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
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
