//! The nodes of a document, with aliases and tags unresolved.

use std::borrow::Cow;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};

use crate::error::DecodeError;
use crate::value::MAX_DEPTH;

/// An index into the arena of a [`Document`].
pub(super) type NodeId = usize;

/// One node.
pub(super) struct Node<'a> {
    /// Counted from 1.
    pub(super) line: usize,
    /// Shortened (`!!int`), without `!`.
    pub(super) tag: Option<Cow<'a, str>>,
    pub(super) kind: Kind<'a>,
}

pub(super) enum Kind<'a> {
    Scalar {
        text: Cow<'a, str>,
        plain: bool,
    },
    Sequence(Vec<NodeId>),
    /// Keys and values in turn.
    Mapping(Vec<NodeId>),
    Alias(NodeId),
}

/// The first document of a text.
pub(super) struct Document<'a> {
    pub(super) nodes: Vec<Node<'a>>,
    pub(super) root: Option<NodeId>,
}

pub(super) fn yaml_error(message: impl std::fmt::Display) -> DecodeError {
    DecodeError::Yaml { message: format!("yaml: {message}").into() }
}

/// Converts a scanner's error to goyaml's message: the problem with its line. Goyaml names no line for the
/// first one, and one line too few where its parser and not its scanner finds the error.
fn scan_error(error: &ScanError) -> DecodeError {
    let info = error.info();
    let problem = match info.split_once(", ") {
        Some((context, problem)) if context.starts_with("while ") => problem,
        _ => info,
    };
    let problem = match problem {
        "found unknown anchor" => return yaml_error("unknown anchor referenced"),
        "recursion limit exceeded" => "exceeded max depth of 255 in flow style",
        "simple key expected" | "simple key expect ':'" => "could not find expected ':'",
        "did not find expected hexadecimal number" => "did not find expected hexdecimal number",
        "expected ',' or ']'" => "did not find expected ',' or ']'",
        "misplaced bracket" => "did not find expected node content",
        "invalid trailing content after double-quoted scalar" => "did not find expected key",
        problem => problem,
    };
    let from_parser = [
        "did not find expected key",
        "did not find expected '-' indicator",
        "did not find expected ',' or ']'",
        "did not find expected ',' or '}'",
        "did not find expected node content",
        "did not find expected <document start>",
    ];
    let before = error.marker().line().saturating_sub(1);
    match before {
        0 => yaml_error(problem),
        line if from_parser.contains(&problem) => yaml_error(format_args!("line {line}: {problem}")),
        line => yaml_error(format_args!("line {}: {problem}", line + 1)),
    }
}

/// Reads the nodes of a text that holds one document.
pub(super) fn compose(text: &str) -> Result<Document<'_>, DecodeError> {
    let mut composer = Composer {
        document: Document { nodes: Vec::new(), root: None },
        open: Vec::new(),
        anchors: Vec::new(),
    };
    let mut documents = 0;
    // A block scalar at the very end of a text that lacks its last line break: goyaml adds none. Trailing
    // spaces are not a line of it.
    let text = match text.rsplit_once('\n') {
        Some((_, last)) if last.bytes().all(|b| b == b' ') => text.trim_end_matches(' '),
        _ => text,
    };
    let unterminated = !text.ends_with(['\n', '\r']);
    let mut last_block = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_error(&error))?;
        if let Event::DocumentStart(_) = event {
            documents += 1;
        } else if documents > 1 {
            // An empty document after the last separator does not count.
            let empty = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, 0, None) if matches!(&**text, "" | "~"));
            if !empty && !matches!(event, Event::DocumentEnd | Event::StreamEnd) {
                return Err(yaml_error(format_args!("line {}: more than one document", span.start.line())));
            }
        } else {
            let block = matches!(&event, Event::Scalar(_, ScalarStyle::Literal | ScalarStyle::Folded, ..));
            let nodes = composer.document.nodes.len();
            composer.add(event, span.start.line())?;
            if composer.document.nodes.len() > nodes {
                last_block = block.then_some(nodes);
            }
        }
    }
    if let (true, Some(id)) = (unterminated, last_block) {
        if let Kind::Scalar { text, .. } = &mut composer.document.nodes[id].kind {
            if text.ends_with('\n') {
                text.to_mut().pop();
            }
        }
    }
    Ok(composer.document)
}

struct Composer<'a> {
    document: Document<'a>,
    open: Vec<NodeId>,
    /// Nodes by the parser's anchor id.
    anchors: Vec<Option<NodeId>>,
}

impl<'a> Composer<'a> {
    fn add(&mut self, event: Event<'a>, line: usize) -> Result<(), DecodeError> {
        let (kind, anchor, tag) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                (Kind::Scalar { text, plain: style == ScalarStyle::Plain }, anchor, tag)
            }
            Event::SequenceStart(anchor, tag) => (Kind::Sequence(Vec::new()), anchor, tag),
            Event::MappingStart(anchor, tag) => (Kind::Mapping(Vec::new()), anchor, tag),
            Event::Alias(anchor) => match self.anchors.get(anchor).copied().flatten() {
                Some(target) => (Kind::Alias(target), 0, None),
                None => return Err(yaml_error("unknown anchor referenced")),
            },
            Event::SequenceEnd | Event::MappingEnd => {
                self.open.pop();
                return Ok(());
            }
            _ => return Ok(()),
        };
        let id = self.document.nodes.len();
        let opens = matches!(kind, Kind::Sequence(_) | Kind::Mapping(_));
        self.document.nodes.push(node(kind, tag, line));
        if anchor != 0 {
            if self.anchors.len() <= anchor {
                self.anchors.resize(anchor + 1, None);
            }
            self.anchors[anchor] = Some(id);
        }
        match self.open.last() {
            Some(&parent) => {
                if let Kind::Sequence(children) | Kind::Mapping(children) =
                    &mut self.document.nodes[parent].kind
                {
                    children.push(id);
                }
            }
            None => self.document.root = Some(id),
        }
        if opens {
            if self.open.len() == MAX_DEPTH {
                return Err(yaml_error(format_args!("line {line}: exceeded max depth of {MAX_DEPTH}")));
            }
            self.open.push(id);
        }
        Ok(())
    }
}

fn node<'a>(mut kind: Kind<'a>, tag: Option<Cow<'a, Tag>>, line: usize) -> Node<'a> {
    let tag = match tag {
        None => None,
        Some(tag) if tag.is_yaml_core_schema() => Some(Cow::Owned(format!("!!{}", tag.suffix))),
        // A lone `!` makes any style read as a plain scalar, in goyaml.
        Some(tag)
            if (tag.handle.as_str(), tag.suffix.as_str()) == ("", "!")
                || (tag.handle == "!" && tag.suffix.is_empty()) =>
        {
            if let Kind::Scalar { plain, .. } = &mut kind {
                *plain = true;
            }
            None
        }
        Some(tag) => Some(Cow::Owned(format!("{}{}", tag.handle, tag.suffix))),
    };
    Node { line, tag, kind }
}
