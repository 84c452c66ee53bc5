//! [`KafkaTail`]: fetches from the leader, one of them always on its way.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use plinth_journal::{Entry, Error, Position, Result, Tail};

use crate::connection::{CallError, Connection};
use crate::error_code::{code, error_name, error_of};
use crate::records::{self, KafkaRecord, Unreadable};
use crate::shared::{Leader, Shared, SuspectRecord, Topic};
use crate::wire::{self, FetchOptions, Fetched, Place};

/// How long the leader waits for records before it answers that there are none.
const FETCH_WAIT: Duration = Duration::from_millis(500);
/// How much longer an answer may take than that.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Bytes of one answer, unless a single batch is larger.
const FETCH_BYTES: i32 = 4 << 20;

pub(crate) struct KafkaTail {
    shared: Arc<Shared>,
    topic: Topic,
    leader: Arc<Leader>,
    /// The broker that was fetched from last.
    source: String,
    /// The broker that has answered last: the next fetch is made before its records are returned.
    served_by: String,
    /// A fetch whose answer is not whole yet.
    fetch: Option<Fetch>,
    /// The position that is due from Kafka.
    due: Position,
    /// How often a journal had been given up when it was opened.
    given_up: u64,
    /// Records that were not returned yet: those of one answer at most.
    ready: VecDeque<Entry>,
}

/// A fetch that was made.
struct Fetch {
    connection: Connection,
    /// Bytes of the answer that have come, and since when there are no more.
    received: usize,
    since: Instant,
}

impl KafkaTail {
    pub(crate) fn new(
        shared: Arc<Shared>,
        topic: Topic,
        leader: Arc<Leader>,
        (due, given_up): (Position, u64),
    ) -> KafkaTail {
        let (source, served_by) = (leader.address.clone(), leader.address.clone());
        let (fetch, ready) = (None, VecDeque::new());
        KafkaTail { shared, topic, leader, source, served_by, fetch, due, given_up, ready }
    }

    /// The broker to fetch from: the leader, and for a record that it has damaged another replica of the
    /// partition, which serves what is acknowledged to any consumer (KIP-392).
    fn next_source(&self) -> String {
        let suspect = self.shared.suspect_record.lock();
        let avoided = suspect.as_ref().filter(|suspect| self.due <= suspect.position);
        let is_avoided = |address: &String| avoided.is_some_and(|found| found.brokers.contains(address));
        let usable = self.sources().find(|address| !is_avoided(address));
        usable.unwrap_or_else(|| self.leader.address.clone())
    }

    /// The brokers that can be fetched from, as far as they are up.
    fn sources(&self) -> impl Iterator<Item = String> + '_ {
        let others = self.leader.others().filter_map(|broker| self.shared.client.address(broker));
        std::iter::once(self.leader.address.clone()).chain(others)
    }

    fn send(&mut self) -> Result<Fetch, CallError> {
        self.source = self.next_source();
        let options = FetchOptions {
            topic: self.topic.id,
            leader_epoch: self.leader.epoch,
            offset: i64::try_from(self.due.get().saturating_sub(1)).unwrap_or(i64::MAX),
            max_wait_ms: i32::try_from(FETCH_WAIT.as_millis()).unwrap_or(i32::MAX),
            max_bytes: FETCH_BYTES,
        };
        let mut connection = self.shared.client.open(&self.source)?;
        connection.send(wire::FETCH, &wire::fetch(&options))?;
        Ok(Fetch { connection, received: 0, since: Instant::now() })
    }

    fn fails(&mut self, error: CallError) -> Error {
        self.give_up();
        error.of_reading()
    }

    /// Has another broker be fetched from, or who leads be asked.
    fn give_up(&mut self) {
        match self.source == self.leader.address {
            true => self.shared.suspect(&self.leader),
            false => drop(self.distrust(self.due)),
        }
    }

    fn take(&mut self, fetched: Fetched) -> Result<()> {
        match fetched.error {
            code::NONE => {}
            code::OFFSET_OUT_OF_RANGE => return Err(self.out_of_range()?),
            error => {
                // It may be that the topic is another one, which the next look at the leader finds.
                self.give_up();
                self.shared.leader(&self.topic)?;
                let message = format!("{}: {}", self.source, error_name(error));
                return Err(error_of(error, message));
            }
        }
        let records = records::decode(fetched.records).map_err(damaged)?;
        for record in records {
            match self.take_record(record) {
                Ok(()) => {}
                // What is before it is good. The next fetch begins with what is not.
                Err(_) if !self.ready.is_empty() => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_record(&mut self, record: KafkaRecord) -> Result<()> {
        let position = position_of(record.offset);
        if position < self.due {
            return Ok(());
        }
        if position > self.due {
            return Err(Error::Gap { expected: self.due, found: position });
        }
        let bytes = if record.key == self.shared.key {
            record.value
        } else if records::founder_of(&record.key).is_some() {
            // Of the cluster whose journal this is, or of one that was too late.
            records::void(self.shared.cluster)
        } else {
            return Err(self.foreign(position, &record.key));
        };
        self.ready.push_back(Entry { position, bytes });
        self.due = self.due.next();
        Ok(())
    }

    fn foreign(&self, position: Position, key: &Bytes) -> Error {
        match records::cluster_of(key) {
            Some(found) => Error::OtherCluster { position, found, expected: self.shared.cluster },
            None => Error::Damaged {
                position,
                reason: "no replica has written it: another program writes to the topic",
            },
        }
    }

    /// Why a position is neither in the log nor the next one.
    fn out_of_range(&mut self) -> Result<Error> {
        let oldest = position_of(self.shared.offset_at(&self.leader, Place::Oldest)?);
        if self.due < oldest {
            return Ok(Error::Trimmed { requested: self.due, oldest });
        }
        self.give_up();
        let end = self.shared.end_of(&self.topic)?;
        let applied = Position::new(self.due.get().saturating_sub(1));
        if end < applied {
            return Ok(Error::Behind { applied, end });
        }
        let message = format!("{} does not have position {}", self.source, self.due);
        Ok(Error::Unavailable { message })
    }
}

impl Tail for KafkaTail {
    fn receive(&mut self, wait: Duration) -> Result<bool> {
        if self.shared.newest_epoch(&self.topic) > self.leader.epoch {
            let message = format!("{} no longer leads the journal", self.leader.address);
            return Err(Error::Unavailable { message });
        }
        let mut fetch = match self.fetch.take() {
            Some(fetch) => fetch,
            None => self.send().map_err(|error| self.fails(error))?,
        };
        match fetch.connection.receive(Instant::now() + wait) {
            Ok(None) => {
                let received = fetch.connection.received();
                if received > fetch.received {
                    fetch = Fetch { received, since: Instant::now(), ..fetch };
                }
                if fetch.since.elapsed() > FETCH_WAIT + ANSWER_WAIT {
                    return Err(self.fails(fetch.connection.silent(fetch.since.elapsed())));
                }
                self.fetch = Some(fetch);
                Ok(false)
            }
            Ok(Some(answer)) => {
                let fetched = Fetched::decode(answer).map_err(|error| fetch.connection.malformed(error));
                let fetched = fetched.map_err(|error| self.fails(error))?;
                self.shared.client.keep(fetch.connection);
                self.served_by.clone_from(&self.source);
                self.take(fetched)?;
                // What comes meanwhile is on its way while these records are applied.
                self.fetch = Some(self.send().map_err(|error| self.fails(error))?);
                Ok(true)
            }
            Err(error) => Err(self.fails(error)),
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        self.ready.pop_front()
    }

    fn due(&self) -> Position {
        self.due
    }

    fn end(&mut self) -> Result<Position> {
        self.shared.end_of(&self.topic)
    }

    fn is_given_up(&self) -> bool {
        self.shared.review.given_up() != self.given_up
    }

    /// Also a fetch of megabytes over a slow path is one answer.
    fn is_receiving(&mut self) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.received > 0)
    }

    fn leave(&mut self) -> Error {
        self.give_up();
        let message = format!("{} lags: position {} is not there yet", self.source, self.due);
        Error::Unavailable { message }
    }

    fn distrust(&mut self, position: Position) -> String {
        let served = position < self.due;
        let broker = if served { self.served_by.clone() } else { self.source.clone() };
        let mut suspect = self.shared.suspect_record.lock();
        let mut brokers = suspect
            .take()
            .filter(|found| found.position == position)
            .map_or_else(BTreeSet::new, |found| found.brokers);
        brokers.insert(broker.clone());
        // All of them: it is asked for from the leader again.
        if !self.sources().all(|address| brokers.contains(&address)) {
            *suspect = Some(SuspectRecord { position, brokers });
        }
        broker
    }
}

fn position_of(offset: i64) -> Position {
    Position::new(u64::try_from(offset).unwrap_or(0)).next()
}

fn damaged(unreadable: Unreadable) -> Error {
    Error::Damaged { position: position_of(unreadable.offset), reason: unreadable.reason }
}

#[cfg(test)]
mod tests {
    use plinth_journal::record::ClusterId;
    use plinth_journal::{Founding, Reader as _, TailReader};

    use super::*;
    use crate::scripted::{self, ScriptedBroker};

    #[test]
    fn a_broker_that_serves_a_record_damaged_twice_is_one() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let topic = Topic { id: [7; 16], min_in_sync: 2 };
        let metadata = scripted::metadata(&addresses, &topic.id, (1, 7), &[1, 2, 3]);
        brokers[0].answers(vec![(wire::METADATA, metadata)]);
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        shared.client.view_of(&addresses[0], "topic").unwrap();
        let leader = Leader { broker: 1, epoch: 7, address: addresses[0].clone(), replicas: vec![1, 2, 3] };
        let shared = Arc::new(shared);
        let tail =
            || KafkaTail::new(Arc::clone(&shared), topic, Arc::new(leader.clone()), (Position::new(5), 0));
        // Two readers, as at a start and behind it.
        for _ in 0..2 {
            assert_eq!(tail().distrust(Position::new(5)), addresses[0]);
        }
        for n in [1, 2, 0] {
            let mut reader = tail();
            reader.source = reader.next_source();
            assert_eq!(reader.source, addresses[n]);
            reader.distrust(Position::new(5));
        }
        let mut reader = tail();
        reader.due = Position::new(6);
        assert_eq!(reader.next_source(), addresses[0], "another record");
    }

    /// Whoever applies records finds it, and each broker answers with as many as there are by then.
    #[test]
    fn a_record_is_read_from_each_broker_however_many_follow_it() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let topic = Topic { id: [7; 16], min_in_sync: 2 };
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        let (shared, record): (_, &[u8]) = (Arc::new(shared), b"a record");
        for (broker, count) in brokers.iter().zip([3, 2, 1]) {
            let metadata = scripted::metadata(&addresses, &topic.id, (1, 7), &[1, 2, 3]);
            let fetched = scripted::fetched(&topic.id, 4, &shared.key, &vec![record; count]);
            broker.answers(vec![(wire::METADATA, metadata), (wire::FETCH, fetched)]);
        }
        shared.client.view_of(&addresses[0], "topic").unwrap();
        let leader = Leader { broker: 1, epoch: 7, address: addresses[0].clone(), replicas: vec![1, 2, 3] };
        let leader = Arc::new(leader);
        let read: Vec<String> = [(); 4]
            .map(|()| {
                let due = Position::new(5);
                let tail = KafkaTail::new(Arc::clone(&shared), topic, Arc::clone(&leader), (due, 0));
                let mut reader = TailReader::new(tail);
                let entry = reader.next(Duration::from_secs(60)).unwrap().unwrap();
                assert_eq!((entry.position, &entry.bytes[..]), (due, record));
                reader.distrust().unwrap()
            })
            .into();
        assert_eq!(read[..3], addresses, "then from the leader again");
        assert_eq!(read[3], addresses[0]);
    }
}
