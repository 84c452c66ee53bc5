#![no_main]

#[path = "../structural.rs"]
#[allow(dead_code)]
mod structural;

libfuzzer_sys::fuzz_target!(|input: &[u8]| structural::structural(input));
