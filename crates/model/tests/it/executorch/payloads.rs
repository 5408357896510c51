//! Fuzzing of Core ML, MLX and Vulkan payloads: reading them yields a graph, or an error that names
//! the place.

use std::time::{Duration, Instant};

use pkgtool_model::FormatError;
use pkgtool_model::executorch::body::{ByteRange, DelegateBody, MethodBody, ProgramBody};
use pkgtool_model::executorch::{PayloadSummary, contents, coreml, mlx, vulkan};
use proptest::prelude::*;

use super::hostile::{Change, changes, mutate};
use pkgtool_testing::program::{
    OffsetTarget, ProgramField, byte, file, int, ints, long, tables, text,
};

/// Small programs with one payload each.
const SEEDS: [&str; 7] = [
    "counter_coreml_fp32",
    "methods_coreml_fp32",
    "mlp_coreml_fp16",
    "mlp_dynamic_mlx_fp32",
    "wide_int4_mlx_fp32",
    "mlp_dynamic_vulkan_fp32",
    "wide_8da4w_vulkan_8da4w",
];

/// Reads a program and returns its bytes and its payloads with their backends.
fn program(name: &str) -> (Vec<u8>, Vec<(String, ByteRange)>) {
    let folder = pkgtool_testing::files::root().join("tests/fixtures/payloads");
    let bytes = std::fs::read(folder.join(format!("{name}.pte"))).expect("fixtures can be read");
    let body = ProgramBody::read(&bytes).expect("fixtures can be read");
    let delegates = body.methods.into_iter().flat_map(|method| method.delegates);
    let payloads = delegates.filter_map(|delegate| Some((delegate.id, delegate.payload?)));
    let payloads = payloads.collect();
    (bytes, payloads)
}

/// Reads a payload as that of a backend and walks through the result.
#[expect(
    clippy::ptr_arg,
    reason = "a vector implements the byte source trait, a slice does not"
)]
fn read(bytes: &Vec<u8>, id: &str, payload: ByteRange) -> Result<(), FormatError> {
    match id {
        "VulkanBackend" => {
            let graph = vulkan::VulkanGraph::read(bytes, payload)?;
            let count = graph.values.len();
            let args = graph.calls.iter().flat_map(|call| &call.args);
            assert!(
                args.chain(&graph.inputs)
                    .chain(&graph.outputs)
                    .all(|at| *at < count)
            );
        }
        "MLXBackend" => {
            mlx::MlxGraph::read(bytes, payload)?;
        }
        _ => {
            let body = ProgramBody::read(bytes);
            let named = |key: &str| body.as_ref().ok()?.named.get(key).copied();
            let package = coreml::PackageFunction::read(bytes, payload, &named)?;
            for operation in &package.function.block.operations {
                for value in operation.attributes.values() {
                    if let coreml::ValueContent::Blob(offset) = value.content
                        && let Ok(blob) = package.blob(bytes, offset)
                    {
                        let end = blob.bytes.offset.checked_add(blob.bytes.size);
                        assert!(end.is_some_and(|end| end <= bytes.len() as u64));
                    }
                }
            }
        }
    }
    Ok(())
}

/// Summarizes a payload as that of a backend.
#[expect(
    clippy::ptr_arg,
    reason = "a vector implements the byte source trait, a slice does not"
)]
fn describe(bytes: &Vec<u8>, id: &str, payload: ByteRange) -> Result<PayloadSummary, FormatError> {
    let named = ProgramBody::read(bytes).map(|body| body.named);
    let body = ProgramBody {
        methods: vec![MethodBody {
            name: "forward".to_owned(),
            delegates: vec![DelegateBody {
                id: id.to_owned(),
                payload: Some(payload),
            }],
            ..MethodBody::default()
        }],
        named: named.unwrap_or_default(),
    };
    let mut found = contents(bytes, &body, &body.methods[0]);
    found.remove(0).expect("a payload that is read").content
}

/// Reads a payload. An error must name a table or file, and an offset.
fn survives(bytes: &Vec<u8>, id: &str, payload: ByteRange) {
    let start = Instant::now();
    let errors = [
        read(bytes, id, payload).err(),
        describe(bytes, id, payload).err(),
    ];
    for error in errors.into_iter().flatten() {
        let text = error.to_string();
        assert!(text.contains(" at offset "), "{text}");
        let table = ["Core ML ", "MLX", "VkGraph", "Vulkan payload", "payload"];
        assert!(table.iter().any(|table| text.contains(table)), "{text}");
        assert!(error.offset().is_some(), "{text}");
    }
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn payloads_are_read() {
    for name in SEEDS {
        let (bytes, payloads) = program(name);
        assert!(!payloads.is_empty(), "{name}");
        for (id, payload) in payloads {
            read(&bytes, &id, payload).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
    }
}

#[test]
fn what_is_no_payload_is_told_with_its_place() {
    let bytes = vec![0_u8; 64];
    let payload = ByteRange {
        offset: 0,
        size: 64,
    };
    for (id, expected) in [
        ("VulkanBackend", "Vulkan payload header.magic"),
        ("MLXBackend", "MLX payload header.magic"),
        ("CoreMLBackend", "Core ML payload listing"),
    ] {
        let error = read(&bytes, id, payload).expect_err("the graph is missing");
        assert!(error.to_string().contains(expected), "{id}: {error}");
    }
}

#[test]
fn a_listing_with_a_circle_is_refused() {
    let listing = br#"{"nodes":[{"name":"a","kind":1,"children":{"b":1}},{"name":"b","kind":1,"children":{"a":0}}]}"#;
    let bytes: Vec<u8> = listing.iter().rev().copied().collect();
    let payload = ByteRange {
        offset: 0,
        size: bytes.len() as u64,
    };
    let error = read(&bytes, "CoreMLBackend", payload).expect_err("a circle");
    assert!(
        error.to_string().contains("node 0 with node 1 in it"),
        "{error}"
    );
}

/// A Vulkan payload whose graph has these fields.
fn vulkan_payload(fields: Vec<(u16, ProgramField)>) -> Vec<u8> {
    let mut graph = file(&OffsetTarget::Table(fields));
    graph[4..8].copy_from_slice(b"VK00");
    let size = u32::try_from(graph.len()).expect("a small graph");
    let mut payload = b"\0\0\0\0VH00".to_vec();
    payload.extend(30_u16.to_le_bytes());
    payload.extend(30_u32.to_le_bytes());
    payload.extend(size.to_le_bytes());
    payload.extend((30 + size).to_le_bytes());
    payload.extend(0_u64.to_le_bytes());
    payload.extend(graph);
    payload
}

/// An MLX payload whose graph has these fields.
fn mlx_payload(fields: Vec<(u16, ProgramField)>) -> Vec<u8> {
    let mut payload = b"\0\0\0\0MLX0".to_vec();
    payload.extend([0; 16]);
    payload.extend(file(&OffsetTarget::Table(fields)));
    payload
}

/// A member of a union: its tag, then its table.
fn member(tag: u8, table: Vec<(u16, ProgramField)>) -> OffsetTarget {
    OffsetTarget::Table(vec![
        (0, byte(tag)),
        (1, ProgramField::To(OffsetTarget::Table(table))),
    ])
}

#[test]
fn graphs_that_lie_are_told_with_table_and_offset() {
    let tensor = |dims: &[i32], constant: u32| member(5, vec![(1, ints(dims)), (2, int(constant))]);
    let none = u32::MAX;
    let call =
        |args: &[i32]| OffsetTarget::Table(vec![(1, text("aten.relu.default")), (2, ints(args))]);
    let stored = |offset, length| OffsetTarget::Table(vec![(0, long(offset)), (1, long(length))]);
    let vulkan =
        |values: Vec<OffsetTarget>, chain: Vec<OffsetTarget>, constants: Vec<OffsetTarget>| {
            let fields = vec![
                (1, tables(chain)),
                (2, tables(values)),
                (5, tables(constants)),
            ];
            ("VulkanBackend", vulkan_payload(fields))
        };
    let instruction = |tag, table| OffsetTarget::Table(vec![(0, tables(vec![member(tag, table)]))]);
    // Two tensors, one input, and a chain.
    let mlx = |chain: OffsetTarget, main, meta: Vec<OffsetTarget>| {
        let slots = [(1, int(1)), (2, int(1)), (7, tables(vec![chain]))];
        let mut fields = slots.to_vec();
        fields.extend([(8, int(main)), (14, tables(meta))]);
        ("MLXBackend", mlx_payload(fields))
    };
    let rank = |dims| {
        OffsetTarget::Table(vec![(
            0,
            tables(vec![OffsetTarget::Table(vec![(0, int(9))]); dims]),
        )])
    };
    let sigmoid = |x, out| instruction(28, vec![(0, int(x)), (1, int(out))]);
    for (name, (id, bytes), expected) in [
        (
            "an argument that is no value",
            vulkan(vec![tensor(&[2], none)], vec![call(&[0, 7])], vec![]),
            "VkGraph.chain[0].args[1] at offset",
        ),
        (
            "a negative argument",
            vulkan(vec![tensor(&[2], none)], vec![call(&[-1])], vec![]),
            "VkGraph.chain[0].args[0] at offset",
        ),
        (
            "a constant that is none",
            vulkan(vec![tensor(&[2], 3)], vec![], vec![]),
            "constant_id at offset",
        ),
        (
            "a constant past the end",
            vulkan(vec![tensor(&[2], 0)], vec![], vec![stored(u64::MAX - 3, 8)]),
            "VkGraph.constants[0].offset at offset",
        ),
        (
            "too many dimensions",
            vulkan(vec![tensor(&[1; 17], none)], vec![], vec![]),
            "dims at offset",
        ),
        (
            "a value of no type",
            vulkan(vec![member(77, vec![])], vec![], vec![]),
            "VkGraph.values[0].value_type at offset",
        ),
        (
            "a slot that is none",
            mlx(sigmoid(0, 9), 0, vec![]),
            "out at offset",
        ),
        (
            "a chain that is none",
            mlx(sigmoid(0, 1), 5, vec![]),
            "MLXGraph.main_chain_idx at offset",
        ),
        (
            "an instruction of no kind",
            mlx(instruction(250, vec![]), 0, vec![]),
            "op_type at offset",
        ),
        (
            "too many dimensions of a slot",
            mlx(sigmoid(0, 1), 0, vec![rank(17)]),
            "MLXGraph.tensor_meta[0].shape at offset",
        ),
    ] {
        let payload = ByteRange {
            offset: 0,
            size: bytes.len() as u64,
        };
        let error = read(&bytes, id, payload).expect_err(name).to_string();
        assert!(error.contains(expected), "{name}: {error}");
    }
}

#[test]
fn huge_shapes_take_no_memory() {
    let tensor = |constant| member(5, vec![(1, ints(&[-1; 16])), (2, int(constant))]);
    let stored = OffsetTarget::Table(vec![(0, long(0)), (1, long(0))]);
    let values = tables(vec![tensor(0), tensor(u32::MAX)]);
    let bytes = vulkan_payload(vec![(2, values), (5, tables(vec![stored]))]);
    let payload = ByteRange {
        offset: 0,
        size: bytes.len() as u64,
    };
    read(&bytes, "VulkanBackend", payload).expect("sizes are not believed");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn arbitrary_payloads_do_no_harm(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        text in "[\\[\\]{}\":,a-z0-9]{0,80}",
    ) {
        let whole = |bytes: &Vec<u8>| ByteRange { offset: 0, size: bytes.len() as u64 };
        for id in ["VulkanBackend", "MLXBackend", "CoreMLBackend"] {
            survives(&bytes, id, whole(&bytes));
        }
        if bytes.len() >= 40 {
            bytes[..8].copy_from_slice(b"\0\0\0\0MLX0");
            survives(&bytes, "MLXBackend", whole(&bytes));
            bytes[4..8].copy_from_slice(b"VH00");
            survives(&bytes, "VulkanBackend", whole(&bytes));
        }
        let listing = format!("{{\"nodes\":[{text}]}}");
        bytes.extend(listing.bytes().rev());
        survives(&bytes, "CoreMLBackend", whole(&bytes));
    }

    #[test]
    fn mutated_payloads_do_no_harm(
        seed in prop::sample::select(&SEEDS[..]),
        changes in changes(),
    ) {
        let (bytes, payloads) = program(seed);
        for (id, payload) in payloads {
            let begin = usize::try_from(payload.offset).expect("the number fits");
            let end = begin + usize::try_from(payload.size).expect("the number fits");
            let mut bytes = bytes.clone();
            let changes: Vec<Change> = changes.clone();
            let changed = mutate(bytes[begin..end].to_vec(), &changes);
            bytes.splice(begin..end, changed.iter().copied());
            let payload = ByteRange { size: changed.len() as u64, ..payload };
            survives(&bytes, &id, payload);
        }
    }
}
