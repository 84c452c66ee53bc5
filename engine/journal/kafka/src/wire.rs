//! The messages of Kafka's protocol that the journal uses, one version of each, as Kafka's
//! `clients/src/main/resources/common/message` defines them.
//!
//! All of them but the first ones of a connection have the "flexible" encoding: lengths are unsigned varints,
//! one above the length, and every structure ends with tagged fields, of which none is used here.

use bytes::Bytes;

use crate::codec::{Api, Decoded, Decoder, Encoder, Malformed, TopicId};
use crate::error_code::code;

const fn api(key: i16, version: i16, name: &'static str) -> Api {
    Api { key, version, name, is_flexible: true }
}

/// The first version that names the topic by its id, not by its name.
pub(crate) const PRODUCE: Api = api(0, 13, "Produce");
/// The first version that names the topic by its id.
pub(crate) const FETCH: Api = api(1, 13, "Fetch");
pub(crate) const LIST_OFFSETS: Api = api(2, 7, "ListOffsets");
pub(crate) const METADATA: Api = api(3, 12, "Metadata");
/// The first version that reports brokers that are fenced, which those are that are down.
pub(crate) const DESCRIBE_CLUSTER: Api = api(60, 2, "DescribeCluster");
pub(crate) const SASL_HANDSHAKE: Api = Api { is_flexible: false, ..api(17, 1, "SaslHandshake") };
/// Understood by every broker, whatever else it does.
pub(crate) const API_VERSIONS: Api = Api { is_flexible: false, ..api(18, 0, "ApiVersions") };
pub(crate) const CREATE_TOPICS: Api = api(19, 7, "CreateTopics");
pub(crate) const DELETE_RECORDS: Api = api(21, 2, "DeleteRecords");
pub(crate) const DESCRIBE_CONFIGS: Api = api(32, 4, "DescribeConfigs");
pub(crate) const SASL_AUTHENTICATE: Api = api(36, 2, "SaslAuthenticate");

/// What a broker must offer. The first one is the newest, of Kafka 4.1.
pub(crate) const NEEDED: [Api; 8] = [
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DESCRIBE_CONFIGS,
    DESCRIBE_CLUSTER,
];

/// The partition of the journal.
const PARTITION: i32 = 0;

pub(crate) fn produce(topic: &TopicId, timeout_ms: i32, batch: &[u8]) -> Vec<u8> {
    const ALL_IN_SYNC: i16 = -1;
    let mut out = Encoder(Vec::with_capacity(batch.len() + 64));
    out.null(); // no transaction
    out.i16(ALL_IN_SYNC);
    out.i32(timeout_ms);
    out.length(1);
    out.topic_id(topic);
    out.length(1);
    out.i32(PARTITION);
    out.bytes(batch);
    out.tags();
    out.tags();
    out.tags();
    out.0
}

/// What became of an append.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Produced {
    pub error: i16,
    pub offset: i64,
    pub message: Option<String>,
}

impl Produced {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<Produced> {
        let topics = answer.elements(|topic| {
            topic.array::<16>()?;
            let partitions = topic.elements(|partition| {
                partition.i32()?;
                let error = partition.i16()?;
                let offset = partition.i64()?;
                partition.i64()?; // time of the append
                partition.i64()?; // start of the log
                partition.elements(|record| {
                    record.i32()?;
                    record.nullable_string()?;
                    record.tags()
                })?;
                let message = partition.nullable_string()?;
                partition.tags()?;
                Ok(Produced { error, offset, message })
            })?;
            topic.tags()?;
            Ok(partitions)
        })?;
        topics.into_iter().flatten().next().ok_or(Malformed)
    }
}

/// What a reader asks for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FetchOptions {
    pub topic: TopicId,
    pub leader_epoch: i32,
    pub offset: i64,
    pub max_wait_ms: i32,
    pub max_bytes: i32,
}

pub(crate) fn fetch(options: &FetchOptions) -> Vec<u8> {
    let mut out = Encoder::default();
    out.i32(-1); // no follower
    out.i32(options.max_wait_ms);
    out.i32(1); // answer as soon as there is anything
    out.i32(options.max_bytes);
    out.i8(0); // uncommitted transactions, too: there are none
    out.i32(0); // no session
    out.i32(-1);
    out.length(1);
    out.topic_id(&options.topic);
    out.length(1);
    out.i32(PARTITION);
    out.i32(options.leader_epoch);
    out.i64(options.offset);
    out.i32(-1); // epoch of the last record
    out.i64(-1); // start of a follower's log
    out.i32(options.max_bytes);
    out.tags();
    out.tags();
    out.length(0); // of a session, what is no more fetched
    out.string(""); // no rack: the leader itself answers
    out.tags();
    out.0
}

/// What a reader gets.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub error: i16,
    pub records: Bytes,
}

impl Fetched {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<Fetched> {
        answer.i32()?; // throttled
        let error = answer.i16()?;
        answer.i32()?; // session
        let topics = answer.elements(|topic| {
            topic.array::<16>()?;
            let partitions = topic.elements(|partition| {
                partition.i32()?;
                let error = partition.i16()?;
                partition.i64()?; // high watermark
                partition.i64()?; // last stable offset
                partition.i64()?; // start of the log
                partition.elements(|aborted| {
                    aborted.i64()?;
                    aborted.i64()?;
                    aborted.tags()
                })?;
                partition.i32()?; // preferred replica
                let records = partition.nullable_bytes()?.unwrap_or_default();
                partition.tags()?;
                Ok(Fetched { error, records })
            })?;
            topic.tags()?;
            Ok(partitions)
        })?;
        match topics.into_iter().flatten().next() {
            Some(fetched) => Ok(fetched),
            None if error != code::NONE => Ok(Fetched { error, records: Bytes::new() }),
            None => Err(Malformed),
        }
    }
}

/// Which offset is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Place {
    Oldest,
    /// The one after the newest record that is durable.
    End,
}

/// Asks for an offset of the journal's partition.
pub(crate) fn list_offsets(topic: &str, leader_epoch: i32, place: Place) -> Vec<u8> {
    list_offsets_of(topic, PARTITION, leader_epoch, place)
}

/// Asks for an offset of a partition.
pub(crate) fn list_offsets_of(topic: &str, partition: i32, leader_epoch: i32, place: Place) -> Vec<u8> {
    let mut out = Encoder::default();
    out.i32(-1); // no follower: the end is that of what is durable
    out.i8(0);
    out.length(1);
    out.string(topic);
    out.length(1);
    out.i32(partition);
    out.i32(leader_epoch);
    out.i64(match place {
        Place::End => -1,
        Place::Oldest => -2,
    });
    out.tags();
    out.tags();
    out.tags();
    out.0
}

/// An offset, or an error.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ListedOffset {
    pub error: i16,
    pub offset: i64,
}

impl ListedOffset {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<ListedOffset> {
        answer.i32()?; // throttled
        let topics = answer.elements(|topic| {
            topic.string()?;
            let partitions = topic.elements(|partition| {
                partition.i32()?;
                let error = partition.i16()?;
                partition.i64()?; // timestamp
                let offset = partition.i64()?;
                partition.i32()?; // epoch
                partition.tags()?;
                Ok(ListedOffset { error, offset })
            })?;
            topic.tags()?;
            Ok(partitions)
        })?;
        topics.into_iter().flatten().next().ok_or(Malformed)
    }
}

pub(crate) fn metadata(topic: &str) -> Vec<u8> {
    metadata_of(topic, false)
}

/// The same with what this user may do.
pub(crate) fn metadata_with_rights(topic: &str) -> Vec<u8> {
    metadata_of(topic, true)
}

fn metadata_of(topic: &str, with_rights: bool) -> Vec<u8> {
    let mut out = Encoder::default();
    out.length(1);
    out.topic_id(&[0; 16]);
    out.string(topic);
    out.tags();
    out.bool(false); // the topic is not created by the way
    out.bool(with_rights);
    out.tags();
    out.0
}

/// What a broker knows of the topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    /// Brokers that are up: id and address.
    pub brokers: Vec<(i32, String)>,
    /// Error of the topic.
    pub error: i16,
    pub topic: TopicId,
    pub partitions: Vec<PartitionView>,
    /// What this user may do, as [`rights::missing`](crate::rights::missing) reads it.
    pub rights: i32,
}

/// What a broker knows of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionView {
    /// Its number in the topic; brokers name partitions in any order.
    pub number: i32,
    /// Below zero where there is none.
    pub leader: i32,
    pub leader_epoch: i32,
    pub replicas: Vec<i32>,
}

impl View {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<View> {
        answer.i32()?; // throttled
        let brokers = answer.elements(|broker| {
            let id = broker.i32()?;
            let host = broker.string()?;
            let port = broker.i32()?;
            broker.nullable_string()?; // rack
            broker.tags()?;
            let address =
                if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
            Ok((id, address))
        })?;
        answer.nullable_string()?; // cluster
        answer.i32()?; // controller
        let topics = answer.elements(|topic| {
            let error = topic.i16()?;
            topic.nullable_string()?;
            let id = topic.array::<16>()?;
            topic.bool()?; // internal
            let partitions = topic.elements(|partition| {
                partition.i16()?;
                let number = partition.i32()?;
                let leader = partition.i32()?;
                let leader_epoch = partition.i32()?;
                let replicas = partition.elements(Decoder::i32)?;
                partition.elements(Decoder::i32)?; // in sync
                partition.elements(Decoder::i32)?; // offline
                partition.tags()?;
                Ok(PartitionView { number, leader, leader_epoch, replicas })
            })?;
            let rights = topic.i32()?;
            topic.tags()?;
            Ok((error, id, partitions, rights))
        })?;
        let (error, topic, partitions, rights) = topics.into_iter().next().ok_or(Malformed)?;
        Ok(View { brokers, error, topic, partitions, rights })
    }

    /// The partition of the journal.
    pub(crate) fn partition(&self) -> Option<&PartitionView> {
        self.partitions.iter().find(|partition| partition.number == PARTITION)
    }

    /// Partitions that were added to the topic, which no replica writes to.
    pub(crate) fn further_partitions(&self) -> impl Iterator<Item = &PartitionView> {
        self.partitions.iter().filter(|partition| partition.number != PARTITION)
    }
}

pub(crate) fn create_topic(
    topic: &str,
    replicas: i16,
    settings: &[(&str, String)],
    timeout_ms: i32,
) -> Vec<u8> {
    let mut out = Encoder::default();
    out.length(1);
    out.string(topic);
    out.i32(1);
    out.i16(replicas);
    out.length(0); // the controller chooses the brokers
    out.length(settings.len());
    for (name, value) in settings {
        out.string(name);
        out.string(value);
        out.tags();
    }
    out.tags();
    out.i32(timeout_ms);
    out.bool(false);
    out.tags();
    out.0
}

/// An error, and the text that a broker returns with it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub error: i16,
    pub message: Option<String>,
}

impl Outcome {
    /// The outcome of [`create_topic`].
    pub(crate) fn decode_created(mut answer: Decoder) -> Decoded<Outcome> {
        answer.i32()?; // throttled
        let topics = answer.elements(|topic| {
            topic.string()?;
            topic.array::<16>()?;
            let error = topic.i16()?;
            let message = topic.nullable_string()?;
            topic.i32()?; // partitions
            topic.i16()?; // replicas
            topic.elements(|setting| {
                setting.string()?;
                setting.nullable_string()?;
                setting.bool()?;
                setting.i8()?;
                setting.bool()?;
                setting.tags()
            })?;
            topic.tags()?;
            Ok(Outcome { error, message })
        })?;
        topics.into_iter().next().ok_or(Malformed)
    }

    /// The outcome of [`delete_records`].
    pub(crate) fn decode_deleted(mut answer: Decoder) -> Decoded<Outcome> {
        answer.i32()?; // throttled
        let topics = answer.elements(|topic| {
            topic.string()?;
            let partitions = topic.elements(|partition| {
                partition.i32()?;
                partition.i64()?; // start of the log
                let error = partition.i16()?;
                partition.tags()?;
                Ok(Outcome { error, message: None })
            })?;
            topic.tags()?;
            Ok(partitions)
        })?;
        topics.into_iter().flatten().next().ok_or(Malformed)
    }
}

pub(crate) fn describe_topic(topic: &str, names: &[&str]) -> Vec<u8> {
    const TOPIC: i8 = 2;
    let mut out = Encoder::default();
    out.length(1);
    out.i8(TOPIC);
    out.string(topic);
    out.length(names.len());
    names.iter().for_each(|name| out.string(name));
    out.tags();
    out.bool(false);
    out.bool(false);
    out.tags();
    out.0
}

/// Settings of a topic, by their names.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub error: i16,
    pub message: Option<String>,
    pub values: Vec<(String, String)>,
}

impl Settings {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<Settings> {
        answer.i32()?; // throttled
        let results = answer.elements(|result| {
            let error = result.i16()?;
            let message = result.nullable_string()?;
            result.i8()?; // kind
            result.string()?; // its name
            let values = result.elements(|setting| {
                let name = setting.string()?;
                let value = setting.nullable_string()?.unwrap_or_default();
                setting.bool()?; // read only
                setting.i8()?; // source
                setting.bool()?; // secret
                setting.elements(|synonym| {
                    synonym.string()?;
                    synonym.nullable_string()?;
                    synonym.i8()?;
                    synonym.tags()
                })?;
                setting.i8()?; // type
                setting.nullable_string()?; // documentation
                setting.tags()?;
                Ok((name, value))
            })?;
            result.tags()?;
            Ok(Settings { error, message, values })
        })?;
        results.into_iter().next().ok_or(Malformed)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.values.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) fn delete_records(topic: &str, before: i64, timeout_ms: i32) -> Vec<u8> {
    let mut out = Encoder::default();
    out.length(1);
    out.string(topic);
    out.length(1);
    out.i32(PARTITION);
    out.i64(before);
    out.tags();
    out.tags();
    out.i32(timeout_ms);
    out.tags();
    out.0
}

/// The first call that a broker of [`NEEDED`] does not offer.
pub(crate) fn missing_api(mut answer: Decoder) -> Decoded<Option<Api>> {
    answer.i16()?;
    let count = answer.i32()?;
    let mut offered = Vec::new();
    for _ in 0..count.max(0) {
        offered.push((answer.i16()?, answer.i16()?..=answer.i16()?));
    }
    let is_offered =
        |api: &Api| offered.iter().any(|(key, range)| *key == api.key && range.contains(&api.version));
    Ok(NEEDED.into_iter().find(|api| !is_offered(api)))
}

pub(crate) fn sasl_handshake(mechanism: &str) -> Vec<u8> {
    let mut out = Encoder::default();
    out.short_string(mechanism);
    out.0
}

/// The error of [`sasl_handshake`], and the mechanisms that there are.
pub(crate) fn decode_handshake(mut answer: Decoder) -> Decoded<(i16, Vec<String>)> {
    let error = answer.i16()?;
    let mut mechanisms = Vec::new();
    for _ in 0..answer.i32()?.max(0) {
        mechanisms.push(answer.short_string()?);
    }
    Ok((error, mechanisms))
}

pub(crate) fn sasl_authenticate(bytes: &[u8]) -> Vec<u8> {
    let mut out = Encoder::default();
    out.bytes(bytes);
    out.tags();
    out.0
}

/// A step of SASL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Authenticated {
    pub error: i16,
    pub message: Option<String>,
    pub bytes: Bytes,
    /// Milliseconds after which the broker ends the connection; zero for never.
    pub lifetime_ms: i64,
}

impl Authenticated {
    pub(crate) fn decode(mut answer: Decoder) -> Decoded<Authenticated> {
        let error = answer.i16()?;
        let message = answer.nullable_string()?;
        let bytes = answer.nullable_bytes()?.unwrap_or_default();
        Ok(Authenticated { error, message, bytes, lifetime_ms: answer.i64()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer to [`list_offsets`].
    fn listed() -> Vec<u8> {
        let mut out = Encoder::default();
        out.i32(0);
        out.length(1);
        out.string("topic");
        out.length(1);
        out.i32(0);
        out.i16(0);
        out.i64(-1);
        out.i64(42);
        out.i32(3);
        out.0.extend_from_slice(&[1, 9, 2, 0xff, 0xff]); // a tagged field that is not known
        out.tags();
        out.tags();
        out.0
    }

    #[test]
    fn a_cut_answer_is_malformed_wherever_it_is_cut() {
        let answer = listed();
        let whole = ListedOffset::decode(Decoder(answer.clone().into()));
        assert_eq!(whole, Ok(ListedOffset { error: 0, offset: 42 }));
        // The tags of the last structure are not needed.
        for end in 0..answer.len() - 1 {
            let cut = ListedOffset::decode(Decoder(Bytes::copy_from_slice(&answer[..end])));
            assert_eq!(cut, Err(Malformed), "{end}");
        }
    }

    #[test]
    fn an_answer_that_claims_more_than_it_has_allocates_nothing() {
        let mut out = Encoder::default();
        out.i32(0);
        plinth_journal::put_varint(&mut out.0, u64::MAX);
        assert_eq!(ListedOffset::decode(Decoder(out.0.into())), Err(Malformed));
    }

    #[test]
    fn a_broker_that_lacks_a_call_is_known() {
        let answer = |produce: i16| {
            let mut out = Encoder::default();
            out.i16(0);
            out.i32(NEEDED.len() as i32);
            for api in NEEDED {
                out.i16(api.key);
                out.i16(0);
                out.i16(if api == PRODUCE { produce } else { 20 });
            }
            missing_api(Decoder(out.0.into()))
        };
        assert_eq!(answer(12), Ok(Some(PRODUCE)));
        assert_eq!(answer(13), Ok(None));
    }
}
