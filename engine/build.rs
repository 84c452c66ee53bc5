//! Reports that RocksDB is not compiled yet, before librocksdb-sys fails with a linker's message.

use std::path::PathBuf;
use std::process::exit;

fn main() {
    println!("cargo:rerun-if-env-changed=ROCKSDB_LIB_DIR");
    println!("cargo:rerun-if-changed=build.rs");
    let Some(dir) = std::env::var_os("ROCKSDB_LIB_DIR").map(PathBuf::from) else { return };
    if !["librocksdb.a", "librocksdb.so"].iter().any(|name| dir.join(name).exists()) {
        eprintln!("error: RocksDB is not compiled yet: there is no library in {}", dir.display());
        eprintln!("Run scripts/setup build once in this checkout, which also sets the link .cargo/rocksdb");
        exit(1);
    }
}
