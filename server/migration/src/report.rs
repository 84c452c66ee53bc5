//! [`Report`]: what was moved, by kind, and a hash of it that an import and an export of the same objects
//! share.

use std::collections::BTreeMap;
use std::fmt;

use plinth_codec::hex;
use sha2::{Digest as _, Sha256};

/// SHA-256 of an object: where kube-apiserver keeps it, the version of its group, and its canonical JSON
/// without type and resourceVersion.
pub(crate) fn digest(path: &str, version: &str, body: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in [path.as_bytes(), version.as_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    hash.finalize().into()
}

/// Collects what is moved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    kinds: BTreeMap<String, u64>,
    digests: Vec<[u8; 32]>,
}

impl Tally {
    pub(crate) fn add(&mut self, kind: &str, digest: [u8; 32]) {
        match self.kinds.get_mut(kind) {
            Some(count) => *count += 1,
            None => drop(self.kinds.insert(kind.to_owned(), 1)),
        }
        self.digests.push(digest);
    }

    /// Prepares [`Tally::has`].
    pub(crate) fn sort(&mut self) {
        self.digests.sort_unstable();
    }

    /// Whether an object was added, in a tally that is sorted.
    pub(crate) fn has(&self, digest: &[u8; 32]) -> bool {
        self.digests.binary_search(digest).is_ok()
    }

    pub(crate) fn finish(mut self, revision: u64) -> Report {
        self.sort();
        let mut hash = Sha256::new();
        self.digests.iter().for_each(|digest| hash.update(digest));
        Report { kinds: self.kinds, hash: hex::lower(&hash.finalize()), revision }
    }
}

/// What was moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Number of objects by `Kind.group`.
    pub kinds: BTreeMap<String, u64>,
    /// SHA-256 of the sorted hashes of all objects.
    pub hash: String,
    /// The revision of what was made.
    pub revision: u64,
}

impl Report {
    /// Number of objects.
    pub fn objects(&self) -> u64 {
        self.kinds.values().sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.kinds.keys().map(String::len).max().unwrap_or(0);
        for (kind, count) in &self.kinds {
            writeln!(f, "{kind:width$}  {count}")?;
        }
        writeln!(f, "{} objects, revision {}", self.objects(), self.revision)?;
        write!(f, "hash {}", self.hash)
    }
}
