//! Bytes as text: base64 as Go's `encoding/json` reads and writes it. The only decoder of byte fields of
//! objects in the program, so that all layers accept the same.

use base64::prelude::{Engine, BASE64_STANDARD};
use smol_str::SmolStr;

/// The bytes of a text.
///
/// # Errors
/// The offset of the first byte that is not base64.
pub fn decode(text: &str) -> Result<Vec<u8>, usize> {
    // Strict decoding is faster, and accepts canonical text only.
    BASE64_STANDARD.decode(text).or_else(|_| decode_as_go(text.as_bytes()))
}

/// The canonical text of bytes.
pub fn encode(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// The canonical form of a text.
///
/// # Errors
/// As [`decode`].
pub(crate) fn canonical(text: SmolStr) -> Result<SmolStr, usize> {
    match BASE64_STANDARD.decode(text.as_str()) {
        Ok(_) => Ok(text),
        Err(_) => Ok(encode(decode_as_go(text.as_bytes())?).into()),
    }
}

/// `base64.StdEncoding`: line breaks and the last bits of an incomplete group are ignored.
fn decode_as_go(text: &[u8]) -> Result<Vec<u8>, usize> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let mut out = Vec::with_capacity(text.len() / 4 * 3);
    let mut bytes = text.iter().copied().enumerate().filter(|(_, b)| !matches!(b, b'\r' | b'\n'));
    let (mut group, mut bits) = (0u32, 0);
    while let Some((at, byte)) = bytes.next() {
        if byte == b'=' {
            // A group of two digits has two padding characters, one of three has one.
            match bits {
                12 => match bytes.next() {
                    Some((_, b'=')) => {}
                    Some((at, _)) => return Err(at),
                    None => return Err(text.len()),
                },
                18 => {}
                _ => return Err(at),
            }
            if let Some((at, _)) = bytes.next() {
                return Err(at);
            }
            let whole = group >> (bits % 8);
            out.extend(whole.to_be_bytes().iter().skip(4 - bits / 8));
            return Ok(out);
        }
        group = group << 6 | u32::from(value(byte).ok_or(at)?);
        bits += 6;
        if bits == 24 {
            out.extend(&group.to_be_bytes()[1..]);
            (group, bits) = (0, 0);
        }
    }
    match bits {
        0 => Ok(out),
        // Go reports the beginning of the incomplete group.
        bits => Err(text.len() - bits / 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_by_table() {
        let rows = [
            ("aGk=", Ok("aGk=")),
            ("aG\nk=\n", Ok("aGk=")),
            // The last bits are ignored.
            ("aGl=", Ok("aGk=")),
            ("aA==", Ok("aA==")),
            ("", Ok("")),
            ("!aGk=", Err(0)),
            ("aGk", Err(0)),
            ("aGkhaG", Err(4)),
            ("aGk=x", Err(4)),
            ("a===", Err(1)),
        ];
        for (text, expected) in rows {
            assert_eq!(canonical(SmolStr::new(text)), expected.map(SmolStr::new), "{text:?}");
            assert_eq!(decode(text).map(encode), expected.map(str::to_owned), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn a_text_and_its_canonical_form_are_the_same_bytes(text in "[A-Da-d0-1+/=\\r\\n]{0,12}") {
            let canonical = canonical(SmolStr::new(&text));
            prop_assert_eq!(canonical.clone().map(|text| decode(&text).unwrap()), decode(&text));
            if let Ok(canonical) = canonical {
                prop_assert_eq!(encode(decode(&canonical).unwrap()), canonical);
            }
        }
    }
}
