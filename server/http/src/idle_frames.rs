//! HTTP/2 frames that belong to no request: SETTINGS, PING, PRIORITY and unknown types.
//!
//! To answer one costs more than to send it, and a connection needs a few a minute. A client that sends
//! thousands is disconnected, as Go's server does when too many control frames are queued.

use std::time::{Duration, Instant};

/// The client's connection preface.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// Size of a frame header: three bytes of length, type, flags, four of the stream.
const FRAME_HEADER: usize = 9;
/// Maximum number of such frames per connection in [`PERIOD`]: clients send a PING or two, those that
/// estimate bandwidth with them ten a second.
const MOST: u32 = 2_000;
const PERIOD: Duration = Duration::from_secs(60);

/// Parses the frame headers of a connection's bytes.
#[derive(Debug)]
pub(crate) struct IdleFrames {
    /// Bytes of the current frame's payload still to skip.
    skip: usize,
    header: [u8; FRAME_HEADER],
    filled: usize,
    count: u32,
    since: Instant,
    /// Size of an incomplete header block, in bytes.
    incomplete_header: usize,
}

impl IdleFrames {
    /// For a new connection.
    pub(crate) fn new() -> IdleFrames {
        IdleFrames {
            skip: PREFACE,
            header: [0; FRAME_HEADER],
            filled: 0,
            count: 0,
            since: Instant::now(),
            incomplete_header: 0,
        }
    }

    /// Size of an incomplete header block, in bytes; only CONTINUATION frames can follow it.
    pub(crate) fn incomplete_header(&self) -> usize {
        self.incomplete_header
    }

    /// Processes received bytes; true when there were too many such frames.
    pub(crate) fn record(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            if bytes.is_empty() {
                return self.count > MOST;
            }
            let wanted = (FRAME_HEADER - self.filled).min(bytes.len());
            let (part, rest) = bytes.split_at(wanted);
            if let Some(room) = self.header.get_mut(self.filled..self.filled + wanted) {
                room.copy_from_slice(part);
            }
            bytes = rest;
            self.filled += wanted;
            if self.filled == FRAME_HEADER {
                self.filled = 0;
                /// Frame types, and the flag of the last frame of a header block.
                const HEADERS: u8 = 1;
                const CONTINUATION: u8 = 9;
                const END_HEADERS: u8 = 4;
                let [high, middle, low, kind, flags, ..] = self.header;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.incomplete_header = match kind {
                    HEADERS | CONTINUATION if flags & END_HEADERS != 0 => 0,
                    HEADERS => self.skip,
                    CONTINUATION => self.incomplete_header.saturating_add(self.skip),
                    _ => self.incomplete_header,
                };
                // DATA, HEADERS, RST_STREAM, WINDOW_UPDATE and CONTINUATION belong to requests, and are
                // bounded with these.
                if !matches!(kind, 0 | 1 | 3 | 8 | 9) {
                    self.idle();
                }
            }
        }
    }

    fn idle(&mut self) {
        if self.since.elapsed() > PERIOD {
            (self.count, self.since) = (0, Instant::now());
        }
        self.count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_counted_however_they_come() {
        let frame = |kind: u8, length: u8| {
            let header = [0, 0, length, kind, 0, 0, 0, 0, 0];
            header.into_iter().chain(std::iter::repeat_n(4, length.into())).collect::<Vec<u8>>()
        };
        let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let stream: Vec<u8> =
            [start, frame(4, 12), frame(1, 40), frame(0, 200), frame(6, 8), frame(77, 0), frame(8, 4)]
                .concat();
        for size in [1, 2, 7, 9, 10, 1000] {
            let mut frames = IdleFrames::new();
            assert!(!stream.chunks(size).any(|part| frames.record(part)));
            assert_eq!(frames.count, 3, "in parts of {size}");
        }
        let part = |kind: u8, flags: u8, length: u8| {
            let mut frame = frame(kind, length);
            frame[4] = flags;
            frame
        };
        let mut frames = IdleFrames::new();
        assert!(!frames.record(&stream));
        for (frame, open) in
            [(part(1, 1, 100), 100), (part(9, 0, 50), 150), (part(9, 4, 9), 0), (part(1, 4, 9), 0)]
        {
            assert!(!frames.record(&frame));
            assert_eq!(frames.incomplete_header(), open);
        }
        let settings = frame(4, 0);
        assert!((0..MOST).any(|_| frames.record(&settings)));
    }
}
