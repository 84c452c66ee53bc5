//! [`EtcdTail`]: a watch of the key of the records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use plinth_etcd_wire::kv::Event;
use plinth_etcd_wire::watch::WatchResponse;
use plinth_journal::{Entry, Error, Position, Result, Tail};

use crate::call_error::CallError;
use crate::client::{Watch, PROGRESS};
use crate::shared::Shared;

pub(crate) struct EtcdTail {
    shared: Arc<Shared>,
    watch: Watch,
    /// Bytes that its member had sent when they were looked at last.
    received: u64,
    /// The member that has reported last where the journal ends.
    ended_by: Option<usize>,
    /// The position that is due from etcd.
    due: Position,
    /// How often a journal had been given up when it was opened.
    given_up: u64,
    /// Records with their revisions, not returned yet: those of one response at most.
    ready: VecDeque<(Entry, i64)>,
}

impl EtcdTail {
    pub(crate) fn new(shared: Arc<Shared>, watch: Watch, (due, given_up): (Position, u64)) -> EtcdTail {
        EtcdTail { shared, watch, received: 0, ended_by: None, due, given_up, ready: VecDeque::new() }
    }

    fn take(&mut self, response: WatchResponse) -> Result<()> {
        if response.compact_revision > 0 {
            return Err(Error::Trimmed { requested: self.due, oldest: self.shared.oldest()? });
        }
        if response.canceled {
            self.shared.client.leave(self.watch.member);
            let message = format!("etcd has ended the watch: {}", response.cancel_reason);
            return Err(Error::Unavailable { message });
        }
        for event in response.events {
            self.take_event(event)?;
        }
        Ok(())
    }

    fn take_event(&mut self, event: Event) -> Result<()> {
        let Some(log) = event.kv.filter(|_| event.kind != Event::DELETE) else {
            return Err(self.shared.doubted(self.watch.member));
        };
        let position = self.shared.position_of(&log).map_err(|_| self.shared.doubted(self.watch.member))?;
        if position > self.due {
            return Err(Error::Gap { expected: self.due, found: position });
        }
        if position == self.due {
            self.ready.push_back((Entry { position, bytes: log.value }, log.mod_revision));
            self.due = self.due.next();
        }
        Ok(())
    }
}

impl Tail for EtcdTail {
    fn receive(&mut self, wait: Duration) -> Result<bool> {
        let received = self.shared.client.next(&mut self.watch, wait).map_err(CallError::of_reading)?;
        let Some(response) = received else { return Ok(false) };
        self.take(response)?;
        Ok(true)
    }

    fn pop(&mut self) -> Option<Entry> {
        let (entry, revision) = self.ready.pop_front()?;
        self.shared.note(entry.position, revision);
        self.shared.reset_patience();
        Some(entry)
    }

    fn due(&self) -> Position {
        self.due
    }

    fn end(&mut self) -> Result<Position> {
        self.received = self.shared.client.received(self.watch.member);
        let newest = self.shared.newest()?;
        self.received = self.shared.client.received(self.watch.member);
        self.ended_by = Some(newest.member);
        newest.position()
    }

    fn is_given_up(&self) -> bool {
        self.shared.review.given_up() != self.given_up
    }

    /// A record, or the rest of one: the member sends nothing else that is as much.
    fn is_receiving(&mut self) -> bool {
        let before = self.received;
        self.received = self.shared.client.received(self.watch.member);
        self.received.wrapping_sub(before) >= PROGRESS
    }

    fn patience(&self) -> Duration {
        self.shared.patience()
    }

    fn leave(&mut self) -> Error {
        let (shared, lagging) = (&self.shared, self.watch.member);
        // It may have what there is, where the other one counts otherwise.
        let is_outvoted = |other: &usize| shared.is_outvoted(*other, self.due);
        if let Some(other) = self.ended_by.filter(|other| *other != lagging).filter(is_outvoted) {
            shared.client.leave(other);
            let message =
                format!("{} has position {}, and most lack it", shared.client.address(other), self.due);
            return Error::Unavailable { message };
        }
        shared.be_patient();
        shared.client.leave(lagging);
        let message = format!("a member of etcd lags: it has not reached position {}", self.due);
        Error::Unavailable { message }
    }

    fn distrust(&mut self, _position: Position) -> String {
        self.shared.client.leave(self.watch.member);
        self.shared.client.address(self.watch.member).to_owned()
    }
}
