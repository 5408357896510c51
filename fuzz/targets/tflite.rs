//! The reader of TensorFlow Lite models on any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pkgtool_fuzz::check_reader("tflite", bytes));
