//! [`Client`]: calls of brokers, over connections that are kept.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_journal::Error;

use crate::codec::{Api, Decoder};
use crate::connection::{CallError, Connection, Security};
use crate::error_code::code;
use crate::options::KafkaOptions;
use crate::wire::{self, View};

/// Longest time of a call that a broker answers from what it has at hand.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest time in which one broker after the other is asked.
const VIEW_TIMEOUT: Duration = Duration::from_secs(4);
/// Connections that are kept for the next call, at most.
const MAX_IDLE: usize = 16;

/// Calls brokers. The thread that calls waits for the answer.
pub(crate) struct Client {
    /// The brokers that the options name.
    seeds: Vec<String>,
    security: Security,
    idle: Mutex<Vec<Connection>>,
    /// The brokers that are up, as one of them has said.
    brokers: Mutex<BTreeMap<i32, String>>,
    /// Which broker is asked first, below their number after a division.
    first: AtomicUsize,
}

impl Client {
    /// A client that has not connected yet.
    ///
    /// # Errors
    /// [`Error::Refused`] where the options cannot be used.
    pub(crate) fn new(options: &KafkaOptions) -> Result<Client, Error> {
        Ok(Client {
            seeds: options.brokers.clone(),
            security: Security::new(options)?,
            idle: Mutex::default(),
            brokers: Mutex::default(),
            first: AtomicUsize::new(0),
        })
    }

    /// How many brokers the options name.
    pub(crate) fn seeds(&self) -> usize {
        self.seeds.len()
    }

    /// The address of a broker.
    pub(crate) fn address(&self, broker: i32) -> Option<String> {
        self.brokers.lock().get(&broker).cloned()
    }

    /// A connection that no call is made on.
    pub(crate) fn open(&self, address: &str) -> Result<Connection, CallError> {
        loop {
            let kept = {
                let mut idle = self.idle.lock();
                let at = idle.iter().rposition(|connection| connection.address == address);
                at.map(|at| idle.swap_remove(at))
            };
            match kept {
                Some(connection) if connection.is_usable() => return Ok(connection),
                Some(_ended) => {}
                None => return Connection::connect(address, &self.security),
            }
        }
    }

    /// Keeps a connection whose calls are answered.
    pub(crate) fn keep(&self, connection: Connection) {
        let mut idle = self.idle.lock();
        if idle.len() >= MAX_IDLE {
            idle.remove(0);
        }
        idle.push(connection);
    }

    /// One call.
    pub(crate) fn call(
        &self,
        address: &str,
        api: Api,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Decoder, CallError> {
        let mut connection = self.open(address)?;
        let answer = connection.exchange(api, body, Instant::now() + timeout)?;
        self.keep(connection);
        Ok(answer)
    }

    /// What a broker knows of a topic, whose leader's epoch is not below one that is known already. One
    /// broker that answers is enough, whatever others say. The topic is absent if most brokers say so and
    /// none knows it, and its leader an earlier one if most know an earlier one only: one may not have heard
    /// of it.
    pub(crate) fn view(&self, topic: &str, avoid: Option<&str>, least_epoch: i32) -> Result<View, CallError> {
        let deadline = Instant::now() + VIEW_TIMEOUT;
        let addresses = self.in_turn(avoid);
        let (mut absent, mut errored, mut outdated) = (Vec::new(), None, Vec::new());
        let epoch = |view: &View| view.partition().map(|part| part.leader_epoch);
        let mut failed = CallError::NotMade("no other broker is known".to_owned());
        for (at, address) in addresses {
            if Instant::now() >= deadline {
                break;
            }
            match self.view_of(&address, topic) {
                Ok(view) if view.error == code::UNKNOWN_TOPIC_OR_PARTITION => absent.push(view),
                Ok(view) if view.error != code::NONE => errored = Some(view),
                Ok(view) if epoch(&view).is_some_and(|epoch| epoch < least_epoch) => {
                    let behind = CallError::NotMade(format!("{address} does not know the newest leader"));
                    failed = failed.or(behind);
                    outdated.push(view);
                }
                Ok(view) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(view);
                }
                Err(error) => failed = failed.or(error),
            }
        }
        // As the brokers say, or as many as are named.
        let all = match self.brokers.lock().len() {
            0 => self.seeds.len(),
            known => known,
        };
        if outdated.len() * 2 > all && errored.is_none() {
            return outdated.into_iter().max_by_key(epoch).ok_or(failed);
        }
        match (errored, absent.len() * 2 > all) {
            (Some(view), _) => Ok(view),
            (None, true) => absent.pop().ok_or(failed),
            (None, false) if absent.is_empty() => Err(failed),
            (None, false) => {
                let message =
                    format!("too few brokers of Kafka answer to say whether topic {topic:?} exists");
                Err(CallError::NotMade(message))
            }
        }
    }

    /// What one broker knows of a topic.
    pub(crate) fn view_of(&self, address: &str, topic: &str) -> Result<View, CallError> {
        let answer = self.call(address, wire::METADATA, &wire::metadata(topic), CALL_TIMEOUT)?;
        self.take_view(address, answer)
    }

    /// The view in an answer, whose brokers are noted.
    pub(crate) fn take_view(&self, address: &str, answer: Decoder) -> Result<View, CallError> {
        let malformed = |_| CallError::Unknown(format!("{address} gave an answer that is malformed"));
        let view = View::decode(answer).map_err(malformed)?;
        if !view.brokers.is_empty() {
            *self.brokers.lock() = view.brokers.iter().cloned().collect();
        }
        Ok(view)
    }

    /// All known addresses, the last one that answered first, with their numbers.
    fn in_turn(&self, avoid: Option<&str>) -> Vec<(usize, String)> {
        let mut addresses: Vec<String> = self.brokers.lock().values().cloned().collect();
        for seed in &self.seeds {
            if !addresses.contains(seed) {
                addresses.push(seed.clone());
            }
        }
        let mut addresses: Vec<(usize, String)> = addresses.into_iter().enumerate().collect();
        let first = self.first.load(Ordering::Relaxed) % addresses.len().max(1);
        addresses.rotate_left(first);
        if addresses.len() > 1 {
            addresses.retain(|(_, address)| Some(address.as_str()) != avoid);
        }
        addresses
    }
}
