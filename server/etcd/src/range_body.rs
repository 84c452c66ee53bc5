//! The response to a Range as it goes over the wire, written from the records of a snapshot: between the
//! engine's blocks and the socket a value is copied once.
//!
//! The length of a message precedes it. So the first records are written and kept until the end of the range
//! is known, and the others counted; these are read again, and written at the pace of the client. However
//! long a response is, [`KEPT`] and a few pieces of it are in memory.

use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{stream, StreamExt as _};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use plinth_engine::{Entry, KeyCounts, Range, Snapshot};
use prost::encoding::{encode_key, encode_varint, encoded_len_varint, WireType};
use prost::Message;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::metadata::GRPC_CONTENT_TYPE;
use tonic::Status;

use crate::answers::{self, Answer, Reservation};
use crate::auth::Unchanged;
use crate::errors;
use crate::keys::Keys;
use crate::member::Member;
use crate::range::{self, Source, MAX_RESPONSE};
use crate::value::{lease_and_value, to_etcd, version};
use crate::wire::kv::{RangeRequest, RangeResponse};
use crate::wire::ResponseHeader;

/// Bytes of a piece; a longer record has one of its own. The first is shorter: most responses have one key.
const PIECE: usize = 64 << 10;
const FIRST_PIECE: usize = 2 << 10;
/// Bytes of a response that are written before its length is known, and at least one record.
const KEPT: usize = 1 << 20;
/// Pieces that are written at a time after that, and groups of them that wait for the client.
const GROUP: usize = 4;
const GROUPS: usize = 2;
/// Bytes before a message of gRPC: a zero, since it is not compressed, and its length.
const FRAME_PREFIX: usize = 5;

/// A message of gRPC on its way out.
struct Outgoing {
    /// The beginning of the message.
    pieces: Vec<Bytes>,
    /// What has yet to be read.
    rest: Option<Rest>,
    /// What it takes of the memory for responses.
    held: Reservation,
}

/// Range, with its response as it goes over the wire.
pub(crate) async fn answer(
    member: &Arc<Member>,
    request: RangeRequest,
    unchanged: Unchanged,
) -> Result<Response<Body>, Status> {
    let outgoing = range::read(member, request, unchanged, outgoing).await?;
    Ok(respond(outgoing))
}

fn respond(outgoing: Outgoing) -> Response<Body> {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let held = outgoing.held;
    // A client that does not read the rest holds the state of the store.
    let is_paced = outgoing.rest.is_some() || held.is_large();
    let begin = stream::iter(outgoing.pieces.into_iter().map(Ok));
    let end = stream::iter([Ok(Frame::trailers(trailers))]);
    let body = match outgoing.rest {
        None => Body::new(StreamBody::new(begin.map(data).chain(end))),
        Some(rest) => {
            let rest = ReceiverStream::new(rest.send()).flat_map(stream::iter);
            Body::new(StreamBody::new(begin.chain(rest).map(data).chain(end)))
        }
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    if is_paced {
        answers::pace(&mut response, held);
    }
    response
}

fn data(piece: Piece) -> Result<Frame<Bytes>, Status> {
    piece.map(Frame::data)
}

/// A piece of a message, or why there are no more.
type Piece = Result<Bytes, Status>;

/// The response to a request. Blocks.
fn outgoing(member: &Arc<Member>, request: &RangeRequest, source: Source) -> Result<Outgoing, Status> {
    match source {
        Source::Snapshot(snapshot, current) if range::is_in_order(request) => {
            let (counts, held) = (&member.counts, member.answers.begin());
            of_records(&snapshot, counts, request, &member.header_at(current), held)
        }
        source => of_response(range::message(member, request, source)?),
    }
}

fn of_response(answer: Answer<RangeResponse>) -> Result<Outgoing, Status> {
    let mut message = MessageWriter::new();
    message.part(&answer.message)?;
    Ok(Outgoing { pieces: message.finish(0)?, rest: None, held: answer.held })
}

/// The response to a request for all keys of a range or the first ones, in the order of the keys. Blocks.
fn of_records(
    snapshot: &Snapshot,
    counts: &KeyCounts,
    request: &RangeRequest,
    header: &ResponseHeader,
    mut held: Reservation,
) -> Result<Outgoing, Status> {
    let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let shown = if request.count_only { 0 } else { limit };
    let with_values = !request.keys_only;
    let keys = Keys::of(&request.key, &request.range_end).to_range();
    let mut message = MessageWriter::new();
    message.part(&RangeResponse { header: Some(*header), ..RangeResponse::default() })?;
    // Those after `last` are counted, and written later.
    let (mut count, mut last, mut later, mut later_bytes) = (0_usize, None::<Bytes>, 0_usize, 0_usize);
    let mut range = snapshot.range(&keys);
    while count < shown {
        let Some(entry) = range.next().map_err(|error| errors::from_engine(&error))? else { break };
        count += 1;
        let record = RecordField::of(&entry, with_values);
        if last.is_none() {
            record.write(message.room(record.whole_length())?);
            if message.length() >= KEPT {
                last = Some(Bytes::copy_from_slice(entry.key));
            }
        } else {
            (later, later_bytes) = (later + 1, later_bytes.saturating_add(record.whole_length()));
        }
    }
    if count == shown {
        let rest = range.last_key().map_or_else(|| keys.clone(), |last| keys.after(last));
        count += range::count(counts, snapshot, &rest)?;
    }
    let end = RangeResponse {
        more: !request.count_only && count > limit,
        count: i64::try_from(count).unwrap_or(i64::MAX),
        ..RangeResponse::default()
    };
    match last.filter(|_| later > 0) {
        None => {
            message.part(&end)?;
            held.add_bytes(message.length())?;
            Ok(Outgoing { pieces: message.finish(0)?, rest: None, held })
        }
        Some(last) => {
            let bytes = later_bytes.saturating_add(end.encoded_len());
            held.add_bytes(message.length())?;
            let pieces = message.finish(bytes)?;
            let range = snapshot.range(&keys.after(&last));
            let rest = Rest { range, with_values, records: later, bytes, end };
            Ok(Outgoing { pieces, rest: Some(rest), held })
        }
    }
}

/// The part of a response that is read a second time.
struct Rest {
    range: Range,
    with_values: bool,
    /// Records that have yet to be written.
    records: usize,
    /// Bytes that have yet to be written: the message has this length.
    bytes: usize,
    end: RangeResponse,
}

impl Rest {
    /// Writes it as the client takes it. No thread waits for the client.
    fn send(mut self) -> mpsc::Receiver<Vec<Piece>> {
        let (out, groups) = mpsc::channel(GROUPS);
        tokio::spawn(async move {
            loop {
                let written = tokio::task::spawn_blocking(move || {
                    let group = self.next_group();
                    (self, group)
                });
                let group = match written.await {
                    Ok((rest, group)) => {
                        self = rest;
                        group
                    }
                    Err(failed) => {
                        // Of a client that has left, nothing is waited for.
                        let _ = out.send(vec![Err(errors::from_task(failed))]).await;
                        return;
                    }
                };
                let (group, is_last) = match group {
                    Ok(pieces) => (pieces.into_iter().map(Ok).collect(), self.bytes == 0),
                    Err(status) => (vec![Err(status)], true),
                };
                if out.send(group).await.is_err() || is_last {
                    return;
                }
            }
        });
        groups
    }

    /// The next pieces. Blocks.
    fn next_group(&mut self) -> Result<Vec<Bytes>, Status> {
        let differs = || Status::internal("a snapshot was read twice and differs");
        let mut pieces = Pieces::new(PIECE);
        while self.records > 0 && pieces.length() < GROUP * PIECE {
            let entry = self.range.next().map_err(|error| errors::from_engine(&error))?;
            let record = RecordField::of(&entry.ok_or_else(differs)?, self.with_values);
            record.write(pieces.room(record.whole_length()));
            self.records -= 1;
        }
        let is_last = self.records == 0;
        if is_last {
            encode(&self.end, pieces.room(self.end.encoded_len()))?;
        }
        self.bytes = self.bytes.checked_sub(pieces.length()).ok_or_else(differs)?;
        match is_last == (self.bytes == 0) {
            true => Ok(pieces.finish()),
            false => Err(differs()),
        }
    }
}

/// Encodes into a buffer with room for it, so that nothing can go wrong.
fn encode(message: &RangeResponse, out: &mut BytesMut) -> Result<(), Status> {
    message.encode(out).map_err(|error| Status::internal(error.to_string()))
}

/// A buffer that consists of pieces. What is written between two calls of [`Pieces::room`] is in one piece.
struct Pieces {
    full: Vec<BytesMut>,
    last: BytesMut,
    /// Bytes in `full`.
    in_full: usize,
}

impl Pieces {
    fn new(first: usize) -> Pieces {
        Pieces { full: Vec::new(), last: BytesMut::with_capacity(first), in_full: 0 }
    }

    fn length(&self) -> usize {
        self.in_full + self.last.len()
    }

    /// Where the next `bytes` are to be written.
    fn room(&mut self, bytes: usize) -> &mut BytesMut {
        if self.last.len() + bytes > self.last.capacity() {
            self.in_full += self.last.len();
            let next = BytesMut::with_capacity(PIECE.max(bytes));
            self.full.push(std::mem::replace(&mut self.last, next));
        }
        &mut self.last
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.full.push(self.last);
        self.full.into_iter().map(BytesMut::freeze).collect()
    }
}

/// Writes the beginning of a message of gRPC, or all of it.
struct MessageWriter(Pieces);

impl MessageWriter {
    fn new() -> MessageWriter {
        let mut pieces = Pieces::new(FIRST_PIECE);
        pieces.last.put_bytes(0, FRAME_PREFIX);
        MessageWriter(pieces)
    }

    /// Bytes that are written.
    fn length(&self) -> usize {
        self.0.length()
    }

    /// Where the next `bytes` are to be written.
    fn room(&mut self, bytes: usize) -> Result<&mut BytesMut, Status> {
        check_length(self.length().saturating_add(bytes))?;
        Ok(self.0.room(bytes))
    }

    /// Writes fields of the response.
    fn part(&mut self, fields: &RangeResponse) -> Result<(), Status> {
        encode(fields, self.room(fields.encoded_len())?)
    }

    /// The pieces of a message that has so many bytes more.
    fn finish(mut self, further: usize) -> Result<Vec<Bytes>, Status> {
        let length = (self.length() - FRAME_PREFIX).saturating_add(further);
        check_length(length)?;
        let first = self.0.full.first_mut().unwrap_or(&mut self.0.last);
        if let (Some(prefix), Ok(length)) = (first.get_mut(1..FRAME_PREFIX), u32::try_from(length)) {
            prefix.copy_from_slice(&length.to_be_bytes());
        }
        Ok(self.0.finish())
    }
}

fn check_length(length: usize) -> Result<(), Status> {
    match length > MAX_RESPONSE {
        true => Err(range::too_large(length)),
        false => Ok(()),
    }
}

/// A record as an element of `RangeResponse.kvs`.
struct RecordField<'e> {
    key: &'e [u8],
    value: &'e [u8],
    /// Fields and what they have.
    numbers: [(u32, i64); 3],
    lease: i64,
    /// Bytes of the message.
    length: usize,
}

impl<'e> RecordField<'e> {
    fn of(entry: &Entry<'e>, with_value: bool) -> RecordField<'e> {
        let (lease, value) = lease_and_value(entry.value);
        let value = if with_value { value } else { &[] };
        let numbers = [
            (2, to_etcd(entry.create_revision)),
            (3, to_etcd(entry.mod_revision)),
            (4, version(entry.version)),
        ];
        let in_numbers: usize = numbers.iter().map(|(_, value)| number_length(*value)).sum();
        let length = bytes_length(entry.key) + in_numbers + bytes_length(value) + number_length(lease);
        RecordField { key: entry.key, value, numbers, lease, length }
    }

    /// Bytes of the message with the field's key and length.
    fn whole_length(&self) -> usize {
        1 + encoded_len_varint(self.length as u64) + self.length
    }

    fn write(&self, out: &mut BytesMut) {
        encode_key(2, WireType::LengthDelimited, out);
        encode_varint(self.length as u64, out);
        put_bytes(1, self.key, out);
        self.numbers.iter().for_each(|(field, value)| put_number(*field, *value, out));
        put_bytes(5, self.value, out);
        put_number(6, self.lease, out);
    }
}

/// Bytes of a field of bytes of [`KeyValue`](crate::wire::kv::KeyValue), whose keys are one byte. Empty ones
/// are left out.
fn bytes_length(bytes: &[u8]) -> usize {
    match bytes.len() {
        0 => 0,
        length => 1 + encoded_len_varint(length as u64) + length,
    }
}

fn number_length(value: i64) -> usize {
    match value {
        0 => 0,
        value => 1 + encoded_len_varint(value.cast_unsigned()),
    }
}

fn put_bytes(field: u32, bytes: &[u8], out: &mut BytesMut) {
    if !bytes.is_empty() {
        encode_key(field, WireType::LengthDelimited, out);
        encode_varint(bytes.len() as u64, out);
        out.extend_from_slice(bytes);
    }
}

fn put_number(field: u32, value: i64, out: &mut BytesMut) {
    if value != 0 {
        encode_key(field, WireType::Varint, out);
        encode_varint(value.cast_unsigned(), out);
    }
}

#[cfg(test)]
mod tests {
    use plinth_engine::{At, Engine, Options, Transaction};

    use super::*;
    use crate::answers::Answers;
    use crate::range::{Overlay, RangeView};
    use crate::value::encode as stored;

    /// The pieces of a message, which is read to its end.
    fn pieces(outgoing: Outgoing) -> Vec<Bytes> {
        let mut pieces = outgoing.pieces;
        if let Some(mut rest) = outgoing.rest {
            while rest.bytes > 0 {
                pieces.extend(rest.next_group().unwrap());
            }
            assert_eq!(rest.records, 0);
        }
        pieces
    }

    fn whole(pieces: &[Bytes]) -> RangeResponse {
        let bytes = pieces.concat();
        let length = u32::try_from(bytes.len() - FRAME_PREFIX).unwrap();
        assert_eq!(bytes[..FRAME_PREFIX], [&[0][..], &length.to_be_bytes()].concat());
        RangeResponse::decode(&bytes[FRAME_PREFIX..]).unwrap()
    }

    /// What is written from records is what the message has that is made for transactions.
    #[test]
    fn records_are_written_as_the_message_has_them() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        let (empty, long) = (Vec::new(), vec![7; PIECE]);
        let values = [&b"value"[..], &empty, &long, &[1; 700], &[2; 1300], &[3; 60_000]];
        for n in 0..300_usize {
            let (key, lease) = (format!("key-{n:03}"), [0, 1, -1, i64::MAX][n % 4]);
            for _ in 0..=n % 3 {
                let put = Transaction::new().put(key.clone(), stored(values[n % values.len()], lease));
                engine.transact(put).wait().unwrap();
            }
        }
        let snapshot = engine.snapshot(At::Latest).unwrap();
        let counts = KeyCounts::new(&engine);
        let header = ResponseHeader { cluster_id: u64::MAX, member_id: 1, revision: 5, raft_term: 2 };
        let answers = Answers::new(usize::MAX);
        let (mut most_pieces, mut in_two_parts) = (0, 0);
        for (key, range_end) in [("key-", "key."), ("key-100", "key-200"), ("key-007", ""), ("none", "")] {
            for limit in [0, 1, 47, 48, 49, 50, 51, 52, 53, 99, 100, 101, 1000, -1] {
                for (keys_only, count_only) in [(false, false), (true, false), (false, true)] {
                    let request = RangeRequest {
                        key: key.into(),
                        range_end: range_end.into(),
                        limit,
                        keys_only,
                        count_only,
                        ..RangeRequest::default()
                    };
                    let written = of_records(&snapshot, &counts, &request, &header, answers.begin()).unwrap();
                    in_two_parts += usize::from(written.rest.is_some());
                    let written = pieces(written);
                    most_pieces = most_pieces.max(written.len());
                    let mut held = answers.begin();
                    let (overlay, revision) = (Overlay::new(), header.revision);
                    let state = RangeView { snapshot: &snapshot, counts: &counts, overlay: &overlay };
                    let mut message = range::execute(&state, &request, revision, &mut held).unwrap();
                    message.header = Some(header);
                    assert_eq!(whole(&written), message, "{request:?}");
                    let answer = Answer { message: message.clone(), held };
                    assert_eq!(whole(&pieces(of_response(answer).unwrap())), message, "{request:?}");
                }
            }
        }
        assert!(most_pieces > 50 && in_two_parts > 5, "{most_pieces} pieces, {in_two_parts} in two parts");
    }

    /// Whatever is wrong, the client never takes a part for everything.
    #[test]
    fn a_rest_that_is_not_what_was_counted_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        for n in 0..30 {
            engine.transact(Transaction::new().put(format!("{n}"), stored(&[1; PIECE], 0))).wait().unwrap();
        }
        let request = RangeRequest { key: "0".into(), range_end: "\0".into(), ..RangeRequest::default() };
        let counts = KeyCounts::new(&engine);
        for change in [-1_isize, 1] {
            let snapshot = engine.snapshot(At::Latest).unwrap();
            let held = Answers::new(usize::MAX).begin();
            let header = ResponseHeader::default();
            let outgoing = of_records(&snapshot, &counts, &request, &header, held).unwrap();
            let mut rest = outgoing.rest.unwrap();
            rest.bytes = rest.bytes.checked_add_signed(change).unwrap();
            let failed = (0..30).find_map(|_| rest.next_group().err());
            assert_eq!(failed.map(|status| status.code()), Some(tonic::Code::Internal));
        }
    }

    #[test]
    fn a_message_that_is_too_large_is_refused() {
        let mut message = MessageWriter::new();
        assert!(message.room(PIECE).is_ok());
        let refused = message.room(MAX_RESPONSE).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        assert!(message.room(usize::MAX).is_err());
        assert!(message.finish(MAX_RESPONSE + 1).is_err());
    }
}
