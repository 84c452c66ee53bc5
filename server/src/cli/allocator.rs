//! What the C library's allocator is told. It serves the whole process, RocksDB too.

/// As many heaps as processors, two at least. By default each of some dozens of threads gets one of its own, and what one thread
/// has made and another let go of lies idle in both: a server that answers lists holds a third less with fewer, and is as fast, since
/// small blocks are kept by each thread itself. To map large blocks one by one (`M_MMAP_THRESHOLD`) would spare some megabytes
/// more, for a tenth more CPU of lists and patches.
///
/// To be called before there are threads. What the environment says of heaps (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`) stays. Does
/// nothing where the library is another.
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
