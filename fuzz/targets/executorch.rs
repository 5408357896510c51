//! Fuzzes the reader of ExecuTorch programs.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("executorch", bytes));
