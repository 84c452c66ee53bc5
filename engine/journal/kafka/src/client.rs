//! [`Client`]: calls of brokers, over connections that are kept.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_journal::Error;

use crate::codec::{Api, Decoder};
use crate::connection::{CallError, Connection, Security, CONNECT_TIMEOUT};
use crate::error_code::code;
use crate::options::KafkaOptions;
use crate::wire::{self, View};

/// Longest time of a call that a broker answers from what it has at hand.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Brokers that were not connected to within the first time get the second one after all others.
const DIALS: [Duration; 2] = [Duration::from_millis(250), CONNECT_TIMEOUT];
/// A broker that has not answered is asked after the others for so long.
const SILENT: Duration = Duration::from_secs(10);
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
    /// When brokers, by address, have not answered.
    silent: Mutex<BTreeMap<String, Instant>>,
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
            silent: Mutex::default(),
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
        self.open_within(address, CONNECT_TIMEOUT)
    }

    fn open_within(&self, address: &str, timeout: Duration) -> Result<Connection, CallError> {
        loop {
            let kept = {
                let mut idle = self.idle.lock();
                let at = idle.iter().rposition(|connection| connection.address == address);
                at.map(|at| idle.swap_remove(at))
            };
            match kept {
                Some(connection) if connection.is_usable() => return Ok(connection),
                Some(_ended) => {}
                None => return self.noted(address, Connection::connect(address, &self.security, timeout)),
            }
        }
    }

    /// Notes whether a broker has answered.
    fn noted<T>(&self, address: &str, outcome: Result<T, CallError>) -> Result<T, CallError> {
        let mut silent = self.silent.lock();
        match &outcome {
            Err(CallError::NotMade(_) | CallError::Unknown(_)) => {
                silent.insert(address.to_owned(), Instant::now());
            }
            _ => drop(silent.remove(address)),
        }
        outcome
    }

    /// Whether a broker has not answered lately.
    pub(crate) fn is_silent(&self, address: &str) -> bool {
        self.silent.lock().get(address).is_some_and(|since| since.elapsed() < SILENT)
    }

    /// The addresses of a view's brokers, those last that have not answered lately.
    pub(crate) fn addresses<'a>(&self, view: &'a View) -> Vec<&'a String> {
        let mut addresses: Vec<&String> = view.brokers.iter().map(|(_, address)| address).collect();
        addresses.sort_by_key(|address| self.is_silent(address));
        addresses
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
        let connection = self.open(address)?;
        self.call_over(connection, api, body, timeout)
    }

    fn call_over(
        &self,
        mut connection: Connection,
        api: Api,
        body: &[u8],
        timeout: Duration,
    ) -> Result<Decoder, CallError> {
        let answer = connection.exchange(api, body, Instant::now() + timeout);
        let answer = self.noted(&connection.address, answer)?;
        self.keep(connection);
        Ok(answer)
    }

    /// What a broker knows of a topic, whose leader's epoch is not below one that is known already. One
    /// broker that answers is enough, whatever others say. The topic is absent if most brokers say so and
    /// none knows it, and its leader an earlier one if most know an earlier one only: one may not have heard
    /// of it.
    pub(crate) fn view(&self, topic: &str, avoid: Option<&str>, least_epoch: i32) -> Result<View, CallError> {
        let deadline = Instant::now() + VIEW_TIMEOUT;
        let (mut absent, mut errored, mut outdated) = (Vec::new(), None, Vec::new());
        let epoch = |view: &View| view.partition().map(|part| part.leader_epoch);
        let mut failed = CallError::NotMade("no other broker is known".to_owned());
        let mut pending: VecDeque<(usize, String, Duration)> =
            self.in_turn(avoid).into_iter().map(|(at, address)| (at, address, DIALS[0])).collect();
        while let Some((at, address, dial)) = pending.pop_front() {
            if Instant::now() >= deadline {
                break;
            }
            let connection = match self.open_within(&address, dial) {
                Ok(connection) => connection,
                Err(error) => {
                    if dial < DIALS[1] && matches!(error, CallError::NotMade(_) | CallError::Unknown(_)) {
                        pending.push_back((at, address, DIALS[1]));
                    }
                    failed = failed.or(error);
                    continue;
                }
            };
            let answer = self.call_over(connection, wire::METADATA, &wire::metadata(topic), CALL_TIMEOUT);
            match answer.and_then(|answer| self.take_view(&address, answer)) {
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
        addresses.sort_by_key(|(_, address)| self.is_silent(address));
        if addresses.len() > 1 {
            addresses.retain(|(_, address)| Some(address.as_str()) != avoid);
        }
        addresses
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::scripted::{self, ScriptedBroker};

    /// The operating system takes connections for them.
    #[test]
    fn brokers_that_stand_still_are_passed_over() {
        let frozen: Vec<TcpListener> = (0..6).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses = frozen.iter().map(|listener| listener.local_addr().unwrap().to_string());
        let sound = ScriptedBroker::start();
        let addresses: Vec<String> = addresses.chain([sound.address.clone()]).collect();
        let replicas: Vec<i32> = (1..=7).collect();
        sound.answers(vec![(wire::METADATA, scripted::metadata(&addresses, &[7; 16], (7, 1), &replicas))]);
        let options = KafkaOptions::parse(&format!("kafka://{}/topic", addresses.join(","))).unwrap();
        let client = Client::new(&options).unwrap();
        let view = client.view("topic", None, -1).unwrap();
        assert_eq!(view.partition().unwrap().leader, 7);
        assert_eq!(client.addresses(&view)[0], &sound.address);
    }
}
