//! PEM (RFC 7468): the only reader and writer of PEM in the program.
//!
//! What it accepts is a subset of what Go's `encoding/pem` accepts, with the same meaning. Go skips what it
//! does not understand and takes the next block; two parsers that skip differently see different blocks in
//! one text, so that a certificate could be checked by one block and issued for another. So nothing is
//! skipped here: boundary lines must begin at the start of a line and be in order, and a block that begins
//! must be complete, or the whole text is refused.
//!
//! Text around blocks (`openssl x509 -text`, comments in a bundle) is accepted by [`parse`] and refused by
//! [`parse_one`], which is for untrusted input.

use base64::prelude::{Engine, BASE64_STANDARD};

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
/// Characters in a line that is written.
const LINE: usize = 64;

/// Why a text is not PEM. Lines count from one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// A misplaced or malformed boundary line.
    #[error("line {0}: malformed beginning or end of a PEM block")]
    Boundary(usize),
    /// A block that begins in this line and does not end.
    #[error("line {0}: PEM block without an end")]
    Unterminated(usize),
    /// A line within a block that is not base64, or incomplete base64 of the block that begins in this line.
    #[error("line {0}: PEM block that is not base64")]
    Base64(usize),
    /// There is no block, or the first one has another label.
    #[error("PEM block type must be {0}")]
    Label(String),
    /// There is more than one block.
    #[error("must hold exactly one PEM block")]
    Several,
    /// There is text before or after the block.
    #[error("must hold nothing before or after the PEM block")]
    Text,
    /// There are headers in the block.
    #[error("must hold no headers in the PEM block")]
    Headers,
}

/// One `-----BEGIN …-----` block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its label, such as `CERTIFICATE`.
    pub label: String,
    /// Whether it has headers (RFC 1421).
    pub has_headers: bool,
    /// The decoded contents.
    pub contents: Vec<u8>,
}

/// The blocks of a text, in order; none in a text without any. Linear in the length of the text.
///
/// # Errors
/// [`PemError::Boundary`], [`PemError::Unterminated`], [`PemError::Base64`].
pub fn parse(text: &[u8]) -> Result<Vec<Block>, PemError> {
    read(text).map(|(blocks, _)| blocks)
}

/// The contents of the one block of a text that holds it and nothing else but blank space.
///
/// # Errors
/// [`PemError`].
pub fn parse_one(text: &[u8], label: &str) -> Result<Vec<u8>, PemError> {
    let (blocks, has_text) = read(text)?;
    let mut blocks = blocks.into_iter();
    let first = blocks.next().filter(|block| block.label == label);
    let block = first.ok_or_else(|| PemError::Label(label.to_owned()))?;
    match block {
        _ if blocks.next().is_some() => Err(PemError::Several),
        _ if has_text => Err(PemError::Text),
        Block { has_headers: true, .. } => Err(PemError::Headers),
        Block { contents, .. } => Ok(contents),
    }
}

/// A block as text.
pub fn encode(label: &str, contents: &[u8]) -> String {
    let digits = BASE64_STANDARD.encode(contents);
    let mut out = format!("-----BEGIN {label}-----\n");
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && i % LINE == 0 {
            out.push('\n');
        }
        out.push(digit);
    }
    if !digits.is_empty() {
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

/// The lines of a text, numbered, without blank space at their ends. A carriage return belongs to the
/// following line break, as in Go; at the end of the text it does not.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    text.split_inclusive(|byte| *byte == b'\n').enumerate().map(|(i, line)| {
        let line = match line.strip_suffix(b"\n") {
            Some(line) => line.strip_suffix(b"\r").unwrap_or(line),
            None => line,
        };
        let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |at| at + 1);
        (i + 1, line.get(..end).unwrap_or_default())
    })
}

/// The blocks, and whether there is text around them.
fn read(text: &[u8]) -> Result<(Vec<Block>, bool), PemError> {
    let (mut blocks, mut has_text) = (Vec::new(), false);
    let mut lines = lines(text);
    while let Some((number, line)) = lines.next() {
        if line.starts_with(BEGIN) {
            let label = label(line, BEGIN).ok_or(PemError::Boundary(number))?;
            blocks.push(block(number, label, &mut lines)?);
            continue;
        }
        let has = |mark: &[u8]| line.windows(mark.len()).any(|part| part == mark);
        if has(BEGIN) || has(END) {
            return Err(PemError::Boundary(number));
        }
        has_text |= !line.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r'));
    }
    Ok((blocks, has_text))
}

/// The label in a line that begins or ends a block: letters, digits, spaces and the like, and no colon, by
/// which Go recognizes headers.
fn label<'a>(line: &'a [u8], mark: &[u8]) -> Option<&'a str> {
    let label = std::str::from_utf8(line.strip_prefix(mark)?.strip_suffix(DASHES)?).ok()?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, ' ' | '_' | '.' | '#' | '/');
    (!label.is_empty() && label.chars().all(is_plain)).then_some(label)
}

/// The rest of the block that begins in the line of that number.
fn block<'a>(
    begin: usize,
    begun: &str,
    lines: &mut impl Iterator<Item = (usize, &'a [u8])>,
) -> Result<Block, PemError> {
    let (mut has_headers, mut in_headers) = (false, true);
    let mut digits = Vec::new();
    for (number, line) in lines {
        if line.starts_with(END) {
            if label(line, END) != Some(begun) {
                return Err(PemError::Boundary(number));
            }
            let contents = BASE64_STANDARD.decode(digits).map_err(|_| PemError::Base64(begin))?;
            return Ok(Block { label: begun.to_owned(), has_headers, contents });
        }
        if line.windows(DASHES.len()).any(|part| part == DASHES) {
            return Err(PemError::Boundary(number));
        }
        in_headers &= line.contains(&b':');
        has_headers |= in_headers;
        if !in_headers {
            let is_digit = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=');
            let inked = line.iter().copied().filter(|byte| !matches!(byte, b' ' | b'\t'));
            let before = digits.len();
            digits.extend(inked);
            if !digits.iter().skip(before).all(is_digit) {
                return Err(PemError::Base64(number));
            }
        }
    }
    Err(PemError::Unterminated(begin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(label: &str, body: &str) -> String {
        format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n")
    }

    fn shown(text: &str) -> Result<Vec<String>, PemError> {
        let show = |block: Block| {
            let headers = if block.has_headers { " with headers" } else { "" };
            format!("{} {}{headers}", block.label, String::from_utf8(block.contents).unwrap())
        };
        Ok(parse(text.as_bytes())?.into_iter().map(show).collect())
    }

    #[test]
    fn texts_by_table() {
        use PemError::{Base64, Boundary, Unterminated};
        let a = one("A", "YWJj");
        let rows: Vec<(String, Result<Vec<&str>, PemError>)> = vec![
            (String::new(), Ok(vec![])),
            ("text".into(), Ok(vec![])),
            (a.clone(), Ok(vec!["A abc"])),
            (format!("text\n{a}between\n{a}\n{}after", one("B", "")), Ok(vec!["A abc", "A abc", "B "])),
            (a.replace('\n', "\r\n"), Ok(vec!["A abc"])),
            (a.trim_end().to_owned(), Ok(vec!["A abc"])),
            (one("A", "YW\n \tJj"), Ok(vec!["A abc"])),
            (one("A", "K: v\nL: w\n\nYWJj"), Ok(vec!["A abc with headers"])),
            ("-----BEGIN A-----\n-----END A-----\n".into(), Ok(vec!["A "])),
            ("-----BEGIN A-----   \nYWJj\n-----END A----- \t\n".into(), Ok(vec!["A abc"])),
            // Input that Go skips to find the next block is refused.
            (one("A", "!!!") + &a, Err(Base64(2))),
            (one("A", "YWJjZ") + &a, Err(Base64(1))),
            (one("A", "YWJ=Yw==") + &a, Err(Base64(1))),
            (one("A", "YWJ\rj"), Err(Base64(2))),
            (one("A", "YWJj\nK: v"), Err(Base64(3))),
            (format!("-----BEGIN A-----\nYWJj\n-----END B-----\n{a}"), Err(Boundary(3))),
            (format!("-----BEGIN A-----\n{a}"), Err(Boundary(2))),
            (format!("-----BEGIN A----- x\nYWJj\n-----END A-----\n{a}"), Err(Boundary(1))),
            (format!("-----BEGIN -----\nYWJj\n-----END -----\n{a}"), Err(Boundary(1))),
            (one("A", "K: -----BEGIN A-----\nYWJj"), Err(Boundary(2))),
            (one("A:B", "YWJj"), Err(Boundary(1))),
            (one("A-----B", "YWJj"), Err(Boundary(1))),
            (format!(" {a}"), Err(Boundary(1))),
            (format!("x\r{a}"), Err(Boundary(1))),
            (format!("-----END A-----\n{a}"), Err(Boundary(1))),
            (format!("{}x\n", a.trim_end()), Err(Boundary(3))),
            (format!("{}\r", a.trim_end()), Err(Boundary(3))),
            ("-----BEGIN A-----\nYWJj".into(), Err(Unterminated(1))),
            ("-----BEGIN A-----\nYWJj\n-----END A".into(), Err(Boundary(3))),
            ("-----BEGIN ".into(), Ok(vec![])),
            ("-----BEGIN A-----\nK: v".into(), Err(Unterminated(1))),
        ];
        for (text, expected) in rows {
            let expected = expected.map(|list| list.into_iter().map(str::to_owned).collect());
            assert_eq!(shown(&text), expected, "{text:?}");
        }
    }

    #[test]
    fn exactly_one_block_by_table() {
        let a = one("A", "YWJj");
        let label = || Err(PemError::Label("A".into()));
        let rows = [
            (a.clone(), Ok(b"abc".to_vec())),
            (format!("\n \t\r\n{a}\r\n\n"), Ok(b"abc".to_vec())),
            (String::new(), label()),
            (one("B", "YWJj") + &a, label()),
            (a.clone() + &a, Err(PemError::Several)),
            (a.clone() + &one("B", "YWJj"), Err(PemError::Several)),
            (format!("x\n{a}"), Err(PemError::Text)),
            (format!("{a}x"), Err(PemError::Text)),
            (one("A", "K: v\n\nYWJj"), Err(PemError::Headers)),
        ];
        for (text, expected) in rows {
            assert_eq!(parse_one(text.as_bytes(), "A"), expected, "{text:?}");
        }
    }

    proptest! {
        /// What is written can be read, with any text around it.
        #[test]
        fn written_blocks_are_read(contents: Vec<Vec<u8>>, between in "[ -,./-~\n]{0,40}") {
            let mut text = String::new();
            for contents in &contents {
                text.push_str(&format!("{between}\n{}", encode("CERTIFICATE", contents)));
            }
            let read = parse(text.as_bytes()).unwrap();
            prop_assert_eq!(read.into_iter().map(|block| block.contents).collect::<Vec<_>>(), contents);
        }

        /// In an accepted text there are as many boundary lines as blocks: no parser finds another block.
        #[test]
        fn nothing_hides(parts in proptest::collection::vec(0usize..12, 0..12)) {
            const PARTS: [&str; 12] = [
                "-----BEGIN A-----", "-----END A-----", "-----BEGIN B-----", "-----END B-----", "\n", "\r\n", " ",
                "YWJj", "K: v", "-----", "-----BEGIN ", "x",
            ];
            let text: String = parts.iter().map(|part| PARTS[*part]).collect();
            if let Ok(blocks) = parse(text.as_bytes()) {
                for mark in ["-----BEGIN A", "-----BEGIN B", "-----END A", "-----END B"] {
                    let label = mark.rsplit(' ').next().unwrap();
                    let found = blocks.iter().filter(|block| block.label == label).count();
                    prop_assert_eq!(text.matches(mark).count(), found, "{:?}", text);
                }
            }
        }
    }
}
