//! Recordings of every format, and runs of a model over the windows of a sound.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of tests are small"
)]

use pkgtool_engine::tensor::{DType, Signature, Tensor, TensorSpec};
use pkgtool_media::answer::{SegmentAnswer, TypedAnswer};
use pkgtool_media::recipe::{FittedRecipe, Recipe, SoundRun, builtin};
use pkgtool_media::sound::{self, Sound};
use pkgtool_model::Dim;

use crate::facts;

/// The same speech in several formats, by the name of the format.
pub(crate) const RECORDINGS: [(&str, &[u8]); 7] = [
    (
        "wav",
        include_bytes!("../../../../tests/answers/speech.wav"),
    ),
    (
        "flac",
        include_bytes!("../../../../tests/answers/speech.flac"),
    ),
    (
        "mp3",
        include_bytes!("../../../../tests/answers/speech.mp3"),
    ),
    (
        "m4a",
        include_bytes!("../../../../tests/answers/speech.m4a"),
    ),
    (
        "webm",
        include_bytes!("../../../../tests/answers/speech.webm"),
    ),
    (
        "opus",
        include_bytes!("../../../../tests/answers/speech.opus"),
    ),
    (
        "ogg",
        include_bytes!("../../../../tests/answers/speech.ogg"),
    ),
];

/// The samples that AAC puts in front of a sound: 1,024 of 32,000 a second.
const AAC_DELAY: usize = 512;

#[test]
fn every_format_gives_the_same_speech() {
    let decoded = |bytes: &[u8]| sound::decode(bytes).expect("a recording");
    let original = decoded(RECORDINGS[0].1);
    for (name, bytes) in RECORDINGS {
        assert!(sound::begins_like_one(bytes), "{name}");
        let own = decoded(bytes);
        let delay = if name == "m4a" { AAC_DELAY } else { 0 };
        let pairs = own.samples()[delay..].iter().zip(original.samples());
        let (mut product, mut own_power, mut power) = (0.0, 0.0, 0.0);
        for (own, other) in pairs {
            let (own, other) = (f64::from(*own), f64::from(*other));
            product += own * other;
            own_power += own * own;
            power += other * other;
        }
        let likeness = product / (own_power * power).sqrt();
        assert!(likeness > 0.93, "{name}: {likeness}");
        assert!((own.seconds() - original.seconds()).abs() < 0.06, "{name}");
    }
}

#[test]
fn a_recording_that_ends_early_gives_what_it_has() {
    for (name, bytes) in RECORDINGS {
        if ["m4a", "webm"].contains(&name) {
            // An index is at the end, or the reader insists on the whole.
            continue;
        }
        let half = sound::decode(&bytes[..bytes.len() / 2]);
        let seconds = half
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .seconds();
        assert!((1.5..4.5).contains(&seconds), "{name}: {seconds}");
    }
}

fn spec(name: &str, dtype: DType, sizes: &[u64]) -> TensorSpec {
    let open = Dim::Dynamic {
        bound: None,
        name: None,
        allowed: None,
    };
    let dims = sizes.iter().map(|size| match size {
        0 => open.clone(),
        size => Dim::Fixed(*size),
    });
    TensorSpec {
        name: name.to_owned(),
        dtype,
        dims: Some(dims.collect()),
        fixed: None,
        pixels: None,
    }
}

fn fitted(name: &str, inputs: Vec<TensorSpec>, outputs: Vec<TensorSpec>) -> FittedRecipe {
    let signature = Signature {
        method: "forward".to_owned(),
        inputs,
        outputs,
    };
    let recipe = builtin().iter().find(|recipe| recipe.name == name);
    let capabilities = ["voice-activity-detection".to_owned()];
    let model = facts(&capabilities, "x", &signature);
    recipe
        .and_then(|recipe| recipe.fit(&model))
        .expect("the recipe fits")
}

pub(crate) fn silero() -> FittedRecipe {
    let inputs = vec![
        spec("input", DType::Float32, &[0, 0]),
        spec("state", DType::Float32, &[2, 0, 128]),
        spec("sr", DType::Int64, &[]),
    ];
    let outputs = vec![
        spec("output", DType::Float32, &[0, 1]),
        spec("stateN", DType::Float32, &[0, 0, 0]),
    ];
    fitted("voice-activity-silero", inputs, outputs)
}

pub(crate) fn fsmn() -> FittedRecipe {
    let inputs = vec![spec("frames", DType::Float32, &[0, 512])];
    let outputs = vec![spec("classes", DType::Float32, &[1, 0, 3])];
    fitted("voice-activity-fsmn", inputs, outputs)
}

fn tensor(shape: &[u64], values: Vec<f64>) -> Tensor {
    Tensor::from_f64(DType::Float32, shape.to_vec(), values).expect("values")
}

fn segments(run: SoundRun, recipe: &FittedRecipe) -> SegmentAnswer {
    match run.answer(recipe) {
        Ok(TypedAnswer::Segments(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn spectra_are_those_of_faster_whisper() {
    let golden = include_str!("../golden/mel.json");
    let golden: serde_json::Value = serde_json::from_str(golden).expect("JSON");
    let numbers = |value: &serde_json::Value| -> Vec<f64> {
        let values = value.as_array().expect("a list").iter();
        values.map(|it| it.as_f64().expect("a number")).collect()
    };
    let frames = numbers(&golden["frames"]);
    for bands in [80_u64, 128] {
        let recipe = format!(
            "name = \"x\"\nsummary = \"x\"\nsource = \"x\"\n[match]\n\
            capability = \"voice-activity-detection\"\ninputs = [\"mel: float[1?, {bands}, 3000]\"]\n\
            outputs = [\"made: float[N]\"]\n[[prepare]]\nstep = \"log_mel\"\nbands = {bands}\n\
            samples = 480000\n[[interpret]]\nstep = \"vector\"\n"
        );
        let recipe = Recipe::parse("x.toml", &recipe).expect("a recipe");
        let signature = Signature {
            method: "forward".to_owned(),
            inputs: vec![spec("mel", DType::Float32, &[1, bands, 3000])],
            outputs: vec![spec("made", DType::Float32, &[4])],
        };
        let capabilities = ["voice-activity-detection".to_owned()];
        let recipe = recipe.fit(&facts(&capabilities, "x", &signature));
        let sound = sound::decode(RECORDINGS[0].1).expect("a recording");
        let inputs = SoundRun::new(sound).next_inputs(&recipe.expect("fits"));
        let inputs = inputs.expect("inputs").expect("a run");
        assert_eq!(inputs[0].shape(), [1, bands, 3000]);
        let rows = golden[bands.to_string()].as_array().expect("a list");
        for (own, row) in inputs[0].to_f32().chunks_exact(3000).zip(rows) {
            for (frame, expected) in frames.iter().zip(numbers(row)) {
                let own = f64::from(own[*frame as usize]);
                assert!((own - expected).abs() < 1e-5, "{frame}: {own} {expected}");
            }
        }
    }
}

#[test]
fn each_run_takes_the_state_of_the_previous_one() {
    let recipe = silero();
    // The first sample of each window is its number.
    let samples = (0..5 * 512 + 7).map(|at| if at % 512 == 0 { at / 512 * 100 } else { 1 });
    let sound: Vec<i16> = samples
        .map(|it| i16::try_from(it).expect("small"))
        .collect();
    let mut run = SoundRun::new(Sound::of(sound));
    let mut count = 0;
    while let Some(inputs) = run.next_inputs(&recipe).expect("inputs") {
        let shapes: Vec<_> = inputs.iter().map(|it| it.shape().to_vec()).collect();
        assert_eq!(shapes, [vec![1, 576], vec![2, 1, 128], vec![]]);
        let [window, state, rate] = [0, 1, 2].map(|at| inputs[at].to_f32());
        assert!((rate[0] - 16000.0).abs() < 0.5);
        let expected = [count as f32 * 100.0, 1.0].map(|value| value / 32768.0);
        assert_eq!(window[64..66], expected, "window {count}");
        let before = if count == 0 { 0.0 } else { 1.0 / 32768.0 };
        assert_eq!(window[..64], [before; 64]);
        assert_eq!(state, vec![count as f32; 256]);
        count += 1;
        let next = vec![f64::from(count); 256];
        let score = if count > 1 { 0.9 } else { 0.1 };
        let outputs = vec![tensor(&[1, 1], vec![score]), tensor(&[2, 1, 128], next)];
        run.add(&recipe, outputs).expect("outputs");
    }
    assert_eq!(count, 6);
    let found = segments(run, &recipe);
    // Too short: 0.13 s.
    assert!(found.segments.is_empty());
    assert!((found.seconds - 2567.0 / 16000.0).abs() < 1e-9);
}

/// A frame as the C++ code makes it, in double precision.
fn frame(samples: &[i16], start: usize) -> Vec<f64> {
    let mut values: Vec<f64> = samples[start..start + 400]
        .iter()
        .map(|it| f64::from(*it) / 32768.0)
        .collect();
    let mean = values.iter().sum::<f64>() / 400.0;
    for value in &mut values {
        *value -= mean;
    }
    for at in (1..400).rev() {
        values[at] -= 0.97 * values[at - 1];
    }
    let mut row = vec![0.0; 512];
    for (at, value) in values.iter().enumerate() {
        let angle = 2.0 * std::f64::consts::PI * at as f64 / 400.0;
        row[56 + at] = value * (0.5 - 0.5 * angle.cos());
    }
    row
}

#[test]
fn frames_are_those_of_upstream_in_rounds_of_a_thousand() {
    let recipe = fsmn();
    let samples: Vec<i16> = (0..16_000 * 21 + 123_i64)
        .map(|at| i16::try_from((at * 7919 + at * at % 1013) % 20_000 - 10_000).expect("small"))
        .collect();
    let total = (samples.len() - 400) / 160;
    let mut run = SoundRun::new(Sound::of(samples.clone()));
    let mut seen = 0;
    while let Some(inputs) = run.next_inputs(&recipe).expect("inputs") {
        let [rows, width] = inputs[0].shape()[..] else {
            panic!("{:?}", inputs[0].shape())
        };
        assert_eq!((rows, width), (if seen < 2000 { 1000 } else { 100 }, 512));
        let values = inputs[0].to_f32();
        let count = (total - seen).min(1000);
        for row in [0, 1, count / 2, count - 1] {
            let expected = frame(&samples, (seen + row) * 160);
            for (own, other) in values[row * 512..].iter().zip(expected) {
                assert!(
                    (f64::from(*own) - other).abs() < 1e-5,
                    "row {row}: {own} {other}"
                );
            }
        }
        assert!(values[count * 512..].iter().all(|value| *value == 0.0));
        // Silence is certain but in frames 500 to 2020.
        let scores = (0..rows).flat_map(|row| {
            let at = seen as u64 + row;
            let silence = if (500..2020).contains(&at) { 0.1 } else { 0.9 };
            [silence, 0.0, 1.0]
        });
        let outputs = vec![tensor(&[1, rows, 3], scores.collect())];
        run.add(&recipe, outputs).expect("outputs");
        seen += count;
    }
    assert_eq!(seen, total);
    let found = segments(run, &recipe);
    let found: Vec<[f64; 2]> = found.segments.iter().map(|it| [it.start, it.end]).collect();
    assert_eq!(found, [[4.97, 20.23]]);
}

#[test]
fn faults_of_sounds_and_recipes_have_reasons() {
    let recipe = fsmn();
    let mut run = SoundRun::new(Sound::of(vec![0; 500]));
    let error = run.next_inputs(&recipe).expect_err("too short");
    assert!(error.contains("too short"), "{error}");
    let text = include_str!("../../recipes/voice-activity-silero.toml");
    for (from, to, part) in [
        ("hop = 512\nbefore", "hop = 8\nbefore", "`hop` 8"),
        ("window = 576", "window = 0", "`window` 0"),
        ("before = 64", "before = 65", "`before` 65"),
        ("state = { state", "state = { other", "no input `other`"),
        ("\"new_state\" }", "\"nothing\" }", "no output `nothing`"),
        ("before = 64", "after = 64", "unknown field"),
        (
            "to = \"window\"",
            "to = \"windows\"",
            "makes the input `window`",
        ),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Recipe::parse("x.toml", &text.replace(from, to)).expect_err(part);
        assert!(error.to_string().contains(part), "{error}");
    }
    let text = include_str!("../../recipes/classification.toml");
    let text = text.replace("[values]", "[repeat]\nwindow = 400\nhop = 400\n[values]");
    let error = Recipe::parse("x.toml", &text).expect_err("a picture");
    assert!(error.to_string().contains("reads a sound"), "{error}");
}
