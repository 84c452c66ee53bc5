//! What the program requires of the processor.

/// Instructions that RocksDB is compiled with (scripts/rocksdb) and this processor lacks: without this check
/// the program would end with SIGILL at some time.
pub fn missing() -> Vec<&'static str> {
    let required: &[(&str, bool)] = &[
        #[cfg(target_arch = "x86_64")]
        ("SSE4.1", std::is_x86_feature_detected!("sse4.1")),
        #[cfg(target_arch = "x86_64")]
        ("SSE4.2", std::is_x86_feature_detected!("sse4.2")),
        #[cfg(target_arch = "x86_64")]
        ("PCLMULQDQ", std::is_x86_feature_detected!("pclmulqdq")),
        #[cfg(target_arch = "aarch64")]
        ("CRC32", std::arch::is_aarch64_feature_detected!("crc")),
        #[cfg(target_arch = "aarch64")]
        ("AES", std::arch::is_aarch64_feature_detected!("aes")),
    ];
    required.iter().filter(|(_, is_there)| !is_there).map(|(name, _)| *name).collect()
}
