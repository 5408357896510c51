//! Fuzzes the reader of Core ML models.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("coreml", bytes));
