//! Checks of very many states of a disk: the same state once, several at a time, with a summary of what was
//! seen.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use crate::disk::{Data, Disk, Image, Names, Random};
use crate::process::scratch;

/// The choices that each point of a run is cut with.
pub const CUTS: [(Data, Names); 12] = [
    (Data::Kept, Names::Kept),
    (Data::Lost, Names::Lost),
    (Data::Lost, Names::Journal),
    (Data::Lost, Names::Kept),
    (Data::Kept, Names::Lost),
    (Data::SizeOnly, Names::Kept),
    (Data::Torn(512), Names::Journal),
    (Data::Torn(4096), Names::Kept),
    (Data::Scattered(512), Names::JournalAhead),
    (Data::Scattered(4096), Names::Kept),
    (Data::Scattered(4096), Names::Scattered),
    (Data::Mixed, Names::JournalAhead),
];

/// The revisions of a data directory that opened.
#[derive(Debug, Clone, Copy)]
pub struct Found {
    /// The newest revision.
    pub latest: u64,
    /// The oldest readable revision.
    pub floor: u64,
}

/// What a check requires of a state.
#[derive(Debug, Clone, Copy)]
pub struct Requirement {
    /// Whether it may be refused when it is opened.
    may_refuse: bool,
    /// If it opens, it is at or behind this revision.
    latest: u64,
    /// The same for the floor.
    floor: u64,
}

impl Requirement {
    /// It opens, and is at or behind these revisions.
    pub fn opens(latest: u64, floor: u64) -> Requirement {
        Requirement { may_refuse: false, latest, floor }
    }

    /// It is refused, or at or behind this revision.
    pub fn opens_or_refuses(latest: u64) -> Requirement {
        Requirement { may_refuse: true, latest, floor: 0 }
    }

    fn strictest(self, other: Requirement) -> Requirement {
        Requirement {
            may_refuse: self.may_refuse && other.may_refuse,
            latest: self.latest.max(other.latest),
            floor: self.floor.max(other.floor),
        }
    }
}

/// Checks a directory. Errors that begin with `open:` are refusals, all others are failures.
pub type Check<'a> = dyn Fn(&str, &Path) -> Result<Found, String> + Sync + 'a;

/// How often a long run prints its progress.
const PROGRESS: Duration = Duration::from_secs(20);

type Key = (&'static str, [u8; 32]);

struct StateRecord {
    requirement: Requirement,
    /// Whether names reached the disk in an order of their own wherever it was seen.
    is_scattered: bool,
    /// Where the state was first seen.
    place: String,
}

struct Job {
    key: Key,
    image: Image,
    place: String,
}

/// A run of checks.
pub struct Campaign<'a> {
    name: &'static str,
    ways: usize,
    check: &'a Check<'a>,
}

/// Takes the states of one run.
pub struct States {
    jobs: SyncSender<Job>,
    known: HashMap<Key, StateRecord>,
    points: u64,
    states: u64,
    ways: usize,
    reported: Instant,
}

/// Receives a part of a state: its name, its image, what it must be good for.
pub type Submit<'a> = &'a mut dyn FnMut(&'static str, Image, Requirement);

impl States {
    /// Cuts power at this point, in as many of the ways of [`CUTS`] as the run takes, others at the next
    /// point. `parts` says what to check of an image.
    pub fn point(&mut self, disk: &Disk, mut parts: impl FnMut(&Image, Submit<'_>)) {
        self.points += 1;
        if self.reported.elapsed() > PROGRESS {
            self.reported = Instant::now();
            eprintln!("{} points, {} states, {} distinct", self.points, self.states, self.known.len());
        }
        for way in 0..self.ways {
            let number = (self.points as usize * self.ways + way) % CUTS.len();
            let (data, names) = CUTS[number];
            let mut random = Random(self.points * CUTS.len() as u64 + number as u64);
            let image = disk.image(data, names, &mut random);
            let place = format!("point {}, data {data:?}, names {names:?}", self.points);
            let is_scattered = names == Names::Scattered;
            parts(&image, &mut |part, image, requirement| {
                let known = StateRecord { requirement, is_scattered, place: place.clone() };
                self.state(part, image, known);
            });
        }
    }

    fn state(&mut self, part: &'static str, image: Image, state: StateRecord) {
        self.states += 1;
        let key = (part, image.digest());
        if let Some(known) = self.known.get_mut(&key) {
            known.requirement = known.requirement.strictest(state.requirement);
            known.is_scattered &= state.is_scattered;
            return;
        }
        let place = state.place.clone();
        self.known.insert(key, state);
        // A receiver that is gone has panicked, which the scope reports.
        let _ = self.jobs.send(Job { key, image, place });
    }
}

impl<'a> Campaign<'a> {
    /// A campaign with a name for its summary.
    /// Each point is cut in `PLINTH_POWER_WAYS` of the ways of [`CUTS`], by default in one.
    pub fn new(name: &'static str, check: &'a Check<'a>) -> Campaign<'a> {
        let ways = std::env::var("PLINTH_POWER_WAYS").ok().and_then(|text| text.parse().ok());
        Campaign { name, ways: ways.unwrap_or(1).clamp(1, CUTS.len()), check }
    }

    /// Checks each distinct state that `produce` hands in.
    ///
    /// # Panics
    /// When one is not as required, after all are checked, with one example of each kind of failure.
    pub fn run(&self, produce: impl FnOnce(&mut States)) {
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        let (jobs, waiting) = sync_channel(64);
        let waiting = Mutex::new(waiting);
        let outcomes = Mutex::new(HashMap::new());
        let mut states = States {
            jobs,
            known: HashMap::new(),
            points: 0,
            states: 0,
            ways: self.ways,
            reported: Instant::now(),
        };
        let (points, handed_in, known) = std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| self.work(&waiting, &outcomes));
            }
            produce(&mut states);
            let States { jobs, known, points, states, .. } = states;
            drop(jobs);
            (points, states, known)
        });
        let outcomes = outcomes.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (mut refused, mut reordered) = (0, 0);
        let mut failures: BTreeMap<String, (u64, String)> = BTreeMap::new();
        let mut names: Vec<_> = known.iter().collect();
        names.sort_by_key(|(_, known)| known.place.len());
        for (key, known) in names {
            let Requirement { may_refuse, latest, floor } = known.requirement;
            let failure = match outcomes.get(key) {
                None => "not checked".to_owned(),
                Some(Ok(found)) if found.latest < latest => {
                    format!("lost: {latest} acknowledged, {} there", found.latest)
                }
                Some(Ok(found)) if found.floor < floor => {
                    format!("the floor went back: {floor} acknowledged, {} there", found.floor)
                }
                Some(Ok(_)) => continue,
                Some(Err(error)) if may_refuse && error.starts_with("open:") => {
                    refused += 1;
                    continue;
                }
                // CURRENT was renamed and the MANIFEST that it names was not created: RocksDB syncs their
                // directory after both. Journaling file systems keep the order, POSIX does not ask for it.
                // The old MANIFEST is there.
                Some(Err(error)) if known.is_scattered && is_manifest_missing(error) => {
                    reordered += 1;
                    continue;
                }
                Some(Err(error)) => error.clone(),
            };
            let example = format!("{} at {}: {failure}", key.0, known.place);
            failures.entry(kind(&failure)).or_insert((0, example)).0 += 1;
        }
        println!(
            "{}: {points} points, {} ways each, {handed_in} states, {} distinct, {refused} unfinished ones and {reordered} without their \
             MANIFEST refused, {} failed",
            self.name,
            self.ways,
            known.len(),
            failures.values().map(|(count, _)| count).sum::<u64>(),
        );
        assert!(failures.is_empty(), "{failures:#?}");
    }

    fn work(&self, waiting: &Mutex<Receiver<Job>>, outcomes: &Mutex<HashMap<Key, Result<Found, String>>>) {
        loop {
            let job = match waiting.lock() {
                Ok(waiting) => waiting.recv(),
                Err(_) => return,
            };
            let Ok(Job { key, image, place }) = job else { return };
            let outcome = self.check_image(key.0, &image);
            if let Err(error) = &outcome {
                keep(key.0, &image, &place, error);
            }
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.insert(key, outcome);
            }
        }
    }

    fn check_image(&self, part: &str, image: &Image) -> Result<Found, String> {
        let dir = scratch();
        let below = dir.path().join(part);
        image.write_to(&below).map_err(|error| format!("building the state: {error}"))?;
        catch_unwind(AssertUnwindSafe(|| (self.check)(part, &below)))
            .unwrap_or_else(|panic| Err(format!("panic: {}", text(&*panic))))
    }
}

fn is_manifest_missing(error: &str) -> bool {
    error.starts_with("open:") && error.contains("/MANIFEST-") && error.ends_with("it is missing")
}

/// A failure without its numbers and paths: what makes two of them alike.
fn kind(failure: &str) -> String {
    let words = failure.split(' ').filter(|word| !word.contains('/'));
    let mut kind: String = words.flat_map(|word| [word, " "]).collect();
    kind.retain(|c| !c.is_ascii_digit());
    kind
}

fn text(panic: &(dyn Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "without a message".to_owned(),
    }
}

/// Keeps the first state of each kind of failure below `PLINTH_KEEP_FAILED`, if that is set.
fn keep(part: &str, image: &Image, place: &str, error: &str) {
    let Some(dir) = std::env::var_os("PLINTH_KEEP_FAILED") else { return };
    let name: String =
        kind(error).chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).take(80).collect();
    let dir = PathBuf::from(dir).join(name);
    if std::fs::create_dir_all(dir.join("state")).is_err() || dir.join("why").exists() {
        return;
    }
    // Only a help for debugging.
    let _ = std::fs::write(dir.join("why"), format!("{part} at {place}: {error}\n"));
    let _ = image.write_to(&dir.join("state"));
}
