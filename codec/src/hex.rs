//! Bytes in hexadecimal.

use std::fmt::Write as _;

/// Bytes in lower-case hexadecimal.
///
/// ```
/// assert_eq!(plinth_codec::hex::lower(&[0xca, 0xfe]), "cafe");
/// ```
pub fn lower(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Writing to a String never fails.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// The bytes of a text in lower-case hexadecimal; `None` for any other.
///
/// ```
/// assert_eq!(plinth_codec::hex::decode("cafe"), Some(vec![0xca, 0xfe]));
/// assert_eq!(plinth_codec::hex::decode("CAFE"), None);
/// assert_eq!(plinth_codec::hex::decode("caf"), None);
/// ```
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().map(value).collect::<Option<_>>()?;
    let pairs = digits.chunks_exact(2);
    pairs.remainder().is_empty().then(|| pairs.map(|pair| pair[0] << 4 | pair[1]).collect())
}

/// Bytes in upper-case hexadecimal.
pub fn upper(bytes: &[u8]) -> String {
    lower(bytes).to_ascii_uppercase()
}
