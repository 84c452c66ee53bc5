//! Replicas over a path to Kafka that is slow: it neither gives the journal up nor lets reads miss anything.

#![allow(clippy::disallowed_methods)] // plain threads of a test

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use plinth_engine::{At, Engine, Options, Replica, Transaction};
use plinth_journal::record::{ClusterId, ReplicaId};
use plinth_journal::{Founding, Journal};

use crate::codec::{Decoded, Decoder, TopicId};
use crate::error_code::code;
use crate::journal::KafkaJournal;
use crate::options::KafkaOptions;
use crate::records;
use crate::scripted::{self, listen};
use crate::settings::settings_of_new;
use crate::slow_link::SlowLink;
use crate::wire;

const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");
const TOPIC: TopicId = [7; 16];
const EPOCH: i32 = 1;

/// The topic of a broker: what is appended is what is fetched.
#[derive(Default)]
struct Log {
    batches: Mutex<Vec<Vec<u8>>>,
    appended: Condvar,
}

impl Log {
    /// One that was founded.
    fn start() -> Arc<Log> {
        let log = Log::default();
        log.batches.lock().push(records::encode(&records::founding_key(CLUSTER), b""));
        Arc::new(log)
    }

    /// The address of its broker, over a link or not: clients hear of no other one.
    fn broker(self: &Arc<Log>, link: Option<&SlowLink>) -> String {
        let (log, advertised) = (Arc::clone(self), Arc::new(Mutex::new(Vec::new())));
        let named = Arc::clone(&advertised);
        let address = listen(move |key, body| log.answer(key, body, &named.lock()));
        let address = link.map_or(address.clone(), |link| link.to(address));
        advertised.lock().push(address.clone());
        address
    }

    fn answer(&self, key: i16, body: Decoder, addresses: &[String]) -> Option<Vec<u8>> {
        if key == wire::METADATA.key {
            Some(scripted::metadata(addresses, &TOPIC, (1, EPOCH), &[1]))
        } else if key == wire::DESCRIBE_CONFIGS.key {
            Some(scripted::settings(&settings_of_new(1, KafkaOptions::DEFAULT_MAX_RECORD_BYTES)))
        } else if key == wire::LIST_OFFSETS.key {
            let is_end = place_of(body).unwrap() == -1;
            let end = self.batches.lock().len() as i64;
            Some(scripted::listed(if is_end { end } else { 0 }))
        } else if key == wire::PRODUCE.key {
            let batch = batch_of(body).unwrap();
            let mut batches = self.batches.lock();
            batches.push(batch.to_vec());
            self.appended.notify_all();
            Some(scripted::produced(&TOPIC, (code::NONE, batches.len() as i64 - 1)))
        } else if key == wire::FETCH.key {
            Some(self.fetch(body).unwrap())
        } else {
            None
        }
    }

    fn fetch(&self, mut body: Decoder) -> Decoded<Vec<u8>> {
        body.i32()?;
        let wait = Duration::from_millis(body.i32()? as u64);
        // Down to the offset: as `wire::fetch` has it.
        body.skip(4 + 4 + 1 + 4 + 4 + 1 + 16 + 1 + 4 + 4)?;
        let offset = body.i64()?;
        body.skip(4 + 8)?;
        let most = body.i32()? as usize;
        let mut batches = self.batches.lock();
        if batches.len() as i64 <= offset {
            self.appended.wait_for(&mut batches, wait);
        }
        let mut size = 0;
        let fits = |batch: &&Vec<u8>| {
            size += batch.len();
            size == batch.len() || size <= most
        };
        let found = batches.iter().skip(offset as usize).take_while(fits).cloned();
        Ok(scripted::fetched_batches(&TOPIC, offset, found))
    }
}

/// What is to be appended.
fn batch_of(mut body: Decoder) -> Decoded<Bytes> {
    body.nullable_string()?;
    body.skip(2 + 4 + 1 + 16 + 1 + 4)?;
    Ok(body.nullable_bytes()?.unwrap())
}

/// Which offset is asked for.
fn place_of(mut body: Decoder) -> Decoded<i64> {
    body.skip(4 + 1 + 1)?;
    body.string()?;
    body.skip(1 + 4 + 4)?;
    body.i64()
}

/// A replica writes while it gets what another one has written. A record is on its way for longer than a
/// broker has to answer an append, and so is one that comes: neither begins again, and nothing that the other
/// one was answered is missed by a read.
#[test]
fn a_replica_writes_and_reads_over_a_slow_path() {
    const RECORD_BYTES: usize = 400_000;
    const BYTES_PER_SECOND: u64 = 32 << 10;
    const RECORDS: usize = 1;
    /// How often the bytes of all records may pass.
    const TIMES: usize = 3;
    let (log, link) = (Log::start(), SlowLink::both_ways(BYTES_PER_SECOND));
    let dirs = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let open = |address: String, id: u16| {
        let options = KafkaOptions::parse(&format!("kafka://{address}/topic")).unwrap();
        let journal = Arc::new(KafkaJournal::connect(&options, CLUSTER, Founding::Forbidden).unwrap());
        let replica = Replica { journal: Arc::clone(&journal) as _, cluster: CLUSTER, id: ReplicaId(id) };
        (Engine::open_replicated(Options::new(dirs[usize::from(id)].path()), replica).unwrap(), journal)
    };
    let (near, _) = open(log.broker(None), 0);
    let (far, journal) = open(log.broker(Some(&link)), 1);
    let write =
        |engine: &Engine, key: String| engine.transact(Transaction::new().put(key, vec![0; RECORD_BYTES]));
    far.transact(Transaction::new().put("far", "")).wait().unwrap();
    let most = link.passed() + (TIMES * (RECORDS + 1) * RECORD_BYTES) as u64;
    let written = write(&far, "far/0".to_owned());
    let deadline = Instant::now() + Duration::from_secs(300);
    for n in 0..RECORDS {
        let key = format!("near/{n}");
        write(&near, key.clone()).wait().unwrap();
        // It sees what was answered, however long it takes.
        let read = far.read_barrier().wait_until(deadline);
        let passed = link.passed();
        assert!(passed <= most, "{passed} of {most} bytes");
        read.unwrap_or_else(|| panic!("{key} was not read in time, {:?}", far.journal_error())).unwrap();
        assert!(far.get(key.as_bytes(), At::Latest).unwrap().is_some(), "{key}");
    }
    written.wait().unwrap();
    let (passed, appended) =
        (link.passed(), log.batches.lock().iter().filter(|batch| batch.len() >= RECORD_BYTES).count());
    assert!(passed <= most, "{passed} of {most} bytes");
    assert_eq!(appended, RECORDS + 1, "none was appended twice");
    assert_eq!(journal.given_up(), 0);
    assert!(far.failure().is_none());
}
