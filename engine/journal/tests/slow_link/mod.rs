//! A slow path to the members of a journal: all that they send shares so many bytes per second, and where it
//! is slow both ways, all that they are sent.

#![allow(dead_code)] // each program of tests uses a part of it

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Bytes that pass at once.
const PIECE: usize = 8 << 10;

pub(crate) struct SlowLink {
    /// From the members.
    link: Arc<Link>,
    /// To the members; none where that is not slow.
    back: Option<Arc<Link>>,
}

struct Link {
    bytes_per_second: u64,
    passed: AtomicU64,
    /// When the next piece may pass.
    free: Mutex<Instant>,
}

impl SlowLink {
    pub(crate) fn new(bytes_per_second: u64) -> SlowLink {
        SlowLink { link: Link::new(bytes_per_second), back: None }
    }

    pub(crate) fn both_ways(bytes_per_second: u64) -> SlowLink {
        SlowLink { back: Some(Link::new(bytes_per_second)), ..SlowLink::new(bytes_per_second) }
    }

    /// The address at which a member is reached over the link, as long as the process lives.
    pub(crate) fn to(&self, member: String) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (link, back) = (Arc::clone(&self.link), self.back.clone());
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let (client, link, back) = (client.unwrap(), Arc::clone(&link), back.clone());
                // A member that is down ends the connection.
                let Ok(member) = TcpStream::connect(&member) else { continue };
                let there = (client.try_clone().unwrap(), member.try_clone().unwrap());
                std::thread::spawn(move || {
                    pass(there.0, there.1, |bytes| back.iter().for_each(|back| back.wait(bytes)))
                });
                std::thread::spawn(move || pass(member, client, |bytes| link.wait(bytes)));
            }
        });
        address
    }

    /// Bytes that the members have sent over it.
    pub(crate) fn passed(&self) -> u64 {
        self.link.passed.load(Ordering::Relaxed)
    }
}

impl Link {
    fn new(bytes_per_second: u64) -> Arc<Link> {
        let (passed, free) = (AtomicU64::new(0), Mutex::new(Instant::now()));
        Arc::new(Link { bytes_per_second, passed, free })
    }

    /// Waits until so many bytes have passed.
    fn wait(&self, bytes: u64) {
        let until = {
            let mut free = self.free.lock();
            let time = Duration::from_micros(bytes * 1_000_000 / self.bytes_per_second);
            *free = (*free).max(Instant::now()) + time;
            *free
        };
        std::thread::sleep(until.saturating_duration_since(Instant::now()));
        self.passed.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Passes on what comes, each piece after `wait`, until one side ends.
fn pass(mut from: TcpStream, mut to: TcpStream, wait: impl Fn(u64)) {
    let mut piece = vec![0; PIECE];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        wait(length as u64);
        if to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    for side in [from, to] {
        let _ = side.shutdown(Shutdown::Both);
    }
}
