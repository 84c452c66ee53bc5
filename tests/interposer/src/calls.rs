//! The functions that take the place of the C library's.
//!
//! Each does the system call itself, which is what the C library's function does on 64-bit Linux. `open` and
//! its relatives are variadic in C; on x86-64 and aarch64 an integer behind the dots is passed as a declared
//! one, so a third declared parameter receives it (and is ignored where the caller passed none).
//!
//! Safety of all of them: they hand on what the caller handed in, to the same system call, so what the caller
//! must guarantee is what the C library's function asks for. Memory of the caller is read only after the call
//! succeeded, in the length that the call reported.

use libc::{c_char, c_int, c_long, c_uint, c_void, iovec, mode_t, off_t, size_t, ssize_t};

use crate::inject::{Action, Site, SLOW};
use crate::state::{errno, identity_of, identity_of_path, set_errno, state, status, State};
use crate::trace::{Kind, Record};

/// A system call with the caller's arguments.
macro_rules! call {
    ($number:ident $(, $argument:expr)* $(,)?) => {
        // SAFETY: see the module's comment.
        unsafe { libc::syscall(libc::$number $(, $argument)*) }
    };
}

/// Declares functions that the dynamic linker prefers to the C library's.
macro_rules! interpose {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty $body:block)*) => {$(
        /// Takes the place of the C library's function of this name.
        ///
        /// # Safety
        /// As the C library's function.
        #[no_mangle]
        pub(crate) unsafe extern "C" fn $name($($argument: $type),*) -> $result $body
    )*};
}

fn fail(number: c_int) -> c_long {
    set_errno(number);
    -1
}

/// The state and the inode of a tracked file.
fn target(fd: c_int) -> Option<(&'static State, u64)> {
    let state = state()?;
    Some((state, state.tracked(fd)?))
}

/// The state and the relative path of a file below the root.
fn place(dir: c_int, path: *const c_char) -> Option<(&'static State, Vec<u8>)> {
    let state = state()?;
    Some((state, state.below(dir, path)?))
}

/// Does a call on names, traced.
fn named(state: &State, site: Site, record: Record<'_>, call: impl FnOnce() -> c_long) -> c_long {
    if let Some(Action::Fail(number)) = state.inject(site) {
        return fail(number);
    }
    let _order = state.lock();
    let outcome = call();
    if outcome == 0 {
        state.append(&record);
    }
    outcome
}

fn open_file(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let open = || call!(SYS_openat, dir, path, flags, mode) as c_int;
    let Some((state, name)) = place(dir, path) else { return open() };
    if let Some(Action::Fail(number)) = state.inject(Site::Open) {
        return fail(number) as c_int;
    }
    let mut tracked = state.lock();
    let existed = identity_of_path(dir, path).is_some();
    let fd = open();
    if fd < 0 {
        return fd;
    }
    let Some(identity) = identity_of(fd) else { return fd };
    tracked.opened(fd, identity);
    let writes = flags & (libc::O_WRONLY | libc::O_RDWR) != 0;
    let unusual = libc::O_DSYNC | libc::O_DIRECT;
    let path = name.as_slice();
    if writes && (flags & unusual != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE) {
        state.append(&Record { path, ..Record::new(Kind::Unknown) });
    } else if flags & libc::O_CREAT != 0 && !existed {
        state.append(&Record { path, inode: identity.1, ..Record::new(Kind::Create) });
    } else if writes && flags & libc::O_TRUNC != 0 {
        state.append(&Record { inode: identity.1, ..Record::new(Kind::Resize) });
    }
    fd
}

/// Writes at `offset`, or at the file's position when that is none.
fn write_file(fd: c_int, data: *const c_void, mut length: size_t, offset: Option<off_t>) -> ssize_t {
    let write = |length: size_t| match offset {
        Some(offset) => call!(SYS_pwrite64, fd, data, length, offset) as ssize_t,
        None => call!(SYS_write, fd, data, length) as ssize_t,
    };
    let Some((state, inode)) = target(fd) else { return write(length) };
    match state.inject(Site::Write) {
        Some(Action::Fail(number)) => return fail(number) as ssize_t,
        Some(Action::Short) => length = length.div_ceil(2),
        _ => {}
    }
    let _order = state.lock();
    let written = write(length);
    if written > 0 && state.traces() {
        let offset = offset.unwrap_or_else(|| position(fd) - written as off_t);
        // SAFETY: the system call has read that many bytes from there.
        let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), written as usize) };
        state.append(&Record { inode, offset: offset as u64, data, ..Record::new(Kind::Write) });
    }
    written
}

/// The position of an open file.
fn position(fd: c_int) -> off_t {
    call!(SYS_lseek, fd, 0, libc::SEEK_CUR) as off_t
}

fn write_vector(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    let Some((state, inode)) = target(fd) else {
        return call!(SYS_writev, fd, parts, count) as ssize_t;
    };
    if let Some(Action::Fail(number)) = state.inject(Site::Write) {
        return fail(number) as ssize_t;
    }
    let _order = state.lock();
    let written = call!(SYS_writev, fd, parts, count) as ssize_t;
    if written > 0 && state.traces() {
        let offset = position(fd) - written as off_t;
        let mut data = Vec::with_capacity(written as usize);
        // SAFETY: the system call has read this array, and `written` bytes of what it points to.
        for part in unsafe { std::slice::from_raw_parts(parts, count as usize) } {
            let length = part.iov_len.min(written as usize - data.len());
            // SAFETY: as above.
            data.extend_from_slice(unsafe { std::slice::from_raw_parts(part.iov_base.cast::<u8>(), length) });
        }
        state.append(&Record { inode, offset: offset as u64, data: &data, ..Record::new(Kind::Write) });
    }
    written
}

fn sync_file(fd: c_int, sync: impl FnOnce() -> c_long) -> c_int {
    let Some((state, inode)) = target(fd) else { return sync() as c_int };
    let Some(identity) = identity_of(fd) else { return sync() as c_int };
    let injected = state.inject(Site::Sync);
    let mut tracked = state.lock();
    let outcome = match (tracked.learn(fd, identity), injected) {
        (_, Some(Action::Fail(number) | Action::FailLate(number))) => {
            tracked.fail(fd, identity, number);
            fail(number)
        }
        (Some(number), _) => fail(number),
        _ => sync(),
    };
    let result = if outcome == 0 { 0 } else { errno() };
    state.append(&Record { inode, result, ..Record::new(Kind::Sync) });
    drop(tracked);
    if matches!(injected, Some(Action::FailLate(_))) {
        std::thread::sleep(SLOW);
    }
    set_errno(result);
    outcome as c_int
}

fn resize_file(fd: c_int, size: off_t) -> c_int {
    let resize = || call!(SYS_ftruncate, fd, size);
    let Some((state, inode)) = target(fd) else { return resize() as c_int };
    named(state, Site::Resize, Record { inode, size: size as u64, ..Record::new(Kind::Resize) }, resize)
        as c_int
}

fn allocate_file(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    let allocate = || call!(SYS_fallocate, fd, mode, offset, length) as c_int;
    let Some((state, inode)) = target(fd) else { return allocate() };
    if let Some(Action::Fail(number)) = state.inject(Site::Allocate) {
        return fail(number) as c_int;
    }
    let _order = state.lock();
    let outcome = allocate();
    let size = status(fd, c"".as_ptr(), libc::AT_EMPTY_PATH).map_or(0, |status| status.st_size as u64);
    let (offset, length) = (offset as u64, length as u64);
    let keep = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
    let zero = mode & (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) != 0;
    let others = libc::FALLOC_FL_KEEP_SIZE | libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    if outcome == 0 {
        if mode & !others != 0 {
            state.append(&Record { inode, ..Record::new(Kind::Unknown) });
        }
        if !keep {
            state.append(&Record { inode, size, ..Record::new(Kind::Resize) });
        }
        if zero && offset < size {
            let size = length.min(size - offset);
            state.append(&Record { inode, offset, size, ..Record::new(Kind::Zero) });
        }
    }
    outcome
}

fn rename_file(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let rename = || call!(SYS_renameat2, from_dir, from, to_dir, to, flags);
    let Some(state) = state() else { return rename() as c_int };
    let paths = (state.below(from_dir, from), state.below(to_dir, to));
    let record = match &paths {
        (None, None) => return rename() as c_int,
        (Some(path), Some(second)) if flags == 0 => Record { path, second, ..Record::new(Kind::Rename) },
        (Some(path), _) | (_, Some(path)) => Record { path, ..Record::new(Kind::Unknown) },
    };
    named(state, Site::Rename, record, rename) as c_int
}

fn link_file(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
    let link = || call!(SYS_linkat, from_dir, from, to_dir, to, flags);
    let Some(state) = state() else { return link() as c_int };
    let paths = (state.below(from_dir, from), state.below(to_dir, to));
    let record = match &paths {
        (None, None) => return link() as c_int,
        (Some(path), Some(second)) => Record { path, second, ..Record::new(Kind::Link) },
        (Some(path), _) | (_, Some(path)) => Record { path, ..Record::new(Kind::Unknown) },
    };
    named(state, Site::Link, record, link) as c_int
}

fn unlink_file(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let unlink = || call!(SYS_unlinkat, dir, path, flags);
    let Some((state, name)) = place(dir, path) else { return unlink() as c_int };
    let kind = if flags & libc::AT_REMOVEDIR != 0 { Kind::Rmdir } else { Kind::Unlink };
    named(state, Site::Unlink, Record { path: &name, ..Record::new(kind) }, unlink) as c_int
}

fn make_directory(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let make = || call!(SYS_mkdirat, dir, path, mode);
    let Some((state, name)) = place(dir, path) else { return make() as c_int };
    if let Some(Action::Fail(number)) = state.inject(Site::Mkdir) {
        return fail(number) as c_int;
    }
    let mut tracked = state.lock();
    let outcome = make();
    if outcome == 0 {
        let Some(identity) = identity_of_path(dir, path) else { return 0 };
        tracked.insert(identity);
        state.append(&Record { path: &name, inode: identity.1, ..Record::new(Kind::Mkdir) });
    }
    outcome as c_int
}

/// Records that something happened below the root that the model does not have.
fn unknown(dir: c_int, path: *const c_char) {
    if let Some((state, path)) = place(dir, path) {
        state.append(&Record { path: &path, ..Record::new(Kind::Unknown) });
    }
}

fn read_file(fd: c_int, length: size_t, read: impl FnOnce(size_t) -> c_long) -> ssize_t {
    let injected = state().filter(|state| state.injects(Site::Read)).and_then(|state| {
        state.tracked(fd)?;
        state.inject(Site::Read)
    });
    let outcome = match injected {
        Some(Action::Fail(number)) => fail(number),
        Some(Action::Short) => read(length.div_ceil(2)),
        _ => read(length),
    };
    outcome as ssize_t
}

/// The error that is to be the answer to a question about a file, if any.
fn status_error(dir: c_int, path: *const c_char) -> Option<c_int> {
    let state = state().filter(|state| state.injects(Site::Stat))?;
    state.below(dir, path)?;
    match state.inject(Site::Stat)? {
        Action::Fail(number) => Some(number),
        _ => None,
    }
}

fn stat_file(dir: c_int, path: *const c_char, out: *mut libc::stat, flags: c_int) -> c_int {
    match status_error(dir, path) {
        Some(number) => fail(number) as c_int,
        None => call!(SYS_newfstatat, dir, path, out, flags) as c_int,
    }
}

fn map_file(
    at: *mut c_void,
    length: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let shared = flags & libc::MAP_TYPE != libc::MAP_PRIVATE && flags & libc::MAP_ANONYMOUS == 0;
    if shared && prot & libc::PROT_WRITE != 0 {
        if let Some((state, inode)) = target(fd) {
            state.append(&Record { inode, ..Record::new(Kind::Unknown) });
        }
    }
    call!(SYS_mmap, at, length, prot, flags, fd, offset) as *mut c_void
}

/// Copies inside the kernel are refused for files below the root: callers then read and write.
fn copy_refused(out: c_int) -> bool {
    target(out).is_some_and(|(state, _)| state.traces())
}

interpose! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_file(libc::AT_FDCWD, path, flags, mode) }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_file(libc::AT_FDCWD, path, flags, mode) }
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_file(dir, path, flags, mode) }
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { open_file(dir, path, flags, mode) }
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        open_file(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
    }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        open_file(libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
    }
    fn write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t { write_file(fd, data, length, None) }
    fn pwrite(fd: c_int, data: *const c_void, length: size_t, offset: off_t) -> ssize_t {
        write_file(fd, data, length, Some(offset))
    }
    fn pwrite64(fd: c_int, data: *const c_void, length: size_t, offset: off_t) -> ssize_t {
        write_file(fd, data, length, Some(offset))
    }
    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t { write_vector(fd, parts, count) }
    fn pwritev(fd: c_int, parts: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        if let Some((state, inode)) = target(fd) {
            state.append(&Record { inode, ..Record::new(Kind::Unknown) });
        }
        call!(SYS_pwritev, fd, parts, count, offset, 0) as ssize_t
    }
    fn fsync(fd: c_int) -> c_int { sync_file(fd, || call!(SYS_fsync, fd)) }
    fn fdatasync(fd: c_int) -> c_int { sync_file(fd, || call!(SYS_fdatasync, fd)) }
    fn sync_file_range(fd: c_int, offset: off_t, length: off_t, flags: c_uint) -> c_int {
        // A hint: nothing is durable after it. It may fail all the same.
        if let Some(Action::Fail(number)) = target(fd).and_then(|(state, _)| state.inject(Site::Sync)) {
            return fail(number) as c_int;
        }
        call!(SYS_sync_file_range, fd, offset, length, flags) as c_int
    }
    fn ftruncate(fd: c_int, size: off_t) -> c_int { resize_file(fd, size) }
    fn ftruncate64(fd: c_int, size: off_t) -> c_int { resize_file(fd, size) }
    fn truncate(path: *const c_char, size: off_t) -> c_int {
        unknown(libc::AT_FDCWD, path);
        call!(SYS_truncate, path, size) as c_int
    }
    fn truncate64(path: *const c_char, size: off_t) -> c_int {
        unknown(libc::AT_FDCWD, path);
        call!(SYS_truncate, path, size) as c_int
    }
    fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int { allocate_file(fd, mode, offset, length) }
    fn fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int { allocate_file(fd, mode, offset, length) }
    fn posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
        if allocate_file(fd, 0, offset, length) == 0 { 0 } else { errno() }
    }
    fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int {
        if allocate_file(fd, 0, offset, length) == 0 { 0 } else { errno() }
    }
    fn rename(from: *const c_char, to: *const c_char) -> c_int { rename_file(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        rename_file(from_dir, from, to_dir, to, 0)
    }
    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int {
        rename_file(from_dir, from, to_dir, to, flags)
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int { link_file(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0) }
    fn linkat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int) -> c_int {
        link_file(from_dir, from, to_dir, to, flags)
    }
    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        unknown(libc::AT_FDCWD, path);
        call!(SYS_symlinkat, target, libc::AT_FDCWD, path) as c_int
    }
    fn unlink(path: *const c_char) -> c_int { unlink_file(libc::AT_FDCWD, path, 0) }
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int { unlink_file(dir, path, flags) }
    fn rmdir(path: *const c_char) -> c_int { unlink_file(libc::AT_FDCWD, path, libc::AT_REMOVEDIR) }
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int { make_directory(libc::AT_FDCWD, path, mode) }
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int { make_directory(dir, path, mode) }
    fn read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t {
        read_file(fd, length, |length| call!(SYS_read, fd, data, length))
    }
    fn pread(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        read_file(fd, length, |length| call!(SYS_pread64, fd, data, length, offset))
    }
    fn pread64(fd: c_int, data: *mut c_void, length: size_t, offset: off_t) -> ssize_t {
        read_file(fd, length, |length| call!(SYS_pread64, fd, data, length, offset))
    }
    fn stat(path: *const c_char, out: *mut libc::stat) -> c_int { stat_file(libc::AT_FDCWD, path, out, 0) }
    fn stat64(path: *const c_char, out: *mut libc::stat) -> c_int { stat_file(libc::AT_FDCWD, path, out, 0) }
    fn lstat(path: *const c_char, out: *mut libc::stat) -> c_int {
        stat_file(libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW)
    }
    fn lstat64(path: *const c_char, out: *mut libc::stat) -> c_int {
        stat_file(libc::AT_FDCWD, path, out, libc::AT_SYMLINK_NOFOLLOW)
    }
    fn statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, out: *mut c_void) -> c_int {
        match status_error(dir, path) {
            Some(number) => fail(number) as c_int,
            None => call!(SYS_statx, dir, path, flags, mask, out) as c_int,
        }
    }
    fn access(path: *const c_char, mode: c_int) -> c_int {
        match status_error(libc::AT_FDCWD, path) {
            Some(number) => fail(number) as c_int,
            None => call!(SYS_faccessat, libc::AT_FDCWD, path, mode) as c_int,
        }
    }
    fn mmap(at: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        map_file(at, length, prot, flags, fd, offset)
    }
    fn mmap64(at: *mut c_void, length: size_t, prot: c_int, flags: c_int, fd: c_int, offset: off_t) -> *mut c_void {
        map_file(at, length, prot, flags, fd, offset)
    }
    fn copy_file_range(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: size_t, flags: c_uint) -> ssize_t {
        if copy_refused(to) {
            return fail(libc::EXDEV) as ssize_t;
        }
        call!(SYS_copy_file_range, from, from_offset, to, to_offset, length, flags) as ssize_t
    }
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
        if copy_refused(to) {
            return fail(libc::EINVAL) as ssize_t;
        }
        call!(SYS_sendfile, to, from, offset, length) as ssize_t
    }
    fn sendfile64(to: c_int, from: c_int, offset: *mut off_t, length: size_t) -> ssize_t {
        if copy_refused(to) {
            return fail(libc::EINVAL) as ssize_t;
        }
        call!(SYS_sendfile, to, from, offset, length) as ssize_t
    }
}
