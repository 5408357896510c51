//! Payloads of Core ML, MLX and Vulkan: whatever stands in them, reading ends in a graph or in an error that says
//! where.

use std::path::Path;
use std::time::{Duration, Instant};

use pkgtool::model::executorch::body::{ByteRange, ProgramBody};
use pkgtool::model::executorch::{Error, coreml, mlx, vulkan};
use proptest::prelude::*;

use super::hostile::{Change, changes, mutate};

/// Programs with a payload each, small ones.
const SEEDS: [&str; 7] = [
    "counter_coreml_fp32",
    "methods_coreml_fp32",
    "mlp_coreml_fp16",
    "mlp_dynamic_mlx_fp32",
    "wide_int4_mlx_fp32",
    "mlp_dynamic_vulkan_fp32",
    "wide_8da4w_vulkan_8da4w",
];

/// The bytes of a program, and its payloads with their backends.
fn program(name: &str) -> (Vec<u8>, Vec<(String, ByteRange)>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/payloads");
    let bytes = std::fs::read(folder.join(format!("{name}.pte"))).expect("fixtures can be read");
    let body = ProgramBody::read(&bytes).expect("fixtures can be read");
    let delegates = body.methods.into_iter().flat_map(|method| method.delegates);
    let payloads = delegates.filter_map(|delegate| Some((delegate.id, delegate.payload?)));
    let payloads = payloads.collect();
    (bytes, payloads)
}

/// Reads a payload as that of a backend; what is read of it can be followed.
#[expect(
    clippy::ptr_arg,
    reason = "a vector is a source of bytes, a slice is none"
)]
fn read(bytes: &Vec<u8>, id: &str, payload: ByteRange) -> Result<(), Error> {
    match id {
        "VulkanBackend" => {
            let graph = vulkan::Graph::read(bytes, payload)?;
            let count = graph.values.len();
            let args = graph.calls.iter().flat_map(|call| &call.args);
            assert!(
                args.chain(&graph.inputs)
                    .chain(&graph.outputs)
                    .all(|at| *at < count)
            );
        }
        "MLXBackend" => {
            mlx::Graph::read(bytes, payload)?;
        }
        _ => {
            let body = ProgramBody::read(bytes);
            let named = |key: &str| body.as_ref().ok()?.named.get(key).copied();
            let package = coreml::Package::read(bytes, payload, &named)?;
            for operation in &package.function.block.operations {
                for value in operation.attributes.values() {
                    if let coreml::Content::Blob(offset) = value.content
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

fn survives(bytes: &Vec<u8>, id: &str, payload: ByteRange) {
    let start = Instant::now();
    if let Err(error) = read(bytes, id, payload) {
        assert!(!error.to_string().is_empty());
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
        let error = read(&bytes, id, payload).expect_err("there is no graph");
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
            let begin = usize::try_from(payload.offset).expect("small");
            let end = begin + usize::try_from(payload.size).expect("small");
            let mut bytes = bytes.clone();
            let changes: Vec<Change> = changes.clone();
            let changed = mutate(bytes[begin..end].to_vec(), &changes);
            bytes.splice(begin..end, changed.iter().copied());
            let payload = ByteRange { size: changed.len() as u64, ..payload };
            survives(&bytes, &id, payload);
        }
    }
}
