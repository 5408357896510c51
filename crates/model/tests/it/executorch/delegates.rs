//! Dynamic dimensions inferred from delegate payloads, and the limits on the work that payloads can
//! cause.

use std::time::{Duration, Instant};

use pkgtool_model::ModelInfo;
use proptest::prelude::*;

use super::{bytes_of, error, inspect, read};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, byte, file, int, ints, method, tables, tensor, text,
};

/// Real programs and their signatures. Each comment names the dimensions that were dynamic at
/// export.
const PROGRAMS: [(&str, &str); 9] = [
    // batch
    (
        "dyn_batch_xnnpack_fp32.pte",
        "(float32[-1 (up to 16), 3, 32 or -1, 32 or -1]) → (float32[-1 (up to 16), 4])",
    ),
    // batch; a filter is as wide as its input, so the other dimension is the dynamic one
    (
        "dyn_mlp_xnnpack_fp32.pte",
        "(float32[-1 (up to 16), 8]) → (float32[-1 (up to 16), 4])",
    ),
    // length; XNNPACK payloads do not distinguish it from the batch
    (
        "dyn_attention_xnnpack_fp32.pte",
        "(float32[2 or -1, 32 or -1, 8]) → (float32[2 or -1, 32 or -1, 8])",
    ),
    // batch; a broadcast second argument might be one row
    (
        "dyn_joined_xnnpack_fp32.pte",
        "(float32[-1 (up to 16), 8], float32[-1 (up to 16), 8 or -1]) → \
         (float32[-1 (up to 16), 8], float32[-1 (up to 16), 16 or -1])",
    ),
    // length, at least 2; only MLX records the minimum
    (
        "dyn_attention_mlx_fp32.pte",
        "(float32[2, -1 (2 to 32), 8]) → (float32[2, -1 (2 to 32), 8])",
    ),
    // both
    (
        "dyn_mlp_vulkan_fp32.pte",
        "(float32[-1 (up to 16), -1 (up to 32), 8 or -1]) → \
         (float32[-1 (up to 16), -1 (up to 32), 4])",
    ),
    // both; the description bounds the inputs, the result types declare only fixed sizes
    (
        "dyn_attention_coreml_fp32.pte",
        "(float32[-1 (2 to 16), -1 (2 to 32), 8]) → (float32[16 or -1, 32 or -1, 8])",
    ),
    // batch; the result of the linear layer may be one row according to its type
    (
        "dyn_joined_coreml_fp32.pte",
        "(float32[-1 (2 to 16), 8], float32[-1 (2 to 16), 8]) → \
         (float32[-1 (up to 16), 8], float32[-1 (up to 16), 16])",
    ),
    // none
    ("mlp_mlx_fp32.pte", "(float32[1, 16]) → (float32[1, 10])"),
];

pub(super) fn forward(info: &ModelInfo) -> String {
    info.method("forward")
        .expect("the method exists")
        .to_string()
}

#[test]
fn delegates_tell_what_was_dynamic_at_export() {
    for (name, expected) in PROGRAMS {
        assert_eq!(forward(&read(&bytes_of(name))), expected, "{name}");
    }
}

#[test]
fn a_payload_of_another_kind_tells_nothing() {
    for (name, magic) in [
        ("dyn_mlp_xnnpack_fp32.pte", *b"XN01"),
        ("dyn_mlp_xnnpack_fp32.pte", *b"XH00"),
    ] {
        let mut bytes = bytes_of(name);
        let at = bytes.windows(4).position(|four| *four == magic);
        bytes[at.expect("the magic")] ^= 0xff;
        let expected = "(float32[16 or -1, 8 or -1]) → (float32[16 or -1, 4 or -1])";
        assert_eq!(forward(&read(&bytes)), expected);
    }
}

/// Returns the offsets of all bytes that belong to delegate payloads.
fn payload_bytes(info: &ModelInfo) -> Vec<usize> {
    let delegates = info
        .segments
        .iter()
        .filter(|segment| segment.name.starts_with("delegate "));
    delegates
        .flat_map(|segment| segment.offset..segment.offset + segment.size)
        .map(|at| usize::try_from(at).expect("a small file"))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_broken_payload_is_no_error_or_one_of_its_own(
        (name, _) in prop::sample::select(&PROGRAMS[..]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut bytes = bytes_of(name);
        let places = payload_bytes(&read(&bytes));
        prop_assert!(!places.is_empty());
        for (at, byte) in changes {
            bytes[*at.get(&places)] = byte;
        }
        let start = Instant::now();
        // XNNPACK payloads are checked like the delegate checks them; for others only the number of
        // arguments is checked.
        if let Err(error) = inspect(&bytes) {
            let text = error.to_string();
            let own = ["XNNGraph", "XNNPACK payload"].iter().any(|part| text.contains(part));
            let takes = text.contains("for the delegate's payload");
            prop_assert!(takes || own && name.contains("xnnpack"), "{name}: {text}");
        }
        prop_assert!(start.elapsed() < Duration::from_secs(5));
    }
}

/// An `XNNGraph` with these nodes and `values` tensors of these sizes. The first tensor is the
/// input, the last the output.
pub(super) fn graph(dims: &[i32], values: u32, nodes: Vec<OffsetTarget>) -> Vec<u8> {
    let value = |id: u32| {
        let rank = u32::try_from(dims.len()).expect("a small rank");
        // float32
        let tensor = vec![(0, int(1)), (1, int(rank)), (2, ints(dims)), (6, int(id))];
        OffsetTarget::Table(vec![
            (0, byte(1)),
            (1, ProgramField::To(OffsetTarget::Table(tensor))),
        ])
    };
    let last = i32::try_from(values - 1).expect("a small graph");
    let root = OffsetTarget::Table(vec![
        (1, tables(nodes)),
        (2, tables((0..values).map(value).collect())),
        (4, ints(&[0])),
        (5, ints(&[last])),
    ]);
    let mut bytes = file(&root);
    bytes[4..8].copy_from_slice(b"XN01");
    bytes
}

/// A node of this kind.
pub(super) fn node(kind: u8, fields: Vec<(u16, ProgramField)>) -> OffsetTarget {
    OffsetTarget::Table(vec![
        (0, byte(kind)),
        (1, ProgramField::To(OffsetTarget::Table(fields))),
    ])
}

/// A sigmoid node from one value to another.
pub(super) fn sigmoid(from: u32, to: u32) -> OffsetTarget {
    node(4, vec![(0, int(from)), (1, int(to))])
}

/// An `XNNGraph` that is a chain of `count` sigmoids on a tensor of these sizes.
fn sigmoids(dims: &[i32], count: u32) -> Vec<u8> {
    let nodes = (0..count).map(|id| sigmoid(id, id + 1));
    graph(dims, count + 1, nodes.collect())
}

/// A program that calls an inline XNNPACK payload `calls` times, on two tensors of these sizes.
fn caller(payload: Vec<u8>, sizes: [&[i32]; 2], calls: usize) -> Vec<u8> {
    caller_of("XnnpackBackend", payload, sizes, calls)
}

/// Like [`caller`], with a payload of any backend.
pub(super) fn caller_of(
    backend: &str,
    payload: Vec<u8>,
    sizes: [&[i32]; 2],
    calls: usize,
) -> Vec<u8> {
    let call = OffsetTarget::Table(vec![(1, ints(&[0, 1]))]);
    let call = OffsetTarget::Table(vec![(0, byte(2)), (1, ProgramField::To(call))]);
    let chain = OffsetTarget::Table(vec![(2, tables(vec![call; calls]))]);
    let delegate = vec![
        (0, text(backend)),
        (1, ProgramField::To(OffsetTarget::Table(vec![(1, int(0))]))),
        (2, tables(Vec::new())),
    ];
    let plan = method(vec![
        (0, text("forward")),
        (2, tables(sizes.map(|sizes| tensor(sizes, 1)).to_vec())),
        (3, ints(&[0])),
        (4, ints(&[1])),
        (5, tables(vec![chain])),
        (7, tables(vec![OffsetTarget::Table(delegate)])),
    ]);
    let stored = OffsetTarget::Table(vec![(0, ProgramField::To(OffsetTarget::Bytes(payload)))]);
    file(&OffsetTarget::Table(vec![
        (1, tables(vec![plan])),
        (3, tables(vec![stored])),
    ]))
}

/// A program that passes two arguments to a delegate whose payload uses the argument at `position`.
fn taking(position: u32) -> Vec<u8> {
    let output = 2;
    let tensor = vec![
        (0, int(1)),
        (1, int(1)),
        (2, ints(&[8])),
        (4, int(position)),
        (5, int(output)),
        (6, int(0)),
    ];
    let value = OffsetTarget::Table(vec![
        (0, byte(1)),
        (1, ProgramField::To(OffsetTarget::Table(tensor))),
    ]);
    let root = OffsetTarget::Table(vec![(1, tables(Vec::new())), (2, tables(vec![value]))]);
    let mut payload = file(&root);
    payload[4..8].copy_from_slice(b"XN01");
    caller(payload, [&[8], &[8]], 1)
}

#[test]
fn a_call_passes_what_the_payload_takes() {
    read(&taking(1));
    for position in [2, 3, u32::MAX] {
        let text = error(&taking(position)).to_string();
        assert!(
            text.contains("arguments for the delegate's payload"),
            "{text}"
        );
    }
}

#[test]
fn a_payload_called_over_and_over_does_not_multiply_the_work() {
    let bytes = caller(sigmoids(&[3, 8], 300), [&[3, 8], &[3, 8]], 3_000);
    let start = Instant::now();
    assert_eq!(
        forward(&read(&bytes)),
        "(float32[3 or -1, 8 or -1]) → (float32[3 or -1, 8 or -1])"
    );
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn dynamism_goes_through_a_graph_both_ways_unless_sizes_contradict() {
    // Only one dimension of the result can be dynamic. Linking requires equal bounds of argument
    // and result.
    let bytes = caller(sigmoids(&[1, 8], 3), [&[1, 8], &[1, 8]], 1);
    let all = "(float32[1 or -1, -1 (up to 8)]) → (float32[1 or -1, -1 (up to 8)])";
    assert_eq!(forward(&read(&bytes)), all);
    let bytes = caller(sigmoids(&[1, 8], 3), [&[2, 8], &[1, 8]], 1);
    let one = "(float32[2 or -1, 8 or -1]) → (float32[1 or -1, -1 (up to 8)])";
    assert_eq!(forward(&read(&bytes)), one);
}
