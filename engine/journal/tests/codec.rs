//! The format of records: what is encoded is decoded, and what was changed or cut is refused.

use bytes::Bytes;
use plinth_journal::record::{
    Anchor, Body, ClusterId, ConditionRecord, DecodeError, Hash, OperationRecord, ProposalRecord, Record,
    ReplicaId, Session, TransactionRecord, VERSION,
};
use plinth_journal::{crc32c, Error, Position};
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Bytes> {
    prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from)
}

fn condition() -> impl Strategy<Value = ConditionRecord> {
    prop_oneof![
        (bytes(), any::<u64>()).prop_map(|(key, revision)| ConditionRecord::ModRevision(key, revision)),
        bytes().prop_map(ConditionRecord::Absent),
        bytes().prop_map(ConditionRecord::Exists),
    ]
}

fn operation() -> impl Strategy<Value = OperationRecord> {
    prop_oneof![
        (bytes(), bytes(), any::<Option<u64>>()).prop_map(|(key, value, ttl_ms)| OperationRecord::Put {
            key,
            value,
            ttl_ms
        }),
        bytes().prop_map(OperationRecord::Delete),
    ]
}

fn proposal() -> impl Strategy<Value = ProposalRecord> {
    let transaction = (prop::collection::vec(condition(), 0..4), prop::collection::vec(operation(), 0..4));
    prop_oneof![
        8 => transaction.prop_map(|(conditions, operations)| {
            ProposalRecord::Transaction(TransactionRecord { conditions, operations })
        }),
        1 => any::<u64>().prop_map(ProposalRecord::Floor),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let body = prop_oneof![
        1 => any::<u64>().prop_map(|old| Body::Session { replaces: (old != 0).then_some(Session(old)) }),
        8 => prop::collection::vec(proposal(), 0..6).prop_map(Body::Group),
        1 => any::<u8>().prop_map(Body::Level),
    ];
    let anchor = (any::<u64>(), any::<u64>(), any::<[u8; 16]>());
    let identity = (any::<[u8; 16]>(), any::<u16>(), 1..=u64::MAX, 1..=u64::MAX, any::<u64>());
    (identity, anchor, body).prop_map(|((cluster, replica, session, sequence, clock_ms), anchor, body)| {
        Record {
            cluster: ClusterId(cluster),
            replica: ReplicaId(replica),
            session: Session(session),
            sequence: if matches!(body, Body::Session { .. }) { 0 } else { sequence },
            clock_ms,
            anchor: Anchor { position: Position::new(anchor.0), revision: anchor.1, hash: Hash(anchor.2) },
            body,
        }
    })
}

fn with_checksum(mut bytes: Vec<u8>) -> Bytes {
    let crc = crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded(record in record()) {
        let bytes = record.encode();
        prop_assert_eq!(Record::decode(bytes.clone()).unwrap(), record);
    }

    #[test]
    fn a_record_has_one_encoding(record in record(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        // With a checksum that fits, so that the decoder is reached.
        let mut changed = record.encode().to_vec();
        let at = at.index(changed.len());
        changed[at] = byte;
        let changed = with_checksum(changed);
        if let Ok(record) = Record::decode(changed.clone()) {
            prop_assert_eq!(record.encode(), changed);
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 5..400)) {
        bytes[4] = VERSION;
        let bytes = with_checksum(bytes);
        if let Ok(record) = Record::decode(bytes.clone()) {
            prop_assert_eq!(record.encode(), bytes);
        }
    }
}

proptest! {
    // Each case tries every position.
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_cut_is_noticed(record in record()) {
        let bytes = record.encode();
        for length in 0..bytes.len() {
            let cut = Record::decode(bytes.slice(..length));
            prop_assert!(matches!(cut, Err(DecodeError::Damaged(_))), "{} of {}", length, bytes.len());
        }
    }

    #[test]
    fn every_flipped_bit_is_noticed(record in record()) {
        let bytes = record.encode();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(matches!(Record::decode(flipped.into()), Err(DecodeError::Damaged(_))), "bit {}", bit);
        }
    }
}

#[test]
fn a_later_version_is_named() {
    let record = Record {
        cluster: ClusterId([7; 16]),
        replica: ReplicaId(1),
        session: Session(9),
        sequence: 1,
        clock_ms: 5,
        anchor: Anchor::default(),
        body: Body::Level(1),
    };
    let mut later = record.encode().to_vec();
    later[4] = VERSION + 1;
    let error = Record::decode(with_checksum(later)).unwrap_err();
    assert_eq!(error, DecodeError::Version(VERSION + 1));
    let at = Position::new(3);
    assert_eq!(error.at(at), Error::Version { position: at, found: VERSION + 1, newest: VERSION });
}
