//! Fuzzes the payload of a delegate for QNN, a wrapped binary: described alone and inside a
//! program.
#![no_main]

use pkgtool_base::package::Backend;

/// The head of a program with such a payload.
static HEAD: &[u8] = include_bytes!("../../tests/fixtures/qnn/conv_qnn_fp16.head.pte");

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // Offset and length of the segments.
    let [base, size] = [24, 32].map(|at| usize::from(HEAD[at]) + 256 * usize::from(HEAD[at + 1]));
    let mut program = HEAD.to_vec();
    program.resize(base + size, 0);
    pkgtool_fuzz::check_payload(Backend::Qnn, &program, bytes);
});
