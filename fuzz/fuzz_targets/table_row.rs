#![no_main]

#[path = "../requests.rs"]
#[allow(dead_code)]
mod requests;

libfuzzer_sys::fuzz_target!(|input: &[u8]| requests::table_row(input));
