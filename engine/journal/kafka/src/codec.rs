//! How numbers, texts and structures are written in Kafka's protocol.

use bytes::{Buf, Bytes};

/// A call: its key and the version that is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Api {
    pub key: i16,
    pub version: i16,
    pub name: &'static str,
    /// Whether its header and body have the flexible encoding.
    pub is_flexible: bool,
}

/// The id that Kafka gives a topic when it is created.
pub(crate) type TopicId = [u8; 16];

/// A broker's answer is cut or malformed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) type Decoded<T> = Result<T, Malformed>;

/// Writes a request.
#[derive(Default)]
pub(crate) struct Encoder(pub Vec<u8>);

impl Encoder {
    /// The frame of a request, which its length precedes.
    pub(crate) fn frame(api: Api, correlation: i32, body: &[u8]) -> Vec<u8> {
        const CLIENT: &str = "plinth";
        let mut frame = Encoder(Vec::with_capacity(body.len() + 32));
        frame.i32(0);
        frame.i16(api.key);
        frame.i16(api.version);
        frame.i32(correlation);
        frame.short_string(CLIENT);
        if api.is_flexible {
            frame.tags();
        }
        frame.0.extend_from_slice(body);
        let length = i32::try_from(frame.0.len() - 4).unwrap_or(i32::MAX);
        if let Some(field) = frame.0.get_mut(..4) {
            field.copy_from_slice(&length.to_be_bytes());
        }
        frame.0
    }

    pub(crate) fn i8(&mut self, value: i8) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i16(&mut self, value: i16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    pub(crate) fn bool(&mut self, value: bool) {
        self.0.push(u8::from(value));
    }

    pub(crate) fn topic_id(&mut self, id: &TopicId) {
        self.0.extend_from_slice(id);
    }

    /// The length of an array, a string or bytes.
    pub(crate) fn length(&mut self, length: usize) {
        plinth_journal::put_varint(&mut self.0, length as u64 + 1);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.length(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn string(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn null(&mut self) {
        self.0.push(0);
    }

    /// No tagged fields.
    pub(crate) fn tags(&mut self) {
        self.0.push(0);
    }

    /// A string of the encoding that is not flexible. Texts here are short.
    pub(crate) fn short_string(&mut self, text: &str) {
        self.i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
        self.0.extend_from_slice(text.as_bytes());
    }
}

/// Reads an answer.
pub(crate) struct Decoder(pub Bytes);

impl Decoder {
    pub(crate) fn take(&mut self, length: usize) -> Decoded<Bytes> {
        if self.0.len() < length {
            return Err(Malformed);
        }
        Ok(self.0.split_to(length))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Decoded<[u8; N]> {
        self.take(N)?.as_ref().try_into().map_err(|_| Malformed)
    }

    pub(crate) fn i8(&mut self) -> Decoded<i8> {
        self.array().map(i8::from_be_bytes)
    }

    pub(crate) fn i16(&mut self) -> Decoded<i16> {
        self.array().map(i16::from_be_bytes)
    }

    pub(crate) fn i32(&mut self) -> Decoded<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Decoded<i64> {
        self.array().map(i64::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Decoded<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn bool(&mut self) -> Decoded<bool> {
        Ok(self.i8()? != 0)
    }

    pub(crate) fn varint(&mut self) -> Decoded<u64> {
        plinth_journal::take_varint(&mut self.0).ok_or(Malformed)
    }

    /// The length of an array, a string or bytes; none for null.
    pub(crate) fn length(&mut self) -> Decoded<Option<usize>> {
        let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
        Ok(length.checked_sub(1))
    }

    pub(crate) fn nullable_bytes(&mut self) -> Decoded<Option<Bytes>> {
        self.length()?.map(|length| self.take(length)).transpose()
    }

    pub(crate) fn nullable_string(&mut self) -> Decoded<Option<String>> {
        let text = |bytes: Bytes| String::from_utf8_lossy(&bytes).into_owned();
        Ok(self.nullable_bytes()?.map(text))
    }

    pub(crate) fn string(&mut self) -> Decoded<String> {
        self.nullable_string()?.ok_or(Malformed)
    }

    /// The elements of an array; none at all for null.
    pub(crate) fn elements<T>(
        &mut self,
        mut element: impl FnMut(&mut Decoder) -> Decoded<T>,
    ) -> Decoded<Vec<T>> {
        let count = self.length()?.unwrap_or(0);
        // Each has a byte at least: what an answer claims is not allocated before it is there.
        let mut elements = Vec::new();
        for _ in 0..count {
            elements.push(element(self)?);
        }
        Ok(elements)
    }

    /// Skips tagged fields.
    pub(crate) fn tags(&mut self) -> Decoded<()> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
            self.take(length)?;
        }
        Ok(())
    }

    pub(crate) fn short_string(&mut self) -> Decoded<String> {
        let length = usize::try_from(self.i16()?).map_err(|_| Malformed)?;
        Ok(String::from_utf8_lossy(&self.take(length)?).into_owned())
    }

    /// A signed varint, as records have them.
    pub(crate) fn zigzag(&mut self) -> Decoded<i64> {
        let raw = self.varint()?;
        Ok((raw >> 1) as i64 ^ -((raw & 1) as i64))
    }

    /// Bytes of a record, whose length is a signed varint; none for null.
    pub(crate) fn record_bytes(&mut self) -> Decoded<Option<Bytes>> {
        match self.zigzag()? {
            -1 => Ok(None),
            length => self.take(usize::try_from(length).map_err(|_| Malformed)?).map(Some),
        }
    }

    pub(crate) fn skip(&mut self, length: usize) -> Decoded<()> {
        self.take(length).map(|_| ())
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.0.has_remaining()
    }
}

/// Appends a signed varint, as records have them.
pub(crate) fn put_zigzag(out: &mut Vec<u8>, number: i64) {
    plinth_journal::put_varint(out, ((number << 1) ^ (number >> 63)) as u64);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{API_VERSIONS, METADATA};

    #[test]
    fn frames_have_their_length_and_header() {
        let frame = Encoder::frame(METADATA, 7, b"body");
        assert_eq!(frame[..4], (frame.len() as i32 - 4).to_be_bytes());
        assert_eq!(frame[4..12], [0, 3, 0, 12, 0, 0, 0, 7]);
        assert_eq!(frame[12..], *b"\0\x06plinth\0body");
        assert_eq!(Encoder::frame(API_VERSIONS, 7, b"")[12..], *b"\0\x06plinth");
    }

    #[test]
    fn signed_numbers_have_their_sign() {
        for number in [0, -1, 1, 300, -300, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_zigzag(&mut bytes, number);
            assert_eq!(Decoder(bytes.into()).zigzag(), Ok(number));
        }
    }
}
