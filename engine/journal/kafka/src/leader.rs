//! Who leads the partition, and where it ends for certain.
//!
//! A leader that was paused or cut off answers as one until it has heard of its successor. So what it reports
//! is the end of the journal only if it leads still, and that is what other replicas of the partition
//! confirm: a record can be read or answered for under a later leader only when that many of them follow it
//! (`min.insync.replicas`) that one of those who were asked would have known. Why that is enough:
//! `docs/design/0033-journal-on-kafka.md`. How many replicas there are is asked beside it: a partition may
//! grow under one leader, and whoever asks may have heard nothing of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_journal::{Error, Position, Result};

use crate::client::CALL_TIMEOUT;
use crate::connection::{CallError, Connection};
use crate::error_code::{code, error_name, error_of};
use crate::shared::{Leader, LeaderState, Shared, Topic};
use crate::wire::{self, ListedOffset, Place, View};

/// Other replicas are asked, too, when the ones that were have not answered for so long.
const HEDGE: Duration = Duration::from_millis(100);
/// Brokers that start again lag behind the newest leader for less.
const LAG: Duration = Duration::from_secs(10);
/// Leaders that are asked for the end before that fails.
const ATTEMPTS: usize = 2;

/// Who has confirmed that a leader leads, and how many have to.
struct Quorum {
    leader: i32,
    epoch: i32,
    min_in_sync: usize,
    /// All brokers that have the partition, as far as any that knows this leader has reported.
    replicas: BTreeSet<i32>,
    /// Whether the leader has reported which these are.
    is_described: bool,
    /// Other replicas that were asked, and how many of them will not answer.
    queried: BTreeSet<i32>,
    failed: usize,
    confirmed: usize,
}

impl Quorum {
    fn new(leader: &Leader, min_in_sync: usize) -> Quorum {
        Quorum {
            leader: leader.broker,
            epoch: leader.epoch,
            min_in_sync,
            replicas: leader.replicas.iter().copied().collect(),
            is_described: false,
            queried: BTreeSet::new(),
            failed: 0,
            confirmed: 0,
        }
    }

    /// Others that are needed, so that too few are left to have followed a later leader. One at least where
    /// there are others: the partition may have been moved to more brokers meanwhile.
    fn needed(&self) -> usize {
        let others = usize::from(self.replicas.len() > 1);
        self.replicas.len().saturating_sub(self.min_in_sync).max(others)
    }

    /// Adds replicas; whether there were any that were not known.
    fn learn(&mut self, replicas: &[i32]) -> bool {
        let known = self.replicas.len();
        self.replicas.extend(replicas);
        self.replicas.len() > known
    }

    fn is_reached(&self) -> bool {
        self.is_described && self.confirmed >= self.needed()
    }
}

impl LeaderState {
    /// Refuses what brokers say that do not know the newest leader. They lag; where all that answer do for
    /// longer, Kafka was put back to an old copy. Then what they know is all there is: the next look at the
    /// leader takes it, and whoever reads begins again and compares what was applied last: the journal that
    /// was followed is given up.
    fn check_epoch(&mut self, found: i32, now: Instant) -> Result<()> {
        if self.newest.as_ref().is_none_or(|newest| newest.epoch <= found) {
            self.outdated_since = None;
            return Ok(());
        }
        let since = *self.outdated_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= LAG {
            *self = LeaderState { topic: self.topic, ..LeaderState::default() };
        }
        Err(Error::Unavailable { message: "the brokers do not know the newest leader".to_owned() })
    }
}

impl Shared {
    /// The leader; asked for where it is not known or has failed.
    pub(crate) fn leader(&self, topic: &Topic) -> Result<Arc<Leader>> {
        let known = {
            let state = self.leader.lock();
            let newest = state.newest.clone().filter(|_| state.topic == topic.id);
            newest.map(|leader| (leader, state.is_suspect))
        };
        match known {
            Some((leader, false)) => Ok(leader),
            Some((leader, true)) => self.look_up(topic, Some(&leader.address)),
            None => self.look_up(topic, None),
        }
    }

    /// Asks brokers who leads.
    pub(crate) fn look_up(&self, topic: &Topic, avoid: Option<&str>) -> Result<Arc<Leader>> {
        let view =
            self.client.view(&self.topic, avoid, self.newest_epoch(topic)).map_err(CallError::of_reading)?;
        self.note(topic, &view)
    }

    /// Notes what a broker knows of the leader. A broker that lags does not bring an earlier one back.
    pub(crate) fn note(&self, topic: &Topic, view: &View) -> Result<Arc<Leader>> {
        self.check_identity(topic, view)?;
        let mut state = self.leader.lock();
        if state.topic != topic.id {
            // Another thread has to do with one that was given up, or is found instead.
            *state = LeaderState { topic: topic.id, ..LeaderState::default() };
        }
        if let Some(partition) = view.partition() {
            let was_known = state.newest.is_some();
            state.check_epoch(partition.leader_epoch, Instant::now()).inspect_err(|_| {
                if was_known && state.newest.is_none() {
                    self.review.give_up();
                }
            })?;
        }
        let leader = Arc::new(leader_of(view)?);
        state.newest = Some(Arc::clone(&leader));
        state.is_suspect = false;
        Ok(leader)
    }

    /// Notes that a leader has not answered as one.
    pub(crate) fn suspect(&self, leader: &Leader) {
        let mut state = self.leader.lock();
        if state.newest.as_ref().is_some_and(|newest| newest.epoch == leader.epoch) {
            state.is_suspect = true;
        }
    }

    /// The epoch of the newest leader, -1 for none.
    pub(crate) fn newest_epoch(&self, topic: &Topic) -> i32 {
        let state = self.leader.lock();
        state.newest.as_ref().filter(|_| state.topic == topic.id).map_or(-1, |leader| leader.epoch)
    }

    /// Where the newest leader is.
    pub(crate) fn leader_address(&self) -> Option<String> {
        self.leader.lock().newest.as_ref().map(|leader| leader.address.clone())
    }

    /// Whether another leader is known by now to brokers that are not this one.
    pub(crate) fn has_moved(&self, topic: &Topic, leader: &Leader) -> bool {
        let newest = self.look_up(topic, Some(&leader.address));
        newest.is_ok_and(|newest| newest.epoch > leader.epoch)
    }

    /// Refuses a topic that is not the one that it was.
    pub(crate) fn check_identity(&self, topic: &Topic, view: &View) -> Result<()> {
        let name = &self.topic;
        let what = match view.error {
            code::NONE if view.topic == topic.id => return Ok(()),
            code::NONE => "deleted and recreated",
            code::UNKNOWN_TOPIC_OR_PARTITION => "deleted",
            error => {
                return Err(error_of(error, format!("topic {name:?}: {}", error_name(error))));
            }
        };
        let message = format!(
            "topic {name:?} was {what} since this replica has used it; start the replicas from a checkpoint on a \
             topic that does not exist"
        );
        Err(Error::Refused { message })
    }

    /// The position of the newest record: at least that of each append that was answered, and of each record
    /// that any reader has got, before the call.
    pub(crate) fn end_of(&self, topic: &Topic) -> Result<Position> {
        let mut failed = Error::Unavailable { message: String::new() };
        for _ in 0..ATTEMPTS {
            let leader = self.leader(topic)?;
            match self.confirmed_end(topic, &leader) {
                Ok(end) => return position(end),
                Err(error) if error.is_transient() => failed = error,
                Err(error) => return Err(error),
            }
            self.suspect(&leader);
        }
        Err(failed)
    }

    /// What a leader reports as the end, confirmed by enough other replicas that it leads.
    fn confirmed_end(&self, topic: &Topic, leader: &Leader) -> Result<i64> {
        // Both are asked after the call began, so what they know is not older.
        let body = wire::list_offsets(&self.topic, leader.epoch, Place::End);
        let mut connection = self.client.open(&leader.address).map_err(CallError::of_reading)?;
        connection.send(wire::LIST_OFFSETS, &body).map_err(CallError::of_reading)?;
        self.confirm(topic, leader)?;
        let answer = connection.receive(Instant::now() + CALL_TIMEOUT).map_err(CallError::of_reading)?;
        let answer = answer.ok_or_else(|| connection.silent(CALL_TIMEOUT).of_reading())?;
        let listed =
            ListedOffset::decode(answer).map_err(|error| connection.malformed(error).of_reading())?;
        self.client.keep(connection);
        self.listed(leader, listed)
    }

    /// The oldest offset, or the end as far as this leader knows.
    pub(crate) fn offset_at(&self, leader: &Leader, place: Place) -> Result<i64> {
        let body = wire::list_offsets(&self.topic, leader.epoch, place);
        let answer = self
            .client
            .call(&leader.address, wire::LIST_OFFSETS, &body, CALL_TIMEOUT)
            .map_err(CallError::of_reading)?;
        let malformed =
            |_| Error::Unavailable { message: format!("{} gave a malformed answer", leader.address) };
        let listed = ListedOffset::decode(answer).map_err(malformed)?;
        self.listed(leader, listed)
    }

    fn listed(&self, leader: &Leader, listed: ListedOffset) -> Result<i64> {
        match listed.error {
            code::NONE => Ok(listed.offset),
            error => {
                self.suspect(leader);
                let message =
                    format!("{} does not say where the journal ends: {}", leader.address, error_name(error));
                Err(error_of(error, message))
            }
        }
    }

    /// Asks other replicas of the partition whether they know a later leader, until as many have not as leave
    /// too few for one. Which replicas there are the leader is asked, at the same time: one that was added
    /// changes no epoch, and none follows before the leader knows of it.
    pub(crate) fn confirm(&self, topic: &Topic, leader: &Leader) -> Result<()> {
        let deadline = Instant::now() + CALL_TIMEOUT;
        let mut quorum = Quorum::new(leader, topic.min_in_sync);
        let mut waiting: Vec<(i32, Connection)> = Vec::new();
        let described = self.ask_for_leader(&leader.address).map_err(CallError::of_reading)?;
        waiting.push((leader.broker, described));
        let mut failed = "there are no others".to_owned();
        let mut hedges = 0;
        loop {
            let mut others = self.witnesses(&quorum).into_iter();
            while quorum.queried.len() < quorum.needed() + quorum.failed + hedges {
                let Some(broker) = others.next() else { break };
                quorum.queried.insert(broker);
                match self.ask_broker_for_leader(broker) {
                    Ok(connection) => waiting.push((broker, connection)),
                    Err(error) => {
                        failed = error.of_reading().to_string();
                        quorum.failed += 1;
                    }
                }
            }
            if waiting.is_empty() || Instant::now() >= deadline {
                let message = format!("too few brokers confirm who leads the journal: {failed}");
                return Err(Error::Unavailable { message });
            }
            // Those that did not answer in time are waited for together with the next ones.
            let share = HEDGE / u32::try_from(waiting.len()).unwrap_or(1);
            for (broker, mut connection) in std::mem::take(&mut waiting) {
                let answer = match connection.receive(Instant::now() + share) {
                    Ok(None) => {
                        waiting.push((broker, connection));
                        continue;
                    }
                    Ok(Some(answer)) => self.client.take_view(&connection.address, answer),
                    Err(error) => Err(error),
                };
                let view = match answer {
                    Ok(view) => view,
                    Err(error) if broker == leader.broker => return Err(error.of_reading()),
                    Err(error) => {
                        failed = error.of_reading().to_string();
                        quorum.failed += 1;
                        continue;
                    }
                };
                self.client.keep(connection);
                match self.judge(topic, leader, &view)? {
                    true => self.take_opinion(topic, broker, &view, &mut quorum)?,
                    false if broker == leader.broker => {
                        return Err(unavailable(&leader.address, "does not know the topic"));
                    }
                    false => {
                        failed = "a broker does not know the topic".to_owned();
                        quorum.failed += 1;
                    }
                }
            }
            if quorum.is_reached() {
                return Ok(());
            }
            if quorum.confirmed < quorum.needed() {
                hedges += 1;
            }
        }
    }

    /// Notes that a broker knows no later leader, and which replicas it knows.
    fn take_opinion(&self, topic: &Topic, broker: i32, view: &View, quorum: &mut Quorum) -> Result<()> {
        let found = view.partition().filter(|found| found.leader_epoch == quorum.epoch);
        let is_new = found.is_some_and(|found| quorum.learn(&found.replicas));
        if broker != quorum.leader {
            quorum.confirmed += 1;
            self.leader.lock().witness = broker;
            return Ok(());
        }
        if found.is_none() {
            return Err(unavailable(&format!("broker {broker}"), "does not know that it leads the journal"));
        }
        quorum.is_described = true;
        if is_new {
            self.note(topic, view)?;
        }
        Ok(())
    }

    /// The replicas that were not asked yet, that which has answered last first.
    fn witnesses(&self, quorum: &Quorum) -> Vec<i32> {
        let last = self.leader.lock().witness;
        let is_left = |broker: &&i32| **broker != quorum.leader && !quorum.queried.contains(*broker);
        let mut others: Vec<i32> = quorum.replicas.iter().filter(is_left).copied().collect();
        let is_silent =
            |broker| self.client.address(broker).is_none_or(|address| self.client.is_silent(&address));
        others.sort_by_key(|broker| (is_silent(*broker), *broker != last));
        others
    }

    fn ask_broker_for_leader(&self, broker: i32) -> Result<Connection, CallError> {
        let unknown = || CallError::NotMade(format!("broker {broker} is not up"));
        self.ask_for_leader(&self.client.address(broker).ok_or_else(unknown)?)
    }

    fn ask_for_leader(&self, address: &str) -> Result<Connection, CallError> {
        let mut connection = self.client.open(address)?;
        connection.send(wire::METADATA, &wire::metadata(&self.topic))?;
        Ok(connection)
    }

    /// Whether a replica knows no later leader. It may know an earlier one: it follows no later one either.
    fn judge(&self, topic: &Topic, leader: &Leader, view: &View) -> Result<bool> {
        if view.error != code::NONE || view.topic != topic.id {
            return Ok(false);
        }
        let Some(partition) = view.partition() else { return Ok(false) };
        if partition.leader_epoch <= leader.epoch {
            return Ok(true);
        }
        let newer = self.note(topic, view)?;
        let message = format!("{} leads the journal now", newer.address);
        Err(Error::Unavailable { message })
    }
}

/// The leader that a broker knows.
pub(crate) fn leader_of(view: &View) -> Result<Leader> {
    let partition = view.partition().ok_or_else(|| unavailable("a broker", "does not know the partition"))?;
    let (broker, epoch) = (partition.leader, partition.leader_epoch);
    let Some((_, address)) = view.brokers.iter().find(|(id, _)| *id == broker) else {
        return Err(unavailable("the partition", "has no leader: too few of its replicas are up"));
    };
    Ok(Leader { broker, epoch, address: address.clone(), replicas: partition.replicas.clone() })
}

fn unavailable(who: &str, what: &str) -> Error {
    Error::Unavailable { message: format!("{who} {what}") }
}

/// The position of the record before an offset.
fn position(offset: i64) -> Result<Position> {
    match u64::try_from(offset) {
        Ok(offset) => Ok(Position::new(offset)),
        Err(_) => {
            Err(Error::Unavailable { message: format!("Kafka reports the end of the journal at {offset}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use plinth_journal::record::ClusterId;
    use plinth_journal::Founding;

    use super::*;
    use crate::scripted::{self, ScriptedBroker};

    const TOPIC: Topic = Topic { id: [7; 16], min_in_sync: 2 };

    /// The leader stood still while two brokers that were added to the partition went on with one of its
    /// followers; the others have not heard of that yet, and this client knows the replicas of before.
    #[test]
    fn the_end_is_not_that_of_a_leader_whose_partition_has_grown() {
        let brokers: Vec<ScriptedBroker> = (0..5).map(|_| ScriptedBroker::start()).collect();
        let addresses: Vec<String> = brokers.iter().map(|broker| broker.address.clone()).collect();
        let known = Leader { broker: 1, epoch: 7, address: addresses[0].clone(), replicas: vec![1, 2, 3] };
        let answers = |leader: i32, epoch: i32, replicas: &[i32]| {
            let metadata = scripted::metadata(&addresses, &TOPIC.id, (leader, epoch), replicas);
            vec![(wire::METADATA, metadata), (wire::LIST_OFFSETS, scripted::listed(4))]
        };
        let (small, grown) = ([1, 2, 3], [1, 2, 3, 4, 5]);
        let end = |script: [(i32, i32, &[i32]); 5]| {
            for (broker, (leader, epoch, replicas)) in brokers.iter().zip(script) {
                broker.answers(answers(leader, epoch, replicas));
            }
            let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
            shared.client.view_of(&addresses[0], "topic").unwrap();
            shared.confirmed_end(&TOPIC, &known)
        };
        let before: (i32, i32, &[i32]) = (1, 7, &small);
        assert_eq!(end([before; 5]), Ok(4), "before it grew");
        let same: (i32, i32, &[i32]) = (1, 7, &grown);
        assert_eq!(end([same, same, same, same, before]), Ok(4), "one of them lags");
        let later: (i32, i32, &[i32]) = (4, 8, &grown);
        let error = end([same, before, before, later, later]).unwrap_err();
        assert!(error.is_transient() && error.to_string().contains("leads the journal now"), "{error}");
        assert!(end([same, before, later, later, later]).is_err());
    }

    /// A thread has not heard yet that the topic was given up, and asks who leads it.
    #[test]
    fn the_leaders_of_two_topics_are_not_compared() {
        let broker = ScriptedBroker::start();
        let addresses = [broker.address.clone()];
        let shared = Shared::of_test(&addresses, "topic", ClusterId([1; 16]), Founding::Forbidden);
        let other = Topic { id: [9; 16], ..TOPIC };
        for (topic, epoch) in [(TOPIC, 7), (other, 90), (TOPIC, 7), (TOPIC, 8)] {
            broker
                .answers(vec![(wire::METADATA, scripted::metadata(&addresses, &topic.id, (1, epoch), &[1]))]);
            assert_eq!(shared.look_up(&topic, None).map(|leader| leader.epoch), Ok(epoch));
            assert_eq!(shared.leader(&topic).unwrap().epoch, epoch);
            assert_eq!(shared.newest_epoch(&topic), epoch);
        }
        assert_eq!(shared.newest_epoch(&other), -1);
    }

    #[test]
    fn an_earlier_leader_is_taken_where_no_later_one_is_known_for_long() {
        let newest = Leader { broker: 1, epoch: 7, address: "a:1".to_owned(), replicas: vec![1, 2, 3] };
        let mut state = LeaderState { newest: Some(Arc::new(newest)), ..LeaderState::default() };
        let start = Instant::now();
        // What the brokers say after so many seconds, and whether it is taken.
        for (seconds, epoch, is_taken) in [
            (0, 7, true),
            (1, 5, false),
            (10, 6, false),
            // One that knows the newest sets that back.
            (12, 7, true),
            (13, 5, false),
            (22, 5, false),
            (23, 5, false),
            (24, 5, true),
        ] {
            let checked = state.check_epoch(epoch, start + Duration::from_secs(seconds));
            assert_eq!(checked.is_ok(), is_taken, "after {seconds} s");
            assert_eq!(state.newest.is_none(), seconds >= 23, "after {seconds} s");
        }
    }
}
