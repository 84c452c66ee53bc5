#![no_main]

#[path = "../engine.rs"]
#[allow(dead_code)]
mod engine;

libfuzzer_sys::fuzz_target!(|input: &[u8]| engine::journal_record(input));
