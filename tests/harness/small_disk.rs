//! A disk that is full: a small file system in a mount namespace of the server's own, on which a test takes
//! all the room.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use plinth_benches::api::server::{Launch, Server};

const UNSHARE: [&str; 4] = ["unshare", "--user", "--map-root-user", "--mount"];

/// Runs its arguments after the directory `$0/store` was replaced by a small file system with its contents.
const ON_A_SMALL_DISK: &str = "rm -rf $0/copy && cp -a $0/store $0/copy && \
    mount -t tmpfs -o size=80m tmpfs $0/store && cp -a $0/copy/. $0/store && exec \"$@\"";

/// `launch` with the stored data below `root`, where a server has run before, on a file system of 80 MiB.
/// None, and a line that reports it, where this user may not mount one.
pub fn on_a_small_disk(launch: Launch, root: &Path) -> Option<Launch> {
    let mut probe = Command::new(UNSHARE[0]);
    if !probe.args(&UNSHARE[1..]).arg("true").status().is_ok_and(|status| status.success()) {
        println!("skipped: this user may not mount a small file system");
        return None;
    }
    let data = root.join("data");
    let words = [&UNSHARE[..], &["sh", "-c", ON_A_SMALL_DISK, data.to_str().expect("UTF-8")]].concat();
    Some(launch.on_host(IpAddr::V4(Ipv4Addr::LOCALHOST), &words))
}

/// The stored data of `server`, whose directory is below `root`, as its own mount namespace has them.
pub fn store_of(server: &Server, root: &Path) -> PathBuf {
    let store = root.join("data/store");
    let own = Path::new("/proc").join(server.pid().to_string()).join("root");
    own.join(store.strip_prefix("/").expect("an absolute path"))
}

/// Takes all the room that the file system has now, with the file that is returned. A flush that goes on
/// gives back the room of a log afterwards: who needs a write to be refused takes the room again before each.
pub fn fill(store: &Path) -> PathBuf {
    let path = store.join("filler");
    let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
    for size in [1 << 20, 1 << 12] {
        let zeros = vec![0; size];
        while file.write_all(&zeros).is_ok() {}
    }
    path
}
