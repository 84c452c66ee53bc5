//! A model of a file system that loses power.
//!
//! Each file has its durable bytes, which the last successful sync of the file left, and a list of changes
//! since then; the names in directories likewise, with the directory's own sync. [`Disk::image`] builds what
//! may be found after power is cut now, by a choice for data and one for names (see [`Data`] and [`Names`]).
//! A failed sync makes nothing durable, and what was written before it stays lost whatever sync succeeds
//! later, as Linux has it.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::{fs, io};

use sha2::{Digest, Sha256};

use crate::trace::Event;

/// What becomes of changes of data that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// All of them are there, as after a kill.
    Kept,
    /// None is there.
    Lost,
    /// The sizes are there and the data is not: new parts of a file are zeros.
    SizeOnly,
    /// They are there in order up to one that is cut at a multiple of this many bytes.
    Torn(usize),
    /// Each unit of this many bytes is there or not by itself, and the size is that of the last one or the
    /// newest.
    Scattered(usize),
    /// Each file has a choice of its own.
    Mixed,
}

/// What becomes of created, renamed and removed names that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// All are there.
    Kept,
    /// None is there but what a sync of its directory made durable, which is all that POSIX promises.
    Lost,
    /// Those before the last sync of anything are there: a journal that each sync commits, as ext4 and xfs
    /// have it.
    Journal,
    /// The journal got further, to a place in between.
    JournalAhead,
    /// Each is there or not by itself.
    Scattered,
}

/// A small generator of numbers that look random and are the same each time (splitmix64).
pub struct Random(pub u64);

impl Random {
    /// The next number.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}

#[derive(Debug, Clone)]
enum Change {
    Write { offset: usize, data: Arc<[u8]> },
    Resize(usize),
    Zero { offset: usize, size: usize },
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write { offset, data } => write_at(bytes, *offset, data),
            Change::Resize(size) => bytes.resize(*size, 0),
            Change::Zero { offset, size } => {
                let end = (offset + size).min(bytes.len());
                if *offset < end {
                    bytes[*offset..end].fill(0);
                }
            }
        }
    }
}

fn write_at(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset + data.len();
    if bytes.len() < end {
        bytes.resize(end, 0);
    }
    bytes[offset..end].copy_from_slice(data);
}

/// The bytes of a file, with their digest once it was computed.
#[derive(Debug, Default)]
struct Bytes {
    bytes: Vec<u8>,
    digest: OnceLock<[u8; 32]>,
}

impl Clone for Bytes {
    fn clone(&self) -> Bytes {
        Bytes::from(self.bytes.clone())
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Bytes {
        Bytes { bytes, digest: OnceLock::new() }
    }
}

impl Bytes {
    /// The bytes to change.
    fn of(this: &mut Arc<Bytes>) -> &mut Vec<u8> {
        let this = Arc::make_mut(this);
        this.digest = OnceLock::new();
        &mut this.bytes
    }

    fn digest(&self) -> &[u8; 32] {
        self.digest.get_or_init(|| Sha256::digest(&self.bytes).into())
    }
}

#[derive(Default)]
struct Contents {
    durable: Arc<Bytes>,
    visible: Arc<Bytes>,
    /// Changes since the last sync, in order.
    pending: Vec<Change>,
}

impl Contents {
    fn change(&mut self, change: Change) {
        change.apply(Bytes::of(&mut self.visible));
        self.pending.push(change);
    }

    fn sync(&mut self) {
        if !self.pending.is_empty() {
            let durable = Bytes::of(&mut self.durable);
            for change in self.pending.drain(..) {
                change.apply(durable);
            }
        }
    }

    fn after_cut(&self, data: Data, random: &mut Random) -> Arc<Bytes> {
        if self.pending.is_empty() {
            // After a failed sync the visible bytes are more than the durable ones, and stay lost.
            return Arc::clone(if data == Data::Kept { &self.visible } else { &self.durable });
        }
        match data {
            Data::Kept => Arc::clone(&self.visible),
            Data::Lost => Arc::clone(&self.durable),
            Data::SizeOnly => {
                let mut bytes = self.durable.bytes.clone();
                bytes.resize(self.visible.bytes.len(), 0);
                Arc::new(bytes.into())
            }
            Data::Torn(unit) => Arc::new(self.torn(unit, random).into()),
            Data::Scattered(unit) => Arc::new(self.scattered(unit, random).into()),
            Data::Mixed => {
                let choices = [
                    Data::Kept,
                    Data::Lost,
                    Data::SizeOnly,
                    Data::Torn(512),
                    Data::Torn(4096),
                    Data::Scattered(512),
                    Data::Scattered(4096),
                ];
                self.after_cut(choices[random.below(choices.len())], random)
            }
        }
    }

    fn torn(&self, unit: usize, random: &mut Random) -> Vec<u8> {
        let visible = &self.visible.bytes;
        let mut bytes = self.durable.bytes.clone();
        let whole = random.below(self.pending.len());
        for change in &self.pending[..whole] {
            change.apply(&mut bytes);
        }
        if let Change::Write { offset, data } = &self.pending[whole] {
            // The multiples of the unit inside the write; without one the write is lost as a whole.
            let first = (offset + 1).next_multiple_of(unit);
            let inside = (offset + data.len()).saturating_sub(first).div_ceil(unit);
            if first < offset + data.len() {
                let cut = first + unit * random.below(inside);
                write_at(&mut bytes, *offset, &data[..cut - offset]);
            }
        }
        if random.below(3) == 0 {
            bytes.resize(visible.len(), 0);
        }
        bytes
    }

    fn scattered(&self, unit: usize, random: &mut Random) -> Vec<u8> {
        let visible = &self.visible.bytes;
        let longest = self.durable.bytes.len().max(visible.len());
        let mut bytes = self.durable.bytes.clone();
        let mut size = self.durable.bytes.len();
        bytes.resize(longest, 0);
        for start in (0..longest).step_by(unit) {
            let end = (start + unit).min(visible.len());
            if start >= end || bytes[start..end] == visible[start..end] || random.coin() {
                continue;
            }
            bytes[start..end].copy_from_slice(&visible[start..end]);
            size = size.max(end);
        }
        if random.coin() {
            size = visible.len();
        }
        bytes.resize(size, 0);
        bytes
    }
}

enum Node {
    Directory,
    File(Contents),
}

type Id = usize;
/// Names by directory and name.
type Namespace = BTreeMap<(Id, String), Id>;

#[derive(Debug, Clone)]
enum NameChange {
    Insert(Id, String, Id),
    Remove(Id, String, Id),
    Move { from: (Id, String), to: (Id, String), node: Id },
}

impl NameChange {
    fn apply(&self, names: &mut Namespace) {
        match self {
            NameChange::Insert(dir, name, node) => drop(names.insert((*dir, name.clone()), *node)),
            NameChange::Remove(dir, name, node) => {
                let key = (*dir, name.clone());
                if names.get(&key) == Some(node) {
                    names.remove(&key);
                }
            }
            NameChange::Move { from, to, node } => {
                if names.get(from) == Some(node) {
                    names.remove(from);
                }
                names.insert(to.clone(), *node);
            }
        }
    }

    fn concerns(&self, id: Id) -> bool {
        match self {
            NameChange::Insert(dir, ..) | NameChange::Remove(dir, ..) => *dir == id,
            NameChange::Move { from, to, .. } => from.0 == id || to.0 == id,
        }
    }
}

/// A disk below one directory, as a trace leaves it.
pub struct Disk {
    nodes: Vec<Node>,
    by_inode: HashMap<u64, Id>,
    visible: Namespace,
    durable: Namespace,
    /// Changes of names whose directory was not synced since.
    pending: Vec<NameChange>,
    /// How many of them the journal has.
    journaled: usize,
}

const ROOT: Id = 0;

impl Default for Disk {
    fn default() -> Disk {
        Disk {
            nodes: vec![Node::Directory],
            by_inode: HashMap::new(),
            visible: Namespace::new(),
            durable: Namespace::new(),
            pending: Vec::new(),
            journaled: 0,
        }
    }
}

impl Disk {
    /// Applies the next call; whether it changed anything that a power cut could show.
    ///
    /// # Panics
    /// When the call does not fit the model or the calls before it: then the trace is not complete.
    pub fn apply(&mut self, event: &Event) -> bool {
        match event {
            Event::Mark { .. } => return false,
            Event::Root { inode } => drop(self.by_inode.insert(*inode, ROOT)),
            Event::Create { path, inode } => self.insert(path, *inode, Node::File(Contents::default())),
            Event::Mkdir { path, inode } => self.insert(path, *inode, Node::Directory),
            Event::Write { inode, offset, data } => {
                self.change(*inode, Change::Write { offset: *offset as usize, data: Arc::clone(data) });
            }
            Event::Resize { inode, size } => self.change(*inode, Change::Resize(*size as usize)),
            Event::Zero { inode, offset, size } => {
                self.change(*inode, Change::Zero { offset: *offset as usize, size: *size as usize });
            }
            Event::Sync { inode, result } => self.sync(*inode, *result),
            Event::Rename { from, to } => {
                let source = self.find(from).unwrap_or_else(|| panic!("renamed, but never created: {from}"));
                let (from, to) = (self.parent(from), self.parent(to));
                self.rename(NameChange::Move { from, to, node: source });
            }
            Event::Link { from, to } => {
                let source = self.find(from).unwrap_or_else(|| panic!("linked, but never created: {from}"));
                let (dir, name) = self.parent(to);
                self.rename(NameChange::Insert(dir, name, source));
            }
            Event::Unlink { path } | Event::Rmdir { path } => {
                let node = self.find(path).unwrap_or_else(|| panic!("removed, but never created: {path}"));
                let (dir, name) = self.parent(path);
                self.rename(NameChange::Remove(dir, name, node));
            }
            Event::Unknown { path, inode } => panic!("not in the model: {path} (inode {inode})"),
        }
        true
    }

    fn insert(&mut self, path: &str, inode: u64, node: Node) {
        let (dir, name) = self.parent(path);
        self.nodes.push(node);
        let id = self.nodes.len() - 1;
        self.by_inode.insert(inode, id);
        self.rename(NameChange::Insert(dir, name, id));
    }

    fn rename(&mut self, change: NameChange) {
        change.apply(&mut self.visible);
        self.pending.push(change);
    }

    fn change(&mut self, inode: u64, change: Change) {
        let id = *self.by_inode.get(&inode).unwrap_or_else(|| panic!("inode {inode} was never created"));
        match &mut self.nodes[id] {
            Node::File(contents) => contents.change(change),
            Node::Directory => panic!("inode {inode} is a directory"),
        }
    }

    fn sync(&mut self, inode: u64, result: i32) {
        let id = *self.by_inode.get(&inode).unwrap_or_else(|| panic!("inode {inode} was never created"));
        if result != 0 {
            if let Node::File(contents) = &mut self.nodes[id] {
                contents.pending.clear();
            }
            return;
        }
        match &mut self.nodes[id] {
            Node::File(contents) => contents.sync(),
            Node::Directory => {
                for change in self.pending.extract_if(.., |change| change.concerns(id)) {
                    change.apply(&mut self.durable);
                }
            }
        }
        self.journaled = self.pending.len();
    }

    fn find(&self, path: &str) -> Option<Id> {
        path.split('/')
            .filter(|part| !part.is_empty())
            .try_fold(ROOT, |dir, name| self.visible.get(&(dir, name.to_owned())).copied())
    }

    fn parent(&self, path: &str) -> (Id, String) {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.find(dir).unwrap_or_else(|| panic!("{path} is in no known directory"));
        (dir, name.to_owned())
    }

    /// The current content, as without a power cut.
    pub fn image_now(&self) -> Image {
        self.image(Data::Kept, Names::Kept, &mut Random(0))
    }

    /// What may be there after power is cut now.
    pub fn image(&self, data: Data, names: Names, random: &mut Random) -> Image {
        let mut found = self.durable.clone();
        let kept = match names {
            Names::Kept | Names::Scattered => self.pending.len(),
            Names::Lost => 0,
            Names::Journal => self.journaled,
            Names::JournalAhead => self.journaled + random.below(self.pending.len() - self.journaled + 1),
        };
        for change in &self.pending[..kept] {
            if names != Names::Scattered || random.coin() {
                change.apply(&mut found);
            }
        }
        let mut entries = Vec::new();
        self.collect(&found, ROOT, "", data, random, &mut entries);
        Image { entries }
    }

    fn collect(
        &self,
        names: &Namespace,
        dir: Id,
        prefix: &str,
        data: Data,
        random: &mut Random,
        out: &mut Vec<(String, Option<Arc<Bytes>>)>,
    ) {
        for ((_, name), id) in names.range((dir, String::new())..(dir + 1, String::new())) {
            let path = format!("{prefix}{name}");
            match &self.nodes[*id] {
                Node::Directory => {
                    let below = format!("{path}/");
                    out.push((path, None));
                    self.collect(names, *id, &below, data, random, out);
                }
                Node::File(contents) => out.push((path, Some(contents.after_cut(data, random)))),
            }
        }
    }
}

/// Directories and files with their bytes.
#[derive(Debug, Clone)]
pub struct Image {
    entries: Vec<(String, Option<Arc<Bytes>>)>,
}

impl Image {
    /// Identifies what is in it.
    pub fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        for (path, bytes) in &self.entries {
            digest.update((path.len() as u64).to_le_bytes());
            digest.update(path);
            let length = bytes.as_ref().map_or(u64::MAX, |file| file.bytes.len() as u64);
            digest.update(length.to_le_bytes());
            if let Some(bytes) = bytes {
                digest.update(bytes.digest());
            }
        }
        digest.finalize().into()
    }

    /// Whether there is a file or directory with this path.
    pub fn has(&self, path: &str) -> bool {
        self.entries.iter().any(|(found, _)| found == path)
    }

    /// The part below a directory.
    #[must_use]
    pub fn below(&self, dir: &str) -> Image {
        let strip = |path: &str| path.strip_prefix(dir)?.strip_prefix('/').map(str::to_owned);
        let entries = self.entries.iter();
        Image { entries: entries.filter_map(|(path, bytes)| Some((strip(path)?, bytes.clone()))).collect() }
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// One file alone.
    #[must_use]
    pub fn only(&self, path: &str) -> Image {
        Image { entries: self.entries.iter().filter(|(found, _)| found == path).cloned().collect() }
    }

    /// Writes everything into the directory `to`.
    ///
    /// # Errors
    /// When that fails.
    pub fn write_to(&self, to: &Path) -> io::Result<()> {
        fs::create_dir_all(to)?;
        for (path, bytes) in &self.entries {
            match bytes {
                None => fs::create_dir(to.join(path))?,
                Some(file) => fs::write(to.join(path), &file.bytes)?,
            }
        }
        Ok(())
    }

    /// Fails unless the directory `dir` holds the same as this: then the trace is complete.
    ///
    /// # Panics
    /// When it differs.
    pub fn assert_same(&self, dir: &Path) {
        let mut there = Vec::new();
        list(dir, "", &mut there);
        let expected: Vec<&String> = self.entries.iter().map(|(path, _)| path).collect();
        let found: Vec<&String> = there.iter().map(|(path, _)| path).collect();
        assert_eq!(expected, found, "traced and found names");
        for ((path, traced), (_, found)) in self.entries.iter().zip(&there) {
            let traced = traced.as_ref().map(|file| &file.bytes);
            assert!(traced == found.as_ref(), "{path} is not as traced");
        }
    }
}

fn list(dir: &Path, prefix: &str, out: &mut Vec<(String, Option<Vec<u8>>)>) {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    for name in names {
        let path = format!("{prefix}{name}");
        let full = dir.join(&name);
        if full.is_dir() {
            out.push((path.clone(), None));
            list(&full, &format!("{path}/"), out);
        } else {
            out.push((path, Some(fs::read(full).expect("a file"))));
        }
    }
}
