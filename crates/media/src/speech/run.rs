//! The run over a sound: windows, attempts, and segments.

use pkgtool_engine::tensor::Tensor;

use super::decoding::{DecodingRules, FedTokens, TokenFeeding, WindowDecoding, WindowText};
use super::tokens::SpeechTokens;
use crate::answer::{SpokenSegment, TranscriptAnswer};
use crate::sound::{self, Sound};

/// Samples of a window: 30 seconds.
const WINDOW: usize = 30 * sound::RATE as usize;

/// Samples between two timestamps: 20 milliseconds.
const TICK: usize = sound::RATE as usize / 50;

/// A shorter rest of a sound has no words.
const MIN_REST: usize = sound::RATE as usize / 10;

/// Least sample of speech, -60 dB. Whisper hears words in silence.
const MIN_SAMPLE: u16 = 33;

/// Converts tokens to text.
pub type TextOfTokens<'a> = &'a dyn Fn(&[u32]) -> Result<String, String>;

/// Settings of a transcript.
#[derive(Debug, Clone, Default)]
pub struct SpeechOptions {
    /// The language; `None` finds it.
    pub language: Option<String>,
    /// Translate to English.
    pub translate: bool,
    /// Temperature of the first attempt.
    pub temperature: f32,
    /// Maximum number of tokens of a window.
    pub most: usize,
    /// True if the decoder keeps the tokens that it took.
    pub keeps_tokens: bool,
}

/// The next run of a model.
#[derive(Debug)]
pub enum SpeechStep {
    /// The encoder, on the samples of a window.
    Encode(Vec<f32>),
    /// The decoder.
    Decode {
        /// The tokens.
        tokens: Vec<u32>,
        /// Number of tokens before them; at 0, the decoder forgets what it keeps.
        position: usize,
    },
}

/// The runs for a transcript.
#[derive(Debug)]
pub struct SpeechRun {
    sound: Sound,
    tokens: SpeechTokens,
    language: Option<u32>,
    task: Option<u32>,
    rules: DecodingRules,
    /// Start of the current window, in samples.
    start: usize,
    /// The encoder's outputs for the current window.
    states: Vec<Tensor>,
    decoding: Option<WindowDecoding>,
    segments: Vec<SpokenSegment>,
}

impl SpeechRun {
    /// Starts a transcript.
    pub fn new(
        sound: Sound,
        tokens: SpeechTokens,
        options: &SpeechOptions,
    ) -> Result<Self, String> {
        let language = options.language.as_deref();
        let language = language.map(|code| tokens.language(code)).transpose()?;
        let task = if options.translate {
            let task = tokens.translate.filter(|_| !tokens.languages.is_empty());
            Some(task.ok_or("the model cannot translate: it knows English alone")?)
        } else {
            tokens.transcribe
        };
        let rules = DecodingRules {
            feeding: if options.keeps_tokens {
                TokenFeeding::One
            } else {
                TokenFeeding::All
            },
            most: options.most,
            temperature: options.temperature,
        };
        Ok(Self {
            sound,
            language,
            task,
            rules,
            start: 0,
            states: Vec::new(),
            decoding: None,
            segments: Vec::new(),
            tokens,
        })
    }

    /// Returns the encoder's outputs for the current window.
    pub fn states(&self) -> &[Tensor] {
        &self.states
    }

    /// Returns the next run; `None` after the last one.
    pub fn next_step(&self) -> Option<SpeechStep> {
        if let Some(decoding) = &self.decoding {
            let FedTokens { tokens, position } = decoding.next_tokens();
            return Some(SpeechStep::Decode { tokens, position });
        }
        let rest = self.sound.samples().len().saturating_sub(self.start);
        let is_first = self.start == 0;
        (rest > 0 && (rest >= MIN_REST || is_first))
            .then(|| SpeechStep::Encode(self.sound.window(self.start, 0, WINDOW)))
    }

    /// Adds the encoder's outputs.
    pub fn add_states(&mut self, states: Vec<Tensor>) {
        self.states = states;
        let asked = (self.language, self.task);
        let seed = self.start as u64;
        let decoding = WindowDecoding::new(&self.tokens, asked, self.rules, seed);
        self.decoding = Some(decoding);
    }

    /// Adds the decoder's logits, a row for each token that it took.
    pub fn add_logits(&mut self, logits: &Tensor, text_of: TextOfTokens<'_>) -> Result<(), String> {
        let Some(decoding) = &mut self.decoding else {
            return Ok(());
        };
        let width = logits.shape().last().copied().unwrap_or(0);
        let width = usize::try_from(width).unwrap_or(0).max(1);
        let values = logits.to_f32();
        let rows: Vec<&[f32]> = values.chunks_exact(width).collect();
        if let Some(text) = decoding.add(&self.tokens, self.task, &rows, text_of)? {
            self.decoding = None;
            self.finish_window(&text, text_of)?;
        }
        Ok(())
    }

    /// Returns the transcript.
    pub fn answer(self) -> TranscriptAnswer {
        let known = self.tokens.languages.iter();
        let language = known.clone().find(|(_, id)| Some(*id) == self.language);
        let texts: Vec<&str> = self.segments.iter().map(|it| it.text.trim()).collect();
        TranscriptAnswer {
            text: texts.join(" "),
            language: language.map_or("en", |(code, _)| code).to_owned(),
            seconds: self.sound.seconds(),
            segments: self.segments,
        }
    }

    /// Cuts the text of a window into segments, and moves to the next window.
    fn finish_window(
        &mut self,
        text: &WindowText,
        text_of: TextOfTokens<'_>,
    ) -> Result<(), String> {
        let rest = self.sound.samples().len() - self.start;
        let length = rest.min(WINDOW);
        self.language = self.language.or(text.language);
        let samples = &self.sound.samples()[self.start..self.start + length];
        let is_quiet = samples.iter().all(|it| it.unsigned_abs() < MIN_SAMPLE);
        if is_quiet || text.is_silent() {
            self.start += length;
            return Ok(());
        }
        let is_time = |token: &u32| self.tokens.is_timestamp(*token);
        let ticks = |token: u32| (token - self.tokens.first_timestamp) as usize;
        let tokens = &text.tokens;
        // A segment ends where two timestamps meet.
        let mut cuts: Vec<usize> = (1..tokens.len())
            .filter(|at| is_time(&tokens[at - 1]) && is_time(&tokens[*at]))
            .collect();
        let ends_with_one =
            matches!(&tokens[..], [.., before, last] if !is_time(before) && is_time(last));
        let mut parts = Vec::new();
        let moved = if cuts.is_empty() {
            let last = tokens.iter().rev().find(|token| is_time(token)).copied();
            let end = last.map_or(length, |last| match ticks(last) {
                0 => length,
                ticks => ticks * TICK,
            });
            parts.push((&tokens[..], 0, end));
            length
        } else {
            if ends_with_one {
                cuts.push(tokens.len());
            }
            let mut from = 0;
            for cut in &cuts {
                let part = &tokens[from..*cut];
                if let (Some(first), Some(last)) = (part.first(), part.last()) {
                    let times =
                        [*first, *last].map(|it| if is_time(&it) { ticks(it) * TICK } else { 0 });
                    parts.push((part, times[0], times[1]));
                }
                from = *cut;
            }
            match tokens[..from].last() {
                Some(last) if !ends_with_one && is_time(last) && ticks(*last) > 0 => {
                    ticks(*last) * TICK
                }
                _ => length,
            }
        };
        for (part, from, to) in parts {
            let words: Vec<u32> = part.iter().filter(|it| !is_time(it)).copied().collect();
            let said = text_of(&words)?;
            if said.trim().is_empty() || from >= to {
                continue;
            }
            self.segments.push(SpokenSegment {
                start: sound::seconds(self.start + from),
                end: sound::seconds((self.start + to).min(self.sound.samples().len())),
                text: said,
                tokens: part.to_vec(),
                temperature: text.temperature,
                logprob: text.logprob,
                compression: text.compression,
                no_speech: text.no_speech,
            });
        }
        // However small the times are, the run goes on.
        self.start += moved.clamp(MIN_REST.min(length), length);
        Ok(())
    }
}
