#![no_main]

#[path = "../tables.rs"]
mod tables;

libfuzzer_sys::fuzz_target!(|input: &[u8]| tables::table_row(input));
