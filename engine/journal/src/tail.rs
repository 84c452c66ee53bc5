//! [`TailReader`]: reads from one member, and notices when it stays behind the journal.

use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::journal::{Entry, Reader};
use crate::position::Position;

/// A member that was quiet for so long is compared with the journal's end: it may stand still, be cut off, or
/// lead no more.
const QUIET: Duration = Duration::from_secs(1);
/// How long a member may take for what is known to be there, if the journal does not say otherwise.
pub const LAG: Duration = Duration::from_millis(250);

/// Answers that come whole while a journal is compared, at most, over a path that is so slow that they may
/// not be asked for again.
const MOST_ANSWERS: usize = 8;

/// What one member of a journal serves: records in order, and new ones as they are appended.
pub trait Tail: Send {
    /// Waits for the next answer for up to `wait`, and takes its records; whether there was one. A `wait` of
    /// zero takes what is there.
    ///
    /// # Errors
    /// Those of [`Reader::next`].
    fn receive(&mut self, wait: Duration) -> Result<bool>;

    /// Removes the oldest record that was taken.
    fn pop(&mut self) -> Option<Entry>;

    /// The position after the newest record that was taken.
    fn due(&self) -> Position;

    /// [`Journal::end`](crate::Journal::end), of the journal and not of this member.
    ///
    /// # Errors
    /// Those of [`Journal::end`](crate::Journal::end).
    fn end(&mut self) -> Result<Position>;

    /// Whether what it reads was given up since it was opened ([`Journal::given_up`]): nothing of it is
    /// returned any more, nor an error that is for good.
    ///
    /// [`Journal::given_up`]: crate::Journal::given_up
    fn is_given_up(&self) -> bool;

    /// Whether a part of the next answer has come within [`patience`](Tail::patience), and the rest is on its
    /// way, or comes until [`Tail::receive`] fails.
    fn is_receiving(&mut self) -> bool {
        false
    }

    /// How long the member may take for what is known to be there.
    fn patience(&self) -> Duration {
        LAG
    }

    /// Leaves the member, which has not served [`due`](Tail::due) though the journal has it, and reports
    /// that.
    fn leave(&mut self) -> Error;

    /// Leaves the member for what it has served at a position, or has not, as [`Reader::distrust`] has it.
    /// Returns its address.
    fn distrust(&mut self, position: Position) -> String;
}

/// Reads a [`Tail`]. Its thread owns it.
pub struct TailReader<T> {
    tail: T,
    /// When the member was last known to be up to date.
    current: Instant,
    /// The position that is returned next.
    next: Position,
    /// Whether the last call has returned the record before that.
    has_returned: bool,
    /// The position that was due when [`Reader::is_busy`] was asked last.
    asked: Position,
    /// The connection had ended by then.
    has_ended: bool,
}

impl<T: Tail> TailReader<T> {
    /// Reads a tail from its beginning.
    pub fn new(tail: T) -> TailReader<T> {
        let next = tail.due();
        let (current, asked) = (Instant::now(), next);
        TailReader { tail, current, next, has_returned: false, asked, has_ended: false }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.tail.pop()?;
        self.next = entry.position.next();
        self.has_returned = true;
        Some(entry)
    }

    /// Compares what was read with the journal's end.
    fn check_end(&mut self) -> Result<()> {
        let end = match self.tail.end() {
            // The answer waits behind what the member sends, and so would the next one.
            Err(error) if error.is_transient() && self.tail.is_receiving() => {
                self.current = Instant::now();
                return Ok(());
            }
            end => end?,
        };
        if end.next() < self.tail.due() {
            let applied = Position::new(self.tail.due().get().saturating_sub(1));
            return Err(Error::Behind { applied, end });
        }
        let mut deadline = Instant::now() + self.tail.patience();
        while self.tail.due() <= end {
            let wait = deadline.saturating_duration_since(Instant::now());
            if self.tail.receive(wait)? || !wait.is_zero() {
                continue;
            }
            if !self.tail.is_receiving() {
                return Err(self.tail.leave());
            }
            deadline = Instant::now() + self.tail.patience();
        }
        self.current = Instant::now();
        Ok(())
    }
}

impl<T: Tail> TailReader<T> {
    fn receive_next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let deadline = Instant::now() + timeout;
        self.has_returned = false;
        loop {
            if let Some(entry) = self.pop() {
                return Ok(Some(entry));
            }
            let check = self.current + QUIET;
            let wait = deadline.min(check).saturating_duration_since(Instant::now());
            if self.tail.receive(wait)? {
                if let Some(entry) = self.pop() {
                    self.current = Instant::now();
                    return Ok(Some(entry));
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

impl<T: Tail> Reader for TailReader<T> {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let next = self.receive_next(timeout);
        match &next {
            Err(error) if error.is_transient() => next,
            _ if self.tail.is_given_up() => {
                let message = "what was taken for the journal was given up, and is looked for".to_owned();
                Err(Error::Unavailable { message })
            }
            _ => next,
        }
    }

    fn distrust(&mut self) -> Option<String> {
        // What was returned last, or what should have come: others may have come behind it.
        let before = Position::new(self.next.get().saturating_sub(1));
        Some(self.tail.distrust(if self.has_returned { before } else { self.next }))
    }

    /// Takes what has come, behind which the end of the connection shows. Who puts an old copy in the place
    /// of the journal ends its members for that, so records of before are not returned afterwards: they may
    /// be none of the journal by then. What had come when this was asked last is no sign that it goes on.
    fn is_busy(&mut self) -> bool {
        let mut has_come = self.tail.is_receiving();
        self.has_ended |= self.tail.is_given_up();
        for _ in 0..MOST_ANSWERS {
            if self.has_ended {
                return false;
            }
            match self.tail.receive(Duration::ZERO) {
                Ok(true) => {}
                Ok(false) => {
                    has_come |= self.tail.due() > self.asked;
                    self.asked = self.tail.due();
                    return has_come;
                }
                Err(_) => self.has_ended = true,
            }
        }
        // It is not slow.
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// A member that answers what it was given, one answer per call, then waits.
    struct Given {
        answers: VecDeque<Vec<u8>>,
        ready: VecDeque<Entry>,
        due: Position,
        end: Position,
        /// Calls for the end that fail, while a part of the next answer comes.
        failing: u32,
        /// The connection ends behind the answers.
        ends: bool,
        is_given_up: bool,
    }

    impl Tail for Given {
        fn receive(&mut self, wait: Duration) -> Result<bool> {
            let Some(answer) = self.answers.pop_front() else {
                if self.ends {
                    return Err(Error::Unavailable { message: "the connection has ended".to_owned() });
                }
                std::thread::park_timeout(wait);
                return Ok(false);
            };
            for byte in answer {
                self.ready.push_back(Entry { position: self.due, bytes: vec![byte].into() });
                self.due = self.due.next();
            }
            Ok(true)
        }

        fn pop(&mut self) -> Option<Entry> {
            self.ready.pop_front()
        }

        fn due(&self) -> Position {
            self.due
        }

        fn end(&mut self) -> Result<Position> {
            match self.failing {
                0 => Ok(self.end),
                _ => Err(Error::Unavailable { message: "no answer in time".to_owned() }),
            }
        }

        fn is_given_up(&self) -> bool {
            self.is_given_up
        }

        fn is_receiving(&mut self) -> bool {
            let is_receiving = self.failing > 0;
            self.failing = self.failing.saturating_sub(1);
            is_receiving
        }

        fn leave(&mut self) -> Error {
            Error::Unavailable { message: format!("left before {}", self.due) }
        }

        fn distrust(&mut self, position: Position) -> String {
            format!("a member, at {position}")
        }
    }

    fn reader(answers: &[&[u8]], end: u64) -> TailReader<Given> {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        let (due, end) = (Position::new(1), Position::new(end));
        let (ready, failing, ends, is_given_up) = (VecDeque::new(), 0, false, false);
        TailReader::new(Given { answers, ready, due, end, failing, ends, is_given_up })
    }

    #[test]
    fn records_come_in_order_and_then_none() {
        let mut reader = reader(&[b"ab", b"", b"c"], 3);
        let texts: Vec<_> = std::iter::from_fn(|| reader.next(Duration::ZERO).unwrap())
            .map(|entry| (entry.position.get(), entry.bytes[0]))
            .collect();
        assert_eq!(texts, [(1, b'a'), (2, b'b'), (3, b'c')]);
        // Up to date, however long it is quiet.
        assert_eq!(reader.next(QUIET * 2).unwrap(), None);
    }

    /// Also what has come already.
    #[test]
    fn nothing_is_returned_of_what_was_given_up() {
        let mut reader = reader(&[b"abc", b"d"], 4);
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        reader.tail.is_given_up = true;
        for _ in 0..2 {
            assert!(matches!(reader.next(Duration::ZERO), Err(Error::Unavailable { .. })));
        }
        assert!(!reader.is_busy());
        // It ends before what was read.
        reader.tail.end = Position::ZERO;
        assert!(matches!(reader.next(QUIET * 4), Err(Error::Unavailable { .. })));
    }

    #[test]
    fn a_member_that_lacks_a_record_is_left() {
        let mut reader = reader(&[b"a"], 2);
        assert_eq!(reader.next(Duration::ZERO).unwrap().unwrap().position, Position::new(1));
        let error = reader.next(QUIET * 10).unwrap_err();
        assert!(matches!(&error, Error::Unavailable { message } if message == "left before 2"), "{error}");
    }

    /// Where what comes takes the path for itself, the member is not left for that.
    #[test]
    fn an_end_that_is_not_answered_is_read_later_while_records_come() {
        let mut reader = reader(&[b"ab"], 2);
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        reader.tail.failing = 2;
        assert_eq!(reader.next(QUIET * 4).unwrap(), None);
        assert_eq!(reader.tail.failing, 0);
        // Nothing comes any more.
        reader.tail.end = Position::new(3);
        assert!(reader.next(QUIET * 4).is_err());
    }

    /// As when a journal is looked at that was lost, and when it was compared.
    #[test]
    fn a_reader_is_busy_while_something_comes_over_its_connection() {
        let mut reader = reader(&[b"abc"], 9);
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        reader.is_busy();
        assert!(!reader.is_busy(), "what has come was there before");
        reader.tail.answers.push_back(b"d".to_vec());
        assert!(reader.is_busy());
        let read: Vec<u64> = std::iter::from_fn(|| reader.next(Duration::ZERO).unwrap())
            .map(|entry| entry.position.get())
            .collect();
        assert_eq!(read, [2, 3, 4]);
        // A part of the next one.
        reader.tail.failing = 1;
        assert!(reader.is_busy() && !reader.is_busy());
        // A path that is fast.
        reader.tail.answers.extend(vec![b"x".to_vec(); MOST_ANSWERS]);
        assert!(!reader.is_busy());
        // Its member was ended behind what it has sent, and another one is at its address.
        reader.tail.answers.push_back(b"e".to_vec());
        (reader.tail.failing, reader.tail.ends) = (1, true);
        assert!(!reader.is_busy());
        reader.tail.answers.push_back(b"f".to_vec());
        reader.tail.ends = false;
        assert!(!reader.is_busy());
    }

    #[test]
    fn a_member_is_distrusted_for_what_it_has_served_last() {
        let mut reader = reader(&[b"ab"], 4);
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        assert_eq!(reader.distrust().unwrap(), "a member, at 1", "there is one more");
        assert!(reader.next(Duration::ZERO).unwrap().is_some());
        assert_eq!(reader.distrust().unwrap(), "a member, at 2");
        assert_eq!(reader.next(Duration::ZERO), Ok(None));
        assert_eq!(reader.distrust().unwrap(), "a member, at 3", "it lacks one");
    }

    #[test]
    fn a_journal_that_ends_before_what_was_read_is_behind() {
        let mut reader = reader(&[b"ab"], 1);
        for _ in 0..2 {
            reader.next(Duration::ZERO).unwrap().unwrap();
        }
        let error = reader.next(QUIET * 10).unwrap_err();
        let (applied, end) = (Position::new(2), Position::new(1));
        assert!(matches!(error, Error::Behind { applied: a, end: e } if (a, e) == (applied, end)), "{error}");
    }
}
