//! Since when, and why, the journal does not answer as it should: for what is reported of it.

use std::time::{Duration, Instant};

use plinth_journal::{Error as JournalError, Position};

use crate::health::Warning;
use crate::stats::{Histogram, JournalStats};

/// A journal that does not answer for longer is named with the reason.
const LONG_SILENCE: Duration = Duration::from_secs(10);

/// An append that failed is tried again sooner, the time included that one may take.
const NO_LONGER_TRIED: Duration = Duration::from_secs(15);

/// A kind of calls of the journal: one may be refused while the other is answered.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Call {
    Append,
    Read,
}

/// How long calls of the journal took that were answered.
#[derive(Debug, Default)]
pub(crate) struct CallTimes {
    pub append: Histogram,
    /// Questions for its end.
    pub end: Histogram,
}

impl CallTimes {
    pub(crate) fn stats(&self, applied: Position, is_up: bool) -> JournalStats {
        JournalStats {
            applied: applied.get(),
            is_up,
            append_micros: self.append.snapshot(),
            end_micros: self.end.snapshot(),
        }
    }
}

/// What calls of the journal have ended with.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// By [`Call`], until a call of that kind succeeds: since when it has not answered as it should.
    since: [Option<Instant>; 2],
    /// When a call of that kind failed last.
    failed: [Option<Instant>; 2],
    /// Why it refuses.
    refusals: [Option<String>; 2],
    /// The error of the last call that failed, and whether a warning has reported it.
    last: Option<String>,
    is_warned: bool,
}

impl Outage {
    /// A call was answered as it should be.
    pub(crate) fn succeeded(&mut self, call: Call) {
        (self.refusals[call as usize], self.since[call as usize]) = (None, None);
        // Nothing was appended any more: what is answered now is all that is known.
        let is_over = |failed: Instant| failed.elapsed() >= NO_LONGER_TRIED;
        if self.refusals[Call::Append as usize].is_none()
            && self.failed[Call::Append as usize].is_none_or(is_over)
        {
            self.since[Call::Append as usize] = None;
        }
        if self.since.iter().all(Option::is_none) {
            (self.last, self.is_warned) = (None, false);
        }
    }

    /// A call has failed. Returns the warning that is due.
    pub(crate) fn failed(&mut self, call: Call, error: &JournalError) -> Option<Warning> {
        let refusal = &mut self.refusals[call as usize];
        let is_new = refusal.is_none();
        if let Some(message) = error.refusal() {
            *refusal = Some(message.to_owned());
        }
        self.failed[call as usize] = Some(Instant::now());
        let since = *self.since[call as usize].get_or_insert_with(Instant::now);
        // What refuses does answer, and is reported with its reason.
        let is_silent = error.refusal().is_none();
        let is_long = is_silent && !self.is_warned && since.elapsed() >= LONG_SILENCE;
        self.is_warned |= is_long;
        self.last = Some(error.to_string());
        if let Some(message) = error.refusal().filter(|_| is_new) {
            return Some(Warning::JournalRefuses { message: message.to_owned() });
        }
        is_long.then(|| Warning::JournalAway { message: error.to_string() })
    }

    /// Why the journal refuses what it is asked for.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusals.iter().flatten().next().cloned()
    }

    /// The error of the last call that failed, while it does not answer as it should.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.last.clone()
    }

    /// For how long the journal has not answered.
    pub(crate) fn silence(&self) -> Option<Duration> {
        self.since.iter().flatten().map(Instant::elapsed).max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_refuses_is_not_reported_as_silent() {
        let Some(long_ago) = Instant::now().checked_sub(LONG_SILENCE) else { return };
        let denied = JournalError::Denied { message: "no right".to_owned() };
        let away = JournalError::Unavailable { message: "no route".to_owned() };
        let mut outage = Outage::default();
        assert!(matches!(outage.failed(Call::Append, &denied), Some(Warning::JournalRefuses { .. })));
        outage.since = [Some(long_ago); 2];
        assert!(outage.failed(Call::Append, &denied).is_none(), "it was reported with its reason");
        assert!(matches!(outage.failed(Call::Append, &away), Some(Warning::JournalAway { .. })));
        assert!(outage.failed(Call::Append, &away).is_none(), "once");
    }
}
