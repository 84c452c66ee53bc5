//! RangeStream: a range in parts, from one snapshot, in constant memory and at the pace of the client.

use std::sync::Arc;

use plinth_engine::{KeyRange, Range, Snapshot};
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::Status;

use crate::answers::{Answer, PATIENCE};
use crate::auth::Unchanged;
use crate::errors;
use crate::keys::Keys;
use crate::member::Member;
use crate::range::{self, Source};
use crate::value::entry_key_value;
use crate::wire::kv::{RangeRequest, RangeResponse, RangeStreamResponse};

/// Parts that wait for the client.
const PARTS: usize = 2;

type Part = Result<RangeStreamResponse, Status>;

/// What is sent.
enum Reader {
    /// All of it, in one part.
    Whole(Answer<RangeResponse>),
    Range(Box<RangeReader>),
}

/// A range that is being read.
struct RangeReader {
    member: Arc<Member>,
    snapshot: Snapshot,
    keys: KeyRange,
    range: Range,
    /// Keys that are returned at most.
    limit: usize,
    keys_only: bool,
    /// Bytes of a part.
    part_bytes: usize,
    /// Keys that were read.
    count: usize,
    /// The newest revision when the request arrived.
    current: i64,
}

/// Answers a range request in parts, the last of which has header and count. What is read is pinned when this
/// returns.
pub(crate) async fn serve(
    member: &Arc<Member>,
    request: RangeRequest,
    unchanged: Unchanged,
) -> Result<mpsc::Receiver<Part>, Status> {
    if !range::has_default_order(&request) {
        return Err(Status::unimplemented("RangeStream does not support custom sort orders"));
    }
    if range::has_revision_filters(&request) {
        return Err(Status::unimplemented("RangeStream does not support revision filters"));
    }
    let reader = range::read(member, request, unchanged, Reader::open).await?;
    let (out, parts) = mpsc::channel(PARTS);
    let member = Arc::clone(member);
    tokio::spawn(async move {
        if let Err(status) = send(&member, reader, &out).await {
            // A client that has left gets nothing.
            let _ = out.send(Err(status)).await;
        }
    });
    Ok(parts)
}

/// Sends all parts. No thread waits for the client.
async fn send(member: &Member, reader: Reader, out: &mpsc::Sender<Part>) -> Result<(), Status> {
    let mut reader = match reader {
        Reader::Whole(answer) => return send_part(answer.message, out).await.map(drop),
        Reader::Range(reader) => reader,
    };
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let part = reader.next_part();
            (reader, part)
        });
        let (returned, part) = read.await.map_err(errors::from_task)?;
        reader = returned;
        let (mut response, is_last) = part?;
        if is_last {
            response.header = Some(member.header_at(reader.current));
        }
        if !send_part(response, out).await? || is_last {
            return Ok(());
        }
    }
}

/// Returns whether the client is still there. One that does not read holds the state of the store.
async fn send_part(response: RangeResponse, out: &mpsc::Sender<Part>) -> Result<bool, Status> {
    let part = Ok(RangeStreamResponse { range_response: Some(response) });
    match tokio::time::timeout(PATIENCE, out.send(part)).await {
        Ok(sent) => Ok(sent.is_ok()),
        Err(_) => Err(errors::timed_out()),
    }
}

impl Reader {
    fn open(member: &Arc<Member>, request: &RangeRequest, source: Source) -> Result<Reader, Status> {
        let (snapshot, current) = match source {
            Source::Snapshot(snapshot, current) if range::is_in_order(request) => (snapshot, current),
            // In memory, or in the order of another target, as Range returns it and as large.
            whole => return Ok(Reader::Whole(range::message(member, request, whole)?)),
        };
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let keys = Keys::of(&request.key, &request.range_end).to_range();
        Ok(Reader::Range(Box::new(RangeReader {
            member: Arc::clone(member),
            range: snapshot.range(&keys),
            snapshot,
            keys,
            limit: if request.count_only { 0 } else { limit },
            keys_only: request.keys_only,
            part_bytes: member.limits.request_bytes,
            count: 0,
            current,
        })))
    }
}

impl RangeReader {
    /// The next part, and whether it is the last. Blocks.
    fn next_part(&mut self) -> Result<(RangeResponse, bool), Status> {
        let (mut kvs, mut bytes) = (Vec::new(), 0);
        while self.count < self.limit {
            let Some(entry) = self.range.next().map_err(|error| errors::from_engine(&error))? else { break };
            self.count += 1;
            let kv = entry_key_value(&entry, !self.keys_only);
            bytes += kv.encoded_len();
            kvs.push(kv);
            if bytes >= self.part_bytes {
                return Ok((RangeResponse { kvs, ..RangeResponse::default() }, false));
            }
        }
        if self.count == self.limit {
            let last = self.range.last_key();
            let rest = last.map_or_else(|| self.keys.clone(), |last| self.keys.after(last));
            self.count += range::count(&self.member.counts, &self.snapshot, &rest)?;
        }
        let count = i64::try_from(self.count).unwrap_or(i64::MAX);
        let more = self.count > self.limit && self.limit > 0;
        Ok((RangeResponse { header: None, kvs, more, count }, true))
    }
}
