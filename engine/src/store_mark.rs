//! The mark of a store: which application it belongs to.

/// The number that stands for a mark: its first eight bytes.
pub(crate) fn encode_mark(mark: &str) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(mark.as_bytes()).for_each(|(to, from)| *to = *from);
    u64::from_be_bytes(bytes)
}

/// The mark that a number stands for.
pub(crate) fn decode_mark(number: u64) -> String {
    let bytes = number.to_be_bytes();
    let mark: Vec<u8> = bytes.into_iter().take_while(|byte| *byte != 0).collect();
    mark.escape_ascii().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_from_its_number() {
        for mark in ["", "etcd", "12345678"] {
            assert_eq!(decode_mark(encode_mark(mark)), mark);
        }
        assert_eq!(decode_mark(encode_mark("123456789")), "12345678");
    }
}
