//! Links in HTML that passes by. What needs no change passes as it is, and what is no HTML, too. An element
//! that has no end within [`MAX_TAG`] bytes, or [`MAX_READS`] pieces with a `>`, passes up to the next `>`:
//! no byte of it is read again.
//!
//! Upstream: k8s.io/apimachinery `pkg/util/proxy/transport.go` (`rewriteHTML`), golang.org/x/net/html
//! `token.go`.

use std::io::{self, Write};
use std::ops::Range;

use super::proxied::Proxied;

/// Longest element whose links are changed, in bytes.
const MAX_TAG: usize = 16 << 10;
/// How often an element is read whose bytes come one after the other.
const MAX_READS: u32 = 32;
/// Elements whose content has no elements.
const RAW_TEXT: [&str; 9] =
    ["iframe", "noembed", "noframes", "noscript", "script", "style", "textarea", "title", "xmp"];

/// The attributes of an element that are URLs.
fn links_of(element: &str) -> &'static [&'static str] {
    match element {
        "a" | "area" | "base" | "link" => &["href"],
        "applet" => &["codebase"],
        "audio" | "embed" | "script" | "source" => &["src"],
        "blockquote" | "del" | "ins" | "q" => &["cite"],
        "body" => &["background"],
        "button" => &["formaction"],
        "command" => &["icon"],
        "form" => &["action"],
        "frame" | "iframe" => &["longdesc", "src"],
        "head" => &["profile"],
        "html" => &["manifest"],
        "img" => &["longdesc", "src", "usemap"],
        "input" => &["src", "usemap", "formaction"],
        "object" => &["classid", "codebase", "data", "usemap"],
        "video" => &["poster", "src"],
        _ => &[],
    }
}

/// What the next bytes are part of.
#[derive(Clone, Copy)]
enum Part {
    /// Text and elements.
    Page,
    /// The content of an element without elements.
    RawText(&'static str),
    /// Everything from `<plaintext>` on.
    PlainText,
    Comment,
    /// What ends with the next `>`.
    Declaration,
}

/// HTML in which links to the proxied server's pages are changed, written to `sink`.
pub(super) struct HtmlLinks<W> {
    proxied: Proxied,
    sink: W,
    part: Part,
    /// Bytes whose meaning depends on those that follow.
    held: Vec<u8>,
    /// How often they were read.
    reads: u32,
}

impl<W: Write> HtmlLinks<W> {
    pub(super) fn new(proxied: Proxied, sink: W) -> HtmlLinks<W> {
        HtmlLinks { proxied, sink, part: Part::Page, held: Vec::new(), reads: 0 }
    }

    pub(super) fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Writes what is left, an unfinished element as it is.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.sink.write_all(&self.held)?;
        Ok(self.sink)
    }

    /// Writes as much as is known to the sink; returns how much that was.
    fn write_known(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (known, next) = match self.part {
            Part::Page => return self.write_page(bytes),
            Part::PlainText => (bytes.len(), Part::PlainText),
            Part::Comment => match end_of_comment(bytes) {
                Some(end) => (end, Part::Page),
                None => (bytes.len().saturating_sub("--!".len()), Part::Comment),
            },
            Part::Declaration => match bytes.iter().position(|byte| *byte == b'>') {
                Some(end) => (end + 1, Part::Page),
                None => (bytes.len(), Part::Declaration),
            },
            Part::RawText(element) => match end_of_raw_text(bytes, element) {
                Some(0) => {
                    self.part = Part::Page;
                    return self.write_page(bytes);
                }
                Some(end) => (end, Part::Page),
                None => (bytes.len().saturating_sub("</".len() + element.len()), self.part),
            },
        };
        self.part = next;
        self.sink.write_all(&bytes[..known])?;
        Ok(known)
    }

    /// Writes text up to an element, or an element.
    fn write_page(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = bytes.iter().position(|byte| *byte == b'<').unwrap_or(bytes.len());
        if text > 0 {
            self.sink.write_all(&bytes[..text])?;
            return Ok(text);
        }
        let known = match &bytes[1..] {
            [] | [b'/'] | [b'!'] | [b'!', b'-'] => 0,
            [b'!', b'-', b'-', ..] => {
                self.part = Part::Comment;
                // The end may have the dashes of the beginning.
                "<!".len()
            }
            [b'!' | b'?', ..] => {
                self.part = Part::Declaration;
                "<!".len()
            }
            [b'/', first, ..] if !first.is_ascii_alphabetic() => {
                self.part = Part::Declaration;
                "</".len()
            }
            [b'/', ..] => match Tag::read(bytes, "</".len()) {
                Some(tag) => tag.end,
                None => self.unfinished(bytes),
            },
            [first, ..] if first.is_ascii_alphabetic() => match Tag::read(bytes, "<".len()) {
                Some(tag) => return self.write_tag(bytes, &tag),
                None => self.unfinished(bytes),
            },
            _ => "<".len(),
        };
        self.sink.write_all(&bytes[..known])?;
        Ok(known)
    }

    /// How much of an element without an end is known.
    fn unfinished(&mut self, bytes: &[u8]) -> usize {
        self.reads += 1;
        if bytes.len() <= MAX_TAG && self.reads < MAX_READS {
            return 0;
        }
        self.reads = 0;
        self.part = Part::Declaration;
        "<".len()
    }

    /// Writes the beginning of an element.
    fn write_tag(&mut self, bytes: &[u8], tag: &Tag) -> io::Result<usize> {
        let lower = |range: &Range<usize>| {
            String::from_utf8_lossy(bytes.get(range.clone()).unwrap_or_default()).to_ascii_lowercase()
        };
        self.reads = 0;
        let element = lower(&tag.name);
        let links = links_of(&element);
        let mut written = 0;
        for (name, value) in tag.attributes.iter().filter(|_| !links.is_empty()) {
            if !links.contains(&lower(name).as_str()) {
                continue;
            }
            let Ok(link) = std::str::from_utf8(&bytes[value.clone()]) else { continue };
            if let Some(link) = self.proxied.link(link) {
                self.sink.write_all(&bytes[written..value.start])?;
                self.sink.write_all(link.as_bytes())?;
                written = value.end;
            }
        }
        self.sink.write_all(&bytes[written..tag.end])?;
        self.part = match RAW_TEXT.iter().find(|raw| **raw == element) {
            Some(raw) => Part::RawText(raw),
            None if element == "plaintext" => Part::PlainText,
            None => Part::Page,
        };
        Ok(tag.end)
    }
}

impl<W: Write> Write for HtmlLinks<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut held = std::mem::take(&mut self.held);
        let is_element = matches!(self.part, Part::Page) && held.len() > "<!--".len();
        held.extend_from_slice(bytes);
        if is_element && held.len() <= MAX_TAG && !bytes.contains(&b'>') {
            // It has no end yet.
            self.held = held;
            return Ok(bytes.len());
        }
        let mut rest = held.as_slice();
        while !rest.is_empty() {
            match self.write_known(rest)? {
                0 => break,
                known => rest = &rest[known..],
            }
        }
        self.held = rest.to_vec();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

fn end_of_comment(bytes: &[u8]) -> Option<usize> {
    let end_at = |at: usize| {
        let rest = &bytes[at..];
        ["-->", "--!>"].iter().find(|end| rest.starts_with(end.as_bytes())).map(|end| at + end.len())
    };
    (0..bytes.len()).filter(|at| bytes[*at] == b'-').find_map(end_at)
}

/// Where the end of an element begins whose content has no elements.
fn end_of_raw_text(bytes: &[u8], element: &str) -> Option<usize> {
    let is_end = |at: &usize| {
        let name = at + "</".len()..at + "</".len() + element.len();
        let after = bytes.get(name.end);
        bytes[*at..].starts_with(b"</")
            && after.is_some_and(|after| is_space(*after) || matches!(after, b'/' | b'>'))
            && bytes.get(name).is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()))
    };
    (0..bytes.len()).filter(|at| bytes[*at] == b'<').find(is_end)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c)
}

/// The beginning or end of an element.
struct Tag {
    name: Range<usize>,
    /// Names and values, without quotes.
    attributes: Vec<(Range<usize>, Range<usize>)>,
    /// The end, after `>`.
    end: usize,
}

impl Tag {
    /// Reads it, its name beginning at `start`; `None` without its end.
    fn read(bytes: &[u8], start: usize) -> Option<Tag> {
        let until = |from: usize, is_end: &dyn Fn(u8) -> bool| {
            let rest = bytes.get(from..)?;
            rest.iter().position(|byte| is_end(*byte)).map(|length| from + length)
        };
        let skip_space = |from: usize| until(from, &|byte| !is_space(byte));
        let name = start..until(start, &|byte| is_space(byte) || matches!(byte, b'/' | b'>'))?;
        let mut at = skip_space(name.end)?;
        let mut attributes = Vec::new();
        while bytes[at] != b'>' {
            // An equals sign at its beginning is part of a name.
            let from = at + usize::from(bytes[at] == b'=');
            let key = at..until(from, &|byte| is_space(byte) || matches!(byte, b'/' | b'>' | b'='))?;
            at = skip_space(key.end)?;
            if bytes[at] == b'/' {
                at = skip_space(at + 1)?;
                continue;
            }
            if bytes[at] != b'=' {
                continue;
            }
            at = skip_space(at + 1)?;
            let value = match bytes[at] {
                b'>' => continue,
                quote @ (b'"' | b'\'') => at + 1..until(at + 1, &|byte| byte == quote)?,
                _ => at..until(at, &|byte| is_space(byte) || byte == b'>')?,
            };
            let is_quoted = value.start > at;
            at = skip_space(value.end + usize::from(is_quoted))?;
            attributes.push((key, value));
        }
        Some(Tag { name, attributes, end: at + 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(page: &str, piece: usize) -> String {
        let mut links = HtmlLinks::new(Proxied::of_web(), Vec::new());
        page.as_bytes().chunks(piece).for_each(|chunk| links.write_all(chunk).unwrap());
        String::from_utf8(links.finish().unwrap()).unwrap()
    }

    /// `%` stands for the path of the proxy.
    #[test]
    fn links_by_table() {
        // page, what the client gets, where that differs
        let rows = [
            (r#"<a href="/x">/x</a>"#, r#"<a href="%/x">/x</a>"#),
            ("<A HREF=/x class=b>", "<A HREF=%/x class=b>"),
            ("<a\n href = '/x'\t>", "<a\n href = '%/x'\t>"),
            (
                r#"<img src="/a" longdesc='/b' usemap="/c" alt="/d"/>"#,
                r#"<img src="%/a" longdesc='%/b' usemap="%/c" alt="/d"/>"#,
            ),
            ("<br/><a href=/x/>", "<br/><a href=%/x/>"),
            ("<a title='>' href=/x>", "<a title='>' href=%/x>"),
            ("<a =href=/x href=/y>", "<a =href=/x href=%/y>"),
            ("<a/href=/x>", "<a/href=%/x>"),
            ("<a href>", ""),
            ("<a href=>/x", ""),
            ("<a href=\"x\"><a href='https://example.com/'><p href=/x>", ""),
            ("<!-- <a href=/x> --><a href=/y>", "<!-- <a href=/x> --><a href=%/y>"),
            ("<!--><a href=/y>", "<!--><a href=%/y>"),
            ("<!-- --!><a href=/y>", "<!-- --!><a href=%/y>"),
            ("<!DOCTYPE html><?x <a href=/x> <a href=/y>", "<!DOCTYPE html><?x <a href=/x> <a href=%/y>"),
            ("</ <a href=/x> <a href=/y>", "</ <a href=/x> <a href=%/y>"),
            ("</><a href=/y>", "</><a href=%/y>"),
            ("</a href='>'><a href=/y>", "</a href='>'><a href=%/y>"),
            ("a < b <1 <a href=/y>", "a < b <1 <a href=%/y>"),
            (
                "<script src=/s>'<a href=/x>' </scripts></SCRIPT ><a href=/y>",
                "<script src=%/s>'<a href=/x>' </scripts></SCRIPT ><a href=%/y>",
            ),
            ("<script src=/s></script><a href=/y>", "<script src=%/s></script><a href=%/y>"),
            ("<title></title><style></style ><a href=/y>", "<title></title><style></style ><a href=%/y>"),
            ("<title><a href=/x></title><a href=/y>", "<title><a href=/x></title><a href=%/y>"),
            ("<plaintext><a href=/x></plaintext><a href=/y>", ""),
            (
                "<form action=/f><button formaction=/b><input src=/i>",
                "<form action=%/f><button formaction=%/b><input src=%/i>",
            ),
            ("<a href=\"/x", ""),
            ("<a href=/é>", "<a href=%/é>"),
        ];
        for (page, expected) in rows {
            let expected = expected.replace('%', "/api/v1/namespaces/n/services/web/proxy");
            let expected = if expected.is_empty() { page } else { &expected };
            for piece in [1, 2, 3, 7, 1000] {
                assert_eq!(changed(page, piece), expected, "{page} in pieces of {piece}");
            }
        }
    }

    #[test]
    fn what_has_no_end_is_bounded() {
        let mut links = HtmlLinks::new(Proxied::of_web(), Vec::new());
        links.write_all(b"<a href='").unwrap();
        for _ in 0..2 * MAX_TAG {
            links.write_all(b"/").unwrap();
            assert!(links.held.len() <= MAX_TAG);
        }
        let page = format!("<script>{}</script><a href=/x>", "</scrip <a href=/y>".repeat(10));
        assert_eq!(changed(&page, 5), page.replace("=/x", "=/api/v1/namespaces/n/services/web/proxy/x"));
    }

    /// Would each beginning be read to the end of what is there, this took hours.
    #[test]
    fn no_byte_is_read_again_and_again() {
        for (element, pieces) in [
            ("<a", 1 << 20),
            ("</a", 1 << 20),
            ("<a x='", 1 << 20),
            ("<a ", 3),
            ("<script></script>", 1 << 10),
        ] {
            let page = element.repeat(1 << 20);
            let mut links = HtmlLinks::new(Proxied::of_web(), Vec::new());
            for chunk in page.as_bytes().chunks(pieces) {
                links.write_all(chunk).unwrap();
                assert!(links.held.len() <= MAX_TAG);
            }
            assert!(links.finish().unwrap() == page.as_bytes());
        }
        let quoted = format!("<a x='{}'>", ">".repeat(MAX_TAG / 2)).repeat(100);
        assert_eq!(changed(&quoted, 1), quoted);
        let after = format!("<a {}>", "x".repeat(2 * MAX_TAG));
        let page = format!("{after}<a href=/x>");
        assert!(changed(&page, 100).ends_with("/proxy/x>"));
    }

    #[test]
    fn values_that_are_no_text_stay() {
        let mut links = HtmlLinks::new(Proxied::of_web(), Vec::new());
        links.write_all(b"<a href=/\xff>\xff").unwrap();
        assert_eq!(links.finish().unwrap(), b"<a href=/\xff>\xff");
    }
}
