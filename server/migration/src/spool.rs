//! [`Spool`]: what was read from a running etcd at one revision, in a file.
//!
//! etcd is read once, from one end to the other, and then left alone: what follows reads the file as often as
//! it needs, and no compaction of etcd can come between. The file has a record for each key, in order: length
//! (u32), then key length (u32), time to live in seconds (u64, zero for none), key and value. It may hold
//! Secrets in plain text, and its owner removes it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use crate::source::{Source, SourceEntry, SourceError, Visit};

/// A finished spool.
#[derive(Debug)]
pub struct Spool {
    path: String,
    file: File,
    revision: u64,
    entries: u64,
}

/// A spool that is being written.
pub struct SpoolWriter {
    path: String,
    out: BufWriter<File>,
    entries: u64,
}

impl SpoolWriter {
    /// Begins a spool in a new file, which must be open to read and write.
    pub fn new(file: File, path: &Path) -> SpoolWriter {
        SpoolWriter { path: path.display().to_string(), out: BufWriter::new(file), entries: 0 }
    }

    /// Appends a key, greater than those before.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn push(&mut self, entry: &SourceEntry) -> Result<(), SourceError> {
        let write = |out: &mut BufWriter<File>| {
            let length = 12 + entry.key.len() + entry.value.len();
            let too_long = |_| std::io::Error::other("a value of more than 4 GiB");
            out.write_all(&u32::try_from(length).map_err(too_long)?.to_le_bytes())?;
            out.write_all(&u32::try_from(entry.key.len()).map_err(too_long)?.to_le_bytes())?;
            out.write_all(&entry.ttl.map_or(0, |ttl| ttl.as_secs().max(1)).to_le_bytes())?;
            out.write_all(&entry.key)?;
            out.write_all(&entry.value)
        };
        self.entries += 1;
        write(&mut self.out).map_err(|source| SourceError::Io { path: self.path.clone(), source })
    }

    /// Ends the spool.
    ///
    /// # Errors
    /// Errors of the write.
    pub fn finish(self, revision: u64) -> Result<Spool, SourceError> {
        let path = self.path;
        match self.out.into_inner() {
            Ok(file) => Ok(Spool { path, file, revision, entries: self.entries }),
            Err(error) => Err(SourceError::Io { path, source: error.into_error() }),
        }
    }
}

impl Source for Spool {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn len(&self) -> u64 {
        self.entries
    }

    fn visit<E: From<SourceError>>(&self, prefix: &[u8], visit: Visit<'_, E>) -> Result<(), E> {
        let io = |source| SourceError::Io { path: self.path.clone(), source };
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(io)?;
        let mut file = BufReader::with_capacity(1 << 20, file);
        for _ in 0..self.entries {
            let entry = next(&mut file).map_err(io)?;
            if entry.key.starts_with(prefix) {
                visit(entry)?;
            }
        }
        Ok(())
    }
}

fn next(file: &mut BufReader<&File>) -> std::io::Result<SourceEntry> {
    let damaged = || std::io::Error::other("the file was changed while it was read");
    let mut header = [0; 16];
    file.read_exact(&mut header)?;
    let number =
        |at: usize| header.get(at..).and_then(|bytes| bytes.first_chunk()).map(|b| u32::from_le_bytes(*b));
    let (length, key) = (number(0).unwrap_or(0) as usize, number(4).unwrap_or(0) as usize);
    let seconds = header.last_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut rest = vec![0; length.checked_sub(12).ok_or_else(damaged)?];
    file.read_exact(&mut rest)?;
    if key > rest.len() {
        return Err(damaged());
    }
    let value = rest.split_off(key);
    Ok(SourceEntry { key: rest, value, ttl: (seconds > 0).then(|| Duration::from_secs(seconds)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_often_as_needed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spool");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut writer = SpoolWriter::new(file, &path);
        let entry =
            |key: &str, value: &[u8], ttl| SourceEntry { key: key.into(), value: value.to_vec(), ttl };
        let entries = [
            entry("/a", b"", None),
            entry("/b/1", &[7; 5000], Some(Duration::from_secs(9))),
            entry("/b/2", b"x", None),
        ];
        entries.iter().for_each(|entry| writer.push(entry).unwrap());
        let spool = writer.finish(42).unwrap();
        assert_eq!((spool.revision(), spool.len()), (42, 3));
        for (prefix, expected) in [("", 0..3), ("/b/", 1..3), ("/c", 3..3)] {
            let mut found = Vec::new();
            spool
                .visit::<SourceError>(prefix.as_bytes(), &mut |entry| {
                    found.push(entry);
                    Ok(())
                })
                .unwrap();
            assert_eq!(found, entries[expected], "{prefix:?}");
        }
    }
}
