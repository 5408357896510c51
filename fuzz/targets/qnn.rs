//! The reader of QNN context binaries on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("qnn", bytes));
