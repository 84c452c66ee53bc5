//! Configuration of the C library's allocator, which serves the whole process, including RocksDB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use plinth_apiserver::context::Server;

/// Unread answers of so many bytes are a flood, once they are gone.
const FLOOD: usize = 64 << 20;
/// How often it is looked for the end of one, and how often memory is given back at the most: what is freed
/// is mostly used again, and threads that need memory wait meanwhile.
const LOOKED_FOR: Duration = Duration::from_secs(2);
const GIVEN_BACK: Duration = Duration::from_secs(30);

/// Limits the number of arenas to the number of processors, at least two. By default each of some dozens of
/// threads gets its own, and memory that one thread allocates and another frees stays idle in both: with
/// fewer arenas a server that answers lists needs a third less memory, and is as fast, since small blocks are
/// cached per thread. Mapping large blocks individually (`M_MMAP_THRESHOLD`) would save some more megabytes,
/// for a tenth more CPU of lists and patches.
///
/// To be called before threads are started. Settings in the environment (`MALLOC_ARENA_MAX`,
/// `GLIBC_TUNABLES`) take precedence. Does nothing with other C libraries.
pub fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let heaps = libc::c_int::try_from(processors.max(2)).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two numbers and has no preconditions; it locks what it changes.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, heaps) };
    }
}

/// Gives the memory of unread answers back to the system when a flood of them is over. The allocator keeps
/// what was freed below a block that is still used, so a flood of gigabytes left gigabytes.
pub fn give_back_after_floods(server: &Arc<Server>) {
    let watched = server.clone();
    server.spawn(async move {
        let (mut most, mut given_back) = (0, None::<Instant>);
        loop {
            tokio::time::sleep(LOOKED_FOR).await;
            let now = watched.metrics.unread_answers.get().map_or(0, |answers| answers.bytes());
            most = now.max(most);
            let is_due = given_back.is_none_or(|last| last.elapsed() >= GIVEN_BACK);
            if is_due && most >= FLOOD && now < most / 4 {
                // It does not panic.
                let _ = tokio::task::spawn_blocking(give_back).await;
                (most, given_back) = (now, Some(Instant::now()));
            }
        }
    });
}

fn give_back() {
    // SAFETY: malloc_trim takes a number and has no preconditions; it locks what it changes.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    unsafe {
        libc::malloc_trim(0)
    };
}
