//! Fuzzes the reader of TensorFlow Lite models.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("tflite", bytes));
