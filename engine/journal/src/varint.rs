//! Numbers of variable length: seven bits a byte, the lowest first, the top bit set in all but the last.
//! Each number has one encoding, the shortest.

use bytes::{Buf, BufMut};

/// Appends a number in one to ten bytes.
///
/// ```
/// let mut bytes = Vec::new();
/// plinth_journal::put_varint(&mut bytes, 300);
/// assert_eq!(bytes, [0xac, 0x02]);
/// assert_eq!(plinth_journal::take_varint(&mut &bytes[..]), Some(300));
/// ```
pub fn put_varint(out: &mut impl BufMut, mut number: u64) {
    while number >= 0x80 {
        out.put_u8((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.put_u8(number as u8);
}

/// Takes a number off the front; none when there is none, or not in its shortest form.
pub fn take_varint(bytes: &mut (impl Buf + AsRef<[u8]>)) -> Option<u64> {
    let mut number = 0u64;
    for (at, byte) in bytes.as_ref().iter().enumerate().take(10) {
        let (bits, shift) = (u64::from(byte & 0x7f), 7 * at as u32);
        if bits > u64::MAX >> shift {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            if *byte == 0 && at > 0 {
                return None;
            }
            bytes.advance(at + 1);
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn numbers_have_one_encoding() {
        for number in (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit]).chain([u64::MAX]) {
            let mut encoded = Vec::new();
            put_varint(&mut encoded, number);
            let mut bytes = Bytes::from([&encoded[..], b"rest"].concat());
            assert_eq!(take_varint(&mut bytes), Some(number));
            assert_eq!(bytes, "rest");
            // Cut, or longer than needed.
            for end in 0..encoded.len() {
                assert_eq!(take_varint(&mut &encoded[..end]), None);
            }
            *encoded.last_mut().unwrap() |= 0x80;
            encoded.push(0);
            assert_eq!(take_varint(&mut &encoded[..]), None);
        }
        for too_large in [[[0xff; 9].as_slice(), &[2]].concat(), vec![0xff; 11]] {
            assert_eq!(take_varint(&mut &too_large[..]), None, "{too_large:?}");
        }
    }
}
