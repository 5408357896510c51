//! Recognition of decoder models by their signature, and the error messages for other models.

use std::path::Path;

use pkgtool_engine::tensor::{DType, Signature, TensorSpec};
use pkgtool_model::{Dim, ModelInfo};
use pkgtool_text::decoder::{DecoderModel, EmbeddedParts, TokenEmbedding};

fn spec(name: &str, dtype: DType, dims: &[&str]) -> TensorSpec {
    let dim = |text: &&str| match text.parse() {
        Ok(size) => Dim::Fixed(size),
        Err(_) => Dim::Dynamic {
            bound: text.strip_prefix('<').and_then(|bound| bound.parse().ok()),
            name: Some((*text).to_owned()),
            allowed: None,
        },
    };
    TensorSpec {
        name: name.to_owned(),
        dtype,
        dims: Some(dims.iter().map(dim).collect()),
        fixed: None,
        pixels: None,
    }
}

fn tokens() -> TensorSpec {
    spec("input_ids", DType::Int64, &["batch", "sequence"])
}

fn logits() -> TensorSpec {
    spec("logits", DType::Float32, &["batch", "sequence", "32"])
}

fn past(size: &str) -> TensorSpec {
    let dims = ["batch", "2", "past_sequence_length", size];
    spec("past_key_values.0.key", DType::Float32, &dims)
}

fn present() -> TensorSpec {
    let dims = ["batch", "2", "total", "8"];
    spec("present.0.key", DType::Float32, &dims)
}

fn recognise(
    format: &'static str,
    inputs: Vec<TensorSpec>,
    outputs: Vec<TensorSpec>,
) -> Result<DecoderModel, String> {
    let info = ModelInfo {
        format,
        ..ModelInfo::default()
    };
    let signature = Signature {
        method: "forward".to_owned(),
        inputs,
        outputs,
    };
    let nowhere = Path::new("/nonexistent/model");
    let found = DecoderModel::recognise(nowhere, &info, &signature, Some(100));
    found.map_err(|error| error.to_string())
}

#[track_caller]
fn assert_refused(found: Result<DecoderModel, String>, words: &str) {
    let error = found.expect_err("the model is not a decoder");
    assert!(error.contains(words), "{error}");
}

#[test]
fn what_is_carried_is_found_by_name() {
    let inputs = vec![tokens(), past("8")];
    let model =
        recognise("onnx", inputs, vec![logits(), present()]).expect("the model is a decoder");
    assert_eq!((model.vocabulary, model.context), (32, 100));
    let state = &model.carrying.states[0];
    assert_eq!((state.input, state.output, state.axis), (1, 1, Some(2)));
    assert_eq!(state.begin, [1, 2, 0, 8]);
    assert_eq!(model.carrying.last.len(), 1);
    assert_eq!(model.first_inputs().len(), 1);
    // The state of a convolution has no position axis.
    let conv = spec("past_conv.0", DType::Float32, &["batch", "16", "3"]);
    let kept = spec("present_conv.0", DType::Float32, &["batch", "16", "3"]);
    let model = recognise("onnx", vec![tokens(), conv], vec![logits(), kept]);
    let model = model.expect("the model is a decoder");
    assert_eq!(model.carrying.states[0].axis, None);
    assert_eq!(model.carrying.states[0].begin, [1, 16, 3]);
}

#[test]
fn what_cannot_be_fed_is_refused_with_its_reason() {
    let onnx = |inputs, outputs| recognise("onnx", inputs, outputs);
    assert_refused(
        onnx(vec![tokens(), past("8")], vec![logits()]),
        "no output `present.0.key`",
    );
    assert_refused(
        onnx(
            vec![tokens(), past("kv_cache_dim")],
            vec![logits(), present()],
        ),
        "the head size is unknown",
    );
    let image = spec("pixel_values", DType::Float32, &["1", "3", "8", "8"]);
    assert_refused(
        onnx(vec![tokens(), image.clone()], vec![logits()]),
        "`pixel_values`, float32[1, 3, 8, 8], is not supported in text decoders",
    );
    assert_refused(
        onnx(vec![image], vec![logits()]),
        "it has no input for tokens",
    );
    let fixed = spec(
        "past_key_values.0.key",
        DType::Float32,
        &["1", "2", "64", "8"],
    );
    assert_refused(
        onnx(vec![tokens(), fixed], vec![logits(), present()]),
        "it has no dynamic dimension for positions",
    );
    let last = spec("logits", DType::Float32, &["1", "32"]);
    let twelve = spec("input_ids", DType::Int64, &["1", "12"]);
    assert_refused(
        onnx(vec![twelve.clone()], vec![last]),
        "returns logits only after token 12",
    );
    let open = spec("logits", DType::Float32, &["1", "n", "v"]);
    assert_refused(
        onnx(vec![tokens()], vec![open]),
        "its vocabulary size is unknown",
    );
    let model = onnx(vec![twelve.clone()], vec![logits()]).expect("the model is a decoder");
    assert_eq!(model.context, 12);
    let start = spec("input_pos", DType::Int64, &["1"]);
    assert_refused(
        recognise("executorch", vec![twelve, start.clone()], vec![logits()]),
        "every step takes 12 tokens",
    );
    let some = spec("tokens", DType::Int64, &["1", "<63"]);
    assert_refused(
        recognise("executorch", vec![some, start], vec![logits()]),
        "get_max_context_len",
    );
}

/// A decoder that takes embeddings, and the method that makes them.
#[test]
fn embeddings_take_the_place_of_tokens() {
    let embeddings = || spec("inputs_embeds", DType::Float32, &["batch", "sequence", "8"]);
    let mask = spec("attention_mask", DType::Int64, &["batch", "total"]);
    let inputs = vec![embeddings(), mask, past("8")];
    let model = recognise("onnx", inputs.clone(), vec![logits(), present()]).expect("a decoder");
    assert_eq!(model.embedding_width(), Some(8));
    assert!(!model.has_lanes());
    assert_eq!(model.first_inputs()[0].shape(), [1, 1, 8]);
    // A program with a position.
    let position = spec("input_pos", DType::Int64, &["1"]);
    let program = recognise("onnx", vec![tokens(), past("8")], vec![logits(), present()]);
    assert_eq!(program.expect("a decoder").embedding_width(), None);
    let fixed = vec![spec("x", DType::Float32, &["1", "5", "8"]), position];
    assert_refused(
        recognise("onnx", fixed, vec![logits()]),
        "is not supported in text decoders",
    );
    let fixed = vec![spec("x", DType::Float32, &["1", "5", "8"])];
    let logits_of_five = spec("logits", DType::Float32, &["1", "5", "32"]);
    assert_refused(
        recognise("onnx", fixed, vec![logits_of_five]),
        "a fixed length",
    );

    let signature = |inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>| Signature {
        method: "forward".to_owned(),
        inputs,
        outputs,
    };
    let decoder = signature(inputs, vec![logits(), present()]);
    let embedding = signature(vec![tokens()], vec![embeddings()]);
    let picture = spec("image", DType::Float32, &["1", "3", "4", "4"]);
    let rows = spec("rows", DType::Float32, &["1", "2", "8"]);
    let vision = signature(vec![picture], vec![rows]);
    let parts = EmbeddedParts::find(&[Some(&vision), None, Some(&decoder), Some(&embedding)]);
    let parts = parts.expect("all are there");
    assert_eq!((parts.decoder, parts.embedding), (2, 3));
    assert_eq!(EmbeddedParts::find(&[Some(&vision), Some(&decoder)]), None);
    let plain = signature(vec![tokens()], vec![logits()]);
    assert_eq!(EmbeddedParts::find(&[Some(&vision), Some(&plain)]), None);
    let recognised = TokenEmbedding::recognise(&embedding).expect("it converts tokens");
    assert_eq!(recognised.width, 8);
    assert_eq!(recognised.first_inputs()[0].shape(), [1, 1]);
}
