//! The trace: one record for each call.
//!
//! Little endian: length of the rest u32, kind u8, result i32 (0, or the error number), inode u64, offset
//! u64, size u64, then path, second path and data, each with its length as u32. Paths are relative to the
//! root. One `write` in append mode for each record, so that several processes can share a trace.

use libc::c_int;

/// What a record is about. The numbers are the format.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    /// The root directory with its inode; once in each process.
    Root = 1,
    /// A file was created at `path`.
    Create = 2,
    /// `data` was written at `offset`.
    Write = 3,
    /// The file got `size` bytes.
    Resize = 4,
    /// `size` bytes at `offset` became zero; the file is as long as before.
    Zero = 5,
    /// fsync or fdatasync of a file or directory.
    Sync = 6,
    /// `path` became `second`.
    Rename = 7,
    /// `second` is another name of `path`.
    Link = 8,
    /// A file's name was removed.
    Unlink = 9,
    /// A directory was created.
    Mkdir = 10,
    /// A directory was removed.
    Rmdir = 11,
    /// Something that the tests' model of a file system does not have.
    Unknown = 12,
}

/// A record before it is written.
pub(crate) struct Record<'a> {
    pub kind: Kind,
    pub result: c_int,
    pub inode: u64,
    pub offset: u64,
    pub size: u64,
    pub path: &'a [u8],
    pub second: &'a [u8],
    pub data: &'a [u8],
}

impl Record<'_> {
    pub(crate) fn new(kind: Kind) -> Record<'static> {
        Record { kind, result: 0, inode: 0, offset: 0, size: 0, path: &[], second: &[], data: &[] }
    }

    /// Appends the record to the open file `trace`.
    pub(crate) fn append(&self, trace: c_int) {
        let mut out = vec![0; 4];
        out.push(self.kind as u8);
        out.extend_from_slice(&self.result.to_le_bytes());
        for number in [self.inode, self.offset, self.size] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for bytes in [self.path, self.second, self.data] {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        // SAFETY: `out` is valid for reads of its length.
        let written = unsafe { libc::syscall(libc::SYS_write, trace, out.as_ptr(), out.len()) };
        if written != out.len() as i64 {
            // A trace with a hole would prove nothing.
            std::process::abort();
        }
    }
}
