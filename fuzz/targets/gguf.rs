//! Fuzzes the reader of GGUF files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("gguf", bytes));
