//! [`Client`]: calls of brokers, over connections that are kept.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use plinth_journal::{Error, Founding};

use crate::codec::{Api, Decoder, TopicId};
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
/// How long one of several answers is waited for before another one is looked at.
const SHARE: Duration = Duration::from_millis(10);
/// Connections that are kept for the next call, at most.
const MAX_IDLE: usize = 16;

/// Calls brokers. The thread that calls waits for the answer.
pub(crate) struct Client {
    /// The brokers that the options name.
    seeds: Vec<String>,
    security: Security,
    idle: Mutex<Vec<Connection>>,
    /// Whether the topic may be absent, and is created then.
    founding: Founding,
    /// The journal's topic, once it was found. Who knows none of the name, or another one, may be another
    /// Kafka's broker.
    topic: Mutex<Option<TopicId>>,
    /// Topics of the name that are not the journal's, as far as that is looked for.
    rejected: Mutex<BTreeSet<TopicId>>,
    /// The brokers that are up, as one of them has reported; once the topic was found, one that knows it.
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
    pub(crate) fn new(options: &KafkaOptions, founding: Founding) -> Result<Client, Error> {
        Ok(Client {
            seeds: options.brokers.clone(),
            security: Security::new(options)?,
            idle: Mutex::default(),
            founding,
            topic: Mutex::default(),
            rejected: Mutex::default(),
            brokers: Mutex::default(),
            silent: Mutex::default(),
            first: AtomicUsize::new(0),
        })
    }

    /// Ends all calls, and makes later ones fail.
    pub(crate) fn close(&self) {
        self.security.close();
    }

    /// Takes a topic for that of the journal.
    pub(crate) fn trust(&self, topic: TopicId) {
        *self.topic.lock() = Some(topic);
    }

    /// Takes no topic for that of the journal until it is found again.
    pub(crate) fn trust_none(&self) {
        *self.topic.lock() = None;
    }

    /// Looks for another topic than this one from now on, or for any where it is none; whether that is new.
    pub(crate) fn reject(&self, topic: Option<TopicId>) -> bool {
        let mut rejected = self.rejected.lock();
        match topic {
            Some(topic) => topic != TopicId::default() && rejected.insert(topic),
            None => {
                rejected.clear();
                true
            }
        }
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
    /// broker that answers is enough, whatever others say. The topic is absent, or another one than it was,
    /// if most brokers say so and none knows it, and its leader an earlier one if most know an earlier one
    /// only: one may not have heard of it, or be of another Kafka.
    pub(crate) fn view(&self, topic: &str, avoid: Option<&str>, least_epoch: i32) -> Result<View, CallError> {
        let deadline = Instant::now() + VIEW_TIMEOUT;
        let mut answers = Answers::new();
        let mut pending: VecDeque<(usize, String, Duration)> =
            self.in_turn(avoid).into_iter().map(|(at, address)| (at, address, DIALS[0])).collect();
        let mut named: BTreeSet<String> = pending.iter().map(|(_, address, _)| address.clone()).collect();
        while let Some((at, address, dial)) = pending.pop_front() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let connection = match self.open_within(&address, dial.min(left)) {
                Ok(connection) => connection,
                Err(error) => {
                    if dial < DIALS[1] && matches!(error, CallError::NotMade(_) | CallError::Unknown(_)) {
                        pending.push_back((at, address, DIALS[1]));
                    }
                    answers.fails(error);
                    continue;
                }
            };
            let answer = self.call_over(connection, wire::METADATA, &wire::metadata(topic), CALL_TIMEOUT);
            match answer.and_then(|answer| self.take_view(&address, answer)) {
                Ok(view) if self.is_other(&view) => {
                    answers.other.push((address, view));
                    // It may have named further ones.
                    let is_new = |(_, address): &(usize, String)| named.insert(address.clone());
                    let further = self.in_turn(avoid).into_iter().filter(is_new);
                    pending.extend(further.map(|(at, address)| (at, address, DIALS[0])));
                }
                Ok(view) if view.error != code::NONE => answers.errored = Some(view),
                Ok(view) if epoch(&view).is_some_and(|epoch| epoch < least_epoch) => {
                    let message = format!("{address} does not know the newest leader");
                    answers.fails(CallError::NotMade(message));
                    answers.outdated.push((address, view));
                }
                Ok(view) => {
                    self.first.store(at, Ordering::Relaxed);
                    return Ok(view);
                }
                Err(error) => answers.fails(error),
            }
        }
        self.judge(topic, answers)
    }

    /// What each of the addresses that the options name knows of a topic, until most of them know this one;
    /// and how many there are. All are asked at once: some may stand still.
    pub(crate) fn views_of_seeds(&self, topic: &str, found: &TopicId) -> (Vec<View>, usize) {
        let seeds: BTreeSet<&String> = self.seeds.iter().collect();
        let ask = |seed: &&String| {
            let mut connection = self.open_within(seed, DIALS[0]).ok()?;
            connection.send(wire::METADATA, &wire::metadata(topic)).ok()?;
            Some(connection)
        };
        let mut waiting: Vec<Connection> = seeds.iter().filter_map(ask).collect();
        let mut views: Vec<View> = Vec::new();
        let is_agreed =
            |views: &[View]| views.iter().filter(|view| view.topic == *found).count() * 2 > seeds.len();
        let deadline = Instant::now() + CALL_TIMEOUT;
        while !waiting.is_empty() && Instant::now() < deadline && !is_agreed(&views) {
            for mut connection in std::mem::take(&mut waiting) {
                match connection.receive(Instant::now() + SHARE) {
                    Ok(None) => waiting.push(connection),
                    Ok(Some(answer)) => {
                        self.keep(connection);
                        // The brokers that it names are noted of no more than one Kafka.
                        let view = View::decode(answer).ok();
                        views.extend(view.filter(|view| view.error == code::NONE));
                    }
                    Err(_) => {}
                }
            }
        }
        (views, seeds.len())
    }

    /// Whether a broker knows no such topic, or another one than was found.
    fn is_other(&self, view: &View) -> bool {
        match view.error {
            code::UNKNOWN_TOPIC_OR_PARTITION => true,
            code::NONE => !self.may_be_of_journal(&view.topic),
            _ => false,
        }
    }

    fn may_be_of_journal(&self, topic: &TopicId) -> bool {
        self.topic.lock().as_ref().is_none_or(|known| known == topic) && !self.rejected.lock().contains(topic)
    }

    /// What the brokers say, none of which knows the topic as it has to be.
    fn judge(&self, topic: &str, answers: Answers) -> Result<View, CallError> {
        let Answers { other, errored, outdated, failed } = answers;
        if self.is_most_of_brokers(&outdated) && errored.is_none() {
            return outdated.into_iter().map(|(_, view)| view).max_by_key(epoch).ok_or(failed);
        }
        if let Some(view) = errored {
            return Ok(view);
        }
        if other.is_empty() {
            return Err(failed);
        }
        // Those that the options name count beside those that a broker has named, which may be all of another
        // Kafka. A new cluster begins at whichever there is.
        let is_new = self.founding == Founding::Allowed && self.topic.lock().is_none();
        if self.is_most_of_brokers(&other) && (is_new || is_most(&other, self.seeds.iter())) {
            // Where there is one of the name, that is what there is.
            let found = other.into_iter().map(|(_, view)| view).max_by_key(|view| view.error == code::NONE);
            return found.ok_or(failed);
        }
        let message = format!("too few brokers of Kafka answer to say whether topic {topic:?} exists");
        Err(CallError::NotMade(message))
    }

    /// Whether most brokers have answered so, or most of those that the options name where no others are
    /// known.
    fn is_most_of_brokers(&self, answered: &[(String, View)]) -> bool {
        let brokers = self.brokers.lock();
        match brokers.is_empty() {
            true => is_most(answered, self.seeds.iter()),
            false => is_most(answered, brokers.values()),
        }
    }

    /// What one broker knows of a topic.
    pub(crate) fn view_of(&self, address: &str, topic: &str) -> Result<View, CallError> {
        let answer = self.call(address, wire::METADATA, &wire::metadata(topic), CALL_TIMEOUT)?;
        self.take_view(address, answer)
    }

    /// The view in an answer. Its brokers are noted, unless they may be those of another Kafka.
    pub(crate) fn take_view(&self, address: &str, answer: Decoder) -> Result<View, CallError> {
        let malformed = |_| CallError::Unknown(format!("{address} gave an answer that is malformed"));
        let view = View::decode(answer).map_err(malformed)?;
        if self.may_be_of_journal(&view.topic) {
            self.note_brokers(&view);
        }
        Ok(view)
    }

    /// Takes the brokers of a view for those of the journal's Kafka.
    pub(crate) fn note_brokers(&self, view: &View) {
        if !view.brokers.is_empty() {
            *self.brokers.lock() = view.brokers.iter().cloned().collect();
        }
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

/// What brokers have answered, none of which knows the topic as it has to be.
struct Answers {
    /// They know no topic of the name, or another one.
    other: Vec<(String, View)>,
    errored: Option<View>,
    /// They know an earlier leader only.
    outdated: Vec<(String, View)>,
    /// Why the last one has not answered, or what to do.
    failed: CallError,
}

impl Answers {
    fn new() -> Answers {
        let failed = CallError::NotMade("no other broker is known".to_owned());
        Answers { other: Vec::new(), errored: None, outdated: Vec::new(), failed }
    }

    fn fails(&mut self, error: CallError) {
        let failed = std::mem::replace(&mut self.failed, CallError::NotMade(String::new()));
        self.failed = failed.or(error);
    }
}

fn epoch(view: &View) -> Option<i32> {
    view.partition().map(|partition| partition.leader_epoch)
}

/// Whether answers have come from most of these addresses. One broker may have two.
fn is_most<'a>(answered: &[(String, View)], of: impl Iterator<Item = &'a String>) -> bool {
    let of: BTreeSet<&String> = of.collect();
    let from: BTreeSet<&String> = answered.iter().map(|(address, _)| address).collect();
    from.intersection(&of).count() * 2 > of.len()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::scripted::{self, ScriptedBroker};

    const TOPIC: TopicId = [7; 16];

    /// The error and the topic of what the brokers say.
    fn view(client: &Client) -> Result<(i16, TopicId), CallError> {
        client.view("topic", None, -1).map(|view| (view.error, view.topic))
    }

    /// A broker of another Kafka answers at one address, where it has no such topic or one of the name, and
    /// those at the others stand still.
    #[test]
    fn what_a_broker_of_another_kafka_says_ends_nothing() {
        let brokers: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let named = |topic: TopicId| scripted::metadata(&addresses, &topic, (1, 7), &[1, 2, 3]);
        let answer = |broker: usize, body: &[u8]| {
            brokers[broker].answers(vec![(wire::METADATA, body.to_vec())]);
        };
        let options = KafkaOptions::parse(&format!("kafka://{}/topic", addresses.join(","))).unwrap();
        let client = Client::new(&options, Founding::Allowed).unwrap();
        (0..3).for_each(|broker| answer(broker, &named(TOPIC)));
        assert_eq!(view(&client).unwrap(), (code::NONE, TOPIC));
        client.trust(TOPIC);

        let alone = [addresses[1].clone()];
        let (absent, other) =
            (scripted::no_topic(&alone), scripted::metadata(&alone, &[9; 16], (1, 9), &[1]));
        let outcomes =
            [(absent, (code::UNKNOWN_TOPIC_OR_PARTITION, [0; 16])), (other, (code::NONE, [9; 16]))];
        for (answered, found) in outcomes {
            for broker in [0, 2] {
                brokers[broker].answers(Vec::new());
            }
            answer(1, &answered);
            assert!(matches!(view(&client), Err(CallError::NotMade(_))), "two are silent");
            assert_eq!(client.address(3).as_ref(), Some(&addresses[2]), "what it names is not noted");
            for broker in [0, 2] {
                answer(broker, &named(TOPIC));
            }
            assert_eq!(view(&client).unwrap(), (code::NONE, TOPIC), "the others know it");
            // Most say so.
            brokers[0].answers(Vec::new());
            answer(2, &answered);
            assert_eq!(view(&client).unwrap(), found);
        }
    }

    /// As above, where this client has not found the topic yet: a replica with data goes on looking, and a
    /// new cluster begins at the Kafka that there is.
    #[test]
    fn a_broker_of_another_kafka_refuses_no_start() {
        let foreign: Vec<ScriptedBroker> = (0..3).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = foreign.iter().map(|broker| broker.address.clone()).collect();
        foreign.iter().for_each(|broker| {
            broker.answers(vec![(wire::METADATA, scripted::no_topic(&addresses))]);
        });
        // Nobody listens at the two others.
        let url = format!("kafka://127.0.0.1:1,{},127.0.0.1:2/topic", addresses[0]);
        let options = KafkaOptions::parse(&url).unwrap();
        let client = Client::new(&options, Founding::Forbidden).unwrap();
        for _ in 0..2 {
            let error = view(&client).unwrap_err();
            assert!(
                matches!(&error, CallError::NotMade(message) if message.contains("too few")),
                "{error:?}"
            );
        }
        let client = Client::new(&options, Founding::Allowed).unwrap();
        assert_eq!(view(&client).unwrap().0, code::UNKNOWN_TOPIC_OR_PARTITION);
        // One address is enough where no other is named: that broker has named the rest.
        let options = KafkaOptions::parse(&format!("kafka://{}/topic", addresses[0])).unwrap();
        let client = Client::new(&options, Founding::Forbidden).unwrap();
        assert_eq!(view(&client).unwrap().0, code::UNKNOWN_TOPIC_OR_PARTITION);
    }

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
        let client = Client::new(&options, Founding::Forbidden).unwrap();
        let view = client.view("topic", None, -1).unwrap();
        assert_eq!(view.partition().unwrap().leader, 7);
        assert_eq!(client.addresses(&view)[0], &sound.address);
    }
}
