//! Where backups and checkpoints are kept: files of a directory, or objects in a bucket of an S3-compatible
//! store.
//!
//! | module | subject |
//! |---|---|
//! | `bucket` | requests to the store |
//!
//! An archive has its name when it is complete, in both. Everything but [`ArchiveLocation::check`] blocks,
//! and must not be called by a thread that drives a runtime.

mod bucket;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::builder::{OsStringValueParser, TypedValueParser};
use plinth_apiserver::private_files;
use tokio::sync::watch;

use self::bucket::{Bucket, SCHEME};
pub use self::bucket::{BucketError, BucketUrl, BucketUrlError};
use crate::unfinished_file::UnfinishedFile;

/// Bytes that are written to a file at once.
const BUFFER: usize = 1 << 20;

/// An archive could not be listed, read, written or removed.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // the variants are the parts that failed; their texts say it
pub enum ArchiveError {
    #[error("{path}: {source}")]
    File { path: PathBuf, source: io::Error },
    #[error("{0} exists already, and an archive is never overwritten")]
    Exists(String),
    #[error("{0} was abandoned, since the server stops")]
    Stopped(String),
    #[error(transparent)]
    Bucket(#[from] BucketError),
}

impl From<ArchiveError> for io::Error {
    fn from(error: ArchiveError) -> io::Error {
        match error {
            ArchiveError::File { source, path } => {
                io::Error::new(source.kind(), format!("{}: {source}", path.display()))
            }
            error => io::Error::other(error),
        }
    }
}

/// A path, or the URL of a bucket and what is in it: of one archive, or of what holds several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveLocation {
    /// In a file system.
    Path(PathBuf),
    /// `s3://BUCKET/KEY`.
    Bucket(BucketUrl),
}

impl ArchiveLocation {
    /// What flags accept.
    pub fn value_parser() -> impl TypedValueParser<Value = ArchiveLocation> {
        OsStringValueParser::new().try_map(ArchiveLocation::parse)
    }

    /// Parses a flag's value. What does not begin with `s3://` is a path.
    ///
    /// # Errors
    /// When it is no URL of a bucket, or of another scheme.
    pub fn parse(text: OsString) -> Result<ArchiveLocation, BucketUrlError> {
        match text.to_str() {
            Some(url) if url.starts_with(SCHEME) => Ok(ArchiveLocation::Bucket(url.parse()?)),
            Some(url) if url.contains("://") => Err(BucketUrlError::Scheme),
            _ => Ok(ArchiveLocation::Path(text.into())),
        }
    }

    /// Checks settings and credentials of a bucket; sends no request.
    ///
    /// # Errors
    /// When they cannot be used.
    pub fn check(&self) -> Result<(), ArchiveError> {
        match self {
            ArchiveLocation::Path(_) => Ok(()),
            ArchiveLocation::Bucket(url) => Ok(bucket::client(url).map(drop)?),
        }
    }

    /// Opens what holds several archives; of the entries those count whose names are `is_name`, all of which
    /// begin with `plinth-`. No request is sent. Once `stopping` is true, requests and archives that are
    /// being written are abandoned.
    ///
    /// # Errors
    /// When settings or credentials of a bucket cannot be used.
    pub fn open(
        &self,
        is_name: fn(&str) -> bool,
        stopping: Option<watch::Receiver<bool>>,
    ) -> Result<Archives, ArchiveError> {
        Ok(Archives { place: self.place(stopping.clone())?, is_name, stopping })
    }

    fn place(&self, stopping: Option<watch::Receiver<bool>>) -> Result<Place, ArchiveError> {
        Ok(match self {
            ArchiveLocation::Path(path) => Place::Path(path.clone()),
            ArchiveLocation::Bucket(url) => {
                Place::Bucket(Arc::new(Bucket::open(url, stopping)?), url.clone())
            }
        })
    }

    /// Opens one archive.
    ///
    /// # Errors
    /// When it does not exist, or cannot be read.
    pub fn read(&self) -> Result<Box<dyn Read>, ArchiveError> {
        self.place(None)?.read()
    }

    /// Writes one archive, which must not exist, by `fill`. Nothing is left of one that fails.
    ///
    /// # Errors
    /// [`ArchiveError::Exists`], the errors of `fill`, and what keeps it from being written.
    pub fn write<T, E: From<ArchiveError>>(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        self.place(None)?.write(fill)
    }
}

impl From<PathBuf> for ArchiveLocation {
    fn from(path: PathBuf) -> ArchiveLocation {
        ArchiveLocation::Path(path)
    }
}

impl fmt::Display for ArchiveLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ArchiveLocation::Path(path) => path.display().fmt(f),
            ArchiveLocation::Bucket(url) => url.fmt(f),
        }
    }
}

/// An archive, or what holds several, with what requests for it are made by.
enum Place {
    Path(PathBuf),
    Bucket(Arc<Bucket>, BucketUrl),
}

impl Place {
    fn location(self) -> ArchiveLocation {
        match self {
            Place::Path(path) => ArchiveLocation::Path(path),
            Place::Bucket(_, url) => ArchiveLocation::Bucket(url),
        }
    }

    fn join(&self, name: &str) -> Place {
        match self {
            Place::Path(path) => Place::Path(path.join(name)),
            Place::Bucket(bucket, url) => Place::Bucket(bucket.clone(), url.join(name)),
        }
    }

    fn read(&self) -> Result<Box<dyn Read>, ArchiveError> {
        match self {
            Place::Path(path) => open_file(path),
            Place::Bucket(bucket, url) => Ok(Box::new(bucket.read(url)?)),
        }
    }

    fn write<T, E: From<ArchiveError>>(
        &self,
        fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        match self {
            Place::Path(path) => write_file(path, fill),
            Place::Bucket(bucket, url) => bucket.write(url, fill),
        }
    }

    fn remove(&self) -> Result<(), ArchiveError> {
        match self {
            Place::Path(path) => fs::remove_file(path).map_err(|source| in_file(path, source)),
            Place::Bucket(bucket, url) => Ok(bucket.remove(url)?),
        }
    }

    /// The names of the archives in it.
    fn names(&self, is_name: fn(&str) -> bool) -> Result<Vec<String>, ArchiveError> {
        match self {
            Place::Path(dir) => {
                let entries = file_names(dir).map_err(|source| in_file(dir, source))?;
                Ok(entries.into_iter().filter(|name| is_name(name)).collect())
            }
            Place::Bucket(bucket, _) => Ok(bucket.names(is_name)?),
        }
    }
}

/// A directory, or a part of a bucket, with archives.
pub struct Archives {
    place: Place,
    is_name: fn(&str) -> bool,
    stopping: Option<watch::Receiver<bool>>,
}

/// A writer that fails once the server stops.
struct UntilStop<'a> {
    out: &'a mut dyn Write,
    stopping: Option<watch::Receiver<bool>>,
    location: &'a ArchiveLocation,
}

impl Write for UntilStop<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.stopping {
            Some(stopping) if *stopping.borrow() => {
                Err(io::Error::other(ArchiveError::Stopped(self.location.to_string())))
            }
            _ => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Archives {
    /// The names of the archives, sorted. Other entries are ignored.
    ///
    /// # Errors
    /// When they cannot be listed.
    pub fn names(&self) -> Result<Vec<String>, ArchiveError> {
        let mut names = self.place.names(self.is_name)?;
        names.sort();
        // A store may name an object twice, on two pages of a list.
        names.dedup();
        Ok(names)
    }

    /// Where the archive of a name is.
    pub fn location(&self, name: &str) -> ArchiveLocation {
        self.place.join(name).location()
    }

    /// Creates the directory, if it does not exist. Buckets are made by their owners.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(&self) -> Result<(), ArchiveError> {
        match &self.place {
            Place::Path(dir) => private_files::create_dir_all(dir).map_err(|source| in_file(dir, source)),
            Place::Bucket(..) => Ok(()),
        }
    }

    /// Opens the archive of a name.
    ///
    /// # Errors
    /// When it does not exist, or cannot be read.
    pub fn read(&self, name: &str) -> Result<Box<dyn Read>, ArchiveError> {
        self.place.join(name).read()
    }

    /// Writes an archive of a new name by `fill`. What killed writers of a directory have left is removed.
    ///
    /// # Errors
    /// As [`ArchiveLocation::write`].
    pub fn write<T, E: From<ArchiveError>>(
        &self,
        name: &str,
        fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        let (location, stopping) = (&self.location(name), self.stopping.clone());
        let fill = |out: &mut dyn Write| fill(&mut UntilStop { out, stopping, location });
        if let Place::Path(dir) = &self.place {
            remove_unfinished(dir, self.is_name).map_err(|source| in_file(dir, source))?;
        }
        self.place.join(name).write(fill)
    }

    /// Deletes the archive of a name.
    ///
    /// # Errors
    /// When it cannot be deleted.
    pub fn remove(&self, name: &str) -> Result<(), ArchiveError> {
        self.place.join(name).remove()
    }
}

fn in_file(path: &Path, source: io::Error) -> ArchiveError {
    ArchiveError::File { path: path.to_owned(), source }
}

/// Names of the entries of a directory; names that are not UTF-8 are no archive's.
fn file_names(dir: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names.extend(entry?.file_name().into_string());
    }
    Ok(names)
}

fn open_file(path: &Path) -> Result<Box<dyn Read>, ArchiveError> {
    let file = File::open(path).map_err(|source| in_file(path, source))?;
    Ok(Box::new(BufReader::with_capacity(BUFFER, file)))
}

/// Writes a file, durably, under another name until it is complete.
fn write_file<T, E: From<ArchiveError>>(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let error = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => ArchiveError::Exists(path.display().to_string()),
        _ => in_file(path, source),
    };
    if fs::exists(path).map_err(error)? {
        return Err(ArchiveError::Exists(path.display().to_string()).into());
    }
    let unfinished = UnfinishedFile::create(path).map_err(error)?;
    let mut out = BufWriter::with_capacity(BUFFER, unfinished.file().map_err(error)?);
    let filled = fill(&mut out)?;
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(error)?;
    unfinished.finish(path).map_err(error)?;
    Ok(filled)
}

/// Removes what killed writers of archives have left.
fn remove_unfinished(dir: &Path, is_name: fn(&str) -> bool) -> io::Result<()> {
    for name in file_names(dir)? {
        if !name.split_once(UnfinishedFile::SUFFIX).is_some_and(|(of, _)| is_name(of)) {
            continue;
        }
        let path = dir.join(name);
        // One that is being written is locked; on a file system without locks its writer starts over.
        if File::open(&path)?.try_lock().is_ok() {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_paths_or_buckets() {
        let parse = |text: &str| ArchiveLocation::parse(text.into()).map(|location| location.to_string());
        for text in ["backups", "/var/backups", "s3:/x", "s3://bucket", "s3://bucket/a/b.backup"] {
            assert_eq!(parse(text).unwrap(), text);
        }
        assert_eq!(parse("s3://bucket/a/").unwrap(), "s3://bucket/a");
        for text in ["https://bucket/a", "s3://", "s3:///a", "s3://bu cket/a", "s3://b/a//b", "s3://b/../c"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_killed_writers_left_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let location = ArchiveLocation::from(dir.path().join("new"));
        let archives = location.open(|name| name.ends_with(".backup"), None).unwrap();
        archives.create().unwrap();
        let fill = |out: &mut dyn Write| out.write_all(b"content");
        archives.write::<(), io::Error>("a.backup", fill).unwrap();
        let left = dir.path().join("new/b.backup.unfinished-1-0");
        let other = dir.path().join("new/notes.unfinished-1-0");
        fs::write(&left, "").unwrap();
        fs::write(&other, "").unwrap();
        archives.write::<(), io::Error>("c.backup", fill).unwrap();
        assert!(!left.exists() && other.exists());
        assert_eq!(archives.names().unwrap(), ["a.backup", "c.backup"]);
        let again = archives.write::<(), ArchiveError>("a.backup", |_| Ok(()));
        assert!(matches!(again, Err(ArchiveError::Exists(_))), "{again:?}");
        let failed = archives.write::<(), io::Error>("d.backup", |out| {
            out.write_all(b"some")?;
            Err(io::Error::other("source"))
        });
        assert!(failed.is_err());
        archives.remove("a.backup").unwrap();
        let mut text = String::new();
        archives.read("c.backup").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!((archives.names().unwrap(), text.as_str()), (vec!["c.backup".to_owned()], "content"));
        assert!(archives.read("a.backup").is_err() && archives.remove("a.backup").is_err());
    }

    #[test]
    fn an_archive_is_abandoned_when_the_server_stops() {
        let dir = tempfile::tempdir().unwrap();
        let (stop, stopping) = watch::channel(false);
        let location = ArchiveLocation::from(dir.path().to_owned());
        let archives = location.open(|_| true, Some(stopping)).unwrap();
        let abandoned = archives.write::<(), io::Error>("a", |out| {
            out.write_all(b"begin")?;
            stop.send(true).map_err(io::Error::other)?;
            out.write_all(b"end")
        });
        let error = abandoned.unwrap_err().to_string();
        assert!(error.contains("abandoned"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
