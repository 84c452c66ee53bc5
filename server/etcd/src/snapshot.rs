//! Snapshot: the newest state as a file of etcd, for `etcdutl snapshot restore`.
//!
//! The file is a bbolt file and the SHA-256 of it. The bucket `key` has each key's newest version under its
//! mod revision, so that every key keeps its revisions, its version and its lease; what is older counts as
//! compacted. The bucket `lease` has the leases with their whole time to live; `auth`, `authUsers` and
//! `authRoles` have users and roles as etcd stores them.
//!
//! Nothing is written to disk, and memory is bounded: a first pass writes the file to nowhere for its length
//! and for what its beginning names, a second one to the client. Both read the keys in the order of their
//! revisions, which is not that of the store: a scan takes the lowest revisions that fit into memory, and
//! what does not fit is taken by the next scan.

use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use plinth_bolt::{BoltWriter, Layout};
use plinth_engine::{Error, KeyRange, Record, Revision, Snapshot};
use prost::Message as _;
use sha2::{Digest as _, Sha256};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::answers::PATIENCE;
use crate::auth::Records;
use crate::errors;
use crate::member::Member;
use crate::value::{key_value, to_etcd};
use crate::versions::CLUSTER_VERSION;
use crate::wire::lease::Lease;
use crate::wire::maintenance::SnapshotResponse;

/// Bytes of a part.
const PART: usize = 32 << 10;
/// Parts that wait for the client.
const PARTS: usize = 4;
/// Bytes of keys that a scan takes.
const SCANNED: usize = 32 << 20;
/// What a key of a scan takes beside its bytes.
const KEY_OVERHEAD: usize = 64;

type Part = Result<SnapshotResponse, Status>;

/// Answers with the parts of a file.
pub(crate) fn serve(member: Arc<Member>, stop: CancellationToken) -> mpsc::Receiver<Part> {
    let (out, parts) = mpsc::channel(PARTS);
    tokio::spawn(async move {
        let permit = tokio::select! {
            permit = Arc::clone(&member.snapshots).acquire_owned() => permit,
            () = out.closed() => return,
            () = stop.cancelled() => return,
        };
        let start = Instant::now();
        let sent = async {
            let state = State::of(&member).await?;
            let client = Client { out: out.clone(), runtime: Handle::current(), stop };
            let sent = tokio::task::spawn_blocking(move || {
                let sent = send(&state, client);
                drop(permit);
                sent
            });
            sent.await.map_err(errors::from_task)?
        };
        let Err(status) = sent.await else {
            return member.metrics.timings.snapshot.observe(start.elapsed().as_secs_f64());
        };
        // A client that has left, or does not read, gets nothing.
        let _ = out.try_send(Err(status));
    });
    parts
}

/// What a file is made of.
struct State {
    keys: Snapshot,
    /// Ids and times to live, as ids are stored: without a sign.
    leases: Vec<(i64, i64)>,
    /// Users and roles, as etcd's buckets.
    users: [Records; 3],
}

impl State {
    /// Keys and leases of one moment. No lease ends while both are read, and no key gets one, so that each
    /// lease that a key names is there.
    async fn of(member: &Arc<Member>) -> Result<State, Status> {
        let _alone = member.writes.write().await;
        member.barrier().await?;
        let reader = Arc::clone(member);
        let read = tokio::task::spawn_blocking(move || {
            let keys = reader.latest()?;
            let leases =
                reader.leases.all().into_iter().filter_map(|id| Some((id, reader.leases.info(id)?.ttl)));
            let mut leases: Vec<(i64, i64)> = leases.collect();
            leases.sort_unstable_by_key(|(id, _)| id.cast_unsigned());
            Ok(State { keys, leases, users: reader.auth.state().buckets() })
        });
        read.await.map_err(errors::from_task)?
    }
}

/// Where parts go.
struct Client {
    out: mpsc::Sender<Part>,
    runtime: Handle,
    stop: CancellationToken,
}

impl Client {
    fn send(&self, part: SnapshotResponse) -> Result<(), Status> {
        self.runtime.block_on(async {
            tokio::select! {
                sent = tokio::time::timeout(PATIENCE, self.out.send(Ok(part))) => match sent {
                    Ok(Ok(())) => Ok(()),
                    Ok(Err(_)) => Err(Status::cancelled("the client has left")),
                    Err(_) => Err(errors::timed_out()),
                },
                () = self.stop.cancelled() => Err(errors::stopped()),
            }
        })
    }
}

/// Sends the file and its hash. Blocks.
fn send(state: &State, client: Client) -> Result<(), Status> {
    let (_, layout) = write(io::sink(), None, state).map_err(|error| status_of(&error))?;
    let parts = Parts {
        client,
        hash: Sha256::new(),
        buffer: BytesMut::with_capacity(PART),
        remaining: layout.bytes(),
    };
    let (mut parts, written) = match write(parts, Some(layout), state) {
        Ok(written) => written,
        Err(error) => return Err(status_of(&error)),
    };
    if written != layout {
        return Err(Status::internal("the snapshot has another length than was computed"));
    }
    parts.flush().map_err(|error| status_of(&error))?;
    let hash = parts.hash.finalize_reset();
    parts.send(Bytes::copy_from_slice(&hash)).map_err(|error| status_of(&error))
}

/// The error of a write: of the engine, of the client, or of the writer itself.
fn status_of(error: &io::Error) -> Status {
    let inner = error.get_ref();
    let engine = inner.and_then(|inner| inner.downcast_ref::<Error>()).map(errors::from_engine);
    let client = || inner.and_then(|inner| inner.downcast_ref::<Status>()).cloned();
    engine.or_else(client).unwrap_or_else(|| Status::internal(error.to_string()))
}

/// Parts of a file, cut from what is written.
struct Parts {
    client: Client,
    hash: Sha256,
    buffer: BytesMut,
    /// Bytes of the file that were not sent.
    remaining: u64,
}

impl Parts {
    fn send(&mut self, blob: Bytes) -> io::Result<()> {
        self.remaining = self.remaining.saturating_sub(blob.len() as u64);
        let part = SnapshotResponse {
            // As in etcd.
            header: None,
            remaining_bytes: self.remaining,
            blob,
            version: CLUSTER_VERSION.to_owned(),
        };
        self.client.send(part).map_err(io::Error::other)
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = PART - self.buffer.len();
        let taken = bytes.get(..room).unwrap_or(bytes);
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() == PART {
            self.flush()?;
        }
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let blob = self.buffer.split().freeze();
        self.hash.update(&blob);
        self.send(blob)
    }
}

/// Writes the file; `layout` is what writing it before has returned.
fn write<W: Write>(out: W, layout: Option<Layout>, state: &State) -> io::Result<(W, Layout)> {
    let mut bolt = match layout {
        None => BoltWriter::new(out)?,
        Some(layout) => BoltWriter::with_layout(out, layout)?,
    };
    for (name, records) in &state.users {
        let mut bucket = bolt.bucket(name.as_bytes());
        for (key, value) in records {
            bucket.put(key.clone(), value.clone())?;
        }
        bucket.finish()?;
    }
    let mut bucket = bolt.bucket(b"key");
    by_revision(&state.keys, SCANNED, &mut |sub, record| {
        let key = revision_key(to_etcd(record.mod_revision), sub);
        bucket.put(key, key_value(record).encode_to_vec())
    })?;
    bucket.finish()?;
    let mut bucket = bolt.bucket(b"lease");
    for (id, ttl) in &state.leases {
        let lease = Lease { id: *id, ttl: *ttl, remaining_ttl: 0 };
        bucket.put(id.to_be_bytes().to_vec(), lease.encode_to_vec())?;
    }
    bucket.finish()?;
    let mut bucket = bolt.bucket(b"meta");
    for name in ["finishedCompactRev", "scheduledCompactRev"] {
        bucket.put(name.into(), revision_key(to_etcd(state.keys.revision()), 0))?;
    }
    bucket.finish()?;
    bolt.finish_layout()
}

fn revision_key(main: i64, sub: i64) -> Vec<u8> {
    [&main.to_be_bytes()[..], b"_", &sub.to_be_bytes()].concat()
}

/// Visits all records in the order of their mod revisions, each with its number among those of one revision.
/// Holds keys of `limit` bytes, and scans the store once for each time that there are so many.
fn by_revision(
    snapshot: &Snapshot,
    limit: usize,
    visit: &mut dyn FnMut(i64, &Record) -> io::Result<()>,
) -> io::Result<()> {
    let mut last: Option<(Revision, Bytes)> = None;
    let mut sub = 0;
    loop {
        let (mut lowest, mut bytes, mut is_last) = (BinaryHeap::new(), 0, true);
        let mut entries = snapshot.range(&KeyRange::all());
        while let Some(entry) = entries.next().map_err(io::Error::other)? {
            let place = (entry.mod_revision, entry.key);
            if last.as_ref().is_some_and(|(revision, key)| place <= (*revision, key.as_ref())) {
                continue;
            }
            bytes += entry.key.len() + KEY_OVERHEAD;
            lowest.push((entry.mod_revision, Bytes::copy_from_slice(entry.key)));
            while bytes > limit && lowest.len() > 1 {
                is_last = false;
                bytes -= lowest.pop().map_or(0, |(_, key)| key.len() + KEY_OVERHEAD);
            }
        }
        for (revision, key) in lowest.into_sorted_vec() {
            let is_same = last.as_ref().is_some_and(|(before, _)| *before == revision);
            sub = if is_same { sub + 1 } else { 0 };
            if let Some(record) = snapshot.get(&key).map_err(io::Error::other)? {
                visit(sub, &record)?;
            }
            last = Some((revision, key));
        }
        if is_last {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use plinth_engine::{At, Engine, Options, Transaction};

    use super::*;

    #[test]
    fn records_come_by_revision_whatever_fits_into_memory() {
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open(Options::new(dir.path())).unwrap();
        // Keys fall while revisions rise; every third revision has two.
        let mut expected = Vec::new();
        for number in (0..50).rev() {
            let mut transaction = Transaction::new().put(format!("a{number:02}"), "");
            if number % 3 == 0 {
                transaction = transaction.put(format!("b{number:02}"), "");
            }
            let revision = engine.transact(transaction).wait().unwrap().revision;
            expected.push((revision, 0, format!("a{number:02}")));
            if number % 3 == 0 {
                expected.push((revision, 1, format!("b{number:02}")));
            }
        }
        let snapshot = engine.snapshot(At::Latest).unwrap();
        for limit in [0, KEY_OVERHEAD * 5, 1 << 20] {
            let mut found = Vec::new();
            by_revision(&snapshot, limit, &mut |sub, record| {
                let key = String::from_utf8(record.key.to_vec()).unwrap();
                found.push((record.mod_revision, sub, key));
                Ok(())
            })
            .unwrap();
            assert_eq!(found, expected, "{limit}");
        }
    }
}
