//! Numbers in headers of stored objects and of encrypted bodies: unsigned LEB128, five bytes at most.

use crate::damaged_value::DamagedValue;

/// Bits that five bytes hold. Every number is a length or a count within one value of the engine, which is
/// far shorter.
const BITS: u32 = 35;

/// Appends a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut n: usize) {
    while n >= 0x80 {
        out.push((n & 0x7f) as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads the number at the start of `bytes` and leaves what follows it.
///
/// # Errors
/// [`DamagedValue`] where the bytes end within the number, or it takes more than five.
pub(crate) fn read_varint(bytes: &mut &[u8]) -> Result<usize, DamagedValue> {
    let mut n = 0usize;
    for shift in (0..BITS).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(DamagedValue::new("number ends early"))?;
        *bytes = rest;
        n |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(n);
        }
    }
    Err(DamagedValue::new("number too long"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_rest_is_left() {
        for (n, len) in [(0, 1), (0x7f, 1), (0x80, 2), (0x3fff, 2), (0x4000, 3), ((1 << 35) - 1, 5)] {
            let mut out = Vec::new();
            put_varint(&mut out, n);
            assert_eq!(out.len(), len, "{n}");
            out.push(0xff);
            let mut rest = out.as_slice();
            assert_eq!(read_varint(&mut rest).unwrap(), n);
            assert_eq!(rest, [0xff]);
        }
    }

    #[test]
    fn numbers_that_end_early_or_do_not_end_are_refused() {
        let error = |mut bytes: &[u8]| read_varint(&mut bytes).unwrap_err().to_string();
        assert!(error(&[]).contains("number ends early"));
        assert!(error(&[0x80, 0x80]).contains("number ends early"));
        assert!(error(&[0x80; 5]).contains("number too long"));
        assert!(error(&[0x80, 0x80, 0x80, 0x80, 0x80, 0x01]).contains("number too long"));
    }
}
