//! Brokers of a test that answer what they were given.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use parking_lot::Mutex;
use plinth_journal::record::ClusterId;
use plinth_journal::Founding;

use crate::codec::{Api, Decoder, Encoder, TopicId};
use crate::error_code::code;
use crate::options::KafkaOptions;
use crate::records;
use crate::shared::Shared;
use crate::wire;

type Answers = Arc<Mutex<Vec<(Api, Vec<u8>)>>>;

/// A broker on loopback, with one answer to all calls of a kind; it never answers those of other kinds.
pub(crate) struct ScriptedBroker {
    pub address: String,
    answers: Answers,
}

impl ScriptedBroker {
    pub(crate) fn start() -> ScriptedBroker {
        let answers = Answers::default();
        let served = Arc::clone(&answers);
        let address = listen(move |key, _| {
            served.lock().iter().find(|(api, _)| api.key == key).map(|(_, body)| body.clone())
        });
        ScriptedBroker { address, answers }
    }

    pub(crate) fn answers(&self, answers: Vec<(Api, Vec<u8>)>) {
        *self.answers.lock() = answers;
    }
}

/// Listens on loopback as long as the process lives. `answer` gets the key of a call and its body; where it
/// has nothing, the call is never answered. Returns the address.
pub(crate) fn listen(answer: impl Fn(i16, Decoder) -> Option<Vec<u8>> + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    #[allow(clippy::disallowed_methods)] // a plain thread of a test
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, answer) = (stream.unwrap(), Arc::clone(&answer));
            std::thread::spawn(move || drop(serve(stream, &*answer)));
        }
    });
    address
}

fn serve(mut stream: TcpStream, answer_to: &impl Fn(i16, Decoder) -> Option<Vec<u8>>) -> std::io::Result<()> {
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut frame)?;
        let mut frame = Decoder(frame.into());
        let (key, _version, correlation) = (frame.i16().unwrap(), frame.i16().unwrap(), frame.i32().unwrap());
        let mut answer = Encoder::default();
        answer.i32(correlation);
        if key == wire::API_VERSIONS.key {
            answer.0.extend_from_slice(&versions());
        } else if key == wire::SASL_HANDSHAKE.key {
            answer.i16(code::ILLEGAL_SASL_STATE);
            answer.i32(0);
        } else {
            let client = frame.i16().unwrap();
            frame.skip(client as usize).unwrap();
            frame.tags().unwrap();
            let Some(body) = answer_to(key, frame) else { continue };
            answer.tags();
            answer.0.extend_from_slice(&body);
        }
        stream.write_all(&(answer.0.len() as u32).to_be_bytes())?;
        stream.write_all(&answer.0)?;
    }
}

fn versions() -> Vec<u8> {
    let mut out = Encoder::default();
    out.i16(code::NONE);
    out.i32(wire::NEEDED.len() as i32);
    for api in wire::NEEDED {
        out.i16(api.key);
        out.i16(0);
        out.i16(api.version);
    }
    out.0
}

/// What a broker knows of the topic, of whose user it reports no rights: brokers are numbered from one on.
pub(crate) fn metadata(
    addresses: &[String],
    topic: &TopicId,
    leads: (i32, i32),
    replicas: &[i32],
) -> Vec<u8> {
    metadata_with(0, addresses, topic, leads, replicas)
}

/// The same with rights of the user.
pub(crate) fn metadata_with(
    rights: i32,
    addresses: &[String],
    topic: &TopicId,
    (leader, epoch): (i32, i32),
    replicas: &[i32],
) -> Vec<u8> {
    let mut out = beginning_of_metadata(addresses);
    out.i16(code::NONE);
    out.string("topic");
    out.topic_id(topic);
    out.bool(false);
    out.length(1);
    out.i16(code::NONE);
    out.i32(0);
    out.i32(leader);
    out.i32(epoch);
    for brokers in [replicas, replicas, &[]] {
        out.length(brokers.len());
        brokers.iter().for_each(|broker| out.i32(*broker));
    }
    out.tags();
    end_of_metadata(out, rights)
}

/// What a broker answers that knows no topic of the name.
pub(crate) fn no_topic(addresses: &[String]) -> Vec<u8> {
    let mut out = beginning_of_metadata(addresses);
    out.i16(code::UNKNOWN_TOPIC_OR_PARTITION);
    out.string("topic");
    out.topic_id(&[0; 16]);
    out.bool(false);
    out.length(0);
    end_of_metadata(out, 0)
}

fn beginning_of_metadata(addresses: &[String]) -> Encoder {
    let mut out = Encoder::default();
    out.i32(0);
    out.length(addresses.len());
    for (id, address) in (1..).zip(addresses) {
        let (host, port) = address.split_once(':').unwrap();
        out.i32(id);
        out.string(host);
        out.i32(port.parse().unwrap());
        out.null();
        out.tags();
    }
    out.null();
    out.i32(1);
    out.length(1);
    out
}

fn end_of_metadata(mut out: Encoder, rights: i32) -> Vec<u8> {
    out.i32(rights);
    out.tags();
    out.tags();
    out.0
}

/// The records from an offset on, a batch for each.
pub(crate) fn fetched(topic: &TopicId, offset: i64, key: &[u8], values: &[&[u8]]) -> Vec<u8> {
    fetched_batches(topic, offset, values.iter().map(|value| records::encode(key, value)))
}

/// The same of batches as they were appended.
pub(crate) fn fetched_batches(
    topic: &TopicId,
    offset: i64,
    appended: impl IntoIterator<Item = Vec<u8>>,
) -> Vec<u8> {
    let mut batches = Vec::new();
    for (offset, mut batch) in (offset..).zip(appended) {
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        batches.extend_from_slice(&batch);
    }
    let mut out = Encoder::default();
    out.i32(0);
    out.i16(code::NONE);
    out.i32(0);
    out.length(1);
    out.topic_id(topic);
    out.length(1);
    out.i32(0);
    out.i16(code::NONE);
    for end in [0; 3] {
        out.i64(end);
    }
    out.length(0);
    out.i32(-1);
    out.bytes(&batches);
    out.tags();
    out.tags();
    out.tags();
    out.0
}

/// The answer to an append: an error, or an offset.
pub(crate) fn produced(topic: &TopicId, (error, offset): (i16, i64)) -> Vec<u8> {
    let mut out = Encoder::default();
    out.length(1);
    out.topic_id(topic);
    out.length(1);
    out.i32(0);
    out.i16(error);
    for number in [offset, -1, -1] {
        out.i64(number);
    }
    out.length(0);
    out.null();
    out.tags();
    out.tags();
    out.i32(0);
    out.tags();
    out.0
}

/// The settings of the topic.
pub(crate) fn settings(values: &[(&str, String)]) -> Vec<u8> {
    let mut out = Encoder::default();
    out.i32(0);
    out.length(1);
    out.i16(code::NONE);
    out.null();
    out.i8(2);
    out.string("topic");
    out.length(values.len());
    for (name, value) in values {
        out.string(name);
        out.string(value);
        out.bool(false);
        out.i8(1);
        out.bool(false);
        out.length(0);
        out.i8(1);
        out.null();
        out.tags();
    }
    out.tags();
    out.tags();
    out.0
}

/// The offset that a broker reports as the end.
pub(crate) fn listed(offset: i64) -> Vec<u8> {
    listed_with(code::NONE, offset)
}

/// The error that it reports in its place.
pub(crate) fn not_listed(error: i16) -> Vec<u8> {
    listed_with(error, -1)
}

fn listed_with(error: i16, offset: i64) -> Vec<u8> {
    let mut out = Encoder::default();
    out.i32(0);
    out.length(1);
    out.string("topic");
    out.length(1);
    out.i32(0);
    out.i16(error);
    out.i64(-1);
    out.i64(offset);
    out.i32(7);
    out.tags();
    out.tags();
    out.tags();
    out.0
}

impl Shared {
    /// That of a journal which has made no call yet.
    pub(crate) fn of_test(
        addresses: &[String],
        topic: &str,
        cluster: ClusterId,
        founding: Founding,
    ) -> Shared {
        let options = KafkaOptions::parse(&format!("kafka://{}/{topic}", addresses.join(","))).unwrap();
        Shared::new(&options, cluster, founding).unwrap()
    }
}
