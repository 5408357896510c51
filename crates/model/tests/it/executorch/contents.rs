//! Summaries of delegate payloads (operators, precisions, states), for programs of every backend
//! and precision.

use pkgtool_base::package::Backend;
use pkgtool_model::executorch::body::ProgramBody;
use pkgtool_model::executorch::{LoweredPrecision, PayloadSummary, contents};

/// Reads the payload summaries of all methods of a program.
fn read(folder: &str, name: &str) -> Vec<(Backend, PayloadSummary)> {
    let folder = pkgtool_testing::files::root()
        .join("tests/fixtures")
        .join(folder);
    let bytes = std::fs::read(folder.join(name)).expect("fixtures can be read");
    let body = ProgramBody::read(&bytes).expect("fixtures can be read");
    let methods = body.methods.iter();
    let payloads = methods.flat_map(|method| contents(&bytes, &body, method));
    let found = payloads.flatten().map(|payload| {
        let content = payload
            .content
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        (payload.backend, content)
    });
    found.collect()
}

/// Returns the first payload summary of a program in the folder `payloads`.
fn first(name: &str) -> PayloadSummary {
    read("payloads", &format!("{name}.pte")).remove(0).1
}

fn weights(content: &PayloadSummary) -> Vec<String> {
    let weights = content.weights.iter();
    let weights =
        weights.map(|(stored, count)| format!("{stored} {}×{}", count.tensors, count.elements));
    weights.collect()
}

fn words(content: &PayloadSummary) -> Vec<String> {
    content
        .lowered()
        .into_iter()
        .map(|(_, words)| words)
        .collect()
}

#[test]
fn every_program_is_described() {
    let folder = pkgtool_testing::files::root().join("tests/fixtures/payloads");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let name = entry
            .expect("an entry")
            .file_name()
            .into_string()
            .expect("a name");
        let Some(stem) = name.strip_suffix(".pte") else {
            continue;
        };
        let precision = stem.rsplit('_').next().expect("a precision");
        let found = read("payloads", &name);
        assert!(!found.is_empty(), "{name}");
        count += 1;
        for (_, content) in found {
            assert!(
                !content.operators.is_empty() || content.computation_types.is_empty(),
                "{name}"
            );
            let lowest = content
                .lowered()
                .into_iter()
                .map(|(lowered, _)| lowered)
                .max();
            // Core ML stores states in float16, independent of its computation type.
            let keeps = name.ends_with("coreml_fp32.pte") && !content.states.is_empty();
            let allowed: &[Option<LoweredPrecision>] = match precision {
                _ if keeps => &[Some(LoweredPrecision::Float16)],
                _ if name.contains("_int4_coreml") => &[Some(LoweredPrecision::FourBits)],
                "fp16" if name.contains("int8") => &[Some(LoweredPrecision::EightBits)],
                "fp16" => &[Some(LoweredPrecision::Float16)],
                "bf16" => &[Some(LoweredPrecision::Bfloat16)],
                "4w" | "8da4w" => &[Some(LoweredPrecision::FourBits)],
                "int8" => &[Some(LoweredPrecision::EightBits)],
                // Programs of single operations have a precision unrelated to their name.
                _ if name.starts_with("mil_packed") => &[Some(LoweredPrecision::FourBits)],
                _ if name.starts_with("mil_quantized") => &[Some(LoweredPrecision::EightBits)],
                _ if name.starts_with("mlx_words") => &[Some(LoweredPrecision::FourBits)],
                _ if name.starts_with("vulkan_eights") => &[Some(LoweredPrecision::EightBits)],
                _ if name.starts_with("vulkan_weights") => &[Some(LoweredPrecision::FourBits)],
                // This program contains an embedding quantized in groups.
                _ if name.contains("int4") || name == "pieces_mlx_fp32.pte" => {
                    &[Some(LoweredPrecision::FourBits)]
                }
                _ if name.contains("int8") => &[Some(LoweredPrecision::EightBits)],
                _ => &[None],
            };
            assert!(allowed.contains(&lowest), "{name}: {lowest:?} {content:#?}");
        }
    }
    assert!(count > 90, "{count} programs");
}

#[test]
fn weights_are_told_as_they_are_stored() {
    for (name, expected) in [
        ("mlp_coreml_fp16", &["float16 4×212"][..]),
        ("mlp_mlx_bf16", &["bfloat16 4×212"]),
        ("mlp_vulkan_fp16", &["float16 4×212"]),
        (
            "wide_int4_coreml_fp32",
            &["float32 2×96", "int4 in groups of 32 2×6144"],
        ),
        (
            "wide_int8_coreml_fp16",
            &["float16 2×96", "int8 per channel 2×6144"],
        ),
        (
            "wide_int4_mlx_fp32",
            &["float32 1×64", "int4 in groups of 32 2×6144"],
        ),
        (
            "wide_int8_groups_mlx_fp32",
            &["float32 1×64", "int8 in groups of 32 2×6144"],
        ),
        (
            "wide_8da4w_vulkan_8da4w",
            &["float32 1×64", "int4 in groups of 32 2×6144"],
        ),
        (
            "mobile_int8_vulkan_int8",
            &["float32 5×36", "int8 per channel 5×424"],
        ),
    ] {
        assert_eq!(weights(&first(name)), expected, "{name}");
    }
}

#[test]
fn what_is_less_precise_is_told_in_words() {
    for (name, expected) in [
        ("mlp_coreml_fp32", &[][..]),
        ("mlp_vulkan_fp32", &[]),
        (
            "mlp_coreml_fp16",
            &["computes in float16", "holds float16 weights"],
        ),
        (
            "wide_int4_coreml_fp16",
            &["computes in float16", "holds 4-bit weights"],
        ),
        ("wide_int4_coreml_fp32", &["holds 4-bit weights"]),
        ("wide_int8_groups_mlx_fp32", &["holds 8-bit weights"]),
        (
            "encoder_mlx_bf16",
            &["computes in bfloat16", "holds bfloat16 weights"],
        ),
        (
            "mobile_int8_vulkan_int8",
            &["computes with 8-bit values", "holds 8-bit weights"],
        ),
        // Only its state is float16.
        ("counter_coreml_fp32", &["computes in float16"]),
    ] {
        assert_eq!(words(&first(name)), expected, "{name}");
    }
}

#[test]
fn states_have_names_types_and_sizes() {
    for (name, expected) in [
        ("counter_coreml_fp32", &["total float16 [3]"][..]),
        ("counter_mlx_fp32", &["d85d/total float32 [3]"]),
        (
            "decoder_coreml_fp32",
            &["keys float16 [1, 2, 8, 4]", "values float16 [1, 2, 8, 4]"],
        ),
        ("mlp_mlx_fp32", &[]),
        ("mlp_coreml_fp32", &[]),
    ] {
        let content = first(name);
        let states = content.states.iter().map(|state| {
            let dims: Vec<String> = state.dims.iter().map(ToString::to_string).collect();
            let name = state.name.as_deref().unwrap_or("-");
            format!("{name} {} [{}]", state.element, dims.join(", "))
        });
        assert_eq!(states.collect::<Vec<_>>(), expected, "{name}");
    }
}

#[test]
fn each_method_has_its_function_of_a_package() {
    let found = read("payloads", "methods_coreml_fp32.pte");
    let functions = found.iter().map(|(_, content)| content.function.as_deref());
    let functions: Vec<&str> = functions.flatten().collect();
    assert_eq!(functions, ["forward", "other"]);
    for ((backend, content), last) in found.iter().zip(["relu", "sigmoid"]) {
        assert_eq!(*backend, Backend::CoreMl);
        assert_eq!(content.functions, ["forward", "other"]);
        let operators: Vec<&str> = content.operators.keys().map(String::as_str).collect();
        assert_eq!(operators, ["linear", last]);
        let facts = &content.facts;
        assert!(facts.contains(&("specification version", "9".to_owned())));
        assert!(facts.contains(&("deployment target", "iOS 18, macOS 15".to_owned())));
        assert!(facts.contains(&("operator set", "CoreML8".to_owned())));
    }
}
