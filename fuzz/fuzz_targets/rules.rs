#![no_main]

#[path = "../rules.rs"]
mod rules;

libfuzzer_sys::fuzz_target!(|input: &[u8]| rules::rules(input));
