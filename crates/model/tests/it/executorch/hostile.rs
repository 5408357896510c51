//! Fuzzing of the ExecuTorch reader: no input causes a panic, long work or large allocations.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use pkgtool_model::{Dynamism, ModelInfo, ModelValue};
use proptest::prelude::*;

use super::{HEADERS, bytes_of, error, inspect};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, ProgramPlan, byte, file, int, ints, program, tables, value,
};

/// Small programs that together cover all parts of the format.
const SEEDS: [&str; 12] = [
    "add_linear_portable.pte",
    "add_linear_xnnpack_fp32.pte",
    "bundled_program.bpte",
    "dtypes_portable.pte",
    "dyn_attention_mlx_fp32.pte",
    "dyn_batch_xnnpack_fp32.pte",
    "dyn_joined_xnnpack_fp32.pte",
    "dyn_mlp_vulkan_fp32.pte",
    "dyn_mlp_xnnpack_fp32.pte",
    "external_ptd.pte",
    "multi_method_xnnpack_fp32.pte",
    "nontensor_io_portable.pte",
];

/// Values that provoke arithmetic overflow.
const EXTREMES: [u32; 10] = [
    0,
    1,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_fffe,
    0xffff_ffff,
];

#[derive(Debug, Clone)]
pub(crate) enum Change {
    Flip(prop::sample::Index, u8),
    Overwrite(prop::sample::Index, u32),
    Truncate(prop::sample::Index),
}

pub(crate) fn changes() -> impl Strategy<Value = Vec<Change>> {
    let at = any::<prop::sample::Index>;
    let extreme = prop::sample::select(&EXTREMES[..]);
    let change = prop_oneof![
        6 => (at(), any::<u8>()).prop_map(|(at, byte)| Change::Flip(at, byte)),
        6 => (at(), extreme).prop_map(|(at, value)| Change::Overwrite(at, value)),
        1 => at().prop_map(Change::Truncate),
    ];
    prop::collection::vec(change, 1..6)
}

pub(crate) fn mutate(mut bytes: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for change in changes {
        if bytes.len() < 16 {
            break;
        }
        match change {
            Change::Flip(at, byte) => {
                let at = at.index(bytes.len());
                bytes[at] ^= byte;
            }
            Change::Overwrite(at, value) => {
                let at = at.index(bytes.len() / 4) * 4;
                bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            }
            Change::Truncate(at) => bytes.truncate(at.index(bytes.len())),
        }
    }
    bytes
}

/// Inspects the bytes. Errors must format, and results must satisfy [`keeps_promises`].
fn survives(bytes: &[u8]) {
    let start = Instant::now();
    match inspect(&bytes.to_vec()) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(info) => keeps_promises(&info, bytes.len() as u64),
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

/// Asserts that names are unique, segments lie inside the file, and each bounded tensor has a
/// dynamic dimension.
fn keeps_promises(info: &ModelInfo, len: u64) {
    let names: BTreeSet<&str> = info
        .methods
        .iter()
        .map(|method| method.name.as_str())
        .collect();
    assert_eq!(names.len(), info.methods.len());
    for segment in &info.segments {
        assert!(segment.offset + segment.size <= len);
    }
    let values = info
        .methods
        .iter()
        .flat_map(|method| method.inputs.iter().chain(&method.outputs));
    for tensor in values.filter_map(ModelValue::tensor) {
        let shape = tensor
            .config_shape()
            .expect("programs always give the rank");
        let varies = shape.is_empty() || shape.contains(&-1);
        assert!(varies || tensor.dynamism != Dynamism::Bounded, "{tensor:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn arbitrary_bytes_do_no_harm(mut bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        survives(&bytes);
        if bytes.len() >= 16 {
            bytes[4..12].copy_from_slice(b"ET12eh00");
            survives(&bytes);
            bytes[..12].copy_from_slice(b"\x10\0\0\0ET12\0\0\0\0");
            survives(&bytes);
            bytes[4..8].copy_from_slice(b"BP08");
            survives(&bytes);
        }
    }

    #[test]
    fn mutated_programs_do_no_harm(seed in prop::sample::select(&SEEDS[..]), changes in changes()) {
        survives(&mutate(bytes_of(seed), &changes));
    }
}

#[test]
fn a_program_may_end_anywhere() {
    let bytes = bytes_of("external_ptd.pte");
    for len in (0..bytes.len()).step_by(3) {
        survives(&bytes[..len]);
    }
    for (name, _) in HEADERS {
        error(&bytes_of(&format!("{name}.head.pte")));
    }
}

#[test]
fn a_tensor_used_over_and_over_does_not_multiply_the_work() {
    let plan = ProgramPlan {
        name: "forward",
        values: vec![value(5, vec![(0, byte(6)), (2, ints(&[1; 60]))])],
        inputs: vec![0; 20_000],
        ..ProgramPlan::default()
    };
    let bytes = file(&program(vec![plan.node()]));
    let start = Instant::now();
    let message = error(&bytes).to_string();
    assert!(
        message.contains("the header is too large: more than"),
        "{message}"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_constant_returned_over_and_over_does_not_multiply_the_memory() {
    let bytes = vec![1; 4096];
    let constant = vec![(2, ints(&[4096])), (5, int(1))];
    let plan = ProgramPlan {
        name: "get",
        values: vec![value(5, constant)],
        outputs: vec![0; 10_000],
        ..ProgramPlan::default()
    };
    let stored =
        |bytes| OffsetTarget::Table(vec![(0, ProgramField::To(OffsetTarget::Bytes(bytes)))]);
    let buffers = vec![stored(Vec::new()), stored(bytes)];
    let root = OffsetTarget::Table(vec![(1, tables(vec![plan.node()])), (2, tables(buffers))]);
    let message = error(&file(&root)).to_string();
    assert!(
        message.contains("expected a description of at most 67108864 bytes"),
        "{message}"
    );
}
