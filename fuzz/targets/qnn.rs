//! Fuzzes the reader of QNN context binaries.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("qnn", bytes));
