//! PEM as Go reads it (`encoding/pem`): text around blocks, headers in them and lines of any length are no faults, and what is no block
//! is passed over.

use base64::engine::general_purpose::STANDARD;
use base64::Engine as _;

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What it says to be.
    pub label: String,
    /// Whether there are headers in it.
    pub has_headers: bool,
    /// What it holds.
    pub contents: Vec<u8>,
}

/// The blocks of a text, in order. Each walk is linear in what it passes.
pub fn blocks(text: &[u8]) -> impl Iterator<Item = Block> + '_ {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = behind_start(rest)?;
            // What begins like a block and is none: the next one may begin behind its first line.
            if let Some((block, behind)) = block(rest) {
                rest = behind;
                return Some(block);
            }
        }
    })
}

/// What follows the next line that begins a block.
fn behind_start(text: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = text.strip_prefix(BEGIN) {
        return Some(rest);
    }
    let at = text.windows(BEGIN.len() + 1).position(|w| w.first() == Some(&b'\n') && w.ends_with(BEGIN))?;
    text.get(at + 1 + BEGIN.len()..)
}

/// The first line without what is blank at its end, and what follows it.
fn line(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let (line, rest) = text.split_at(end);
    (line.trim_ascii_end(), rest.get(1..).unwrap_or_default())
}

/// A block behind its first dashes, and what follows it.
fn block(text: &[u8]) -> Option<(Block, &[u8])> {
    let (first, mut rest) = line(text);
    let label = first.strip_suffix(DASHES)?;
    let mut has_headers = false;
    loop {
        let (header, next) = line(rest);
        if !header.contains(&b':') {
            break;
        }
        (has_headers, rest) = (true, next);
    }
    let end = match rest.starts_with(END) && !has_headers {
        true => 0,
        false => rest.windows(END.len() + 1).position(|w| w.first() == Some(&b'\n') && w.ends_with(END))? + 1,
    };
    let (body, trailer) = rest.split_at_checked(end)?;
    let (last, behind) = line(trailer.get(END.len()..)?);
    if last.strip_suffix(DASHES)? != label {
        return None;
    }
    let body: Vec<u8> = body.iter().filter(|byte| !b" \t\r\n".contains(byte)).copied().collect();
    let contents = STANDARD.decode(body).ok()?;
    Some((Block { label: String::from_utf8_lossy(label).into_owned(), has_headers, contents }, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_by_table() {
        let block =
            |label: &str, body: &str| format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
        let a = block("A", "YWJj");
        let rows = [
            (String::new(), vec![]),
            (a.clone(), vec!["A abc"]),
            (format!("text\n{a}between{a}\n{}", block("B", "")), vec!["A abc", "B "]),
            (a.replace('\n', "\r\n"), vec!["A abc"]),
            (a.trim_end().to_owned(), vec!["A abc"]),
            (block("A", "YW\n \tJj"), vec!["A abc"]),
            (block("A", "K: v\nL: w\n\nYWJj"), vec!["A abc with headers"]),
            ("-----BEGIN A-----\n-----END A-----\n".into(), vec!["A "]),
            ("-----BEGIN A-----   \nYWJj\n-----END A----- \n".into(), vec!["A abc"]),
            // What is no block is passed over.
            (block("A", "!!!") + &a, vec!["A abc"]),
            (format!("-----BEGIN A-----\nYWJj\n-----END B-----\n{a}"), vec!["A abc"]),
            (format!("-----BEGIN A----- x\nYWJj\n-----END A-----\n{a}"), vec!["A abc"]),
            (format!(" {a}"), vec![]),
            ("-----BEGIN A-----\nYWJj".into(), vec![]),
            ("-----BEGIN A-----\nYWJj\n-----END A-----x".into(), vec![]),
            ("-----BEGIN ".into(), vec![]),
            ("-----BEGIN A-----\nK: v".into(), vec![]),
        ];
        for (text, expected) in rows {
            let found: Vec<String> = blocks(text.as_bytes())
                .map(|block| {
                    let headers = if block.has_headers { " with headers" } else { "" };
                    format!("{} {}{headers}", block.label, String::from_utf8(block.contents).unwrap())
                })
                .collect();
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
