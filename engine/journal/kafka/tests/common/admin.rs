//! Calls of Kafka that the journal does not make, in versions that it does not speak: none of its code is in
//! them.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use plinth_journal::{crc32c, put_varint};
use plinth_journal_kafka::KafkaOptions;

const CREATE_TOPICS: (i16, i16) = (19, 4);
const DELETE_TOPICS: (i16, i16) = (20, 3);
const PRODUCE: (i16, i16) = (0, 7);
const METADATA: (i16, i16) = (3, 1);
const CREATE_PARTITIONS: (i16, i16) = (37, 1);
const ALTER_CONFIGS: (i16, i16) = (44, 0);

/// Creates a topic with settings.
pub(crate) fn create(options: &KafkaOptions, partitions: i32, replicas: i16, settings: &[(&str, &str)]) {
    let mut body = Vec::new();
    put(&mut body, 1i32.to_be_bytes());
    text(&mut body, &options.topic);
    put(&mut body, partitions.to_be_bytes());
    put(&mut body, replicas.to_be_bytes());
    put(&mut body, 0i32.to_be_bytes());
    put(&mut body, (settings.len() as i32).to_be_bytes());
    for (name, value) in settings {
        text(&mut body, name);
        text(&mut body, value);
    }
    put(&mut body, 10_000i32.to_be_bytes());
    body.push(0);
    // Throttle, number of topics, name, error.
    let answer = call(options, CREATE_TOPICS, &body);
    assert_eq!(answer[8 + 2 + options.topic.len()..][..2], [0, 0], "{answer:?}");
}

/// Deletes a topic.
pub(crate) fn delete(options: &KafkaOptions) {
    let mut body = Vec::new();
    put(&mut body, 1i32.to_be_bytes());
    text(&mut body, &options.topic);
    put(&mut body, 10_000i32.to_be_bytes());
    let answer = call(options, DELETE_TOPICS, &body);
    assert_eq!(answer[8 + 2 + options.topic.len()..][..2], [0, 0], "{answer:?}");
}

/// How many brokers a broker takes for up.
pub(crate) fn brokers_up(options: &KafkaOptions) -> i32 {
    let no_topics = 0i32.to_be_bytes();
    let answer = call(options, METADATA, &no_topics);
    i32::from_be_bytes(answer[..4].try_into().unwrap())
}

/// Adds partitions to a topic, up to this many.
pub(crate) fn add_partitions(options: &KafkaOptions, partitions: i32) {
    let mut body = Vec::new();
    put(&mut body, 1i32.to_be_bytes());
    text(&mut body, &options.topic);
    put(&mut body, partitions.to_be_bytes());
    put(&mut body, (-1i32).to_be_bytes());
    put(&mut body, 10_000i32.to_be_bytes());
    body.push(0);
    let answer = call(options, CREATE_PARTITIONS, &body);
    assert_eq!(answer[8 + 2 + options.topic.len()..][..2], [0, 0], "{answer:?}");
}

/// Changes a setting of a topic.
pub(crate) fn set(options: &KafkaOptions, name: &str, value: &str) {
    const TOPIC: u8 = 2;
    const SET: u8 = 0;
    let mut body = Vec::new();
    put(&mut body, 1i32.to_be_bytes());
    body.push(TOPIC);
    text(&mut body, &options.topic);
    put(&mut body, 1i32.to_be_bytes());
    text(&mut body, name);
    body.push(SET);
    text(&mut body, value);
    body.push(0);
    let answer = call(options, ALTER_CONFIGS, &body);
    assert_eq!(answer[8..][..2], [0, 0], "{answer:?}");
}

/// Appends a record as some other program would. The first broker must lead.
pub(crate) fn append(options: &KafkaOptions, key: &[u8], value: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !try_append(options, 0, key, value) {
        // A new topic has no leader for a moment.
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Appends a record to a partition, whichever broker leads it.
pub(crate) fn append_to(options: &KafkaOptions, partition: i32, key: &[u8], value: &[u8]) {
    let deadline = Instant::now() + Duration::from_secs(10);
    let at = |broker: &String| KafkaOptions { brokers: vec![broker.clone()], ..options.clone() };
    while !options.brokers.iter().any(|broker| try_append(&at(broker), partition, key, value)) {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Appends a record at the first broker; returns whether that leads.
fn try_append(options: &KafkaOptions, partition: i32, key: &[u8], value: &[u8]) -> bool {
    let mut record = vec![0, 0, 0];
    for part in [key, value] {
        put_varint(&mut record, 2 * part.len() as u64);
        record.extend_from_slice(part);
    }
    record.push(0);
    let mut checked = vec![0; 2 + 4];
    checked.extend_from_slice(&[0; 16]);
    checked.extend_from_slice(&[0xff; 8 + 2 + 4]);
    put(&mut checked, 1i32.to_be_bytes());
    put_varint(&mut checked, 2 * record.len() as u64);
    checked.extend_from_slice(&record);
    let mut batch = vec![0; 8];
    put(&mut batch, (4 + 1 + 4 + checked.len() as i32).to_be_bytes());
    put(&mut batch, (-1i32).to_be_bytes());
    batch.push(2);
    put(&mut batch, crc32c(&checked).to_be_bytes());
    batch.extend_from_slice(&checked);

    let mut body = Vec::new();
    put(&mut body, (-1i16).to_be_bytes());
    put(&mut body, (-1i16).to_be_bytes());
    put(&mut body, 10_000i32.to_be_bytes());
    put(&mut body, 1i32.to_be_bytes());
    text(&mut body, &options.topic);
    put(&mut body, 1i32.to_be_bytes());
    put(&mut body, partition.to_be_bytes());
    put(&mut body, (batch.len() as i32).to_be_bytes());
    body.extend_from_slice(&batch);
    // Number of topics, name, number of partitions, partition, error.
    let answer = call(options, PRODUCE, &body);
    answer[4 + 2 + options.topic.len() + 4 + 4..][..2] == [0, 0]
}

fn call(options: &KafkaOptions, (key, version): (i16, i16), body: &[u8]) -> Vec<u8> {
    let mut request = Vec::new();
    put(&mut request, key.to_be_bytes());
    put(&mut request, version.to_be_bytes());
    put(&mut request, 1i32.to_be_bytes());
    text(&mut request, "test");
    request.extend_from_slice(body);
    let mut stream = TcpStream::connect(&options.brokers[0]).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&(request.len() as i32).to_be_bytes()).unwrap();
    stream.write_all(&request).unwrap();
    let mut length = [0; 4];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; i32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer).unwrap();
    answer.split_off(4)
}

fn put<const N: usize>(out: &mut Vec<u8>, bytes: [u8; N]) {
    out.extend_from_slice(&bytes);
}

fn text(out: &mut Vec<u8>, text: &str) {
    put(out, (text.len() as i16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
