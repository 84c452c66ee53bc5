//! Pages of a list of a bucket (S3's `ListObjectsV2`).
//!
//! They are read here and not by `object_store`, which takes keys for paths: of a page with one key that is
//! none it returns an error only.

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use quick_xml::Reader;

/// The extension of a request for a page. Its response has a [`ListPage`] as an extension, and [`EMPTY`] as
/// the body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListRequest;

/// A page without keys.
pub(super) const EMPTY: &[u8] = b"<ListBucketResult/>";

/// Longest token of a next page: it is sent as part of a URL.
const MAX_TOKEN: usize = 8 << 10;
/// Deepest element that is read.
const MAX_DEPTH: usize = 16;

/// A page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ListPage {
    /// Keys, and what those have in common that have more segments. Characters that cannot be read are
    /// replaced.
    pub keys: Vec<String>,
    /// Names the next page.
    pub next: Option<String>,
}

/// The answer is no page of a list.
#[derive(Debug, thiserror::Error)]
pub(super) enum ListError {
    #[error("the answer is no list of a bucket")]
    Other,
    #[error("the list cannot be read: {0}")]
    Syntax(String),
    #[error("the token of the next page has more than {MAX_TOKEN} bytes")]
    Token,
}

fn syntax(error: impl ToString) -> ListError {
    ListError::Syntax(error.to_string())
}

impl ListPage {
    /// Reads a page.
    pub(super) fn parse(body: &[u8]) -> Result<ListPage, ListError> {
        let body = String::from_utf8_lossy(body);
        let mut reader = Reader::from_str(&body);
        let mut page = ListPage::default();
        let (mut open, mut text, mut is_list) = (Vec::new(), String::new(), false);
        loop {
            match reader.read_event().map_err(syntax)? {
                Event::Start(element) => {
                    let name = element.local_name().as_ref().to_vec();
                    is_list |= open.is_empty() && name == b"ListBucketResult";
                    if !is_list {
                        return Err(ListError::Other);
                    }
                    if open.len() == MAX_DEPTH {
                        return Err(syntax("it is nested too deeply"));
                    }
                    open.push(name);
                    text.clear();
                }
                Event::End(_) => {
                    page.take(&open, &mut text)?;
                    open.pop();
                }
                Event::Empty(element) => {
                    is_list |= open.is_empty() && element.local_name().as_ref() == b"ListBucketResult";
                }
                Event::Text(part) => text.push_str(&part.decode().map_err(syntax)?),
                Event::CData(part) => text.push_str(&part.decode().map_err(syntax)?),
                Event::GeneralRef(part) => push_reference(&part, &mut text),
                Event::Eof if !is_list => return Err(ListError::Other),
                Event::Eof if open.is_empty() => return Ok(page),
                Event::Eof => return Err(syntax("it ends early")),
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
            }
        }
    }

    /// Takes the text of the last of the open elements.
    fn take(&mut self, open: &[Vec<u8>], text: &mut String) -> Result<(), ListError> {
        let [_, path @ ..] = open else { return Ok(()) };
        let path: Vec<&[u8]> = path.iter().map(Vec::as_slice).collect();
        match path.as_slice() {
            [b"Contents", b"Key"] | [b"CommonPrefixes", b"Prefix"] => self.keys.push(std::mem::take(text)),
            [b"NextContinuationToken"] if text.len() > MAX_TOKEN => return Err(ListError::Token),
            // An empty one is none.
            [b"NextContinuationToken"] => self.next = Some(std::mem::take(text)).filter(|t| !t.is_empty()),
            _ => {}
        }
        Ok(())
    }
}

/// Appends the character that a reference stands for.
fn push_reference(reference: &BytesRef<'_>, text: &mut String) {
    match (reference.resolve_char_ref(), reference.decode()) {
        (Ok(Some(character)), _) => text.push(character),
        (Ok(None), Ok(name)) => {
            text.push_str(resolve_predefined_entity(&name).unwrap_or("\u{fffd}"));
        }
        _ => text.push('\u{fffd}'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(contents: &str) -> Vec<String> {
        let body =
            format!("<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"x\">{contents}</ListBucketResult>");
        ListPage::parse(body.as_bytes()).unwrap().keys
    }

    #[test]
    fn keys_are_read_whatever_they_are() {
        let contents = "<Name>b</Name><Contents><Key>a</Key><Owner><ID>x</ID></Owner></Contents>
            <Contents><Size>1</Size><Key>p//../100%&amp;&#x1;&#0;&unknown;\u{1}</Key></Contents><Contents><Key></Key></Contents>
            <Contents><Key/></Contents><CommonPrefixes><Prefix>p/</Prefix></CommonPrefixes><Prefix>other</Prefix>";
        assert_eq!(keys(contents), ["a", "p//../100%&\u{1}\u{fffd}\u{fffd}\u{1}", "", "p/"]);
        let cut = b"<ListBucketResult><Contents><Key>a\xff\xfeb</Key></Contents></ListBucketResult>";
        assert_eq!(ListPage::parse(cut).unwrap().keys, ["a\u{fffd}\u{fffd}b"]);
        assert_eq!(ListPage::parse(EMPTY).unwrap(), ListPage::default());
    }

    #[test]
    fn what_is_no_page_is_an_error() {
        let other = ["", "<html></html>", "<html/>", "text", "<Error><Code>x</Code></Error>"];
        for body in other {
            let parsed = ListPage::parse(body.as_bytes());
            assert!(matches!(parsed, Err(ListError::Other)), "{body}: {parsed:?}");
        }
        let deep = format!("<ListBucketResult>{}", "<a>".repeat(1 << 20));
        for body in
            ["<ListBucketResult>", "<ListBucketResult><a></b></ListBucketResult>", "<ListBucketResult", &deep]
        {
            let parsed = ListPage::parse(body.as_bytes());
            assert!(matches!(parsed, Err(ListError::Syntax(_) | ListError::Other)), "{parsed:?}");
        }
        let token = |length| {
            let token = "t".repeat(length);
            let body = format!(
                "<ListBucketResult><NextContinuationToken>{token}</NextContinuationToken></ListBucketResult>"
            );
            ListPage::parse(body.as_bytes()).map(|page| page.next.is_some())
        };
        assert!(!token(0).unwrap() && token(MAX_TOKEN).unwrap());
        assert!(matches!(token(MAX_TOKEN + 1), Err(ListError::Token)));
    }
}
