//! Batches of records, as Kafka keeps them: a batch of this journal holds one record.
//!
//! Layout of a batch (big endian; `RecordBatch` of Kafka's format 2):
//!
//! ```text
//!  0  offset of the first record  i64
//!  8  bytes that follow           i32
//! 12  epoch of the leader         i32   of the broker that took it
//! 16  format                      i8    2
//! 17  crc32c                      u32   of everything after it
//! 21  attributes                  i16   0 to 2 compression, 5 control
//! 23  offset of the last record   i32   beside the first one
//! 27  times                       2 i64 -1, none
//! 43  producer, its epoch, sequence     -1, none
//! 57  number of records           i32
//! 61  records: length, attributes, time, offset, key, value, headers
//! ```

use bytes::Bytes;
use plinth_journal::record::{Anchor, Body, ClusterId, Record, ReplicaId, Session};
use plinth_journal::{crc32c, Position};

use crate::codec::{put_zigzag, Decoder, Malformed};

/// Bytes of a batch beside the value of its only record, at most.
pub(crate) const OVERHEAD: usize = 1024;

const FORMAT: i8 = 2;
/// Bytes before the length that counts the rest.
const PREFIX: usize = 12;
const CONTROL: i16 = 1 << 5;
const COMPRESSION: i16 = 0b111;

/// What the key of a record has before the cluster.
const MARKER: &str = "plinth journal, format 1, cluster ";

/// The key of each record of a cluster.
pub(crate) fn key(cluster: ClusterId) -> Bytes {
    format!("{MARKER}{cluster}").into()
}

/// The cluster that a key names; none where it is not the key of a journal's record.
pub(crate) fn cluster_of(key: &[u8]) -> Option<ClusterId> {
    cluster_after(MARKER, key)
}

fn cluster_after(prefix: &str, key: &[u8]) -> Option<ClusterId> {
    std::str::from_utf8(key).ok()?.strip_prefix(prefix)?.parse().ok()
}

/// What the key of the record that founds a journal has before the cluster.
const FOUNDER: &str = "plinth journal, format 1, founded by cluster ";

/// The key of the record with which a cluster founds its journal.
pub(crate) fn founding_key(cluster: ClusterId) -> Bytes {
    format!("{FOUNDER}{cluster}").into()
}

/// The cluster that has founded a journal by a record with this key, or has tried to; none for another
/// record.
pub(crate) fn founder_of(key: &[u8]) -> Option<ClusterId> {
    cluster_after(FOUNDER, key)
}

/// What readers get in the place of a record that founds a journal, or has failed to: one that is void for
/// every replica, since it replaces a session that never was. The same bytes for all replicas of a cluster.
pub(crate) fn void(cluster: ClusterId) -> Bytes {
    let never = Session(1);
    let anchor = Anchor { position: Position::new(u64::MAX), ..Anchor::default() };
    let body = Body::Session { replaces: Some(never) };
    let record =
        Record { cluster, replica: ReplicaId(0), session: never, sequence: 0, clock_ms: 0, anchor, body };
    record.encode_as(1)
}

/// A record as Kafka has it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KafkaRecord {
    pub offset: i64,
    pub key: Bytes,
    pub value: Bytes,
}

/// The batch of a record. It has no time: the brokers would compare it with their clocks.
pub(crate) fn encode(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(key.len() + 32);
    record.push(0);
    put_zigzag(&mut record, 0);
    put_zigzag(&mut record, 0);
    put_zigzag(&mut record, key.len() as i64);
    record.extend_from_slice(key);
    put_zigzag(&mut record, value.len() as i64);
    let no_headers = [0];
    let mut length = Vec::new();
    put_zigzag(&mut length, (record.len() + value.len() + no_headers.len()) as i64);

    let mut batch = Vec::with_capacity(value.len() + record.len() + 128);
    batch.extend_from_slice(&0i64.to_be_bytes());
    batch.extend_from_slice(&0i32.to_be_bytes());
    batch.extend_from_slice(&(-1i32).to_be_bytes());
    batch.push(FORMAT as u8);
    batch.extend_from_slice(&0u32.to_be_bytes());
    let checked = batch.len();
    batch.extend_from_slice(&0i16.to_be_bytes());
    batch.extend_from_slice(&0i32.to_be_bytes());
    // Two times, the producer, its epoch and sequence.
    batch.extend_from_slice(&[0xff; 8 + 8 + 8 + 2 + 4]);
    batch.extend_from_slice(&1i32.to_be_bytes());
    for part in [&length[..], &record, value, &no_headers] {
        batch.extend_from_slice(part);
    }
    let rest = i32::try_from(batch.len() - PREFIX).unwrap_or(i32::MAX);
    let crc = crc32c(batch.get(checked..).unwrap_or_default());
    set(&mut batch, PREFIX - 4, rest.to_be_bytes());
    set(&mut batch, checked - 4, crc.to_be_bytes());
    batch
}

fn set(batch: &mut [u8], at: usize, bytes: [u8; 4]) {
    if let Some(field) = batch.get_mut(at..at + 4) {
        field.copy_from_slice(&bytes);
    }
}

/// Why a batch cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// Offset of its first record.
    pub offset: i64,
    pub reason: &'static str,
}

/// The records of all batches; the last one may be cut and is left out then. Those before a batch that
/// cannot be read are returned, an error where that is the first one.
pub(crate) fn decode(bytes: Bytes) -> Result<Vec<KafkaRecord>, Unreadable> {
    let mut batches = Decoder(bytes);
    let mut records = Vec::new();
    while let Some((offset, batch)) = next_batch(&mut batches) {
        let whole = records.len();
        if let Err(reason) = decode_batch(offset, batch, &mut records) {
            records.truncate(whole);
            return if whole > 0 { Ok(records) } else { Err(Unreadable { offset, reason }) };
        }
    }
    Ok(records)
}

/// Takes the next batch whole: the offset of its first record, and what follows its length.
fn next_batch(batches: &mut Decoder) -> Option<(i64, Decoder)> {
    let mut ahead = Decoder(batches.0.clone());
    let offset = ahead.i64().ok()?;
    let length = usize::try_from(ahead.i32().ok()?).ok()?;
    let batch = ahead.take(length).ok()?;
    *batches = ahead;
    Some((offset, Decoder(batch)))
}

fn decode_batch(first: i64, mut batch: Decoder, records: &mut Vec<KafkaRecord>) -> Result<(), &'static str> {
    const MALFORMED: &str = "its batch is malformed";
    let malformed = |_: Malformed| MALFORMED;
    batch.i32().map_err(malformed)?;
    if batch.i8().map_err(malformed)? != FORMAT {
        return Err("its batch has a format that no replica writes");
    }
    let crc = batch.u32().map_err(malformed)?;
    if crc != crc32c(&batch.0) {
        return Err("the checksum of its batch does not match");
    }
    let attributes = batch.i16().map_err(malformed)?;
    if attributes & CONTROL != 0 {
        return Err("it ends a transaction, which no replica makes: another program writes to the topic");
    }
    if attributes & COMPRESSION != 0 {
        return Err("it is compressed, which no replica does: another program writes to the topic");
    }
    batch.skip(4 + 8 + 8 + 8 + 2 + 4).map_err(malformed)?;
    let count = batch.i32().map_err(malformed)?;
    for _ in 0..count {
        let length = usize::try_from(batch.zigzag().map_err(malformed)?).map_err(|_| MALFORMED)?;
        let record = Decoder(batch.take(length).map_err(malformed)?);
        records.push(decode_record(first, record).map_err(malformed)?);
    }
    if batch.is_empty() {
        Ok(())
    } else {
        Err(MALFORMED)
    }
}

fn decode_record(first: i64, mut record: Decoder) -> Result<KafkaRecord, Malformed> {
    record.i8()?; // attributes
    record.zigzag()?; // time
    let offset = first.checked_add(record.zigzag()?).ok_or(Malformed)?;
    let key = record.record_bytes()?.unwrap_or_default();
    let value = record.record_bytes()?.unwrap_or_default();
    // Headers of other programs are not read.
    Ok(KafkaRecord { offset, key, value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(offset: i64, value: &[u8]) -> Vec<u8> {
        let mut batch = encode(&key(ClusterId([7; 16])), value);
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        batch
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for length in [0, 1, 63, 64, 8191, 100_000] {
            let value = vec![5; length];
            let batch = stored(41, &value);
            assert!(batch.len() <= length + OVERHEAD);
            let record = KafkaRecord { offset: 41, key: key(ClusterId([7; 16])), value: value.into() };
            assert_eq!(decode(batch.into()), Ok(vec![record]));
        }
    }

    #[test]
    fn a_batch_that_is_cut_is_left_out() {
        let batches = [stored(0, b"one"), stored(1, b"two")].concat();
        let whole = decode(batches.clone().into()).unwrap();
        assert_eq!(whole.iter().map(|record| record.offset).collect::<Vec<_>>(), [0, 1]);
        let first = stored(0, b"one").len();
        for end in 0..batches.len() {
            let records = decode(Bytes::copy_from_slice(&batches[..end])).unwrap();
            assert_eq!(records.len(), usize::from(end >= first), "{end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let batch = stored(9, b"value");
        let good = decode(batch.clone().into()).unwrap();
        // Offset, length and epoch of the leader are the broker's and not covered by the checksum.
        for bit in 16 * 8..batch.len() * 8 {
            let mut flipped = batch.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(flipped.into()).is_err(), "bit {bit}");
        }
        assert_eq!(good.len(), 1);
    }

    #[test]
    fn what_comes_before_a_damaged_batch_is_read() {
        let mut batches = [stored(0, b"one"), stored(1, b"two"), stored(2, b"three")].concat();
        let second = stored(0, b"one").len();
        batches[second + 70] ^= 1;
        let records = decode(batches.clone().into()).unwrap();
        assert_eq!(records.iter().map(|record| record.offset).collect::<Vec<_>>(), [0]);
        assert_eq!(decode(batches.split_off(second).into()).unwrap_err().offset, 1);
    }

    #[test]
    fn batches_of_other_programs_are_refused() {
        let with_attributes = |attributes: i16| {
            let mut batch = stored(3, b"value");
            batch[21..23].copy_from_slice(&attributes.to_be_bytes());
            let crc = crc32c(&batch[21..]);
            batch[17..21].copy_from_slice(&crc.to_be_bytes());
            decode(batch.into()).unwrap_err()
        };
        assert!(with_attributes(4).reason.contains("compressed"));
        assert!(with_attributes(CONTROL).reason.contains("transaction"));
        assert_eq!(with_attributes(4).offset, 3);
    }

    #[test]
    fn keys_name_their_cluster() {
        let cluster = ClusterId(*b"0123456789abcdef");
        assert_eq!(cluster_of(&key(cluster)), Some(cluster));
        for other in ["", "key", "plinth journal, format 1, cluster ", "plinth journal, format 2, cluster 00"]
        {
            assert_eq!(cluster_of(other.as_bytes()), None, "{other}");
        }
        assert_eq!(founder_of(&founding_key(cluster)), Some(cluster));
        assert_eq!((founder_of(&key(cluster)), cluster_of(&founding_key(cluster))), (None, None));
        let signed = format!("{MARKER}{}", "+1".repeat(16));
        assert_eq!(cluster_of(signed.as_bytes()), None);
    }
    #[test]
    fn what_stands_for_a_founding_record_begins_no_session() {
        let cluster = ClusterId([7; 16]);
        assert_eq!(void(cluster), void(cluster));
        let record = Record::decode(void(cluster)).unwrap();
        assert_eq!((record.cluster, record.sequence), (cluster, 0));
        assert!(
            matches!(record.body, Body::Session { replaces: Some(_) }),
            "no session of replica 0 ever was"
        );
    }
}
