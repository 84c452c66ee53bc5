//! The wall clock, moved by as many milliseconds as the file `PLINTH_CLOCK` says: eight bytes, little endian,
//! which may change while the process runs.

use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::OnceLock;

use libc::{c_int, c_long, clockid_t, timespec};

const NANOS: i64 = 1_000_000_000;

/// The file, shared in memory; `None` when none is named.
fn offset() -> Option<&'static AtomicI64> {
    static OFFSET: OnceLock<Option<&'static AtomicI64>> = OnceLock::new();
    *OFFSET.get_or_init(|| {
        let mut path = std::env::var_os("PLINTH_CLOCK")?.into_vec();
        path.push(0);
        // SAFETY: `path` ends with a zero byte; the mapping lives as long as the process and is only read, by
        // atomic loads, at an address that is aligned to a page.
        unsafe {
            let fd = libc::syscall(
                libc::SYS_openat,
                libc::AT_FDCWD,
                path.as_ptr(),
                libc::O_RDONLY | libc::O_CLOEXEC,
                0,
            );
            let map = libc::mmap(std::ptr::null_mut(), 8, libc::PROT_READ, libc::MAP_SHARED, fd as c_int, 0);
            // A test that moves a clock which is not there would test nothing.
            match map == libc::MAP_FAILED {
                true => std::process::abort(),
                false => Some(&*map.cast::<AtomicI64>()),
            }
        }
    })
}

/// # Safety
/// As the C library's.
#[no_mangle]
pub(crate) unsafe extern "C" fn clock_gettime(clock: clockid_t, time: *mut timespec) -> c_int {
    // SAFETY: the caller's pointer, checked by the system.
    let outcome = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) } as c_int;
    let is_wall_clock = clock == libc::CLOCK_REALTIME || clock == libc::CLOCK_REALTIME_COARSE;
    if outcome == 0 && is_wall_clock {
        if let Some(offset) = offset() {
            let millis = offset.load(Ordering::Relaxed);
            // SAFETY: the call has succeeded, so the pointer was good.
            let time = unsafe { &mut *time };
            let nanos = time.tv_nsec + millis.rem_euclid(1000) * (NANOS / 1000);
            time.tv_sec += millis.div_euclid(1000) + nanos / NANOS;
            time.tv_nsec = (nanos % NANOS) as c_long;
        }
    }
    outcome
}
