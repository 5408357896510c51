//! Fuzzes the validation of precision lists.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_validation(
    "precisions.json",
    bytes
));
