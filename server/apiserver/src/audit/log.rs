//! The audit log file: one JSON object per line, written by a separate thread, rotated by size.
//!
//! Events are queued; the queue is bounded in bytes, and in mode batch in number. When it is full,
//! `--audit-log-mode` decides: requests wait, or the event is dropped and counted. The thread writes what is
//! queued and flushes it; in mode batch it forms batches as the flags configure. Rotation (`rotating_file`)
//! and names of rotated files are those of upstream's log backend (lumberjack):
//! `audit-2026-11-21T22-23-01.123.log`, `.gz` when compressed, which another thread does (`rotated_files`).

use std::io::{self, Write};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::counters::{Counters, EventLost};
use super::options::{AuditMode, AuditOptions, Batching};
use super::rotated_files::RotationLimits;
use super::rotating_file::RotatingFile;
use super::throttle::Throttle;

/// Bytes of queued events.
const MAX_QUEUED_BYTES: usize = 32 << 20;
/// How long a shutdown waits for queued events.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The sending end of the queue. Cheap to clone.
#[derive(Clone)]
pub(super) struct Log {
    lines: Sender<Message>,
    bytes: Arc<Semaphore>,
    /// Limits the number of queued lines.
    slots: Arc<Semaphore>,
    mode: AuditMode,
    counters: Counters,
}

/// A queued message.
enum Message {
    /// A line, with its permits until it is written and flushed.
    Line { text: Vec<u8>, _bytes: OwnedSemaphorePermit, _slot: OwnedSemaphorePermit },
    /// From here on batches are written at once.
    Flush,
}

impl Log {
    /// Its name in metrics.
    pub(super) const NAME: &'static str = "log";

    /// Starts the writing thread.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(super) fn start(path: &Path, options: &AuditOptions, counters: Counters) -> io::Result<Log> {
        let file: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(RotatingFile::open(path, RotationLimits::of(options))?),
        };
        let (lines, queue) = mpsc::channel();
        let (lost, batching) = (counters.clone(), options.log_batching());
        let batches = Batches { queue, batching, throttle: Throttle::new(&batching), flushing: false };
        std::thread::Builder::new()
            .name("audit-log".into())
            .spawn(move || write_batches(batches, file, &lost))?;
        let slots = Arc::new(Semaphore::new(batching.buffer.min(Semaphore::MAX_PERMITS)));
        Ok(Log {
            lines,
            bytes: Arc::new(Semaphore::new(MAX_QUEUED_BYTES)),
            slots,
            mode: options.audit_log_mode,
            counters,
        })
    }

    fn size(text: &[u8]) -> u32 {
        u32::try_from(text.len().min(MAX_QUEUED_BYTES)).unwrap_or(u32::MAX)
    }

    /// Enqueues a line, if there is one; waits for space first unless events may be dropped.
    ///
    /// # Errors
    /// [`EventLost`] when it was dropped.
    pub(super) async fn write(&self, line: &mut Option<Vec<u8>>) -> Result<(), EventLost> {
        let bytes = match line {
            Some(text) if self.mode != AuditMode::Batch => {
                Some(self.bytes.clone().acquire_many_owned(Log::size(text)).await)
            }
            _ => None,
        };
        match (line.take(), bytes) {
            (Some(text), Some(bytes)) => self.enqueue(text, bytes.map_err(|_| EventLost)),
            (Some(text), None) => self.write_now(text),
            (None, _) => Ok(()),
        }
    }

    /// Enqueues a line without waiting, as at the end of a body.
    ///
    /// # Errors
    /// [`EventLost`] when the queue is full.
    pub(crate) fn write_now(&self, text: Vec<u8>) -> Result<(), EventLost> {
        let bytes = self.bytes.clone().try_acquire_many_owned(Log::size(&text));
        self.enqueue(text, bytes.map_err(|_| EventLost))
    }

    fn enqueue(
        &self,
        text: Vec<u8>,
        bytes: Result<OwnedSemaphorePermit, EventLost>,
    ) -> Result<(), EventLost> {
        let slot = self.slots.clone().try_acquire_owned().map_err(|_| EventLost);
        let queued = bytes.and_then(|_bytes| {
            let line = Message::Line { text, _bytes, _slot: slot? };
            self.lines.send(line).map_err(|_| EventLost)
        });
        if queued.is_err() {
            self.counters.lost(Log::NAME, 1);
        }
        queued
    }

    /// Waits until the queue is written and flushed, with a timeout: then all permits are available.
    pub(super) async fn drain(&self) {
        // If the thread has ended, nothing is queued.
        let _ = self.lines.send(Message::Flush);
        let all = self.bytes.acquire_many(u32::try_from(MAX_QUEUED_BYTES).unwrap_or(u32::MAX));
        if tokio::time::timeout(DRAIN_TIMEOUT, all).await.is_err() {
            tracing::warn!("audit log was not flushed in time; queued events are lost");
        }
    }

    /// Whether a request is refused when its first event is lost.
    pub(crate) fn is_strict(&self) -> bool {
        self.mode == AuditMode::BlockingStrict
    }
}

/// Forms batches of lines that are written and flushed together. Owned by the writing thread.
struct Batches {
    queue: Receiver<Message>,
    batching: Batching,
    throttle: Throttle,
    /// Whether batches are written without waiting.
    flushing: bool,
}

impl Batches {
    /// The next batch: full, or at its maximum age. `None` when all senders are gone.
    fn next(&mut self) -> Option<Vec<Message>> {
        let mut batch = Vec::new();
        let mut until = None;
        loop {
            let next = match until {
                None => self.queue.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) if !self.flushing => {
                    self.queue.recv_timeout(Instant::saturating_duration_since(&until, Instant::now()))
                }
                Some(_) => self.queue.try_recv().map_err(|_| RecvTimeoutError::Timeout),
            };
            match next {
                Ok(Message::Flush) => self.flushing = true,
                Ok(line) => {
                    batch.push(line);
                    until.get_or_insert_with(|| Instant::now() + self.batching.max_wait);
                }
                Err(_) if batch.is_empty() => return None,
                Err(_) => break,
            }
            if batch.len() >= self.batching.max_size {
                break;
            }
        }
        if !self.flushing {
            let until = Instant::now() + self.throttle.take(Instant::now()).min(DAY);
            // May return early; no one unparks this thread.
            while let Some(rest) = until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero())
            {
                std::thread::park_timeout(rest);
            }
        }
        Some(batch)
    }
}

/// Writes until the last sender is gone. A batch's permits are released after its flush, which [`Log::drain`]
/// relies on.
fn write_batches(mut batches: Batches, mut out: Box<dyn Write + Send>, lost: &Counters) {
    // Logged once, since there are as many failures as events, and the disk may be that of other logs.
    let mut is_failing = false;
    while let Some(batch) = batches.next() {
        let mut failed = None;
        for message in &batch {
            let Message::Line { text, .. } = message else { continue };
            // A line is a single write, so that rotation does not split it.
            if let Err(error) = out.write_all(text) {
                lost.lost(Log::NAME, 1);
                failed = Some(error);
            }
        }
        match failed.or(out.flush().err()) {
            Some(error) if !is_failing => {
                is_failing = true;
                tracing::error!(%error, "audit events cannot be written; those that are lost are counted in \
                    apiserver_audit_error_total");
            }
            None if is_failing => {
                is_failing = false;
                tracing::warn!("audit events are written again");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::parsed;
    use super::*;

    fn options(mode: AuditMode) -> AuditOptions {
        AuditOptions { audit_log_mode: mode, ..parsed::<&str>([]) }
    }

    fn counters() -> Counters {
        Counters::new(&prometheus::Registry::new()).unwrap()
    }

    #[tokio::test]
    async fn a_full_queue_drops_or_waits_as_the_mode_says() {
        for (mode, drops) in [(AuditMode::Batch, true), (AuditMode::Blocking, false)] {
            let dir = tempfile::tempdir().unwrap();
            let mut log = Log::start(&dir.path().join("audit.log"), &options(mode), counters()).unwrap();
            // Space for one line only, which is taken.
            log.bytes = Arc::new(Semaphore::new(10));
            let held = log.bytes.clone().try_acquire_many_owned(5).unwrap();
            let mut line = Some(b"0123456\n".to_vec());
            match drops {
                true => assert_eq!(log.write(&mut line).await, Err(EventLost)),
                false => {
                    let waiting = tokio::time::timeout(Duration::from_millis(20), log.write(&mut line)).await;
                    assert!(waiting.is_err(), "it waits");
                    assert!(line.is_some(), "who no longer waits has it still");
                    drop(held);
                    log.write(&mut line).await.unwrap();
                }
            }
            assert_eq!(line, None);
            let lost = log.counters.lost_by(Log::NAME);
            assert_eq!(lost, u64::from(drops));
        }
    }

    #[tokio::test]
    async fn mode_batch_bounds_the_number_of_lines_that_wait() {
        let dir = tempfile::tempdir().unwrap();
        let options = AuditOptions { audit_log_batch_buffer_size: 2, ..options(AuditMode::Batch) };
        let mut log = Log::start(&dir.path().join("audit.log"), &options, counters()).unwrap();
        // A queue without a reader.
        let (lines, queue) = mpsc::channel();
        log.lines = lines;
        let outcomes =
            [log.write_now(b"a\n".to_vec()), log.write_now(b"b\n".to_vec()), log.write_now(b"c\n".to_vec())];
        assert_eq!(outcomes, [Ok(()), Ok(()), Err(EventLost)]);
        assert_eq!(log.counters.lost_by(Log::NAME), 1);
        drop(queue);
    }

    #[test]
    fn batches_are_full_or_old_or_nothing_waits_any_more() {
        let (lines, queue) = mpsc::channel();
        let options = AuditOptions {
            audit_log_batch_max_size: 3,
            audit_log_batch_max_wait: Duration::from_secs(3600),
            ..options(AuditMode::Batch)
        };
        let batching = options.log_batching();
        let mut batches = Batches { queue, throttle: Throttle::new(&batching), batching, flushing: false };
        let permit = || Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let send = |count: usize| {
            for _ in 0..count {
                lines
                    .send(Message::Line { text: b"x\n".to_vec(), _bytes: permit(), _slot: permit() })
                    .ok()
                    .unwrap();
            }
        };
        let mut sizes = Vec::new();
        send(4);
        sizes.push(batches.next().unwrap().len());
        // One event is left, which would wait for an hour.
        lines.send(Message::Flush).ok().unwrap();
        sizes.push(batches.next().unwrap().len());
        send(5);
        sizes.extend([batches.next().unwrap().len(), batches.next().unwrap().len()]);
        batches.flushing = false;
        batches.batching.max_wait = Duration::ZERO;
        send(1);
        sizes.push(batches.next().unwrap().len());
        assert_eq!(sizes, [3, 1, 3, 2, 1]);
        send(1);
        drop(lines);
        assert_eq!(batches.next().unwrap().len(), 1);
        assert!(batches.next().is_none());
    }

    #[tokio::test]
    async fn lines_are_written_by_the_thread() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep").join("audit.log");
        let log = Log::start(&path, &options(AuditMode::Blocking), counters()).unwrap();
        for n in 0..100 {
            log.write(&mut Some(format!("{n}\n").into_bytes())).await.unwrap();
        }
        let written = || std::fs::read_to_string(&path).unwrap().lines().count();
        let wait = async {
            while written() < 100 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), wait).await.unwrap();
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
