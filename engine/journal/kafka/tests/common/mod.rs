//! Starts real brokers of Kafka on loopback with `scripts/journal`, where the environment variable
//! `PLINTH_KAFKA` names the directory of their archives (`scripts/journal kafka program`).

#![allow(dead_code)] // each program of tests uses a part of it
#![allow(clippy::disallowed_methods)] // plain threads, no async code

pub(crate) mod admin;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use plinth_journal::record::ClusterId;
use plinth_journal::{Error, Founding, Journal, Position};
use plinth_journal_kafka::{KafkaJournal, KafkaOptions};

pub(crate) const CLUSTER: ClusterId = ClusterId(*b"a cluster of ten");

/// Brokers are large: those of one test at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

/// Brokers, which end with it.
pub(crate) struct Brokers {
    dir: tempfile::TempDir,
    count: usize,
    url: String,
    settings: Vec<(&'static str, String)>,
    _only: MutexGuard<'static, ()>,
}

/// Whether there is a Kafka; says so where there is none.
pub(crate) fn is_there() -> bool {
    let is_there = std::env::var_os("PLINTH_KAFKA").is_some();
    if !is_there {
        eprintln!("skipped: PLINTH_KAFKA names no archives of Kafka");
    }
    is_there
}

impl Brokers {
    pub(crate) fn start(count: usize) -> Brokers {
        Brokers::start_with(count, tempfile::tempdir().unwrap(), Vec::new())
    }

    /// Brokers whose scripts get these variables.
    pub(crate) fn start_with(
        count: usize,
        dir: tempfile::TempDir,
        settings: Vec<(&'static str, String)>,
    ) -> Brokers {
        let only = ONE_TEST.lock();
        let mut brokers = Brokers { dir, count, url: String::new(), settings, _only: only };
        brokers.url = brokers.run("start");
        brokers
    }

    /// Runs `scripts/journal`; what it prints.
    fn run(&self, command: &str) -> String {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../scripts/journal");
        let mut script = Command::new(script);
        script
            .args(["kafka", command])
            .arg(self.path())
            .env("PLINTH_JOURNAL_MEMBERS", self.count.to_string());
        let output = script.envs(self.settings.iter().cloned()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("brokers")
    }

    pub(crate) fn options(&self) -> KafkaOptions {
        KafkaOptions::parse(&self.url).unwrap()
    }

    /// The options for another topic.
    pub(crate) fn topic(&self, topic: &str) -> KafkaOptions {
        KafkaOptions { topic: topic.to_owned(), ..self.options() }
    }

    /// A client, once the brokers answer.
    pub(crate) fn connect(&self) -> KafkaJournal {
        self.connect_with(&self.options())
    }

    pub(crate) fn connect_with(&self, options: &KafkaOptions) -> KafkaJournal {
        let journal = KafkaJournal::connect(options, CLUSTER, Founding::Allowed).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while let Err(error) = journal.end() {
            assert!(error.is_transient() && Instant::now() < deadline, "{error}");
            std::thread::sleep(Duration::from_millis(50));
        }
        journal
    }

    /// Appends, until it is certain that it is in the journal: once, as nothing fails.
    pub(crate) fn append(journal: &KafkaJournal, record: &'static str) -> Position {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match journal.append(record.into()) {
                Ok(position) => return position,
                // A new topic is not known to all brokers for a moment.
                Err(Error::Unavailable { .. }) if Instant::now() < deadline => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Which broker leads, as a client knows.
    pub(crate) fn leading(&self, journal: &KafkaJournal) -> usize {
        let leader = journal.leader().unwrap();
        self.options().brokers.iter().position(|address| *address == leader).unwrap()
    }

    pub(crate) fn kill(&self, broker: usize) {
        self.signal(broker, "-KILL");
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.run("status").contains(&format!("m{broker} runs")) {
            assert!(Instant::now() < deadline, "a killed broker runs");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Flips a bit of a text in a broker's file of a partition, while it runs.
    pub(crate) fn damage(&self, broker: usize, partition: &str, text: &[u8]) {
        let path = log_of(&self.path().join(format!("m{broker}")), partition).expect("the broker has it");
        let mut bytes = std::fs::read(&path).unwrap();
        let place = bytes.windows(text.len()).position(|at| at == text).expect("the text is there");
        bytes[place] ^= 1;
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes[place..=place], place as u64).unwrap();
    }

    /// Starts the brokers that do not run, and waits for all.
    pub(crate) fn restart(&self) {
        self.run("start");
    }

    pub(crate) fn signal(&self, broker: usize, signal: &str) {
        let pid = std::fs::read_to_string(self.path().join(format!("m{broker}/pid"))).unwrap();
        assert!(Command::new("kill").args([signal, pid.trim()]).status().unwrap().success());
    }
}

/// The first file of a partition, below a directory.
fn log_of(dir: &Path, partition: &str) -> Option<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).find_map(
        |path| match path.ends_with(partition) {
            true => Some(path.join("00000000000000000000.log")),
            false => log_of(&path, partition),
        },
    )
}

impl Drop for Brokers {
    fn drop(&mut self) {
        for broker in 0..self.count {
            let pid = std::fs::read_to_string(self.path().join(format!("m{broker}/pid")));
            // It may have ended, or never begun.
            if let Ok(pid) = pid {
                let _ = Command::new("kill").args(["-KILL", pid.trim()]).output();
            }
        }
    }
}
