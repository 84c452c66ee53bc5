//! The body of a proxied page, its links changed while it is sent: as text, or compressed with gzip or
//! deflate as it was sent. Other encodings are not read.

use std::io::{self, Write};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use flate2::Compression;
use hyper::header::{HeaderMap, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};

use super::html_links::HtmlLinks;
use super::proxied::Proxied;
use crate::egress::forward::ForwardedBody;
use plinth_http::{Body, BodyError, ChunkStream};

/// Bytes that are read at a time, of a text and of what is compressed (a thousand times that, at the most).
const PIECE: usize = 16 << 10;
const COMPRESSED_PIECE: usize = 32;

/// The body of a response; `headers` are those that the client gets.
pub(super) fn change_links(headers: &mut HeaderMap, proxied: Proxied, body: ForwardedBody) -> Body {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_html = text(CONTENT_TYPE).split(';').next().is_some_and(|kind| kind.trim() == "text/html");
    let changing = match text(CONTENT_ENCODING) {
        _ if !is_html => return body.into_body(),
        "" => Changing::Text(HtmlLinks::new(proxied, Vec::new())),
        "gzip" => {
            let encoder = GzEncoder::new(Vec::new(), Compression::default());
            Changing::Gzip(Box::new(MultiGzDecoder::new(HtmlLinks::new(proxied, encoder))))
        }
        "deflate" => {
            let encoder = DeflateEncoder::new(Vec::new(), Compression::best());
            Changing::Deflate(Box::new(DeflateDecoder::new(HtmlLinks::new(proxied, encoder))))
        }
        _ => return body.into_body(),
    };
    headers.remove(CONTENT_LENGTH);
    Body::Stream(Box::pin(HtmlBody { body, input: Bytes::new(), changing, is_begun: false }))
}

struct HtmlBody {
    body: ForwardedBody,
    /// What was received and is not read yet.
    input: Bytes,
    changing: Changing,
    /// Whether anything was received.
    is_begun: bool,
}

enum Changing {
    Text(HtmlLinks<Vec<u8>>),
    Gzip(Box<MultiGzDecoder<HtmlLinks<GzEncoder<Vec<u8>>>>>),
    Deflate(Box<DeflateDecoder<HtmlLinks<DeflateEncoder<Vec<u8>>>>>),
    /// Passed on as it comes: nothing, or what is not encoded as its header names.
    Nothing,
}

impl Changing {
    /// What comes of some input.
    fn change(&mut self, input: &mut Bytes) -> io::Result<Bytes> {
        let most = match self {
            Changing::Nothing => input.len(),
            Changing::Text(_) => PIECE,
            Changing::Gzip(_) | Changing::Deflate(_) => COMPRESSED_PIECE,
        };
        let piece = input.split_to(most.min(input.len()));
        let changed = match self {
            Changing::Nothing => return Ok(piece),
            Changing::Text(links) => {
                links.write_all(&piece)?;
                std::mem::take(links.sink())
            }
            Changing::Gzip(decoder) => {
                decoder.write_all(&piece)?;
                std::mem::take(decoder.get_mut().sink().get_mut())
            }
            Changing::Deflate(decoder) => {
                decoder.write_all(&piece)?;
                std::mem::take(decoder.get_mut().sink().get_mut())
            }
        };
        Ok(changed.into())
    }

    /// What comes at the end.
    fn finish(&mut self) -> io::Result<Bytes> {
        let rest = match std::mem::replace(self, Changing::Nothing) {
            Changing::Nothing => Vec::new(),
            Changing::Text(links) => links.finish()?,
            Changing::Gzip(decoder) => decoder.finish()?.finish()?.finish()?,
            Changing::Deflate(decoder) => decoder.finish()?.finish()?.finish()?,
        };
        Ok(rest.into())
    }
}

impl HtmlBody {
    /// Takes what was received. The format that is usually meant by deflate has a header of two bytes, and is
    /// none that upstream reads.
    fn begin(&mut self, input: Bytes) {
        let has_header =
            || input.len() >= 2 && input[0] & 0x0f == 8 && (&input[..2]).get_u16().is_multiple_of(31);
        if !self.is_begun && matches!(self.changing, Changing::Deflate(_)) && has_header() {
            self.changing = Changing::Nothing;
        }
        self.is_begun |= !input.is_empty();
        self.input = input;
    }
}

impl ChunkStream for HtmlBody {
    fn poll_chunk(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        let body = self.get_mut();
        let failed = |error: io::Error| Poll::Ready(Some(Err(BodyError(error.to_string()))));
        if !body.input.is_empty() {
            match body.changing.change(&mut body.input) {
                Err(error) => return failed(error),
                Ok(changed) if !changed.is_empty() => return Poll::Ready(Some(Ok(changed))),
                // Others get the thread after each piece.
                Ok(_) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
        }
        loop {
            match std::task::ready!(Pin::new(&mut body.body).poll_chunk(cx)) {
                Some(Ok(input)) if input.is_empty() => {}
                Some(Ok(input)) => {
                    body.begin(input);
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None if !body.is_begun => return Poll::Ready(None),
                None => {
                    let rest = body.changing.finish();
                    return match rest {
                        Err(error) => failed(error),
                        Ok(rest) if rest.is_empty() => Poll::Ready(None),
                        Ok(rest) => Poll::Ready(Some(Ok(rest))),
                    };
                }
            }
        }
    }
}
