//! [`EtcdReader`]: a watch of the key of the records.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_journal::{Entry, Error, Position, Reader, Result};

use crate::client::{CallError, Watch};
use crate::journal::Shared;
use crate::wire::{Event, WatchResponse};

/// A watch that was quiet for so long is compared with the journal's end: the member that serves it may stand
/// still or be cut off.
const QUIET: Duration = Duration::from_secs(1);
/// How long a watch may take for what is known to be there.
const LAG: Duration = Duration::from_millis(250);
/// The kind of an event that deletes the key.
const DELETION: i32 = 1;

pub(crate) struct EtcdReader {
    shared: Arc<Shared>,
    watch: Watch,
    /// The position that is due from etcd.
    due: Position,
    /// Records with their revisions, not returned yet: those of one response at most.
    ready: VecDeque<(Entry, i64)>,
    /// When the watch was last known to be up to date.
    current: Instant,
}

impl EtcdReader {
    pub(crate) fn new(shared: Arc<Shared>, watch: Watch, due: Position) -> EtcdReader {
        EtcdReader { shared, watch, due, ready: VecDeque::new(), current: Instant::now() }
    }

    /// The next response within `wait`.
    fn receive(&mut self, wait: Duration) -> Result<bool> {
        let received = self.shared.client.next(&mut self.watch, wait).map_err(CallError::of_reading)?;
        let Some(response) = received else { return Ok(false) };
        self.take(response)?;
        Ok(true)
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
        let Some(log) = event.kv.filter(|_| event.kind != DELETION) else {
            return Err(self.shared.replaced());
        };
        let position = self.shared.position_of(&log)?;
        if position > self.due {
            return Err(Error::Gap { expected: self.due, found: position });
        }
        if position == self.due {
            self.ready.push_back((Entry { position, bytes: log.value }, log.mod_revision));
            self.due = self.due.next();
        }
        Ok(())
    }

    /// Compares the watch with the journal's end.
    fn check_end(&mut self) -> Result<()> {
        let end = self.shared.end()?;
        if end.next() < self.due {
            let applied = Position::new(self.due.get().saturating_sub(1));
            return Err(Error::Behind { applied, end });
        }
        let deadline = Instant::now() + LAG;
        while self.due <= end {
            let wait = deadline.saturating_duration_since(Instant::now());
            if !self.receive(wait)? {
                self.shared.client.leave(self.watch.member);
                let message = format!("a member of etcd lags: it has not reached position {}", self.due);
                return Err(Error::Unavailable { message });
            }
        }
        self.current = Instant::now();
        Ok(())
    }
}

impl Reader for EtcdReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some((entry, revision)) = self.ready.pop_front() {
                self.shared.note(entry.position, revision);
                return Ok(Some(entry));
            }
            let check = self.current + QUIET;
            let wait = deadline.min(check).saturating_duration_since(Instant::now());
            if self.receive(wait)? {
                if !self.ready.is_empty() {
                    self.current = Instant::now();
                }
                continue;
            }
            let now = Instant::now();
            if now >= check {
                self.check_end()?;
            } else if now >= deadline {
                return Ok(None);
            }
        }
    }
}
