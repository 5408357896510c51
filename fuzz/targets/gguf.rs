//! The reader of GGUF files on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("gguf", bytes));
