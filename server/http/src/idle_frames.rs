//! Frames of HTTP/2 that ask for nothing: SETTINGS, PING, PRIORITY and types that nobody knows.
//!
//! To answer one costs more than to send it, and a connection needs a few a minute. So who sends thousands is cut off, as Go's
//! server does with clients for which too many answers wait.

use std::time::{Duration, Instant};

/// The preface that a client begins with.
const PREFACE: usize = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len();
/// The head of a frame: three bytes of length, type, flags, four of the stream.
const HEAD: usize = 9;
/// Such frames that a connection may send in [`PERIOD`]: clients send a PING or two, those that measure the way with them ten a second.
const MOST: u32 = 2_000;
const PERIOD: Duration = Duration::from_secs(60);

/// Follows the bytes of a connection.
#[derive(Debug)]
pub struct IdleFrames {
    /// Bytes that belong to the frame before.
    skip: usize,
    head: [u8; HEAD],
    filled: usize,
    count: u32,
    since: Instant,
    /// Bytes of a head whose end has not come.
    open_head: usize,
}

impl IdleFrames {
    /// Of a connection that begins.
    pub fn new() -> IdleFrames {
        IdleFrames {
            skip: PREFACE,
            head: [0; HEAD],
            filled: 0,
            count: 0,
            since: Instant::now(),
            open_head: 0,
        }
    }

    /// Bytes of a head whose end has not come; a head goes on in CONTINUATION frames alone.
    pub fn open_head(&self) -> usize {
        self.open_head
    }

    /// Takes bytes in as they come; true when there were too many such frames.
    pub fn take(&mut self, mut bytes: &[u8]) -> bool {
        loop {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = bytes.get(skipped..).unwrap_or_default();
            if bytes.is_empty() {
                return self.count > MOST;
            }
            let wanted = (HEAD - self.filled).min(bytes.len());
            let (part, rest) = bytes.split_at(wanted);
            if let Some(room) = self.head.get_mut(self.filled..self.filled + wanted) {
                room.copy_from_slice(part);
            }
            bytes = rest;
            self.filled += wanted;
            if self.filled == HEAD {
                self.filled = 0;
                /// HEADERS, CONTINUATION and the flag of the last of them.
                const HEADERS: u8 = 1;
                const CONTINUATION: u8 = 9;
                const END_HEADERS: u8 = 4;
                let [high, middle, low, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
                self.open_head = match kind {
                    HEADERS | CONTINUATION if flags & END_HEADERS != 0 => 0,
                    HEADERS => self.skip,
                    CONTINUATION => self.open_head.saturating_add(self.skip),
                    _ => self.open_head,
                };
                // DATA, HEADERS, RST_STREAM, WINDOW_UPDATE and CONTINUATION belong to requests, and are bounded with these.
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
            let head = [0, 0, length, kind, 0, 0, 0, 0, 0];
            head.into_iter().chain(std::iter::repeat_n(4, length.into())).collect::<Vec<u8>>()
        };
        let start = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        let stream: Vec<u8> =
            [start, frame(4, 12), frame(1, 40), frame(0, 200), frame(6, 8), frame(77, 0), frame(8, 4)]
                .concat();
        for size in [1, 2, 7, 9, 10, 1000] {
            let mut frames = IdleFrames::new();
            assert!(!stream.chunks(size).any(|part| frames.take(part)));
            assert_eq!(frames.count, 3, "in parts of {size}");
        }
        let part = |kind: u8, flags: u8, length: u8| {
            let mut frame = frame(kind, length);
            frame[4] = flags;
            frame
        };
        let mut frames = IdleFrames::new();
        assert!(!frames.take(&stream));
        for (frame, open) in
            [(part(1, 1, 100), 100), (part(9, 0, 50), 150), (part(9, 4, 9), 0), (part(1, 4, 9), 0)]
        {
            assert!(!frames.take(&frame));
            assert_eq!(frames.open_head(), open);
        }
        let settings = frame(4, 0);
        assert!((0..MOST).any(|_| frames.take(&settings)));
    }
}
