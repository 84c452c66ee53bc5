//! The primitives of the protobuf wire format: variable-length integers, tags, length-delimited values.
//!
//! Source: protobuf.dev, "Encoding". Decoding follows the code that gogo-proto generates for upstream, since
//! clients may send what that accepts: a varint may be padded up to ten bytes, and unknown fields are
//! skipped, groups included.

use super::ProtobufError;

/// The wire type, the low three bits of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Bytes = 2,
    StartGroup = 3,
    EndGroup = 4,
    Fixed32 = 5,
}

impl WireType {
    fn of(tag: u64) -> Result<WireType, ProtobufError> {
        Ok(match tag & 7 {
            0 => WireType::Varint,
            1 => WireType::Fixed64,
            2 => WireType::Bytes,
            3 => WireType::StartGroup,
            4 => WireType::EndGroup,
            5 => WireType::Fixed32,
            other => return Err(ProtobufError::WireType(other as u8)),
        })
    }
}

/// Reads wire values from the front of a slice. Copies nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireReader<'a> {
    rest: &'a [u8],
}

impl<'a> WireReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> WireReader<'a> {
        WireReader { rest: bytes }
    }

    /// The unread bytes.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next field's number and wire type.
    #[inline]
    pub(super) fn tag(&mut self) -> Result<(u32, WireType), ProtobufError> {
        let tag = self.varint()?;
        // Upstream takes the number as an i32, so higher bits are cut off and negative numbers are refused.
        let number = (tag >> 3) as u32;
        if number == 0 || number > i32::MAX as u32 {
            return Err(ProtobufError::Tag(tag));
        }
        Ok((number, WireType::of(tag)?))
    }

    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, ProtobufError> {
        match *self.rest {
            [byte, ref rest @ ..] if byte < 0x80 => {
                self.rest = rest;
                Ok(byte as u64)
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, ProtobufError> {
        let mut value = 0u64;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= ((byte & 0x7f) as u64) << (7 * i);
            if byte < 0x80 {
                self.rest = self.rest.get(i + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { ProtobufError::UnexpectedEnd } else { ProtobufError::Overflow })
    }

    /// A length-delimited value. The claimed length is checked against the remaining bytes before it is used.
    #[inline]
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], ProtobufError> {
        let len = self.varint()?;
        if len > i64::MAX as u64 {
            return Err(ProtobufError::NegativeLength);
        }
        match usize::try_from(len).ok().and_then(|len| self.rest.split_at_checked(len)) {
            Some((value, rest)) => {
                self.rest = rest;
                Ok(value)
            }
            None => Err(ProtobufError::UnexpectedEnd),
        }
    }

    pub(crate) fn fixed64(&mut self) -> Result<u64, ProtobufError> {
        let (value, rest) = self.rest.split_first_chunk::<8>().ok_or(ProtobufError::UnexpectedEnd)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*value))
    }

    /// Skips the value of a field whose tag was just read. Groups nest without recursion.
    pub(super) fn skip(&mut self, wire: WireType) -> Result<(), ProtobufError> {
        let mut wire = wire;
        let mut open_groups = 0usize;
        loop {
            match wire {
                WireType::Varint => {
                    self.varint()?;
                }
                WireType::Fixed64 => {
                    self.fixed64()?;
                }
                WireType::Bytes => {
                    self.bytes()?;
                }
                WireType::Fixed32 => {
                    self.rest = self.rest.get(4..).ok_or(ProtobufError::UnexpectedEnd)?;
                }
                WireType::StartGroup => open_groups += 1,
                WireType::EndGroup => {
                    open_groups = open_groups.checked_sub(1).ok_or(ProtobufError::EndGroup)?;
                }
            }
            if open_groups == 0 {
                return Ok(());
            }
            wire = self.tag()?.1;
        }
    }
}

/// A buffer that is written from its end to its start, so that the length of a message is known when its
/// prefix is written: one pass, no sizing pass before it, as in upstream's `MarshalToSizedBuffer`.
#[derive(Debug)]
pub(crate) struct ReverseBuffer {
    buffer: Vec<u8>,
    start: usize,
}

impl ReverseBuffer {
    /// A buffer with room for `capacity` bytes; it grows by doubling.
    pub(super) fn with_capacity(capacity: usize) -> ReverseBuffer {
        ReverseBuffer { buffer: vec![0; capacity], start: capacity }
    }

    /// How many bytes were written.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The written bytes, in order.
    pub(super) fn as_slice(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Clears the buffer.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.start = self.buffer.len();
    }

    #[cold]
    fn grow(&mut self, needed: usize) {
        let len = self.len();
        let capacity = (len + needed).next_power_of_two().max(256);
        let mut buffer = vec![0; capacity];
        buffer[capacity - len..].copy_from_slice(self.as_slice());
        self.start = capacity - len;
        self.buffer = buffer;
    }

    /// Prepends bytes.
    #[inline]
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.start < bytes.len() {
            self.grow(bytes.len());
        }
        let end = self.start;
        self.start = end - bytes.len();
        self.buffer[self.start..end].copy_from_slice(bytes);
    }

    #[inline]
    pub(crate) fn put_byte(&mut self, byte: u8) {
        if self.start == 0 {
            self.grow(1);
        }
        self.start -= 1;
        self.buffer[self.start] = byte;
    }

    #[inline]
    pub(super) fn put_varint(&mut self, value: u64) {
        if value < 0x80 {
            return self.put_byte(value as u8);
        }
        let (bytes, len) = varint(value);
        self.put(&bytes[..len]);
    }

    #[inline]
    pub(crate) fn put_tag(&mut self, number: u32, wire: WireType) {
        self.put_varint((number as u64) << 3 | wire as u64);
    }

    /// A length-delimited field.
    #[inline]
    pub(crate) fn put_bytes_field(&mut self, number: u32, value: &[u8]) {
        self.put(value);
        self.put_varint(value.len() as u64);
        self.put_tag(number, WireType::Bytes);
    }

    /// A varint field.
    #[inline]
    pub(crate) fn put_varint_field(&mut self, number: u32, value: u64) {
        self.put_varint(value);
        self.put_tag(number, WireType::Varint);
    }

    /// Closes a message whose last byte was at length `end` (see [`ReverseBuffer::len`]): prepends the length
    /// and tag.
    #[inline]
    pub(crate) fn put_message_prefix(&mut self, number: u32, end: usize) {
        self.put_varint((self.len() - end) as u64);
        self.put_tag(number, WireType::Bytes);
    }
}

/// The varint of a value: ten bytes and how many of them are used.
#[inline]
pub(crate) fn varint(mut value: u64) -> ([u8; 10], usize) {
    let mut bytes = [0; 10];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = value as u8 & 0x7f;
        value >>= 7;
        if value == 0 {
            return (bytes, i + 1);
        }
        *byte |= 0x80;
    }
    (bytes, 10)
}

/// Appends a varint.
#[inline]
pub(crate) fn push_varint(out: &mut Vec<u8>, value: u64) {
    let (bytes, len) = varint(value);
    out.extend_from_slice(&bytes[..len]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn varints_round_trip_at_every_length() {
        for shift in 0..64 {
            for value in [1u64 << shift, (1u64 << shift) - 1, u64::MAX >> shift] {
                let mut forward = Vec::new();
                push_varint(&mut forward, value);
                let mut backward = ReverseBuffer::with_capacity(0);
                backward.put_varint(value);
                assert_eq!(forward, backward.as_slice());
                let mut reader = WireReader::new(&forward);
                assert_eq!(reader.varint(), Ok(value));
                assert!(reader.is_empty());
            }
        }
    }

    #[test]
    fn bad_varints_and_lengths_are_refused() {
        assert_eq!(WireReader::new(&[0x80; 9]).varint(), Err(ProtobufError::UnexpectedEnd));
        assert_eq!(WireReader::new(&[0x80; 11]).varint(), Err(ProtobufError::Overflow));
        assert_eq!(WireReader::new(&[5, 1, 2]).bytes(), Err(ProtobufError::UnexpectedEnd));
        assert_eq!(
            WireReader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]).bytes(),
            Err(ProtobufError::NegativeLength)
        );
        assert_eq!(WireReader::new(&[0x07]).tag(), Err(ProtobufError::Tag(7)));
        assert_eq!(WireReader::new(&[0x0f]).tag(), Err(ProtobufError::WireType(7)));
    }

    #[test]
    fn groups_are_skipped_without_recursion() {
        // A million groups, one in the other, then closed.
        let mut bomb = vec![0x0b; 1_000_000];
        bomb.extend(std::iter::repeat_n(0x0c, 1_000_001));
        let mut reader = WireReader::new(&bomb);
        reader.skip(WireType::StartGroup).unwrap();
        assert!(reader.is_empty());
        assert_eq!(
            WireReader::new(&[0x0b; 100]).skip(WireType::StartGroup),
            Err(ProtobufError::UnexpectedEnd)
        );
        assert_eq!(WireReader::new(&[]).skip(WireType::EndGroup), Err(ProtobufError::EndGroup));
    }

    #[test]
    fn reverse_buffer_grows_and_keeps_what_is_there() {
        let mut buffer = ReverseBuffer::with_capacity(3);
        for i in (0..1000u32).rev() {
            buffer.put_bytes_field(1, &i.to_be_bytes());
        }
        let mut reader = WireReader::new(buffer.as_slice());
        for i in 0..1000u32 {
            assert_eq!(reader.tag(), Ok((1, WireType::Bytes)));
            assert_eq!(reader.bytes(), Ok(&i.to_be_bytes()[..]));
        }
        assert!(reader.is_empty());
    }
}
