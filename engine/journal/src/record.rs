//! The records of a journal: what a replica proposes.
//!
//! Layout (little endian; a number is a varint, seven bits in each byte, the lowest first, in its shortest
//! form):
//!
//! ```text
//!  0  crc32c           u32       of everything after it
//!  4  version          u8        1
//!  5  kind             u8        1 session, 2 group, 3 level
//!  6  replica          u16
//!  8  cluster          16 bytes
//! 24  session          u64       the replica's session, see `Body::Session`
//! 32  sequence         u64       number of the record in the session, 0 for the one that begins it
//! 40  clock            u64       milliseconds since 1970 by the proposer's clock
//! 48  applied position u64       what the proposer had applied,
//! 56  applied revision u64       its revision there,
//! 64  hash             16 bytes  and its hash there
//! 80  body
//!
//! session:      the session that it replaces, u64, 0 for none
//! level:        u8, 255 closes the journal
//! group:        number of proposals, then each:
//!   transaction   1, number of conditions, conditions, number of operations, operations
//!   floor         2, revision as a number
//! condition:    1 at a mod revision, 2 absent, 3 exists; key; for 1 the revision as a number
//! operation:    1 put, 2 put with a time to live, 3 delete; key; for 1 and 2 the value;
//!               for 2 the milliseconds as a number
//! key, value:   length as a number, bytes
//! ```
//!
//! A record has one encoding: what decodes, encodes to the same bytes.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::crc32c::crc32c;
use crate::error::Error;
pub use crate::identity::{ClusterId, Hash, MalformedClusterId, ReplicaId, Session};
use crate::position::Position;
use crate::varint::{put_varint, take_varint};

/// The newest version of the format.
pub const VERSION: u8 = 1;

/// The level that closes the journal: nothing that follows is applied by anybody. A program that does not
/// know this takes it for a later version's level, and stops before it.
pub const CLOSED: u8 = u8::MAX;

/// Bytes of the largest record that is encoded or decoded.
pub const MAX_BYTES: usize = 24 << 20;

/// A journal that takes no records of so many bytes is of no use: what a server writes at its start is to
/// fit.
pub const LEAST_LIMIT: usize = 64 << 10;

/// Bytes before the body.
pub const HEADER_BYTES: usize = 80;

/// A record of the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Which cluster's journal it is in.
    pub cluster: ClusterId,
    /// The replica that proposes.
    pub replica: ReplicaId,
    /// The session of the replica in which it was appended.
    pub session: Session,
    /// Number of the record in the session; replica, session and sequence identify what is proposed.
    pub sequence: u64,
    /// The proposer's clock, in milliseconds since 1970.
    pub clock_ms: u64,
    /// The state of the proposer, for comparison.
    pub anchor: Anchor,
    /// What is proposed.
    pub body: Body,
}

/// What a replica had applied when it proposed. A replica whose hash at this position is another one has
/// diverged from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anchor {
    /// The last position that it had applied.
    pub position: Position,
    /// Its revision there.
    pub revision: u64,
    /// Its hash there.
    pub hash: Hash,
}

/// What a record proposes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// Begins a session of the replica, on the condition that its session is `replaces`. Records of other
    /// sessions of this replica are void from then on, so nothing that an earlier process has left in the
    /// network is taken for a proposal of this one.
    Session {
        /// The session before; none for the first.
        replaces: Option<Session>,
    },
    /// Proposals, judged one after the other.
    Group(Vec<ProposalRecord>),
    /// Raises the level of the cluster: the newest version of records that every replica reads; [`CLOSED`]
    /// closes the journal.
    Level(u8),
}

/// One proposal of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalRecord {
    /// Conditions and operations, all or nothing.
    Transaction(TransactionRecord),
    /// Raises the compaction floor to this revision, where it is lower and the revision exists.
    Floor(u64),
}

/// A proposed transaction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransactionRecord {
    /// All must hold.
    pub conditions: Vec<ConditionRecord>,
    /// What is changed if all conditions hold.
    pub operations: Vec<OperationRecord>,
}

/// A condition of a proposed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConditionRecord {
    /// The key was last written at this revision.
    ModRevision(Bytes, u64),
    /// The key is absent.
    Absent(Bytes),
    /// The key exists.
    Exists(Bytes),
}

/// A change of a proposed transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OperationRecord {
    /// Sets a value.
    Put {
        /// Key that is put.
        key: Bytes,
        /// Its new value.
        value: Bytes,
        /// Milliseconds after which the key expires, counted from the time of the commit.
        ttl_ms: Option<u64>,
    },
    /// Deletes a key.
    Delete(Bytes),
}

/// Why bytes are not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes were changed or cut.
    #[error("the record is damaged: {0}")]
    Damaged(&'static str),
    /// The record is sound, and of a later version.
    #[error("the record has version {0}")]
    Version(u8),
}

impl DecodeError {
    /// The error of the record at `position`.
    pub fn at(self, position: Position) -> Error {
        match self {
            DecodeError::Damaged(reason) => Error::Damaged { position, reason },
            DecodeError::Version(found) => Error::Version { position, found, newest: VERSION },
        }
    }
}

const SESSION: u8 = 1;
const GROUP: u8 = 2;
const LEVEL: u8 = 3;

const TRANSACTION: u8 = 1;
const FLOOR: u8 = 2;

const AT_REVISION: u8 = 1;
const ABSENT: u8 = 2;
const EXISTS: u8 = 3;

const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;
const DELETE: u8 = 3;

impl Record {
    /// The bytes of the record in the newest version.
    pub fn encode(&self) -> Bytes {
        self.encode_as(VERSION)
    }

    /// The bytes of the record in a version. All versions so far have one layout.
    pub fn encode_as(&self, version: u8) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + self.body.size());
        out.put_u32_le(0);
        out.put_u8(version);
        out.put_u8(match self.body {
            Body::Session { .. } => SESSION,
            Body::Group(_) => GROUP,
            Body::Level(_) => LEVEL,
        });
        out.put_u16_le(self.replica.0);
        out.put_slice(&self.cluster.0);
        out.put_u64_le(self.session.0);
        out.put_u64_le(self.sequence);
        out.put_u64_le(self.clock_ms);
        out.put_u64_le(self.anchor.position.get());
        out.put_u64_le(self.anchor.revision);
        out.put_slice(&self.anchor.hash.0);
        match &self.body {
            Body::Session { replaces } => out.put_u64_le(replaces.map_or(0, |session| session.0)),
            Body::Group(proposals) => {
                put_varint(&mut out, proposals.len() as u64);
                proposals.iter().for_each(|proposal| proposal.encode_into(&mut out));
            }
            Body::Level(level) => out.put_u8(*level),
        }
        let crc = crc32c(out.get(4..).unwrap_or_default());
        if let Some(field) = out.get_mut(..4) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
        out.freeze()
    }

    /// Checks and decodes a record; keys and values share the allocation of `bytes`.
    ///
    /// # Errors
    /// [`DecodeError::Damaged`], [`DecodeError::Version`].
    pub fn decode(bytes: Bytes) -> Result<Record, DecodeError> {
        Record::decode_up_to(bytes, VERSION)
    }

    /// The same, for a reader whose newest version is another one.
    ///
    /// # Errors
    /// As [`Record::decode`].
    pub fn decode_up_to(bytes: Bytes, newest: u8) -> Result<Record, DecodeError> {
        if bytes.len() > MAX_BYTES {
            return Err(DecodeError::Damaged("it is too long"));
        }
        let (Some(crc), Some(rest)) = (bytes.get(..4), bytes.get(4..)) else {
            return Err(DecodeError::Damaged("it is too short"));
        };
        if crc != crc32c(rest).to_le_bytes() {
            return Err(DecodeError::Damaged("its checksum does not match"));
        }
        Record::decode_layout(bytes, newest)
    }

    /// Decodes a record whatever its checksum, so that fuzzing reaches the decoder.
    #[doc(hidden)]
    pub fn decode_unchecked(bytes: Bytes) -> Result<Record, DecodeError> {
        Record::decode_layout(bytes, VERSION)
    }

    fn decode_layout(mut bytes: Bytes, newest: u8) -> Result<Record, DecodeError> {
        const MALFORMED: DecodeError = DecodeError::Damaged("it is not a record");
        // The version comes first: a later one may have another header.
        match bytes.get(4) {
            Some(version) if (1..=newest).contains(version) => {}
            Some(version) => return Err(DecodeError::Version(*version)),
            None => return Err(MALFORMED),
        }
        if bytes.len() < HEADER_BYTES {
            return Err(MALFORMED);
        }
        bytes.advance(5);
        let kind = bytes.get_u8();
        let mut record = Record {
            replica: ReplicaId(bytes.get_u16_le()),
            cluster: ClusterId(get_array(&mut bytes)),
            session: Session(bytes.get_u64_le()),
            sequence: bytes.get_u64_le(),
            clock_ms: bytes.get_u64_le(),
            anchor: Anchor {
                position: Position::new(bytes.get_u64_le()),
                revision: bytes.get_u64_le(),
                hash: Hash(get_array(&mut bytes)),
            },
            body: Body::Level(0),
        };
        record.body = Body::decode(kind, &mut bytes).ok_or(MALFORMED)?;
        // The number that begins a session is that of no other record.
        let begins = matches!(record.body, Body::Session { .. });
        if record.session.0 == 0 || begins != (record.sequence == 0) || !bytes.is_empty() {
            return Err(MALFORMED);
        }
        Ok(record)
    }
}

/// The version in the bytes of a record.
pub fn version(record: &[u8]) -> Option<u8> {
    record.get(4).copied()
}

/// The checksum in the bytes of a record.
pub fn checksum(record: &[u8]) -> u32 {
    record.get(..4).and_then(|crc| crc.try_into().ok()).map_or(0, u32::from_le_bytes)
}

fn get_array(bytes: &mut Bytes) -> [u8; 16] {
    let mut array = [0; 16];
    bytes.copy_to_slice(&mut array);
    array
}

impl Body {
    /// An upper bound of its size in bytes, or the size itself.
    fn size(&self) -> usize {
        match self {
            Body::Group(proposals) => 10 + proposals.iter().map(ProposalRecord::size).sum::<usize>(),
            Body::Session { .. } | Body::Level(_) => 8,
        }
    }

    fn decode(kind: u8, bytes: &mut Bytes) -> Option<Body> {
        match kind {
            SESSION => {
                let replaces = bytes.try_get_u64_le().ok()?;
                Some(Body::Session { replaces: (replaces != 0).then_some(Session(replaces)) })
            }
            GROUP => {
                let count = take_count(bytes)?;
                (0..count).map(|_| ProposalRecord::decode(bytes)).collect::<Option<_>>().map(Body::Group)
            }
            LEVEL => Some(Body::Level(bytes.try_get_u8().ok()?)),
            _ => None,
        }
    }
}

impl ProposalRecord {
    /// Bytes that it takes of a record, at most.
    pub fn size(&self) -> usize {
        /// Tags and lengths of an operation or condition.
        const OVERHEAD: usize = 32;
        match self {
            ProposalRecord::Transaction(transaction) => {
                let conditions = transaction.conditions.iter().map(|condition| condition.key().len());
                let operations = transaction.operations.iter().map(|operation| match operation {
                    OperationRecord::Put { key, value, .. } => key.len() + value.len(),
                    OperationRecord::Delete(key) => key.len(),
                });
                OVERHEAD + conditions.chain(operations).map(|size| size + OVERHEAD).sum::<usize>()
            }
            ProposalRecord::Floor(_) => OVERHEAD,
        }
    }

    fn encode_into(&self, out: &mut BytesMut) {
        match self {
            ProposalRecord::Transaction(transaction) => {
                out.put_u8(TRANSACTION);
                put_varint(out, transaction.conditions.len() as u64);
                for condition in &transaction.conditions {
                    condition.encode_into(out);
                }
                put_varint(out, transaction.operations.len() as u64);
                for operation in &transaction.operations {
                    operation.encode_into(out);
                }
            }
            ProposalRecord::Floor(revision) => {
                out.put_u8(FLOOR);
                put_varint(out, *revision);
            }
        }
    }

    fn decode(bytes: &mut Bytes) -> Option<ProposalRecord> {
        match bytes.try_get_u8().ok()? {
            TRANSACTION => {
                let conditions = take_count(bytes)?;
                let conditions =
                    (0..conditions).map(|_| ConditionRecord::decode(bytes)).collect::<Option<_>>()?;
                let operations = take_count(bytes)?;
                let operations =
                    (0..operations).map(|_| OperationRecord::decode(bytes)).collect::<Option<_>>()?;
                Some(ProposalRecord::Transaction(TransactionRecord { conditions, operations }))
            }
            FLOOR => Some(ProposalRecord::Floor(take_varint(bytes)?)),
            _ => None,
        }
    }
}

impl ConditionRecord {
    fn key(&self) -> &Bytes {
        match self {
            ConditionRecord::ModRevision(key, _)
            | ConditionRecord::Absent(key)
            | ConditionRecord::Exists(key) => key,
        }
    }

    fn encode_into(&self, out: &mut BytesMut) {
        out.put_u8(match self {
            ConditionRecord::ModRevision(..) => AT_REVISION,
            ConditionRecord::Absent(_) => ABSENT,
            ConditionRecord::Exists(_) => EXISTS,
        });
        put_bytes(out, self.key());
        if let ConditionRecord::ModRevision(_, revision) = self {
            put_varint(out, *revision);
        }
    }

    fn decode(bytes: &mut Bytes) -> Option<ConditionRecord> {
        let kind = bytes.try_get_u8().ok()?;
        let key = take_bytes(bytes)?;
        match kind {
            AT_REVISION => Some(ConditionRecord::ModRevision(key, take_varint(bytes)?)),
            ABSENT => Some(ConditionRecord::Absent(key)),
            EXISTS => Some(ConditionRecord::Exists(key)),
            _ => None,
        }
    }
}

impl OperationRecord {
    fn encode_into(&self, out: &mut BytesMut) {
        match self {
            OperationRecord::Put { key, value, ttl_ms } => {
                out.put_u8(if ttl_ms.is_some() { PUT_EXPIRING } else { PUT });
                put_bytes(out, key);
                put_bytes(out, value);
                if let Some(ttl_ms) = ttl_ms {
                    put_varint(out, *ttl_ms);
                }
            }
            OperationRecord::Delete(key) => {
                out.put_u8(DELETE);
                put_bytes(out, key);
            }
        }
    }

    fn decode(bytes: &mut Bytes) -> Option<OperationRecord> {
        let kind = bytes.try_get_u8().ok()?;
        let key = take_bytes(bytes)?;
        match kind {
            PUT => Some(OperationRecord::Put { key, value: take_bytes(bytes)?, ttl_ms: None }),
            PUT_EXPIRING => {
                let value = take_bytes(bytes)?;
                Some(OperationRecord::Put { key, value, ttl_ms: Some(take_varint(bytes)?) })
            }
            DELETE => Some(OperationRecord::Delete(key)),
            _ => None,
        }
    }
}

fn put_bytes(out: &mut BytesMut, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.put_slice(bytes);
}

fn take_bytes(bytes: &mut Bytes) -> Option<Bytes> {
    let length = usize::try_from(take_varint(bytes)?).ok()?;
    (length <= bytes.len()).then(|| bytes.split_to(length))
}

/// A number of things that follow, each of at least one byte.
fn take_count(bytes: &mut Bytes) -> Option<usize> {
    let count = usize::try_from(take_varint(bytes)?).ok()?;
    (count <= bytes.len()).then_some(count)
}
