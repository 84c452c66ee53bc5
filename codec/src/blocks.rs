//! Scanning JSON text sixteen and sixty-four bytes at a time.
//!
//! Most of a stored object is only skipped: the contents of strings, and whole members that are not needed.
//! Byte by byte, that dominates the cost of a transcoded list or a Table. Here sixteen bytes are compared at
//! once (SSE2, which every x86-64 has; elsewhere the compiler vectorizes what it can), and the insides of
//! strings are found by arithmetic on the masks, as simdjson does (Langdale and Lemire, "Parsing Gigabytes of
//! JSON per Second").

/// Sixteen bytes; a mask has bit `i` for byte `i`.
#[derive(Clone, Copy)]
struct Block(
    #[cfg(target_arch = "x86_64")] std::arch::x86_64::__m128i,
    #[cfg(not(target_arch = "x86_64"))] [u8; 16],
);

#[cfg(target_arch = "x86_64")]
impl Block {
    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> Block {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            i64::from_le_bytes(word)
        };
        // SAFETY: the instruction is SSE2, which every x86-64 has; it works on values alone.
        Block(unsafe { std::arch::x86_64::_mm_set_epi64x(word(8), word(0)) })
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: as in `load`.
        let mask = unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(self.0, _mm_set1_epi8(byte as i8))) };
        mask as u64
    }

    /// Positions of a bracket or brace: those of a kind differ in one bit, which is set here.
    #[inline(always)]
    fn equal_folded(self, byte: u8) -> u64 {
        use std::arch::x86_64::{_mm_or_si128, _mm_set1_epi8};
        // SAFETY: as in `load`.
        Block(unsafe { _mm_or_si128(self.0, _mm_set1_epi8(0x20)) }).equal(byte)
    }

    #[inline(always)]
    fn controls(self) -> u64 {
        use std::arch::x86_64::{_mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_set1_epi8};
        // SAFETY: as in `load`.
        let mask =
            unsafe { _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(self.0, _mm_set1_epi8(0x1f)), self.0)) };
        mask as u64
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Block {
    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> Block {
        Block(*bytes)
    }

    #[inline(always)]
    fn mask(self, is: impl Fn(u8) -> bool) -> u64 {
        (0..16).fold(0, |mask, i| mask | u64::from(is(self.0[i])) << i)
    }

    #[inline(always)]
    fn equal(self, byte: u8) -> u64 {
        self.mask(|b| b == byte)
    }

    #[inline(always)]
    fn equal_folded(self, byte: u8) -> u64 {
        self.mask(|b| b | 0x20 == byte)
    }

    #[inline(always)]
    fn controls(self) -> u64 {
        self.mask(|b| b < 0x20)
    }
}

/// Number of leading bytes that are neither quote, backslash nor control character.
#[inline]
pub(crate) fn plain_prefix(bytes: &[u8]) -> usize {
    let mut at = 0;
    while let Some(chunk) = bytes.get(at..).and_then(|rest| rest.first_chunk::<16>()) {
        let block = Block::load(chunk);
        let stops = block.equal(b'"') | block.equal(b'\\') | block.controls();
        if stops != 0 {
            return at + stops.trailing_zeros() as usize;
        }
        at += 16;
    }
    let tail = bytes.get(at..).unwrap_or_default();
    at + tail.iter().position(|&b| b == b'"' || b == b'\\' || b < 0x20).unwrap_or(tail.len())
}

/// Whether the text begins with a prefix; for short prefixes, in a few instructions and without a call.
#[inline]
pub(crate) fn begins_with(text: &[u8], prefix: &[u8]) -> bool {
    let Some(text) = text.get(..prefix.len()) else { return false };
    // Two loads that cover all of it, and may overlap.
    match prefix.len() {
        4..8 => {
            text.first_chunk::<4>() == prefix.first_chunk() && text.last_chunk::<4>() == prefix.last_chunk()
        }
        8..16 => {
            text.first_chunk::<8>() == prefix.first_chunk() && text.last_chunk::<8>() == prefix.last_chunk()
        }
        16..32 => {
            text.first_chunk::<16>() == prefix.first_chunk() && text.last_chunk::<16>() == prefix.last_chunk()
        }
        _ => text == prefix,
    }
}

/// State carried from one block of sixty-four bytes to the next.
#[derive(Default)]
struct Strings {
    /// Whether the next byte is escaped: 0 or 1.
    escaped: u64,
    /// All ones within a string.
    inside: u64,
}

impl Strings {
    /// Which of sixty-four bytes are inside of strings, opening quotes included.
    #[inline(always)]
    fn insides(&mut self, quotes: u64, backslashes: u64) -> u64 {
        let quotes = quotes & !self.escaped_bytes(backslashes);
        let inside = parity(quotes) ^ self.inside;
        self.inside = ((inside as i64) >> 63) as u64;
        inside
    }

    /// Which bytes are escaped: those after an odd run of backslashes.
    #[inline(always)]
    fn escaped_bytes(&mut self, backslashes: u64) -> u64 {
        if backslashes == 0 {
            return std::mem::take(&mut self.escaped);
        }
        const ODD: u64 = 0xaaaa_aaaa_aaaa_aaaa;
        // A backslash that is escaped itself begins nothing. Subtracting the starts of runs from the odd
        // positions carries through each run to the byte after it, and the parity of that position against
        // the run's start determines whether that byte is escaped.
        let starts = backslashes & !self.escaped;
        let carried = (starts << 1 | ODD).wrapping_sub(starts) ^ ODD;
        let escaped = carried ^ (backslashes | self.escaped);
        self.escaped = (carried & backslashes) >> 63;
        escaped
    }
}

/// Prefix parity: bit `i` is set if the number of ones up to and including bit `i` is odd.
#[inline(always)]
fn parity(mut bits: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        bits ^= bits << shift;
    }
    bits
}

/// The length of the object or list at the start of the text, brackets included; `None` when it does not end.
/// Brackets are counted, not paired, and strings are not checked: for text that was validated when it was
/// written.
pub fn container_len(text: &[u8]) -> Option<usize> {
    let mut strings = Strings::default();
    let mut open = 0u32;
    let mut at = 0;
    while at < text.len() {
        let mut padded = [b' '; 64];
        let block: &[u8; 64] = match text[at..].first_chunk() {
            Some(block) => block,
            None => {
                padded[..text.len() - at].copy_from_slice(&text[at..]);
                &padded
            }
        };
        let (mut quotes, mut backslashes, mut opening, mut closing) = (0, 0, 0, 0);
        for (i, sixteen) in block.as_chunks::<16>().0.iter().enumerate() {
            let part = Block::load(sixteen);
            quotes |= part.equal(b'"') << (i * 16);
            backslashes |= part.equal(b'\\') << (i * 16);
            opening |= part.equal_folded(b'{') << (i * 16);
            closing |= part.equal_folded(b'}') << (i * 16);
        }
        let outside = !strings.insides(quotes, backslashes);
        let (opening, closing) = (opening & outside, closing & outside);
        if closing.count_ones() < open {
            // The end cannot be in this block, in whatever order its brackets are.
            open = open + opening.count_ones() - closing.count_ones();
            at += 64;
            continue;
        }
        let mut brackets = opening | closing;
        while brackets != 0 {
            let place = brackets.trailing_zeros();
            if opening >> place & 1 == 1 {
                open += 1;
            } else {
                open = open.checked_sub(1)?;
                if open == 0 {
                    return Some(at + place as usize + 1);
                }
            }
            brackets &= brackets - 1;
        }
        at += 64;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_stop_byte_is_found_at_every_place() {
        for stop in [b'"', b'\\', 0u8, 0x1f, b'\n'] {
            for place in 0..40 {
                let mut text = vec![b'a'; 40];
                text[place] = stop;
                assert_eq!(plain_prefix(&text), place);
                text[place / 2] = 0xc3;
                assert_eq!(plain_prefix(&text), if place / 2 == place { 40 } else { place });
            }
        }
        assert_eq!(plain_prefix(b"!#[]^\x7f\x80\xff !"), 10);
        assert_eq!(plain_prefix(b"!#[]^\x7f\x80\xff !!#[]^\x7f\x80\xff !"), 20);
    }

    #[test]
    fn prefixes_of_every_length_are_recognised() {
        let text: Vec<u8> = (0..100).collect();
        for len in 0..60 {
            assert!(begins_with(&text, &text[..len]));
            assert!(begins_with(&text[..len], &text[..len]));
            assert!(!begins_with(&text[..len], &text[..len + 1]));
            for wrong in 0..len {
                let mut prefix = text[..len].to_vec();
                prefix[wrong] ^= 1;
                assert!(!begins_with(&text, &prefix), "{wrong} of {len}");
            }
        }
    }

    /// The same, byte by byte.
    fn container_len_slowly(text: &[u8]) -> Option<usize> {
        let (mut open, mut inside, mut escaped) = (0usize, false, false);
        for (at, &byte) in text.iter().enumerate() {
            let was_escaped = std::mem::take(&mut escaped);
            match byte {
                b'\\' => escaped = !was_escaped,
                b'"' if !was_escaped => inside = !inside,
                b'{' | b'[' if !inside => open += 1,
                b'}' | b']' if !inside => {
                    open = open.checked_sub(1)?;
                    if open == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }

    #[test]
    fn containers_end_where_they_end() {
        for (text, end) in [
            (r#"{}"#, Some(2)),
            (r#"[],1"#, Some(2)),
            (r#"{"a":[{"b":"}]\"}"}]}x"#, Some(21)),
            (r#"{"a":"\\"}"#, Some(10)),
            (r#"{"a":"\\\"}"}"#, Some(13)),
            ("{", None),
            ("}", None),
            ("", None),
            (r#"{"a"#, None),
        ] {
            assert_eq!(container_len(text.as_bytes()), end, "{text}");
            // At every alignment of the text.
            for shift in 0..130 {
                let moved = format!("[{}{text}", " ".repeat(shift));
                let found = container_len(format!("{moved}]").as_bytes());
                assert_eq!(found, container_len_slowly(format!("{moved}]").as_bytes()), "{moved}");
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_what_looking_at_each_byte_gives(text in "[\\[{][\\[\\]{}\"\\\\ a]{0,300}") {
            prop_assert_eq!(container_len(text.as_bytes()), container_len_slowly(text.as_bytes()));
        }
    }
}
