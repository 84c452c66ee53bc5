//! Goes on applying the changes of an etcd to a store, until a switch-over is requested.

use std::collections::HashSet;
use std::fs::File;
use std::io::Seek as _;
use std::path::Path;
use std::time::Duration;

use plinth_engine::{Engine, Progress};
use plinth_etcd_wire::kv::Event;
use plinth_registry::is_custom_key;

use crate::decode::{Decoded, Decoder};
use crate::import::{self, ImportError, Writer};
use crate::live::{Live, LiveWatch};
use crate::refusal::Refusal;
use crate::report::Report;
use crate::source::{Source as _, SourceEntry, SourceError};
use crate::spool::Spool;

/// How long a watch is waited for before the command is looked at again.
const WAIT: Duration = Duration::from_millis(200);
/// Longest silence of a watch while the last changes are waited for.
const LAST_WAIT: Duration = Duration::from_secs(30);

/// How often etcd is read at the end, until nothing has changed meanwhile.
const ATTEMPTS: usize = 5;

/// When to switch over.
pub struct SwitchOver<'s> {
    /// Whether it was commanded.
    pub is_commanded: &'s dyn Fn() -> bool,
    /// The revision of etcd at which it happens by itself.
    pub at_revision: Option<u64>,
}

/// A store that follows an etcd.
pub struct Follower<'f> {
    live: &'f mut Live,
    decoder: &'f mut Decoder,
    engine: &'f Engine,
    writer: Writer<'f>,
    skips_unknown: bool,
    /// Up to here everything is in the store.
    applied: u64,
    changes: u64,
    /// Begin the keys of custom resources whose definitions have changed.
    redefined: HashSet<Vec<u8>>,
}

/// What was followed.
#[derive(Debug)]
pub struct Followed {
    /// What the store has.
    pub report: Report,
    /// The revision of etcd at which it was left.
    pub left_at: u64,
    /// Changes that were applied.
    pub changes: u64,
    /// Those of them that etcd made while it was compared: leases that expired, or a kube-apiserver that
    /// runs.
    pub late_changes: u64,
}

impl<'f> Follower<'f> {
    /// Imports a spool, to go on from its revision.
    ///
    /// # Errors
    /// When it cannot be read or the store fails.
    pub fn new(
        live: &'f mut Live,
        decoder: &'f mut Decoder,
        engine: &'f Engine,
        spool: &Spool,
        skips_unknown: bool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Follower<'f>, ImportError> {
        let mut writer = Writer::new(engine, decoder);
        import::write(spool, decoder, &mut writer, progress)?;
        let applied = spool.revision();
        let redefined = HashSet::new();
        Ok(Follower { live, decoder, engine, writer, skips_unknown, applied, changes: 0, redefined })
    }

    /// Applies changes until the switch-over, then compares the store with etcd. `refused` gets what is left
    /// out. `last` is a file
    /// for what etcd has at the end.
    ///
    /// # Errors
    /// When etcd cannot be followed, an object cannot be imported, or the store fails.
    pub fn run(
        mut self,
        switch_over: &SwitchOver<'_>,
        refused: &mut dyn FnMut(&[u8], &Refusal),
        last: (File, &Path),
    ) -> Result<Followed, ImportError> {
        let prefix = self.decoder.prefix().to_owned();
        let mut watch = self.live.watch(&prefix, self.applied)?;
        while !(switch_over.is_commanded)() && switch_over.at_revision.is_none_or(|at| self.applied < at) {
            if let Some(changes) = self.live.next(&mut watch, WAIT)? {
                self.apply(changes.events, refused)?;
                self.applied = self.applied.max(changes.reached);
            } else if switch_over.at_revision.is_some() {
                self.live.ask_progress(&watch);
            }
        }
        let end = self.live.revision()?;
        self.reach(&mut watch, end, refused)?;
        let until = self.changes;
        for _ in 0..ATTEMPTS {
            let spool = self.live.spool(&prefix, emptied(&last)?, last.1, &mut |_| {})?;
            self.reach(&mut watch, spool.revision(), refused)?;
            if self.applied == spool.revision() {
                let late_changes = self.changes - until;
                drop(watch);
                return self.finish(&spool, late_changes);
            }
        }
        Err(ImportError::Changing(self.applied))
    }

    /// Applies everything up to a revision.
    fn reach(
        &mut self,
        watch: &mut LiveWatch,
        end: u64,
        refused: &mut dyn FnMut(&[u8], &Refusal),
    ) -> Result<(), ImportError> {
        let mut silence = Duration::ZERO;
        while self.applied < end {
            self.live.ask_progress(watch);
            match self.live.next(watch, WAIT)? {
                Some(changes) => {
                    silence = Duration::ZERO;
                    self.apply(changes.events, refused)?;
                    self.applied = self.applied.max(changes.reached);
                }
                None => silence += WAIT,
            }
            if silence >= LAST_WAIT {
                let reason = "it reports no progress of the watch".to_owned();
                return Err(crate::live::LiveError::Unavailable(reason).into());
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        events: Vec<Event>,
        refused: &mut dyn FnMut(&[u8], &Refusal),
    ) -> Result<(), ImportError> {
        for event in events {
            let Some(kv) = event.kv else { continue };
            self.changes += 1;
            let ttl = if event.kind == Event::DELETE { None } else { self.live.time_to_live(kv.lease)? };
            let entry = SourceEntry { key: kv.key.to_vec(), value: kv.value.to_vec(), ttl };
            let is_definition = entry.key.starts_with(self.decoder.definitions_prefix().as_bytes());
            if event.kind == Event::DELETE {
                if let Some(own) = self.decoder.own_key(&entry.key) {
                    self.writer.delete(own)?;
                }
            } else {
                if is_definition {
                    self.decoder.define(&entry);
                    self.redefined.extend(self.decoder.custom_prefix(&entry.key));
                }
                match self.decoder.decode(&entry) {
                    Ok(Decoded::Object(object)) => self.writer.put(*object)?,
                    Ok(Decoded::Internal) => {}
                    Err(refusal) => self.refuse(&entry.key, refusal, refused)?,
                }
            }
        }
        self.writer.finish()
    }

    fn refuse(
        &mut self,
        key: &[u8],
        refusal: Refusal,
        refused: &mut dyn FnMut(&[u8], &Refusal),
    ) -> Result<(), ImportError> {
        if !self.skips_unknown {
            return Err(ImportError::RefusedChange { key: key.escape_ascii().to_string(), refusal });
        }
        refused(key, &refusal);
        // An earlier version of it does not stay.
        match self.decoder.own_key(key) {
            Some(own) => self.writer.delete(own),
            None => Ok(()),
        }
    }

    /// Compares the store with what etcd has.
    fn finish(mut self, spool: &Spool, late_changes: u64) -> Result<Followed, ImportError> {
        let (writer, redefined) = (&mut self.writer, &self.redefined);
        let expected = import::tally(spool, self.decoder, &mut |_, object| {
            // What was stored under an earlier schema of its definition is brought to the last one.
            let is_redefined =
                is_custom_key(&object.key) && redefined.iter().any(|prefix| object.key.starts_with(prefix));
            match is_redefined {
                true => writer.put(object),
                false => Ok(()),
            }
        })?;
        self.writer.finish()?;
        let report = import::finish(self.engine, self.decoder, expected)?;
        Ok(Followed { report, left_at: spool.revision(), changes: self.changes, late_changes })
    }
}

/// The file, to be written again.
fn emptied((file, path): &(File, &Path)) -> Result<File, SourceError> {
    let emptied = || {
        let mut file = file.try_clone()?;
        file.set_len(0)?;
        file.rewind()?;
        Ok(file)
    };
    emptied().map_err(|source| SourceError::Io { path: path.display().to_string(), source })
}
