//! HTTP/2 frames that belong to no request: SETTINGS, PING, PRIORITY and unknown types.
//!
//! To answer one costs more than to send it, and a connection needs a few a minute. A client that sends
//! thousands is disconnected, as Go's server does when too many control frames are queued.

use std::time::{Duration, Instant};

use super::frames::{FrameHeader, FrameHeaders};

/// Maximum number of such frames per connection in [`PERIOD`]: clients send a PING or two, those that
/// estimate bandwidth with them ten a second.
const MOST: u32 = 2_000;
const PERIOD: Duration = Duration::from_secs(60);
/// Types of frames that belong to requests.
const OF_REQUESTS: [u8; 5] = [
    FrameHeader::DATA,
    FrameHeader::HEADERS,
    FrameHeader::RST_STREAM,
    FrameHeader::WINDOW_UPDATE,
    FrameHeader::CONTINUATION,
];

/// Parses the frame headers of a connection's bytes.
#[derive(Debug)]
pub(crate) struct IdleFrames {
    headers: FrameHeaders,
    count: u32,
    since: Instant,
    /// Size of an incomplete header block, in bytes.
    incomplete_header: usize,
}

impl IdleFrames {
    /// For a new connection.
    pub(crate) fn new() -> IdleFrames {
        IdleFrames {
            headers: FrameHeaders::of_client(),
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
        /// The flag of the last frame of a header block.
        const END_HEADERS: u8 = 4;
        while let Some(FrameHeader { length, kind, flags }) = self.headers.next(&mut bytes) {
            self.incomplete_header = match kind {
                FrameHeader::HEADERS | FrameHeader::CONTINUATION if flags & END_HEADERS != 0 => 0,
                FrameHeader::HEADERS => length,
                FrameHeader::CONTINUATION => self.incomplete_header.saturating_add(length),
                _ => self.incomplete_header,
            };
            // Those that belong to requests are bounded with these.
            if !OF_REQUESTS.contains(&kind) {
                self.idle();
            }
        }
        self.count > MOST
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
