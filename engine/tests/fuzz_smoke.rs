//! The fuzz targets of the engine on stable Rust, over mutated inputs.

mod common;
// The target that fills a directory with any files runs under libFuzzer alone.
#[allow(dead_code)]
#[path = "../../fuzz/engine.rs"]
mod targets;

use common::{scaled, Random};
use plinth_journal::record::{HEADER_BYTES, VERSION};

fn mutate(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len() as u64 + 1) as usize;
        match random.below(4) {
            0 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            1 => bytes.truncate(at),
            2 => bytes.insert(at, random.next() as u8),
            _ if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5) as usize],
            _ => {}
        }
    }
}

#[test]
fn decoders_return_for_every_input() {
    let mut random = Random(1);
    for _ in 0..scaled(50_000) {
        let length = random.below(80) as usize;
        let mut input: Vec<u8> = (0..length).map(|_| random.next() as u8 % 4).collect();
        mutate(&mut random, &mut input);
        targets::decode(&input);
    }
}

#[test]
fn damaged_archives_are_refused() {
    let mut random = Random(2);
    let archive = targets::archive();
    for _ in 0..scaled(60) {
        let mut damaged = archive.clone();
        mutate(&mut random, &mut damaged);
        targets::restore_archive(&damaged);
    }
}

#[test]
fn damaged_directories_are_opened_or_refused() {
    let mut random = Random(3);
    for _ in 0..scaled(40) {
        let input: Vec<u8> = (0..1 + random.below(24)).map(|_| random.next() as u8).collect();
        targets::open_directory(&input);
    }
}

#[test]
fn write_ahead_logs_of_any_bytes_are_looked_through() {
    let mut random = Random(4);
    for _ in 0..scaled(300) {
        let length = random.below(5_000) as usize;
        let mut log: Vec<u8> = (0..length).map(|_| random.next() as u8 % 12).collect();
        mutate(&mut random, &mut log);
        targets::wal(&log);
    }
}

#[test]
fn records_of_any_bytes_are_decoded_or_refused() {
    let mut random = Random(5);
    for _ in 0..scaled(50_000) {
        // A header of version 1, then a body of few different bytes.
        let mut input = vec![0; HEADER_BYTES];
        (input[4], input[5], input[24]) = (VERSION, 1 + random.below(3) as u8, 1);
        input[32] = u8::from(input[5] != 1);
        input.extend((0..random.below(60)).map(|_| random.next() as u8 % 4));
        mutate(&mut random, &mut input);
        targets::journal_record(&input);
    }
}
