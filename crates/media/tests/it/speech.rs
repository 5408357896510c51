//! Transcripts of a decoder that follows a script.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "numbers of tests are small"
)]

use pkgtool_engine::tensor::{DType, Tensor};
use pkgtool_media::answer::TranscriptAnswer;
use pkgtool_media::sound::Sound;
use pkgtool_media::speech::{SpeechOptions, SpeechRun, SpeechStep, SpeechTokens};

/// Letters `a` to `z`, special tokens, and 1,501 timestamps.
const VOCABULARY: usize = 40 + 1501;
const TIMES: u32 = 40;
const END: u32 = 30;
const START: u32 = 31;
const ENGLISH: u32 = 32;
const GERMAN: u32 = 33;
const TRANSCRIBE: u32 = 34;
const TRANSLATE: u32 = 35;
const NO_SPEECH: u32 = 36;

fn id_of(token: &str) -> Option<u32> {
    let specials = [
        ("<|endoftext|>", END),
        ("<|startoftranscript|>", START),
        ("<|en|>", ENGLISH),
        ("<|de|>", GERMAN),
        ("<|transcribe|>", TRANSCRIBE),
        ("<|translate|>", TRANSLATE),
        ("<|nospeech|>", NO_SPEECH),
        ("<|0.00|>", TIMES),
    ];
    let found = specials.iter().find(|(name, _)| *name == token);
    found.map(|(_, id)| *id)
}

#[expect(clippy::unnecessary_wraps, reason = "tokenizers may fail")]
fn text_of(ids: &[u32]) -> Result<String, String> {
    let letters = ids.iter().filter(|id| **id < 26);
    Ok(letters
        .map(|id| char::from(b'a' + u8::try_from(*id).expect("a letter")))
        .collect())
}

/// Returns the token of a time in a window, in seconds.
fn at(seconds: f64) -> u32 {
    TIMES + (seconds * 50.0).round() as u32
}

/// What the decoder says in each window, and which language it hears.
struct Script {
    windows: Vec<Vec<u32>>,
    language: u32,
    /// Logit of the token of no speech after the start, and of each scripted token.
    silence: f32,
    certainty: f32,
}

/// Runs a script; returns the answer, the tokens that the decoder took, and the number of windows.
fn run(
    script: &Script,
    seconds: f64,
    options: &SpeechOptions,
) -> (TranscriptAnswer, Vec<Vec<u32>>, usize) {
    let samples = (seconds * 16_000.0) as usize;
    let tokens = SpeechTokens::find(VOCABULARY, id_of).expect("the tokens");
    let mut run = SpeechRun::new(Sound::of(vec![100; samples]), tokens, options).expect("a run");
    let (mut window, mut kept, mut taken) = (0, Vec::new(), Vec::new());
    while let Some(step) = run.next_step() {
        match step {
            SpeechStep::Encode(samples) => {
                assert!(samples.len() <= 480_000 && !samples.is_empty());
                window += 1;
                run.add_states(Vec::new());
            }
            SpeechStep::Decode { tokens, position } => {
                assert!(tokens.len() == 1 || position == 0);
                kept.truncate(position);
                assert_eq!(kept.len(), position, "tokens follow those before");
                kept.extend(&tokens);
                taken.push(kept.clone());
                let rows =
                    (position + 1..=kept.len()).map(|count| logits(script, window, &kept[..count]));
                let values: Vec<f64> = rows.flatten().collect();
                let shape = vec![1, tokens.len() as u64, VOCABULARY as u64];
                let logits = Tensor::from_f64(DType::Float32, shape, values).expect("logits");
                run.add_logits(&logits, &text_of).expect("logits that fit");
            }
        }
        assert!(taken.len() < 20_000, "the run ends");
    }
    (run.answer(), taken, window)
}

fn logits(script: &Script, window: usize, tokens: &[u32]) -> Vec<f64> {
    let mut logits = vec![0.0; VOCABULARY];
    let prompt = tokens
        .iter()
        .take_while(|it| (START..=TRANSLATE).contains(it))
        .count();
    if tokens == [START] {
        logits[script.language as usize] = 5.0;
        logits[NO_SPEECH as usize] = f64::from(script.silence);
    }
    let said = script
        .windows
        .get(window - 1)
        .map_or(&[END][..], Vec::as_slice);
    let next = said.get(tokens.len() - prompt).copied().unwrap_or(END);
    logits[next as usize] = f64::from(script.certainty).max(logits[next as usize]);
    logits
}

fn options(keeps_tokens: bool) -> SpeechOptions {
    SpeechOptions {
        most: 100,
        keeps_tokens,
        ..SpeechOptions::default()
    }
}

fn script(windows: Vec<Vec<u32>>) -> Script {
    Script {
        windows,
        language: GERMAN,
        silence: 0.0,
        certainty: 30.0,
    }
}

#[test]
fn segments_follow_the_timestamps_in_both_kinds_of_decoders() {
    // Two segments, the second one open at 20 s: the next window begins there.
    let first = vec![at(0.0), 0, 1, at(2.5), at(3.0), 2, at(20.0), at(20.0)];
    let second = vec![at(0.0), 3, at(4.0)];
    let script = script(vec![first, second]);
    let mut answers = Vec::new();
    for keeps_tokens in [false, true] {
        let (answer, taken, windows) = run(&script, 31.0, &options(keeps_tokens));
        assert_eq!(windows, 2);
        let found: Vec<_> = answer
            .segments
            .iter()
            .map(|it| (it.start, it.end, &*it.text))
            .collect();
        assert_eq!(
            found,
            [(0.0, 2.5, "ab"), (3.0, 20.0, "c"), (20.0, 24.0, "d")]
        );
        assert_eq!((&*answer.text, &*answer.language), ("ab c d", "de"));
        // The language is found once, by the first window.
        let starts = taken.iter().filter(|it| it[..] == [START]).count();
        assert_eq!(starts, if keeps_tokens { 2 } else { 1 });
        assert!(
            taken
                .iter()
                .any(|it| it.starts_with(&[START, GERMAN, TRANSCRIBE]))
        );
        answers.push(answer);
    }
    assert_eq!(answers[0], answers[1]);
}

#[test]
fn a_named_language_and_a_task_are_the_prompt() {
    let script = script(vec![vec![at(0.0), 7, at(1.0)]]);
    let mut options = options(false);
    options.language = Some("en".to_owned());
    options.translate = true;
    let (answer, taken, _) = run(&script, 5.0, &options);
    assert_eq!(taken[0], [START, ENGLISH, TRANSLATE]);
    assert_eq!(answer.language, "en");
    let tokens = SpeechTokens::find(VOCABULARY, id_of).expect("the tokens");
    options.language = Some("fr".to_owned());
    let error = SpeechRun::new(Sound::of(vec![0; 99]), tokens, &options).expect_err("unknown");
    assert!(
        error.contains("unknown language `fr`: expected one of en, de"),
        "{error}"
    );
}

#[test]
fn silence_repetition_and_endless_texts_end() {
    // No speech, and nothing certain: the window has no words.
    let mut silent = script(vec![vec![at(0.0), 1, at(1.0)]; 2]);
    (silent.silence, silent.certainty) = (20.0, 0.5);
    let (answer, _, windows) = run(&silent, 45.0, &options(false));
    assert_eq!((answer.segments.len(), windows), (0, 2));
    // A text that repeats itself is tried at every temperature, and kept in the end.
    let endless = [&[at(0.0)][..], &[4; 200]].concat();
    let (answer, taken, windows) = run(&script(vec![endless]), 3.0, &options(true));
    assert_eq!(windows, 1);
    assert!(
        answer.text.starts_with("eeee") && answer.text.len() == 99,
        "{}",
        answer.text
    );
    assert_eq!(
        taken
            .iter()
            .filter(|it| it[..] == [START, GERMAN, TRANSCRIBE])
            .count(),
        6
    );
    // A decoder that says nothing, and one whose timestamps go nowhere, do not stop the run.
    for said in [vec![at(0.0)], vec![at(0.0), at(0.0)], vec![]] {
        let (_, _, windows) = run(&script(vec![said; 9]), 61.0, &options(false));
        assert_eq!(windows, 3);
    }
}

#[test]
fn faults_have_reasons() {
    let none = SpeechTokens::find(VOCABULARY, |_| None).expect_err("no tokens");
    assert!(none.contains("<|startoftranscript|>"), "{none}");
    let tokens = SpeechTokens::find(VOCABULARY, id_of).expect("the tokens");
    let mut run = SpeechRun::new(Sound::of(vec![0; 99]), tokens, &options(false)).expect("a run");
    run.add_states(Vec::new());
    let wrong = |values: Vec<f64>, shape: Vec<u64>| {
        Tensor::from_f64(DType::Float32, shape, values).expect("values")
    };
    let error = run
        .add_logits(&wrong(Vec::new(), vec![1, 0, 9]), &text_of)
        .expect_err("no row");
    assert!(error.contains("no logits"), "{error}");
    let few = wrong(vec![f64::NAN; 3], vec![1, 1, 3]);
    let _ = run.add_logits(&few, &text_of);
    let error = run.add_logits(&few, &text_of).expect_err("no number");
    assert!(error.contains("not numbers"), "{error}");
}
