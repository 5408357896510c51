//! Fuzzes the reader of ExecuTorch data files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("flat_tensor", bytes));
