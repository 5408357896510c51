//! Embeddings: the inputs built from texts, the vectors computed from outputs, and a real encoder.

use std::fs;
use std::sync::Arc;

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_model::Dim;
use pkgtool_text::embedding::{
    Embedder, EmbeddingError, EmbeddingInput, EmbeddingOptions, EmbeddingPlan, EmbeddingSettings,
    MAX_TEXT_BYTES, MAX_TEXTS, Pooling, cosine,
};
use pkgtool_text::tokenizer::Tokenizer;
use serde_json::Value;

use crate::support::environment::EnvironmentPiece;
use crate::support::fixture;
use crate::support::inputs::spec;
use crate::support::run::pkgtool;

/// A dynamic dimension.
fn open(bound: Option<u64>) -> Dim {
    Dim::Dynamic {
        bound,
        name: None,
        allowed: None,
    }
}

/// A model with these inputs of shape rows by tokens.
fn model(inputs: &[(&str, DType)], rows: &Dim, length: &Dim) -> Signature {
    let dims = vec![rows.clone(), length.clone()];
    let inputs = inputs
        .iter()
        .map(|(name, dtype)| spec(name, *dtype, Some(dims.clone())));
    let states = vec![rows.clone(), length.clone(), Dim::Fixed(2)];
    Signature {
        method: "forward".to_owned(),
        inputs: inputs.collect(),
        outputs: vec![spec("last_hidden_state", DType::Float32, Some(states))],
    }
}

fn embedder(signature: &Signature) -> Embedder {
    let directory = fixture("tokenizers/words");
    let config = directory.join("tokenizer_config.json");
    let tokenizer = Tokenizer::load(&directory.join("tokenizer.json"), Some(&config));
    let tokenizer = Arc::new(tokenizer.expect("the input is valid"));
    let settings = EmbeddingSettings::default();
    Embedder::new(tokenizer, signature, settings).expect("the model takes tokens")
}

fn texts(texts: &[&str]) -> EmbeddingInput {
    EmbeddingInput::Texts(texts.iter().map(|text| (*text).to_owned()).collect())
}

/// Returns the outputs of a model whose hidden states are the token's id and its position; padding
/// is NaN.
fn states(inputs: &[Tensor], mask: Option<usize>) -> Vec<Tensor> {
    let ids = &inputs[0];
    let length = usize::try_from(ids.shape()[1]).expect("the number fits");
    let real: Vec<bool> = match mask {
        Some(mask) => inputs[mask].to_f64().map(|value| value > 0.0).collect(),
        None => vec![true; ids.len()],
    };
    let values = ids.to_f64().enumerate().flat_map(|(at, id)| {
        let place = u32::try_from(at % length).expect("the number fits");
        let [id, place] = [id, f64::from(place)];
        if real[at] {
            [id, place]
        } else {
            [f64::NAN, f64::NAN]
        }
    });
    let shape = [ids.shape(), &[2]].concat();
    vec![Tensor::from_f64(DType::Float32, shape, values).expect("the tensor is valid")]
}

fn vectors(plan: &EmbeddingPlan, mask: Option<usize>) -> Vec<Vec<f32>> {
    let outputs = plan.runs.iter().map(|run| states(&run.inputs, mask));
    plan.vectors(outputs.collect()).expect("the outputs fit")
}

fn plain() -> EmbeddingOptions {
    EmbeddingOptions {
        normalize: Some(false),
        ..EmbeddingOptions::default()
    }
}

/// Returns the vector of each text from a model that takes one text at a time. Special tokens are
/// included.
fn means(given: &[&str]) -> Vec<Vec<f32>> {
    let signature = model(&[("tokens", DType::Int64)], &Dim::Fixed(1), &open(None));
    let plan = embedder(&signature).plan(&texts(given), &plain());
    let plan = plan.expect("the text is short");
    assert_eq!(plan.runs.len(), given.len(), "one run per text");
    vectors(&plan, None)
}

const TEXTS: [&str; 5] = [
    "the fox",
    "a tokenizer turns texts into ids and a decoder turns ids into texts",
    "fox",
    "the lazy dog jumps over the quick fox",
    "dog",
];

#[test]
fn texts_that_share_a_run_have_their_own_vectors() {
    let alone = means(&TEXTS);
    let masked = [
        ("input_ids", DType::Int32),
        ("attention_mask", DType::Float32),
    ];
    for rows in [open(None), open(Some(2)), Dim::Fixed(3)] {
        for length in [open(None), Dim::Fixed(64)] {
            let embedder = embedder(&model(&masked, &rows, &length));
            let plan = embedder
                .plan(&texts(&TEXTS), &plain())
                .expect("the text is short");
            assert!(plan.runs.len() < TEXTS.len(), "{rows:?} shares");
            for run in &plan.runs {
                assert_eq!(run.inputs[0].dtype(), DType::Int32);
                assert_eq!(run.inputs[1].dtype(), DType::Float32);
                if let Dim::Fixed(rows) = rows {
                    assert_eq!(run.inputs[0].shape()[0], rows);
                }
                if let Dim::Fixed(length) = length {
                    assert_eq!(run.inputs[0].shape()[1], length);
                }
            }
            assert_eq!(vectors(&plan, Some(1)), alone, "{rows:?} {length:?}");
            let tokens: usize = plan.tokens_by_text().iter().sum();
            assert_eq!(plan.tokens, tokens);
        }
    }
}

#[test]
fn without_a_mask_only_equal_lengths_share_a_run() {
    let signature = model(&[("tokens", DType::Int64)], &open(None), &open(None));
    let plan = embedder(&signature).plan(&texts(&TEXTS), &plain());
    let plan = plan.expect("the text is short");
    assert_eq!(
        plan.runs.len(),
        TEXTS.len() - 1,
        "two texts of one word share a run"
    );
    assert_eq!(vectors(&plan, None), means(&TEXTS));
}

fn small(id: u32) -> f32 {
    f32::from(u16::try_from(id).expect("the vocabulary is small"))
}

#[test]
fn what_is_asked_for_is_pooled() {
    let signature = model(&[("tokens", DType::Int64)], &Dim::Fixed(1), &open(None));
    let embedder = embedder(&signature);
    let with = |pooling: &[Pooling], normalize| {
        let options = EmbeddingOptions {
            pooling: Some(pooling.to_vec()),
            normalize,
            ..EmbeddingOptions::default()
        };
        let plan = embedder
            .plan(&texts(&["fox"]), &options)
            .expect("the text is short");
        vectors(&plan, None).remove(0)
    };
    let ids = embedder
        .tokenizer()
        .encode("fox", pkgtool_text::tokenizer::SpecialTokens::Added);
    let ids = ids.expect("the text is short").into_iter();
    let ids: Vec<f32> = ids.map(small).collect();
    assert_eq!(with(&[Pooling::Cls], Some(false)), [ids[0], 0.0]);
    assert_eq!(with(&[Pooling::Last], Some(false)), [ids[2], 2.0]);
    let both = with(&[Pooling::Cls, Pooling::Last], Some(false));
    assert_eq!(both, [ids[0], 0.0, ids[2], 2.0]);
    let unit = with(&[Pooling::Last], None);
    let length = unit.iter().map(|value| value * value).sum::<f32>();
    assert!(
        (length - 1.0).abs() < 1e-6,
        "vectors are normalized by default"
    );
}

#[test]
fn a_models_own_vectors_are_left_as_they_are() {
    let mut signature = model(&[("tokens", DType::Int64)], &open(None), &Dim::Fixed(8));
    signature.outputs = vec![spec(
        "embedding",
        DType::Float16,
        Some(vec![open(None), Dim::Fixed(2)]),
    )];
    let embedder = embedder(&signature);
    let plan = embedder.plan(&texts(&["fox", "dog"]), &EmbeddingOptions::default());
    let plan = plan.expect("the text is short");
    let answer = Tensor::from_f64(DType::Float16, vec![2, 2], [3.0, 4.0, 0.5, 0.25]);
    let answer = answer.expect("the tensor is valid");
    let vectors = plan.vectors(vec![vec![answer]]).expect("the outputs fit");
    assert_eq!(vectors, [[3.0, 4.0], [0.5, 0.25]]);
    for wrong in [vec![2, 3, 2], vec![3, 2], vec![4]] {
        let answer = Tensor::zeros(DType::Float16, wrong).expect("the tensor is valid");
        let error = plan.vectors(vec![vec![answer]]);
        assert!(matches!(error, Err(EmbeddingError::Output(_))), "{error:?}");
    }
    let nan =
        Tensor::from_f64(DType::Float16, vec![2, 2], [f64::NAN; 4]).expect("the tensor is valid");
    assert!(
        plan.vectors(vec![vec![nan]]).is_err(),
        "NaN must be rejected"
    );
}

#[test]
fn a_text_that_is_too_long_is_refused_with_both_numbers() {
    let signature = model(&[("tokens", DType::Int64)], &Dim::Fixed(1), &open(Some(6)));
    let embedder = embedder(&signature);
    let long = texts(&["fox", "the quick brown fox jumps over the lazy dog"]);
    let error = embedder
        .plan(&long, &plain())
        .expect_err("the text is too long");
    assert!(
        matches!(&error, EmbeddingError::TooLong { text: 1, tokens, limit }
        if *tokens > 6 && limit.value == 6),
        "{error}"
    );
    assert!(
        error.is_by_request() && error.to_string().contains("accepts 6"),
        "{error}"
    );
    let cut = EmbeddingOptions {
        truncate: true,
        ..plain()
    };
    let plan = embedder.plan(&long, &cut).expect("the text is truncated");
    assert_eq!(plan.tokens_by_text(), [3, 6]);
    let most = |max_length| {
        let options = EmbeddingOptions {
            max_length: Some(max_length),
            ..cut.clone()
        };
        embedder
            .plan(&long, &options)
            .map(|plan| plan.tokens_by_text()[1])
    };
    assert_eq!(most(4), Ok(4));
    let error = most(7).expect_err("the model takes 6").to_string();
    assert!(error.contains("7 exceeds the 6 tokens"), "{error}");
    assert!(most(0).is_err());
    assert!(most(1).is_err(), "no room for the special tokens");
}

#[test]
fn amounts_are_bounded_before_any_work() {
    let signature = model(&[("tokens", DType::Int64)], &open(None), &open(None));
    let embedder = embedder(&signature);
    let plan = |given| embedder.plan(&given, &plain()).map(|plan| plan.texts);
    assert_eq!(plan(texts(&[])), Ok(0));
    assert!(plan(texts(&vec!["a"; MAX_TEXTS + 1])).is_err());
    let long = "a".repeat(MAX_TEXT_BYTES + 1);
    let error = plan(texts(&["a", &long])).expect_err("the text is too long");
    assert_eq!(error.text(), Some(1));
    let many = vec![&long[..MAX_TEXT_BYTES]; 17];
    assert!(plan(texts(&many)).is_err(), "together");
}

#[test]
fn ids_are_taken_as_they_are() {
    let signature = model(&[("tokens", DType::Int64)], &Dim::Fixed(1), &open(Some(4)));
    let embedder = embedder(&signature);
    let given = EmbeddingInput::Ids(vec![vec![5, 6], vec![7]]);
    let plan = embedder.plan(&given, &plain()).expect("the ids are valid");
    assert_eq!(plan.tokens, 3, "no special tokens are added");
    assert_eq!(vectors(&plan, None), [[5.5, 0.5], [7.0, 0.0]]);
    let plan =
        |ids: &[u32]| embedder.plan(&EmbeddingInput::Ids(vec![vec![5], ids.to_vec()]), &plain());
    let error = plan(&[1_000_000]).expect_err("the id is unknown");
    assert!(
        matches!(error, EmbeddingError::UnknownToken { text: 1, .. }),
        "{error}"
    );
    assert!(matches!(
        plan(&[]),
        Err(EmbeddingError::NoTokens { text: 1 })
    ));
    assert!(matches!(
        plan(&[5; 5]),
        Err(EmbeddingError::TooLong {
            text: 1,
            tokens: 5,
            ..
        })
    ));
}

/// Returns texts with their numbers of tokens and the vectors of sentence-transformers; one text is
/// truncated.
fn golden() -> Vec<(String, usize, Vec<f32>)> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/embedding/minilm.json");
    let text = fs::read_to_string(path).expect("the file exists");
    let cases: Vec<Value> = serde_json::from_str(&text).expect("JSON");
    let case = |case: &Value| {
        let vector = serde_json::from_value(case["vector"].clone()).expect("numbers");
        let tokens = case["tokens"].as_u64().expect("a number");
        let text = case["text"].as_str().expect("a text").to_owned();
        (text, usize::try_from(tokens).expect("a few"), vector)
    };
    cases.iter().map(case).collect()
}

#[test]
fn a_real_encoder_embeds_as_sentence_transformers_does() {
    let test = "a_real_encoder_embeds_as_sentence_transformers_does";
    let Some(package) = EnvironmentPiece::Minilm.or_skip(test) else {
        return;
    };
    let golden = golden();
    let mut arguments = vec![
        "run",
        package.to_str().expect("UTF-8"),
        "--json",
        "--truncate",
    ];
    for (text, ..) in &golden {
        arguments.extend(["--text", text]);
    }
    let answer = pkgtool(&arguments).run().expect_code(0).json();
    assert_eq!(
        answer["max_tokens"], 256,
        "as sentence_bert_config.json says"
    );
    assert_eq!(answer["dimensions"], 384);
    let embedded = answer["embedded_texts"].as_array().expect("a list");
    assert_eq!(embedded.len(), golden.len());
    for (embedded, (text, tokens, expected)) in embedded.iter().zip(&golden) {
        assert_eq!(embedded["text"], *text);
        assert_eq!(embedded["tokens"], (*tokens).min(256), "{text:?}");
        let vector: Vec<f32> = serde_json::from_value(embedded["vector"].clone()).expect("numbers");
        let distance = 1.0 - cosine(&vector, expected);
        assert!(distance < 1e-5, "{text:?}: {distance:e}");
    }
    // Texts are truncated only on request.
    let (longest, ..) = golden
        .iter()
        .max_by_key(|(text, ..)| text.len())
        .expect("a text");
    let refused = pkgtool(["run", arguments[1], "--text", longest]).run();
    let refused = refused.expect_code(2);
    assert!(
        refused.stderr.contains("tokens, but the model accepts 256"),
        "{}",
        refused.stderr
    );
}
