//! The precision derived from the types of weights, and the precision tokens in names that
//! contradict it.

use std::collections::BTreeMap;
use std::path::Path;

use pkgtool_base::package::PrecisionList;
use pkgtool_model::precision::{ModelWeights, NumberPrecision, PrecisionClaim};
use pkgtool_model::{inspect_at, precision};
use pkgtool_testing::files::root;
use proptest::prelude::*;

fn weights(path: &Path) -> ModelWeights {
    let info = inspect_at(path).expect("a model").expect("a known format");
    ModelWeights::of(path, &info)
}

fn of(counts: &[(NumberPrecision, u64)]) -> ModelWeights {
    let mut weights = ModelWeights::none();
    weights.elements = counts.iter().copied().collect();
    weights
}

/// Numbers of weights by type, and the precision tokens that they contradict, with spaces.
type Row = (&'static [(NumberPrecision, u64)], &'static str);

fn contradicts(token: &str, weights: &ModelWeights) -> bool {
    let meaning = PrecisionClaim::of_token(token).expect("a known token");
    weights.contradiction(meaning).is_some()
}

#[test]
fn every_token_of_the_list_has_a_meaning_and_unknown_ones_have_none() {
    for token in PrecisionList::embedded().tokens() {
        let quantised = PrecisionList::embedded().is_quantized(token) == Some(true);
        let meaning = PrecisionClaim::of_token(token).unwrap_or_else(|| panic!("{token}"));
        assert_eq!(
            quantised,
            !matches!(meaning, PrecisionClaim::Most(_)),
            "{token}"
        );
    }
    for token in ["int8_fp16", "8w4da", "w8a16", "fp8", "q4_k_m", "mixed", ""] {
        assert_eq!(PrecisionClaim::of_token(token), None, "{token}");
    }
}

#[test]
fn tokens_are_contradicted_by_what_they_exclude_and_by_nothing_else() {
    use NumberPrecision::{Bfloat16, EightBits, Float16, Float32, FourBits};
    let held: [Row; 9] = [
        (
            &[(Float32, 9000)],
            "fp16 bf16 int8 a8w8 8da8w int4 4w 8da4w spinquant qat_lora",
        ),
        (
            &[(Float16, 9000)],
            "fp32 bf16 int8 a8w8 8da8w int4 4w 8da4w spinquant qat_lora",
        ),
        (
            &[(Bfloat16, 9000)],
            "fp32 fp16 int8 a8w8 8da8w int4 4w 8da4w spinquant qat_lora",
        ),
        (&[(EightBits, 9000)], "fp32 fp16 bf16 int4 4w 8da4w"),
        (&[(FourBits, 9000)], "fp32 fp16 bf16 int8 a8w8 8da8w"),
        // Quantizers leave some layers unquantized.
        (
            &[(Float32, 4000), (EightBits, 5000)],
            "fp32 fp16 bf16 int4 4w 8da4w",
        ),
        (
            &[(Float32, 5000), (EightBits, 4000)],
            "fp16 bf16 int4 4w 8da4w",
        ),
        (
            &[(Float32, 8000), (Float16, 1000)],
            "bf16 int8 a8w8 8da8w int4 4w 8da4w spinquant qat_lora",
        ),
        // Too few weights for a verdict.
        (&[(Float32, 999)], ""),
    ];
    for (counts, expected) in held {
        let list = PrecisionList::embedded();
        let found: std::collections::BTreeSet<&str> = list
            .tokens()
            .filter(|token| contradicts(token, &of(counts)))
            .collect();
        let expected = expected.split_whitespace().collect();
        assert_eq!(found, expected, "{counts:?}");
    }
}

#[test]
fn tables_of_embeddings_speak_for_a_token_and_never_against_it() {
    let mut quantised_table = of(&[(NumberPrecision::Float32, 2000)]);
    quantised_table.tables = BTreeMap::from([(NumberPrecision::EightBits, 50_000)]);
    assert!(!contradicts("fp32", &quantised_table));
    assert!(!contradicts("int8", &quantised_table));
    assert!(contradicts("int4", &quantised_table));
    let mut float_table = of(&[(NumberPrecision::FourBits, 2000)]);
    float_table.tables = BTreeMap::from([(NumberPrecision::Float32, 50_000)]);
    assert!(!contradicts("8da4w", &float_table));
    assert!(contradicts("fp32", &float_table));
    assert_eq!(float_table.token(), Some("4w"));
}

#[test]
fn what_was_not_seen_contradicts_nobody() {
    let mut weights = of(&[(NumberPrecision::Float32, 9000)]);
    weights.is_complete = false;
    for token in PrecisionList::embedded().tokens() {
        assert!(!contradicts(token, &weights), "{token}");
    }
    assert_eq!(weights.token(), None);
    let mut all = of(&[(NumberPrecision::EightBits, 9000)]);
    all.add(&weights);
    assert!(!all.is_complete && !contradicts("int4", &all));
}

#[test]
fn the_programs_of_all_backends_hold_what_their_names_say() {
    let mut told = 0;
    for folder in [
        "tests/fixtures/payloads",
        "tests/fixtures/executorch",
        "tests/fixtures/programs",
    ] {
        for entry in std::fs::read_dir(root().join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_stem()
                .and_then(|stem| stem.to_str())
                .unwrap_or_default();
            // Programs of single operations, and parts that keep their own precision.
            let is_odd = [
                "mil_",
                "mlx_words",
                "vulkan_eights",
                "vulkan_weights",
                "pieces_",
                "int4",
                "int8",
            ];
            let token = name.rsplit('_').next().unwrap_or_default();
            if path.extension().is_none_or(|extension| extension != "pte")
                || (is_odd.iter().any(|odd| name.contains(odd)) && token != "int8")
            {
                continue;
            }
            let Some(meaning) = PrecisionClaim::of_token(token) else {
                continue;
            };
            told += 1;
            let found = weights(&path);
            assert_eq!(found.contradiction(meaning), None, "{name}: {found:?}");
        }
    }
    assert!(told > 60, "{told}");
}

#[test]
fn a_token_is_proposed_that_nothing_contradicts() {
    for (path, expected) in [
        (
            "packages-examples/glimpse/xnnpack/glimpse_xnnpack_fp32.pte",
            "fp32",
        ),
        (
            "packages-examples/glimpse/xnnpack/glimpse_xnnpack_int8.pte",
            "int8",
        ),
        (
            "packages-examples/glimpse/vulkan/glimpse_vulkan_fp16.pte",
            "fp16",
        ),
        (
            "packages-examples/glimpse/coreml/glimpse_coreml_fp16.pte",
            "fp16",
        ),
        ("packages-examples/glimpse/mlx/glimpse_mlx_fp32.pte", "fp32"),
        (
            "packages-examples/hush-sentence/xnnpack/hush_sentence_xnnpack_8da4w.pte",
            "8da4w",
        ),
        (
            "tests/fixtures/rules/PKG050/good/xnnpack/tiny_xnnpack_fp16.onnx",
            "fp16",
        ),
        (
            "tests/fixtures/rules/PKG050/good/xnnpack/tiny_xnnpack_8da4w.onnx",
            "8da4w",
        ),
    ] {
        let found = weights(&root().join(path));
        assert_eq!(found.token(), Some(expected), "{path}: {found:?}");
    }
}

#[test]
fn operators_say_what_they_are_for() {
    for (operator, expected) in [
        ("MatMul", None),
        ("DequantizeLinear", Some(NumberPrecision::EightBits)),
        (
            "com.microsoft::QLinearAdd",
            Some(NumberPrecision::EightBits),
        ),
        (
            "com.microsoft::MatMulNBits",
            Some(NumberPrecision::FourBits),
        ),
        ("Resize", None),
    ] {
        assert_eq!(precision::of_operator(operator), expected, "{operator}");
    }
}

proptest! {
    /// The proposed token never contradicts the weights.
    #[test]
    fn proposals_stand(counts in proptest::collection::vec(0_u64..100_000, 5), tables in proptest::collection::vec(0_u64..100_000, 5)) {
        use NumberPrecision::{Bfloat16, EightBits, Float16, Float32, FourBits};
        let kinds = [Float32, Float16, Bfloat16, EightBits, FourBits];
        let some = |counts: Vec<u64>| kinds.into_iter().zip(counts).filter(|(_, count)| *count > 1).collect();
        let mut weights = ModelWeights::none();
        weights.elements = some(counts);
        weights.tables = some(tables);
        if let Some(token) = weights.token() {
            let total: u64 = weights.elements.values().sum();
            let most = weights.elements.values().max().copied().unwrap_or(0);
            // The type of the majority of weights never contradicts them.
            if total >= 1000 && most > total / 2 {
                prop_assert!(!contradicts(token, &weights), "{token} {weights:?}");
            }
        }
    }
}
