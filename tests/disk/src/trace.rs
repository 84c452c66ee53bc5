//! The interposer's trace, read and extended with marks.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

/// What a record is about; `tests/interposer` documents each.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)] // The fields are those of the system calls.
pub enum Event {
    Root {
        inode: u64,
    },
    Create {
        path: String,
        inode: u64,
    },
    Write {
        inode: u64,
        offset: u64,
        data: Arc<[u8]>,
    },
    Resize {
        inode: u64,
        size: u64,
    },
    Zero {
        inode: u64,
        offset: u64,
        size: u64,
    },
    Sync {
        inode: u64,
        result: i32,
    },
    Rename {
        from: String,
        to: String,
    },
    Link {
        from: String,
        to: String,
    },
    Unlink {
        path: String,
    },
    Mkdir {
        path: String,
        inode: u64,
    },
    Rmdir {
        path: String,
    },
    /// Something that the model does not have.
    Unknown {
        path: String,
        inode: u64,
    },
    /// Written by a test, in the order of the calls around it.
    Mark {
        name: String,
        data: Arc<[u8]>,
    },
}

const MARK: u8 = 13;

/// Adds marks to a trace. What is marked happened before all calls that come later in the trace.
pub struct Marks(File);

impl Marks {
    /// Opens the trace at `path`, creating it when it is missing.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> io::Result<Marks> {
        File::options().create(true).append(true).open(path).map(Marks)
    }

    /// Adds a mark.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn add(&mut self, name: &str, data: &[u8]) -> io::Result<()> {
        let mut out = vec![0; 4];
        out.push(MARK);
        out.extend_from_slice(&[0; 28]);
        for bytes in [name.as_bytes(), &[], data] {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        self.0.write_all(&out)
    }
}

/// Reads a trace. A record that was cut off by a kill is the end of it.
///
/// # Errors
/// When the file cannot be read or is no trace.
pub fn read(path: &Path) -> io::Result<Vec<Event>> {
    let bytes = fs::read(path)?;
    let mut rest = bytes.as_slice();
    let mut events = Vec::new();
    while let Some(length) = take(&mut rest, 4) {
        let Some(record) = take(&mut rest, number(length) as usize) else { break };
        events.push(decode(record).ok_or_else(|| io::Error::other("not a trace"))?);
    }
    Ok(events)
}

fn decode(mut record: &[u8]) -> Option<Event> {
    let kind = take(&mut record, 1)?[0];
    let result = number(take(&mut record, 4)?) as i32;
    let inode = number(take(&mut record, 8)?);
    let offset = number(take(&mut record, 8)?);
    let size = number(take(&mut record, 8)?);
    let mut bytes = || {
        let length = number(take(&mut record, 4)?) as usize;
        take(&mut record, length)
    };
    let path = String::from_utf8_lossy(bytes()?).into_owned();
    let second = String::from_utf8_lossy(bytes()?).into_owned();
    let data = bytes()?.into();
    Some(match kind {
        1 => Event::Root { inode },
        2 => Event::Create { path, inode },
        3 => Event::Write { inode, offset, data },
        4 => Event::Resize { inode, size },
        5 => Event::Zero { inode, offset, size },
        6 => Event::Sync { inode, result },
        7 => Event::Rename { from: path, to: second },
        8 => Event::Link { from: path, to: second },
        9 => Event::Unlink { path },
        10 => Event::Mkdir { path, inode },
        11 => Event::Rmdir { path },
        12 => Event::Unknown { path, inode },
        MARK => Event::Mark { name: path, data },
        _ => return None,
    })
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(length)?;
    *rest = behind;
    Some(taken)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
