//! DER: a strict reader, which accepts one encoding of each element.
//!
//! Tags of one byte, lengths in their shortest form. Callers must consume the contents of an element
//! completely: [`Reader::end`].

/// `SEQUENCE`.
pub(super) const SEQUENCE: u8 = 0x30;
/// `SET`.
pub(super) const SET: u8 = 0x31;
/// `BOOLEAN`.
pub(super) const BOOLEAN: u8 = 1;
/// `INTEGER`.
pub(super) const INTEGER: u8 = 2;
/// `BIT STRING`.
pub(super) const BIT_STRING: u8 = 3;
/// `OCTET STRING`.
pub(super) const OCTET_STRING: u8 = 4;
/// `OBJECT IDENTIFIER`.
pub(super) const OBJECT_IDENTIFIER: u8 = 6;

/// One element of an encoding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) tag: u8,
    pub(super) contents: &'a [u8],
    /// Including tag and length.
    pub(super) raw: &'a [u8],
}

/// Reads consecutive elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads an encoding, or the contents of an element.
    pub(super) fn new(encoding: &'a [u8]) -> Reader<'a> {
        Reader { rest: encoding }
    }

    /// Whether all bytes are consumed.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// `None` unless all bytes are consumed.
    pub(super) fn end(&self) -> Option<()> {
        self.is_empty().then_some(())
    }

    /// The tag of the next element.
    pub(super) fn peek(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    /// The next element; `None` at the end, and if it is not DER.
    pub(super) fn element(&mut self) -> Option<Element<'a>> {
        let (tag, after_tag) = self.rest.split_first()?;
        // Multi-byte tags, and the end of an indefinite length.
        if tag & 0x1f == 0x1f || *tag == 0 {
            return None;
        }
        let (first, after_length) = after_tag.split_first()?;
        let (length, contents) = match usize::from(*first) {
            short @ 0..0x80 => (short, after_length),
            long => {
                let (bytes, contents) = after_length.split_at_checked(long - 0x80)?;
                // Four bytes of length are more than any request needs.
                let is_shortest = bytes.first().is_some_and(|first| *first != 0) && bytes.len() <= 4;
                let length = bytes.iter().fold(0usize, |length, byte| length << 8 | usize::from(*byte));
                (is_shortest && length >= 0x80).then_some((length, contents))?
            }
        };
        let (contents, rest) = contents.split_at_checked(length)?;
        let (raw, _) = self.rest.split_at_checked(self.rest.len() - rest.len())?;
        self.rest = rest;
        Some(Element { tag: *tag, contents, raw })
    }

    /// The contents of the next element, if it has the given tag.
    pub(super) fn read(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element().filter(|element| element.tag == tag).map(|element| element.contents)
    }

    /// The next element including tag and length, if it has the given tag.
    pub(super) fn read_raw(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.element().filter(|element| element.tag == tag).map(|element| element.raw)
    }

    /// The next element, encoded, if it is an object identifier.
    pub(super) fn object_identifier(&mut self) -> Option<&'a [u8]> {
        let encoded = self.read(OBJECT_IDENTIFIER)?;
        // Each number ends with a byte below 0x80 and has no leading padding.
        let mut begins = true;
        for byte in encoded {
            if begins && *byte == 0x80 {
                return None;
            }
            begins = *byte < 0x80;
        }
        (begins && !encoded.is_empty()).then_some(encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_by_table() {
        let long = [&[4, 0x81, 0x80][..], &[7; 0x80]].concat();
        let rows: [(&[u8], Option<usize>); 12] = [
            (&[], None),
            (&[4], None),
            (&[4, 0], Some(0)),
            (&[4, 1, 9], Some(1)),
            (&[4, 2, 9], None),
            (&long, Some(0x80)),
            (&[4, 0x81, 1, 9], None),
            (&[4, 0x82, 0, 1, 9], None),
            (&[4, 0x80, 9, 0, 0], None),
            (&[0x1f, 1, 0], None),
            (&[4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], None),
            (&[0, 0], None),
        ];
        for (encoding, length) in rows {
            let element = Reader::new(encoding).element();
            assert_eq!(element.map(|element| element.contents.len()), length, "{encoding:?}");
            assert!(element.is_none_or(|element| element.raw == encoding), "{encoding:?}");
        }
    }

    #[test]
    fn object_identifiers_have_one_encoding() {
        let read = |encoded: &[u8]| Reader::new(encoded).object_identifier().is_some();
        assert!(read(&[6, 3, 0x55, 4, 3]) && read(&[6, 2, 0x81, 1]));
        for bad in [&[6, 0][..], &[6, 2, 0x80, 1], &[6, 2, 0x55, 0x81], &[4, 1, 1]] {
            assert!(!read(bad), "{bad:?}");
        }
    }
}
