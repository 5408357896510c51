//! Fuzzes the validation of configs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_validation("config.json", bytes));
