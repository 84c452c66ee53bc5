#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| plinth_pki::fuzzing::pem_blocks(input));
