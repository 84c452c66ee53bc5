//! What the C library's allocator is told. It serves the whole process, RocksDB too.

/// Settings for a program that serves. To be called before there are threads. What the environment says of heaps
/// (`MALLOC_ARENA_MAX`, `GLIBC_TUNABLES`) stays. Does nothing where the library is another.
///
/// - As many heaps as processors, two at least. By default each of some dozens of threads gets one of its own, and what one thread
///   has made and another let go of lies idle in both. Small blocks are kept by each thread itself, so nobody waits long.
/// - Blocks of a megabyte go back to the system when they are freed: those that RocksDB's write buffers are made of, and large
///   bodies. By default the bound rises to the largest block that was ever freed, and they break up the heaps.
pub fn configure() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        /// Of a block that gets a mapping of its own, in bytes.
        const LARGE: libc::c_int = 1 << 20;
        if ["MALLOC_ARENA_MAX", "GLIBC_TUNABLES"].iter().any(|name| std::env::var_os(name).is_some()) {
            return;
        }
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let heaps = libc::c_int::try_from(processors.max(2)).unwrap_or(libc::c_int::MAX);
        // SAFETY: mallopt takes two numbers and has no preconditions; it locks what it changes.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, heaps);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        }
    }
}
