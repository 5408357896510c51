//! Fuzzes the payload of a delegate for Vulkan, a graph of calls. It is parsed for execution, for
//! description, and as evidence in a program.
#![no_main]

use pkgtool_base::package::Backend;

/// A program with such a payload.
static PROGRAM: &[u8] = include_bytes!("../../tests/fixtures/payloads/mlp_dynamic_vulkan_fp32.pte");

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    pkgtool_fuzz::check_payload(Backend::Vulkan, PROGRAM, bytes);
});
