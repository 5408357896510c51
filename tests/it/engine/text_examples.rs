//! The text examples on every engine, compared with `transformers` and `sentence-transformers` on
//! the same weights.
//!
//! Decoders must choose the same tokens, and encoders must give the same vectors. These tests work
//! with token ids and numbers, without a tokenizer. `tests/fixtures/text/README.md` describes the
//! files.

use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_engine::tensor::{DType, Signature, Tensor};
use pkgtool_engine::{LoadOptions, LoadRequest, Session, engine};
use pkgtool_model as model;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::support::environment::EnvironmentPiece;
use crate::support::fixture;

/// Maximum number of tokens that a program accepts per run.
const AT_ONCE: usize = 127;
/// Number of layers of the decoder; each has keys and values of two heads of size `HEAD`.
const LAYERS: usize = 2;
const HEAD: u64 = 8;

#[derive(Debug, Deserialize)]
struct Chat {
    conversations: Vec<Conversation>,
}

#[derive(Debug, Deserialize)]
struct Conversation {
    name: String,
    prompt_ids: Vec<u32>,
    answer_ids: Vec<u32>,
    repetition_penalty: Option<f64>,
    /// The most likely tokens at each position of the answer, with their log probabilities.
    #[serde(default)]
    logprobs: Vec<Vec<(u32, f64)>>,
}

#[derive(Debug, Deserialize)]
struct Sentences {
    texts: Vec<Sentence>,
}

#[derive(Debug, Deserialize)]
struct Sentence {
    text: String,
    ids: Vec<u32>,
    vector: Vec<f64>,
}

fn truth<T: DeserializeOwned>(name: &str) -> T {
    let text = fs::read_to_string(fixture("text").join(name)).expect("a fixture");
    serde_json::from_str(&text).expect("JSON of this form")
}

/// Returns the conversations whose tokens were chosen by the logits alone.
fn conversations() -> Vec<Conversation> {
    let mut all = truth::<Chat>("jackdaw.json").conversations;
    assert!(all.len() >= 20, "conversations are missing");
    all.retain(|one| one.repetition_penalty.is_none());
    all
}

/// Returns some of them, for engines that plan each length anew, which is slow in a debug build.
fn few() -> Vec<Conversation> {
    let mut few = conversations();
    few.retain(|one| ["greeting", "tool-call"].contains(&one.name.as_str()));
    assert_eq!(few.len(), 2);
    few
}

fn example(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("packages-examples")
        .join(path)
}

fn load(name: &str, path: &str) -> Box<dyn Session> {
    let model = example(path);
    let (info, _) = model::open(&model).expect("examples can be read");
    let method = info.method("forward").expect("the only method");
    let request = LoadRequest {
        signature: Signature::of(method, None).expect("all values are tensors"),
        model,
        options: LoadOptions {
            threads: Some(1),
            library: (name == "ort")
                .then(|| EnvironmentPiece::Ort.path())
                .flatten(),
            ..LoadOptions::default()
        },
    };
    let engine = engine(name).expect("the engine is part of this build");
    engine.load(&request).expect("examples load")
}

fn integers(shape: &[u64], values: impl IntoIterator<Item = u32>) -> Tensor {
    let values = values.into_iter().map(f64::from);
    Tensor::from_f64(DType::Int64, shape.to_vec(), values).expect("the tensor is valid")
}

fn range(start: usize, length: usize) -> impl Iterator<Item = u32> {
    let first = u32::try_from(start).expect("the number fits");
    (first..).take(length)
}

/// Returns the last rows of logits, one for each position.
fn rows(logits: &Tensor) -> Vec<Vec<f64>> {
    let width = *logits.shape().last().expect("a width");
    let width = usize::try_from(width).expect("the number fits");
    let values: Vec<f64> = logits.to_f64().collect();
    values.chunks(width).map(<[f64]>::to_vec).collect()
}

fn best(row: &[f64]) -> u32 {
    let places = (0_u32..).zip(row);
    places
        .max_by(|a, b| a.1.total_cmp(b.1))
        .expect("a row has values")
        .0
}

/// A decoder that continues a conversation: it takes tokens and returns the logits after each of
/// them, or after the last.
trait Decoder {
    fn begin(&mut self);
    fn feed(&mut self, tokens: &[u32]) -> Vec<Vec<f64>>;
}

/// An ONNX decoder that takes the past keys and values as inputs.
struct WithPast {
    session: Box<dyn Session>,
    past: Vec<Tensor>,
    length: usize,
}

impl Decoder for WithPast {
    fn begin(&mut self) {
        let none =
            || Tensor::zeros(DType::Float32, vec![1, 2, 0, HEAD]).expect("the tensor is empty");
        self.past = (0..2 * LAYERS).map(|_| none()).collect();
        self.length = 0;
    }

    fn feed(&mut self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let (before, new) = (self.length, tokens.len());
        let all = before + new;
        let mut inputs = vec![
            integers(&[1, new as u64], tokens.iter().copied()),
            integers(&[1, all as u64], vec![1; all]),
            integers(&[1, new as u64], range(before, new)),
        ];
        inputs.append(&mut self.past);
        let mut outputs = self.session.run(&inputs).expect("the run succeeds").outputs;
        self.past = outputs.split_off(1);
        self.length = all;
        rows(&outputs[0])
    }
}

/// A program that keeps the keys and values in its own state.
struct WithState {
    session: Box<dyn Session>,
    length: usize,
}

impl Decoder for WithState {
    fn begin(&mut self) {
        self.length = 0;
    }

    fn feed(&mut self, tokens: &[u32]) -> Vec<Vec<f64>> {
        let mut last = Vec::new();
        for part in tokens.chunks(AT_ONCE) {
            let inputs = [
                integers(&[1, part.len() as u64], part.iter().copied()),
                integers(&[1], range(self.length, 1)),
            ];
            let outputs = self.session.run(&inputs).expect("the run succeeds").outputs;
            self.length += part.len();
            last = rows(&outputs[0]);
        }
        last
    }
}

/// Generates the answer token by token, up to `most` tokens, and compares each with the expected
/// token.
fn says_the_same(decoder: &mut dyn Decoder, conversations: &[Conversation], most: usize) {
    for one in conversations {
        decoder.begin();
        let mut logits = decoder.feed(&one.prompt_ids);
        let mut said = Vec::new();
        for place in 0..one.answer_ids.len().min(most) {
            let row = logits.last().expect("logits");
            if let Some(likeliest) = one.logprobs.get(place) {
                same_probabilities(row, likeliest, &one.name);
            }
            said.push(best(row));
            logits = decoder.feed(&said[place..]);
        }
        assert_eq!(said, one.answer_ids[..said.len()], "{}", one.name);
    }
}

fn same_probabilities(row: &[f64], likeliest: &[(u32, f64)], name: &str) {
    let most = row[best(row) as usize];
    let sum: f64 = row.iter().map(|value| (value - most).exp()).sum();
    for (token, expected) in likeliest {
        let found = row[*token as usize] - most - sum.ln();
        assert!(
            (found - expected).abs() < 1e-3,
            "{name}: {found} {expected}"
        );
    }
}

fn with_past(engine: &str) -> WithPast {
    WithPast {
        session: load(engine, "jackdaw/mlx/jackdaw_mlx_fp32.onnx"),
        past: Vec::new(),
        length: 0,
    }
}

fn with_state(engine: &str) -> WithState {
    WithState {
        session: load(engine, "jackdaw/xnnpack/jackdaw_xnnpack_fp32.pte"),
        length: 0,
    }
}

#[test]
fn a_decoder_with_past_says_what_transformers_says() {
    says_the_same(&mut with_past("tract"), &few(), 4);
    if cfg!(feature = "ort")
        && EnvironmentPiece::Ort
            .or_skip("decoders on ONNX Runtime")
            .is_some()
    {
        says_the_same(&mut with_past("ort"), &conversations(), usize::MAX);
    }
}

#[test]
fn a_decoder_with_state_says_what_transformers_says() {
    says_the_same(&mut with_state("tract"), &few(), 4);
    let there = || {
        EnvironmentPiece::ExecuTorch
            .or_skip("decoders on ExecuTorch")
            .is_some()
    };
    if cfg!(feature = "executorch") && there() {
        says_the_same(&mut with_state("executorch"), &conversations(), usize::MAX);
    }
}

/// Runs a decoder without a cache once over the whole conversation, which gives the logits before
/// each token of the answer.
fn plainly_says_the_same(engine: &str, conversations: &[Conversation]) {
    let mut session = load(engine, "jackdaw/qnn/jackdaw_qnn_fp32.onnx");
    for one in conversations {
        let before = one.prompt_ids.len();
        let ids = [&one.prompt_ids[..], &one.answer_ids].concat();
        let inputs = [integers(&[1, ids.len() as u64], ids)];
        let outputs = session.run(&inputs).expect("the run succeeds").outputs;
        let logits = rows(&outputs[0]);
        let chosen = &logits[before - 1..logits.len() - 1];
        let said: Vec<u32> = chosen.iter().map(|row| best(row)).collect();
        assert_eq!(said, one.answer_ids, "{}", one.name);
        for (row, likeliest) in chosen.iter().zip(&one.logprobs) {
            same_probabilities(row, likeliest, &one.name);
        }
    }
}

#[test]
fn a_plain_decoder_says_what_transformers_says() {
    plainly_says_the_same("tract", &few());
    if cfg!(feature = "ort")
        && EnvironmentPiece::Ort
            .or_skip("decoders on ONNX Runtime")
            .is_some()
    {
        plainly_says_the_same("ort", &conversations());
    }
}

/// A row of a padded batch gives the same result as the row alone.
#[cfg(feature = "ort")]
#[test]
fn rows_of_a_batch_do_not_see_one_another() {
    if EnvironmentPiece::Ort
        .or_skip("batches of decoders")
        .is_none()
    {
        return;
    }
    let pair = few();
    let longest = pair.iter().map(|one| one.prompt_ids.len()).max();
    let longest = longest.expect("the list is not empty");
    let (mut ids, mut mask, mut positions) = (Vec::new(), Vec::new(), Vec::new());
    for one in &pair {
        let missing = longest - one.prompt_ids.len();
        ids.extend(vec![0; missing]);
        ids.extend(&one.prompt_ids);
        mask.extend((0..longest).map(|place| u32::from(place >= missing)));
        positions.extend(vec![0; missing]);
        positions.extend(range(0, longest - missing));
    }
    let shape = [2, longest as u64];
    let mut inputs = vec![
        integers(&shape, ids),
        integers(&shape, mask),
        integers(&shape, positions),
    ];
    let none = || Tensor::zeros(DType::Float32, vec![2, 2, 0, HEAD]).expect("the tensor is empty");
    inputs.extend((0..2 * LAYERS).map(|_| none()));
    let mut session = with_past("ort").session;
    let outputs = session.run(&inputs).expect("the run succeeds").outputs;
    let logits = rows(&outputs[0]);
    for (one, row) in pair
        .iter()
        .zip([&logits[longest - 1], &logits[2 * longest - 1]])
    {
        assert_eq!(best(row), one.answer_ids[0], "{}", one.name);
        same_probabilities(row, &one.logprobs[0], &one.name);
    }
}

fn sentences() -> Vec<Sentence> {
    let all = truth::<Sentences>("kindred.json").texts;
    assert!(all.len() >= 20, "texts are missing");
    all
}

/// Returns the mean of states, scaled to unit length.
fn pooled(states: &[Vec<f64>]) -> Vec<f64> {
    let sums = (0..states[0].len()).map(|place| states.iter().map(|row| row[place]).sum());
    let sums: Vec<f64> = sums.collect();
    let length = sums.iter().map(|value| value * value).sum::<f64>().sqrt();
    sums.iter().map(|value| value / length).collect()
}

fn check(sentence: &Sentence, found: &[f64]) {
    assert_eq!(found.len(), sentence.vector.len());
    for (a, b) in found.iter().zip(&sentence.vector) {
        assert!((a - b).abs() < 1e-5, "{:?}: {a} {b}", sentence.text);
    }
}

/// Returns the token ids and an attention mask of ones.
fn of(sentence: &Sentence) -> [Tensor; 2] {
    let shape = [1, sentence.ids.len() as u64];
    let mask = vec![1; sentence.ids.len()];
    [
        integers(&shape, sentence.ids.iter().copied()),
        integers(&shape, mask),
    ]
}

/// Tests an ONNX encoder, which returns states; the test pools them to a vector.
fn lays_states(engine: &str, sentences: &[Sentence]) {
    let mut session = load(engine, "kindred/mlx/kindred_mlx_fp32.onnx");
    for sentence in sentences {
        let outputs = session
            .run(&of(sentence))
            .expect("the run succeeds")
            .outputs;
        check(sentence, &pooled(&rows(&outputs[0])));
    }
}

/// Tests a program that returns the vector itself.
fn lays_vectors(engine: &str, sentences: &[Sentence]) {
    let mut session = load(engine, "kindred/xnnpack/kindred_xnnpack_fp32.pte");
    for sentence in sentences {
        let outputs = session
            .run(&of(sentence))
            .expect("the run succeeds")
            .outputs;
        check(sentence, &rows(&outputs[0])[0]);
    }
}

#[test]
fn an_encoder_lays_texts_where_sentence_transformers_does() {
    let all = sentences();
    for lays in [lays_states, lays_vectors] {
        lays("tract", &all[..6]);
    }
    if cfg!(feature = "ort")
        && EnvironmentPiece::Ort
            .or_skip("encoders on ONNX Runtime")
            .is_some()
    {
        lays_states("ort", &all);
    }
    let there = || {
        EnvironmentPiece::ExecuTorch
            .or_skip("encoders on ExecuTorch")
            .is_some()
    };
    if cfg!(feature = "executorch") && there() {
        lays_vectors("executorch", &all);
    }
}
