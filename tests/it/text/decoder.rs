//! Decoders of every kind: feeding tokens step by step gives the same logits as feeding all at
//! once, whatever happens in between.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::{Signature, Tensor};
use pkgtool_engine::{LoadOptions, LoadRequest, RunStart, Session as _};
use pkgtool_model as model;
use pkgtool_text::decoder::{
    DecodeError, Decoder, DecoderModel, SessionStepRunner, StepError, StepTokens, Steps,
    TokenDecoder,
};

#[cfg(feature = "ort")]
use crate::support::engines;
use crate::support::environment::EnvironmentPiece;
use crate::support::loading::launcher;

/// A prompt for the ONNX decoders of the fixtures.
pub(super) const PROMPT: [u32; 9] = [5, 17, 3, 40, 22, 8, 31, 1, 12];
/// A program that keeps its keys and values in its own state. `RECORDED` holds the logits of
/// ExecuTorch's runtime for five consecutive tokens.
const PROGRAM: &str = "../../../packages-examples/jackdaw/xnnpack/jackdaw_xnnpack_fp32.pte";
const RECORDED: &str = "jackdaw_xnnpack_fp32.json";

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/decoders")
        .join(name)
}

#[cfg(feature = "ort")]
pub(super) fn has_ort() -> bool {
    engines::ort().is_some()
}

#[cfg(not(feature = "ort"))]
pub(super) fn has_ort() -> bool {
    false
}

fn recognised(name: &str) -> (LoadRequest, DecoderModel) {
    let path = fixture(name);
    let (info, _) = model::open(&path).expect("fixtures can be read");
    let method = info.method("forward").unwrap_or(&info.methods[0]);
    let signature = Signature::of(method, None).expect("all values are tensors");
    let found =
        DecoderModel::recognise(&path, &info, &signature, None).expect("the model is a decoder");
    let request = LoadRequest {
        model: path,
        signature,
        options: LoadOptions {
            threads: Some(1),
            carrying: found.carrying.clone(),
            library: EnvironmentPiece::Ort.path(),
            ..LoadOptions::default()
        },
    };
    (request, found)
}

/// Loads the decoder of a fixture on an engine, in a worker process.
pub(super) fn decoder(name: &str, engine: &str) -> TokenDecoder<SessionStepRunner<Worker>> {
    let (request, found) = recognised(name);
    let launcher = launcher(Some(Duration::from_mins(2)));
    let worker = launcher.load(engine, &request).expect("the model loads");
    TokenDecoder::new(found, SessionStepRunner(worker))
}

/// The ONNX decoders with the engines that run them here, and the tolerance against the uncached
/// decoder.
fn cached() -> Vec<(&'static str, &'static str, f32)> {
    let kinds = [
        ("cached.onnx", 1e-5),
        ("masked.onnx", 1e-5),
        ("merged.onnx", 1e-5),
        ("half.onnx", 2e-2),
    ];
    let mut all: Vec<_> = kinds
        .iter()
        .map(|(kind, near)| (*kind, "tract", *near))
        .collect();
    if has_ort() {
        all.extend(kinds.iter().map(|(kind, near)| (*kind, "ort", *near)));
        all.push(("fused.onnx", "ort", 1e-5));
    }
    all
}

fn always() -> bool {
    true
}

pub(super) fn fed(decoder: &mut impl Decoder, tokens: &[u32]) -> Vec<f32> {
    let logits = decoder.feed(tokens, &always).expect("the decoder runs");
    logits.to_vec()
}

pub(super) fn best(logits: &[f32]) -> u32 {
    let largest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b]));
    u32::try_from(largest.expect("the list is not empty")).expect("the number fits")
}

#[track_caller]
pub(super) fn assert_near(found: &[f32], expected: &[f32], near: f32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let largest = expected.iter().fold(1_f32, |most, it| most.max(it.abs()));
    for (found, expected) in found.iter().zip(expected) {
        let difference = (found - expected).abs();
        assert!(
            difference <= near * largest,
            "{what}: {found} for {expected}"
        );
    }
}

/// Returns greedily generated tokens of the decoder without a cache, and the logits of each step.
fn whole(tokens: usize) -> (Vec<u32>, Vec<Vec<f32>>) {
    let mut full = decoder("full.onnx", "tract");
    let mut logits = vec![fed(&mut full, &PROMPT)];
    let mut text = Vec::new();
    for _ in 1..tokens {
        let next = best(logits.last().expect("the list is not empty"));
        text.push(next);
        logits.push(fed(&mut full, &[next]));
    }
    (text, logits)
}

#[test]
fn a_cache_gives_what_the_whole_gives() {
    let (text, expected) = whole(16);
    assert!(
        text.iter().collect::<std::collections::BTreeSet<_>>().len() > 3,
        "{text:?}"
    );
    for (kind, engine, near) in cached() {
        let mut decoder = decoder(kind, engine);
        assert_eq!((decoder.vocabulary(), decoder.held().len()), (48, 0));
        for round in 0..3 {
            let what = format!("{kind} on {engine}, round {round}");
            decoder.cut(0).expect("the decoder is reset");
            let mut logits = fed(&mut decoder, &PROMPT);
            for (token, expected) in text.iter().zip(&expected) {
                assert_near(&logits, expected, near, &what);
                if near < 1e-4 {
                    assert_eq!(best(&logits), *token, "{what}");
                }
                logits = fed(&mut decoder, &[*token]);
            }
            assert_eq!(decoder.held().len(), PROMPT.len() + text.len());
        }
    }
}

#[test]
fn what_is_cut_goes_on_like_what_is_fresh() {
    for (kind, engine, near) in cached() {
        let mut used = decoder(kind, engine);
        fed(&mut used, &PROMPT);
        fed(&mut used, &[7, 7, 7]);
        used.cut(4).expect("the decoder holds more tokens");
        assert_eq!(used.held(), &PROMPT[..4]);
        used.cut(4).expect("the decoder holds that many tokens");
        assert!(used.cut(5).is_err(), "the decoder holds only 4 tokens");
        let going_on = fed(&mut used, &[9, 33]);
        let mut fresh = decoder(kind, engine);
        let expected = fed(&mut fresh, &[5, 17, 3, 40, 9, 33]);
        assert_near(
            &going_on,
            &expected,
            near.max(1e-5),
            &format!("{kind} on {engine}"),
        );
        assert_eq!(used.held(), fresh.held());
    }
}

/// The prompt is longer than a prefill chunk and than the initial buffers of a cache.
#[test]
fn a_long_prompt_is_fed_in_chunks() {
    let prompt: Vec<u32> = (0..560).map(|place| place * 7 % 48).collect();
    let expected = fed(&mut decoder("full.onnx", "tract"), &prompt);
    if !has_ort() {
        return;
    }
    for kind in ["cached.onnx", "fused.onnx"] {
        let mut whole = decoder(kind, "ort");
        let asked = Cell::new(0);
        let count = || {
            asked.set(asked.get() + 1);
            true
        };
        let found = whole
            .feed(&prompt, &count)
            .expect("the decoder runs")
            .to_vec();
        assert_near(&found, &expected, 1e-4, kind);
        assert_eq!(asked.get(), 2, "the callback runs between chunks");
        // Chunks whose ends fall into every buffer size.
        whole.cut(0).expect("the decoder is reset");
        let mut pieces = Vec::new();
        for piece in prompt.chunks(97) {
            pieces = fed(&mut whole, piece);
        }
        assert_near(&pieces, &expected, 1e-4, kind);
    }
    let mut fused = decoder("fused.onnx", "ort");
    assert_eq!(fused.context(), 600, "the size of its table");
    fed(&mut fused, &prompt);
    let full = fused
        .feed(&[1; 41], &always)
        .expect_err("the cache is full");
    assert!(
        matches!(
            full,
            DecodeError::ContextFull {
                tokens: 601,
                context: 600
            }
        ),
        "{full}"
    );
    fed(&mut fused, &[1; 40]);
}

#[test]
fn a_caller_that_goes_leaves_what_was_fed() {
    if !has_ort() {
        return;
    }
    let prompt: Vec<u32> = (0..560).map(|place| place * 5 % 48).collect();
    let mut decoder = decoder("fused.onnx", "ort");
    let expected = fed(&mut decoder, &prompt);
    decoder.cut(0).expect("the decoder is reset");
    let left = Cell::new(1);
    let goes = || left.replace(left.get() - 1) > 0;
    let error = decoder.feed(&prompt, &goes).expect_err("the caller goes");
    assert!(matches!(error, DecodeError::Disconnected));
    assert_eq!(decoder.held(), &prompt[..512]);
    assert_near(
        &fed(&mut decoder, &prompt[512..]),
        &expected,
        1e-5,
        "it goes on",
    );
}

/// A step runner that injects failures and evictions.
struct Troubled<S> {
    steps: S,
    /// Errors returned instead of running, one per step, in reverse order.
    troubles: Vec<Option<StepError>>,
}

impl<S: Steps> Steps for Troubled<S> {
    fn step(
        &mut self,
        model: &DecoderModel,
        begins: RunStart,
        fed: StepTokens<'_>,
    ) -> Result<Vec<Tensor>, StepError> {
        if let Some(trouble) = self.troubles.pop().flatten() {
            return Err(trouble);
        }
        self.steps.step(model, begins, fed)
    }
}

#[test]
fn what_failed_or_was_taken_is_fed_again() {
    let mut calm = decoder("cached.onnx", "tract");
    fed(&mut calm, &PROMPT);
    let expected = fed(&mut calm, &[2, 4]);
    let failed = || Some(StepError::Failed("it failed".into()));
    let mut decoder = TokenDecoder::new(
        recognised("cached.onnx").1,
        Troubled {
            steps: decoder("cached.onnx", "tract").into_steps(),
            troubles: vec![Some(StepError::Evicted), failed(), None],
        },
    );
    fed(&mut decoder, &PROMPT);
    let error = decoder.feed(&[2, 4], &always).expect_err("the call fails");
    assert_eq!(error.to_string(), "it failed");
    assert_eq!(decoder.held(), PROMPT);
    assert_near(&fed(&mut decoder, &[2, 4]), &expected, 1e-5, "fed again");
    decoder.steps().troubles = vec![failed()];
    decoder
        .cut(PROMPT.len())
        .expect("the decoder holds more tokens");
    assert!(decoder.feed(&[2], &always).is_err());
    assert_near(&fed(&mut decoder, &[2, 4]), &expected, 1e-5, "fed anew");
    let error = decoder
        .feed(&[48], &always)
        .expect_err("the token is unknown");
    assert_eq!(
        error.to_string(),
        "unknown token 48: the model has 48 tokens, numbered from 0"
    );
}

/// An input that the engine rejects leaves the session unchanged.
#[test]
fn a_failure_of_the_engine_changes_nothing() {
    for (kind, engine, near) in cached() {
        let mut decoder = decoder(kind, engine);
        fed(&mut decoder, &PROMPT);
        let expected = fed(&mut decoder, &[2, 4]);
        decoder
            .cut(PROMPT.len())
            .expect("the decoder holds more tokens");
        let session = &mut decoder.steps().0;
        let begun = session.begin(RunStart::Cut(PROMPT.len() as u64));
        let wrong = begun.and_then(|()| session.run(&[]));
        assert!(wrong.is_err(), "{kind} on {engine}");
        let what = format!("{kind} on {engine}");
        assert_near(&fed(&mut decoder, &[2, 4]), &expected, near, &what);
        let model = decoder.model().clone();
        let (held, tokens) = (1000, &[2][..]);
        let beyond = RunStart::Cut(1000);
        let beyond = (decoder.steps()).step(&model, beyond, StepTokens::new(held, tokens));
        assert!(beyond.is_err(), "{what}");
    }
}

#[derive(serde::Deserialize)]
struct Recorded {
    token: u32,
    position: usize,
    logits: Vec<f32>,
}

#[test]
fn a_program_gives_what_was_recorded() {
    let text = fs::read_to_string(fixture(RECORDED)).expect("the file exists");
    let recorded: Vec<Recorded> = serde_json::from_str(&text).expect("the text is a JSON list");
    let mut engines = vec!["tract"];
    if cfg!(feature = "executorch") && EnvironmentPiece::ExecuTorch.or_skip("decoders").is_some() {
        engines.push("executorch");
    }
    for engine in engines {
        let mut decoder = decoder(PROGRAM, engine);
        let model = decoder.model();
        assert_eq!((model.vocabulary, model.context), (384, 512));
        assert_eq!((model.first, model.ends.as_slice()), (Some(1), &[0, 2][..]));
        assert!(
            decoder.try_truncation().expect("the trial runs"),
            "{engine}"
        );
        for round in 0..3 {
            let what = format!("{engine}, round {round}");
            decoder.cut(0).expect("the decoder is reset");
            for step in &recorded {
                assert_eq!(decoder.held().len(), step.position);
                let logits = fed(&mut decoder, &[step.token]);
                assert_near(&logits, &step.logits, 1e-4, &what);
            }
            // Reuses a prefix and feeds all remaining tokens at once.
            let tokens: Vec<u32> = recorded.iter().map(|step| step.token).collect();
            fed(&mut decoder, &[9, 9, 9]);
            decoder.cut(2).expect("the decoder holds more tokens");
            let logits = fed(&mut decoder, &tokens[2..]);
            assert_near(&logits, &recorded.last().expect("some").logits, 1e-4, &what);
        }
    }
}
