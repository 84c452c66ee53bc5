//! Range requests: reads of one snapshot. There is one way to carry them out ([`read`]), and three forms of
//! response: a message ([`answer`]), the bytes on the wire (`range_body`), and parts (`range_stream`). What a
//! transaction reads goes through [`execute`], too.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use plinth_engine::{InMemory, KeyCounts, KeyRange, Snapshot};
use tonic::Status;

use crate::answers::{Answer, Reservation};
use crate::auth::Unchanged;
use crate::errors;
use crate::keys::Keys;
use crate::member::Member;
use crate::value::{entry_key_value, key_value, to_etcd};
use crate::wire::kv::{sort_order, sort_target, KeyValue, RangeRequest, RangeResponse};
use crate::wire::ResponseHeader;

/// Bytes of keys and values that one response may have: what gRPC for Go sends at most.
pub(crate) const MAX_RESPONSE: usize = i32::MAX as usize;

/// A response would be larger than that.
pub(crate) fn too_large(bytes: usize) -> Status {
    Status::resource_exhausted(format!(
        "grpc: trying to send message larger than max ({bytes} vs. {MAX_RESPONSE})"
    ))
}

/// Changes that a transaction has made so far: what a key is, or that it is deleted.
pub(crate) type Overlay = BTreeMap<Bytes, Option<KeyValue>>;

/// Refuses a request that no state can answer.
pub(crate) fn check(request: &RangeRequest) -> Result<(), Status> {
    if request.key.is_empty() {
        return Err(errors::empty_key());
    }
    let known_order = (sort_order::NONE..=sort_order::DESCEND).contains(&request.sort_order);
    let known_target = (sort_target::KEY..=sort_target::VALUE).contains(&request.sort_target);
    match known_order && known_target {
        true => Ok(()),
        false => Err(errors::invalid_sort_option()),
    }
}

/// Whether keys are returned in the order in which they are stored.
pub(crate) fn has_default_order(request: &RangeRequest) -> bool {
    request.sort_order == sort_order::NONE
        || (request.sort_target == sort_target::KEY && request.sort_order == sort_order::ASCEND)
}

/// Whether keys are selected by their revisions.
pub(crate) fn has_revision_filters(request: &RangeRequest) -> bool {
    let bounds = [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ];
    bounds.into_iter().any(|bound| bound != 0)
}

/// Whether the response is not just the first keys of the range.
pub(crate) fn is_selective(request: &RangeRequest) -> bool {
    !has_default_order(request) || has_revision_filters(request)
}

/// What a request reads.
pub(crate) enum Source {
    /// One key that was in memory, as the response to the request.
    Known(Answer<RangeResponse>),
    /// A snapshot, and the newest revision.
    Snapshot(Snapshot, i64),
}

/// Carries out a Range: `read` makes the response of what the request reads, on a thread that may block
/// unless that is known. `unchanged` is released when it is pinned.
pub(crate) async fn read<T: Send + 'static>(
    member: &Arc<Member>,
    request: RangeRequest,
    unchanged: Unchanged,
    read: impl FnOnce(&Arc<Member>, &RangeRequest, Source) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    check(&request)?;
    member.metrics.ranges.inc();
    let start = Instant::now();
    let done = read_source(member, request, unchanged, read).await;
    member.metrics.timings.read(start, done.is_ok());
    done
}

async fn read_source<T: Send + 'static>(
    member: &Arc<Member>,
    request: RangeRequest,
    unchanged: Unchanged,
    read: impl FnOnce(&Arc<Member>, &RangeRequest, Source) -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    if let Some(known) = in_memory(member, &request)? {
        drop(unchanged);
        return read(member, &request, Source::Known(known));
    }
    let member = Arc::clone(member);
    let done = tokio::task::spawn_blocking(move || {
        let latest = member.latest()?;
        let current = to_etcd(latest.revision());
        let snapshot = match request.revision > 0 {
            true => member.snapshot_at(request.revision, current)?,
            false => latest,
        };
        drop(unchanged);
        read(&member, &request, Source::Snapshot(snapshot, current))
    });
    done.await.map_err(errors::from_task)?
}

/// Range, with its response as a message.
pub(crate) async fn answer(
    member: &Arc<Member>,
    request: RangeRequest,
    unchanged: Unchanged,
) -> Result<Answer<RangeResponse>, Status> {
    read(member, request, unchanged, message).await
}

/// The response to a request as a message. Blocks.
pub(crate) fn message(
    member: &Arc<Member>,
    request: &RangeRequest,
    source: Source,
) -> Result<Answer<RangeResponse>, Status> {
    match source {
        Source::Known(answer) => Ok(answer),
        Source::Snapshot(snapshot, current) => {
            let mut held = member.answers.begin();
            let state = RangeView { snapshot: &snapshot, counts: &member.counts, overlay: &Overlay::new() };
            let mut message = execute(&state, request, current, &mut held)?;
            member.fill(&mut message.header);
            Ok(Answer { message, held })
        }
    }
}

/// The newest state of one key, if it is in memory and belongs to one revision beyond doubt.
fn in_memory(member: &Member, request: &RangeRequest) -> Result<Option<Answer<RangeResponse>>, Status> {
    let Keys::One(key) = Keys::of(&request.key, &request.range_end) else { return Ok(None) };
    if request.revision > 0 {
        return Ok(None);
    }
    let before = member.engine.current_revision();
    let found = member.engine.get_in_memory(&key).map_err(|error| errors::from_engine(&error))?;
    let InMemory::Known(record) = found else { return Ok(None) };
    let revision = match &record {
        // It was the newest at both: at the revision before the read, and at its own.
        Some(record) => before.max(record.mod_revision),
        None if member.engine.current_revision() == before => before,
        None => return Ok(None),
    };
    let found = record.map(|record| key_value(&record));
    let mut held = member.answers.begin();
    let mut message = of_one(request, found, to_etcd(revision), &mut held)?;
    member.fill(&mut message.header);
    Ok(Some(Answer { message, held }))
}

/// Whether the response is the first keys of the range in the order in which they are stored. Another target
/// than the key is sorted by even where no order is given.
pub(crate) fn is_in_order(request: &RangeRequest) -> bool {
    !is_selective(request) && request.sort_target == sort_target::KEY
}

/// What a request is answered from.
pub(crate) struct RangeView<'a> {
    pub snapshot: &'a Snapshot,
    pub counts: &'a KeyCounts,
    /// The changes of a transaction above the snapshot.
    pub overlay: &'a Overlay,
}

/// The number of keys in a part of a range that is not read otherwise.
pub(crate) fn count(counts: &KeyCounts, snapshot: &Snapshot, range: &KeyRange) -> Result<usize, Status> {
    let count = counts.count(snapshot, range).map_err(|error| errors::from_engine(&error))?;
    Ok(usize::try_from(count).unwrap_or(usize::MAX))
}

/// Answers a request. `current` is the newest revision, which is what the header of the response has,
/// whatever revision is read. What is read is added to `held`.
pub(crate) fn execute(
    state: &RangeView<'_>,
    request: &RangeRequest,
    current: i64,
    held: &mut Reservation,
) -> Result<RangeResponse, Status> {
    let keys = Keys::of(&request.key, &request.range_end);
    // One more than the limit: whether there is more.
    let fetched = match usize::try_from(request.limit) {
        Ok(limit) if limit > 0 && !is_selective(request) => limit.saturating_add(1),
        _ => usize::MAX,
    };
    let fetched = if request.count_only { 0 } else { fetched };
    let with_values = !request.keys_only || request.sort_target == sort_target::VALUE;
    let (kvs, count) = fetch(state, &keys, (fetched, with_values), held)?;
    Ok(assemble(request, kvs, count, current))
}

/// Answers a request about one key whose state is known, and adds it to `held`.
pub(crate) fn of_one(
    request: &RangeRequest,
    found: Option<KeyValue>,
    current: i64,
    held: &mut Reservation,
) -> Result<RangeResponse, Status> {
    let count = usize::from(found.is_some());
    let kvs: Vec<KeyValue> = found.into_iter().filter(|_| !request.count_only).collect();
    kvs.iter().try_for_each(|kv| held.add(kv))?;
    Ok(assemble(request, kvs, count, current))
}

/// The first `limit` keys, and the number of all.
fn fetch(
    state: &RangeView<'_>,
    keys: &Keys,
    (limit, with_values): (usize, bool),
    held: &mut Reservation,
) -> Result<(Vec<KeyValue>, usize), Status> {
    let mut kvs = Vec::new();
    let (mut count, mut bytes) = (0, 0);
    let mut changed = state.overlay.iter().filter(|(key, _)| keys.contains(key)).peekable();
    let mut take = |count: &mut usize, make: &mut dyn FnMut() -> KeyValue| {
        *count += 1;
        if kvs.len() < limit {
            let kv = make();
            bytes += kv.key.len() + kv.value.len();
            held.add(&kv)?;
            kvs.push(kv);
        }
        match bytes > MAX_RESPONSE {
            true => Err(too_large(bytes)),
            false => Ok(()),
        }
    };
    let keys = keys.to_range();
    let mut range = state.snapshot.range(&keys);
    loop {
        // What follows is counted, and the transaction has changed nothing of it.
        if count >= limit && changed.peek().is_none() {
            let rest = range.last_key().map_or_else(|| keys.clone(), |last| keys.after(last));
            count += self::count(state.counts, state.snapshot, &rest)?;
            break;
        }
        let Some(entry) = range.next().map_err(|error| errors::from_engine(&error))? else { break };
        while let Some((_, change)) = changed.next_if(|(key, _)| key.as_ref() < entry.key) {
            if let Some(kv) = change {
                take(&mut count, &mut || kv.clone())?;
            }
        }
        match changed.next_if(|(key, _)| key.as_ref() == entry.key) {
            Some((_, Some(kv))) => take(&mut count, &mut || kv.clone())?,
            Some((_, None)) => {}
            None => take(&mut count, &mut || entry_key_value(&entry, with_values))?,
        }
    }
    for kv in changed.filter_map(|(_, change)| change.as_ref()) {
        take(&mut count, &mut || kv.clone())?;
    }
    Ok((kvs, count))
}

/// Selects, sorts and cuts what was fetched.
fn assemble(request: &RangeRequest, mut kvs: Vec<KeyValue>, count: usize, current: i64) -> RangeResponse {
    kvs.retain(|kv| is_selected(request, kv));
    sort(request, &mut kvs);
    let mut more = false;
    if let Ok(limit) = usize::try_from(request.limit) {
        if limit > 0 && kvs.len() > limit {
            kvs.truncate(limit);
            more = true;
        }
    }
    if request.keys_only {
        kvs.iter_mut().for_each(|kv| kv.value = Bytes::new());
    }
    RangeResponse {
        header: Some(ResponseHeader { revision: current, ..ResponseHeader::default() }),
        kvs,
        more,
        count: i64::try_from(count).unwrap_or(i64::MAX),
    }
}

fn is_selected(request: &RangeRequest, kv: &KeyValue) -> bool {
    let within = |value: i64, low: i64, high: i64| (low == 0 || value >= low) && (high == 0 || value <= high);
    within(kv.mod_revision, request.min_mod_revision, request.max_mod_revision)
        && within(kv.create_revision, request.min_create_revision, request.max_create_revision)
}

fn sort(request: &RangeRequest, kvs: &mut [KeyValue]) {
    // Any target but the key is sorted by, even where no order is given.
    if request.sort_target == sort_target::KEY && request.sort_order != sort_order::DESCEND {
        return;
    }
    let by_target = |a: &KeyValue, b: &KeyValue| -> Ordering {
        match request.sort_target {
            sort_target::VERSION => a.version.cmp(&b.version),
            sort_target::CREATE => a.create_revision.cmp(&b.create_revision),
            sort_target::MOD => a.mod_revision.cmp(&b.mod_revision),
            sort_target::VALUE => a.value.cmp(&b.value),
            _ => a.key.cmp(&b.key),
        }
    };
    match request.sort_order {
        sort_order::DESCEND => kvs.sort_by(|a, b| by_target(b, a)),
        _ => kvs.sort_by(by_target),
    }
}
