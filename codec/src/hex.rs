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

/// Bytes in upper-case hexadecimal.
pub fn upper(bytes: &[u8]) -> String {
    lower(bytes).to_ascii_uppercase()
}
