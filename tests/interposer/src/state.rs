//! What the library knows: the root, the inodes below it, the trace.

use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
use std::os::unix::ffi::OsStringExt;
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use libc::{c_char, c_int};

use crate::inject::{Action, Injection, Site};
use crate::trace::{Kind, Record};

/// How often a held call looks whether it may go on.
const HOLD_POLL: Duration = Duration::from_millis(5);

/// The settings of this process; absent when the library has nothing to do in it.
pub(crate) struct State {
    /// Absolute, without a slash at its end.
    root: Vec<u8>,
    trace: Option<c_int>,
    injection: Option<Injection>,
    /// Created when an injected error happens.
    hit: Option<Vec<u8>>,
    /// The lock is held for a traced call together with its record.
    tracked: Mutex<Tracked>,
}

/// Files and directories below the root that this process has opened.
#[derive(Default)]
pub(crate) struct Tracked {
    inodes: HashSet<Identity>,
    /// How many syncs of a file have failed, and the error of the last.
    failures: HashMap<Identity, (u64, c_int)>,
    /// How many of them an open file has learnt of.
    learnt: HashMap<c_int, (Identity, u64)>,
}

impl Tracked {
    pub(crate) fn insert(&mut self, inode: Identity) {
        self.inodes.insert(inode);
    }

    /// A file was opened: it does not learn of failures before.
    pub(crate) fn opened(&mut self, fd: c_int, inode: Identity) {
        self.insert(inode);
        let failures = self.failures.get(&inode).map_or(0, |(count, _)| *count);
        self.learnt.insert(fd, (inode, failures));
    }

    /// A sync by this open file fails with `error`.
    pub(crate) fn fail(&mut self, fd: c_int, inode: Identity, error: c_int) {
        let (count, last) = self.failures.entry(inode).or_default();
        (*count, *last) = (*count + 1, error);
        self.learnt.insert(fd, (inode, *count));
    }

    /// The error of a sync by another open file that this one has not learnt of: Linux reports each error of
    /// writing back once to each open file (`errseq_t`).
    pub(crate) fn learn(&mut self, fd: c_int, inode: Identity) -> Option<c_int> {
        let (count, error) = *self.failures.get(&inode)?;
        let (of, learnt) = self.learnt.get_mut(&fd)?;
        let is_new = *of == inode && *learnt < count;
        *learnt = if is_new { count } else { *learnt };
        is_new.then_some(error)
    }
}

/// The state, when there is one.
pub(crate) fn state() -> Option<&'static State> {
    static STATE: OnceLock<Option<State>> = OnceLock::new();
    STATE.get_or_init(State::from_environment).as_ref()
}

/// Identifies a file: device and inode.
pub(crate) type Identity = (u64, u64);

impl State {
    fn from_environment() -> Option<State> {
        let variable = |name| std::env::var_os(name).map(OsStringExt::into_vec);
        let root = variable("PLINTH_DISK_ROOT")?;
        let trace = variable("PLINTH_DISK_TRACE").map(|mut path| {
            path.push(0);
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
            // SAFETY: `path` ends with a zero byte.
            let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
            fd as c_int
        });
        let injection = std::env::var("PLINTH_DISK_ERROR").ok().map(|text| match Injection::parse(&text) {
            Some(injection) => injection,
            // A test with a misspelled error would test nothing.
            None => std::process::abort(),
        });
        let hit = variable("PLINTH_DISK_HIT").map(|mut path| {
            path.push(0);
            path
        });
        let mut with_nul = root.clone();
        with_nul.push(0);
        let directory = identity_of_path(libc::AT_FDCWD, with_nul.as_ptr().cast());
        if let (Some(trace), Some((_, inode))) = (trace, directory) {
            Record { inode, ..Record::new(Kind::Root) }.append(trace);
        }
        let tracked = Tracked { inodes: directory.into_iter().collect(), ..Tracked::default() };
        Some(State { root, trace, injection, hit, tracked: Mutex::new(tracked) })
    }

    /// The path relative to the root, when it is below it.
    pub(crate) fn below(&self, dir: c_int, path: *const c_char) -> Option<Vec<u8>> {
        if path.is_null() {
            return None;
        }
        // SAFETY: a path that is handed to the C library is a string with a zero at its end, or null.
        let path = unsafe { CStr::from_ptr(path) }.to_bytes();
        let mut absolute = Vec::new();
        if !path.starts_with(b"/") {
            absolute = directory_path(dir)?;
            absolute.push(b'/');
        }
        absolute.extend_from_slice(path);
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in absolute.split(|byte| *byte == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
        let normal = parts.iter().fold(Vec::new(), |mut path, part| {
            path.push(b'/');
            path.extend_from_slice(part);
            path
        });
        let rest = normal.strip_prefix(self.root.as_slice())?;
        match rest.first() {
            None => Some(Vec::new()),
            Some(b'/') => Some(rest[1..].to_vec()),
            Some(_) => None,
        }
    }

    /// Takes the lock of traced calls.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Tracked> {
        self.tracked.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The inode of an open file, when it is tracked.
    pub(crate) fn tracked(&self, fd: c_int) -> Option<u64> {
        let identity = identity_of(fd)?;
        self.lock().inodes.contains(&identity).then_some(identity.1)
    }

    /// Writes a record.
    pub(crate) fn append(&self, record: &Record<'_>) {
        if let Some(trace) = self.trace {
            record.append(trace);
        }
    }

    /// Whether a trace is written.
    pub(crate) fn traces(&self) -> bool {
        self.trace.is_some()
    }

    /// Whether calls of this kind may be made to fail.
    pub(crate) fn injects(&self, site: Site) -> bool {
        self.injection.as_ref().is_some_and(|injection| injection.is_for(site))
    }

    /// What is to happen to a call below the root. Calls that are held wait here.
    pub(crate) fn inject(&self, site: Site) -> Option<Action> {
        let what = self.injection.as_ref()?.pass(site, || {
            let Some(hit) = &self.hit else { return };
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC;
            // SAFETY: `hit` ends with a zero byte; the new descriptor belongs to nobody else.
            unsafe {
                let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, hit.as_ptr(), flags, 0o600);
                libc::syscall(libc::SYS_close, fd);
            }
        })?;
        if what != Action::Hold {
            return Some(what);
        }
        let is_hit = |hit: &Vec<u8>| status(libc::AT_FDCWD, hit.as_ptr().cast(), 0).is_some();
        while self.hit.as_ref().is_some_and(is_hit) {
            std::thread::sleep(HOLD_POLL);
        }
        None
    }
}

fn directory_path(dir: c_int) -> Option<Vec<u8>> {
    let link = match dir {
        libc::AT_FDCWD => "/proc/self/cwd\0".to_owned(),
        dir => format!("/proc/self/fd/{dir}\0"),
    };
    let mut path = vec![0; 4096];
    // SAFETY: `link` ends with a zero byte, `path` is valid for writes of its length.
    let length = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), path.as_mut_ptr(), path.len())
    };
    path.truncate(usize::try_from(length).ok()?);
    Some(path)
}

/// Device and inode of an open file or directory; none for sockets, pipes and what is not open.
pub(crate) fn identity_of(fd: c_int) -> Option<Identity> {
    identity(fd, c"".as_ptr(), libc::AT_EMPTY_PATH)
}

/// The same of a path, without following a link at its end.
pub(crate) fn identity_of_path(dir: c_int, path: *const c_char) -> Option<Identity> {
    identity(dir, path, libc::AT_SYMLINK_NOFOLLOW)
}

fn identity(dir: c_int, path: *const c_char, flags: c_int) -> Option<Identity> {
    let status = status(dir, path, flags)?;
    let kind = status.st_mode & libc::S_IFMT;
    (kind == libc::S_IFREG || kind == libc::S_IFDIR).then_some((status.st_dev, status.st_ino))
}

/// `fstatat`, leaving errno as it was.
pub(crate) fn status(dir: c_int, path: *const c_char, flags: c_int) -> Option<libc::stat> {
    let errno = errno();
    // SAFETY: all zeros is a value of the plain struct `stat`.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `path` is a string (callers hand in a constant or what the program handed in), `status` is
    // writable.
    let outcome = unsafe { libc::syscall(libc::SYS_newfstatat, dir, path, &raw mut status, flags) };
    set_errno(errno);
    (outcome == 0).then_some(status)
}

/// The error number of this thread.
pub(crate) fn errno() -> c_int {
    // SAFETY: the C library returns a pointer to this thread's own number.
    unsafe { *libc::__errno_location() }
}

/// Sets the error number of this thread.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno }
}
