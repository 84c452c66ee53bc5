#![no_main]

#[path = "../patches.rs"]
#[allow(dead_code)]
mod patches;

libfuzzer_sys::fuzz_target!(|input: &[u8]| patches::applies(input));
