//! Headers of HTTP/2 frames in the bytes of a connection (RFC 9113, 4.1).

/// The client's connection preface.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Size of a frame header: three bytes of length, type, flags, four of the stream.
const FRAME_HEADER: usize = 9;

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of its payload.
    pub length: usize,
    /// Type of the frame.
    pub kind: u8,
    /// Flags, whose meaning depends on the type of the frame.
    pub flags: u8,
}

/// Types of frames.
impl FrameHeader {
    /// `DATA` (RFC 9113, 6).
    pub const DATA: u8 = 0;
    /// `HEADERS` (RFC 9113, 6).
    pub const HEADERS: u8 = 1;
    /// `RST_STREAM` (RFC 9113, 6).
    pub const RST_STREAM: u8 = 3;
    /// `PING` (RFC 9113, 6).
    pub const PING: u8 = 6;
    /// `WINDOW_UPDATE` (RFC 9113, 6).
    pub const WINDOW_UPDATE: u8 = 8;
    /// `CONTINUATION` (RFC 9113, 6).
    pub const CONTINUATION: u8 = 9;
}

/// Parses the frame headers in the bytes of one direction.
#[derive(Debug, Default)]
pub struct FrameHeaders {
    /// Bytes of the current frame's payload still to skip.
    skip: usize,
    header: [u8; FRAME_HEADER],
    filled: usize,
}

impl FrameHeaders {
    /// For the bytes of a client, which begin with the preface.
    pub fn of_client() -> FrameHeaders {
        FrameHeaders { skip: PREFACE.len(), ..FrameHeaders::default() }
    }

    /// The next header that is complete in `bytes`, which it is cut from with all before it; `None` at their
    /// end.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<FrameHeader> {
        let skipped = self.skip.min(bytes.len());
        self.skip -= skipped;
        let rest = bytes.get(skipped..).unwrap_or_default();
        let wanted = (FRAME_HEADER - self.filled).min(rest.len());
        let (part, rest) = rest.split_at(wanted);
        if let Some(room) = self.header.get_mut(self.filled..self.filled + wanted) {
            room.copy_from_slice(part);
        }
        *bytes = rest;
        self.filled += wanted;
        if self.filled < FRAME_HEADER {
            return None;
        }
        self.filled = 0;
        let [high, middle, low, kind, flags, ..] = self.header;
        self.skip = u32::from_be_bytes([0, high, middle, low]) as usize;
        Some(FrameHeader { length: self.skip, kind, flags })
    }

    /// Whether all that was parsed ends with the end of a frame.
    pub fn is_between_frames(&self) -> bool {
        self.skip == 0 && self.filled == 0
    }
}
