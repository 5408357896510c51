//! From a sound to a tensor, and from scores of its parts to segments.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "times and weights need no more precision"
)]

use super::{Array, Data, DataKind, Operator, StepContext, values};
use crate::answer::{SegmentAnswer, SoundSegment, TypedAnswer, TypedAnswerKind};
use crate::operators::{Arguments, Parameter, ParameterKind};
use crate::sound;

/// Maximum number of samples in a frame.
const MAX_FRAME: u64 = 1 << 16;

/// Maximum time that a parameter takes, in seconds.
const MAX_SECONDS: f64 = 60.0;

/// A time in seconds.
const TIME: ParameterKind = ParameterKind::Number(0.0, MAX_SECONDS);

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "samples",
        from: &[DataKind::Sound],
        to: DataKind::Values,
        parameters: &[Parameter {
            // Zeros fill a shorter sound.
            name: "least",
            kind: ParameterKind::Whole(0, MAX_FRAME),
            default: Some("0"),
        }],
        run: samples,
    },
    Operator {
        name: "frames",
        from: &[DataKind::Sound],
        to: DataKind::Values,
        parameters: &[
            // Samples of a frame, and from one frame to the next.
            Parameter {
                name: "length",
                kind: ParameterKind::Whole(1, MAX_FRAME),
                default: None,
            },
            Parameter {
                name: "hop",
                kind: ParameterKind::Whole(1, MAX_FRAME),
                default: None,
            },
            // Size of a row: zeros on both sides of the frame.
            Parameter {
                name: "size",
                kind: ParameterKind::Whole(1, MAX_FRAME),
                default: None,
            },
            Parameter {
                name: "last",
                kind: ParameterKind::Flag,
                default: Some("true"),
            },
            Parameter {
                name: "center",
                kind: ParameterKind::Flag,
                default: Some("false"),
            },
            Parameter {
                name: "emphasis",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0"),
            },
            Parameter {
                name: "taper",
                kind: ParameterKind::Choice(&["none", "hann", "hamming"]),
                default: Some("\"none\""),
            },
        ],
        run: frames,
    },
    Operator {
        name: "constant",
        from: &[],
        to: DataKind::Values,
        parameters: &[Parameter {
            name: "value",
            kind: ParameterKind::Number(-1e9, 1e9),
            default: None,
        }],
        run: constant,
    },
    Operator {
        name: "speech",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Segments),
        parameters: &[
            // Samples that a row stands for.
            Parameter {
                name: "hop",
                kind: ParameterKind::Whole(1, MAX_FRAME),
                default: None,
            },
            Parameter {
                name: "score",
                kind: ParameterKind::Choice(&["speech", "silence"]),
                default: Some("\"speech\""),
            },
            Parameter {
                name: "threshold",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0.5"),
            },
            // Speech ends below the threshold minus this.
            Parameter {
                name: "margin",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0.15"),
            },
            Parameter {
                name: "steady",
                kind: ParameterKind::Flag,
                default: Some("false"),
            },
            Parameter {
                name: "min_speech",
                kind: TIME,
                default: Some("0.25"),
            },
            Parameter {
                name: "min_silence",
                kind: TIME,
                default: Some("0.1"),
            },
            Parameter {
                name: "pad",
                kind: TIME,
                default: Some("0.03"),
            },
            Parameter {
                name: "merge",
                kind: TIME,
                default: Some("0"),
            },
        ],
        run: speech,
    },
    Operator {
        name: "transcript",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Transcript),
        parameters: &[
            Parameter {
                name: "language",
                kind: ParameterKind::Word,
                default: Some("\"auto\""),
            },
            Parameter {
                name: "translate",
                kind: ParameterKind::Flag,
                default: Some("false"),
            },
            // Of the first attempt.
            Parameter {
                name: "temperature",
                kind: ParameterKind::Number(0.0, 1.0),
                default: Some("0"),
            },
            // Tokens of a window.
            Parameter {
                name: "most",
                kind: ParameterKind::Whole(1, 1024),
                default: Some("224"),
            },
        ],
        run: transcript,
    },
];

/// The words come from runs of the decoder ([`crate::speech`]), not from the encoder's outputs alone.
fn transcript(_: &[&Data], _: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    Err("the words come from the decoder".to_owned())
}

/// Returns the samples that a step reads.
pub(super) fn sound<'d>(from: &[&'d Data]) -> Result<&'d [f32], String> {
    match from {
        [Data::Sound(samples)] => Ok(samples),
        _ => Err("expected a sound".to_owned()),
    }
}

fn samples(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let mut values = sound(from)?.to_vec();
    values.resize(values.len().max(arguments.whole("least")), 0.0);
    Ok(Data::Values(Array {
        shape: vec![values.len()],
        values,
    }))
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "a table has operators of one type"
)]
fn constant(_: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    Ok(Data::Values(Array {
        shape: Vec::new(),
        values: vec![arguments.number("value") as f32],
    }))
}

/// Cuts a sound into frames, a row for each.
fn frames(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let samples = sound(from)?;
    let [length, hop, size] = ["length", "hop", "size"].map(|name| arguments.whole(name));
    if size < length {
        return Err(format!("`size` {size} is less than `length` {length}"));
    }
    let last = usize::from(arguments.flag("last"));
    let count = samples
        .len()
        .checked_sub(length)
        .map_or(0, |rest| rest / hop + last);
    let taper = taper(arguments.word("taper"), length);
    let emphasis = arguments.number("emphasis") as f32;
    let left = (size - length) / 2;
    let mut values = vec![0.0; count * size];
    let starts = samples.windows(length).step_by(hop);
    for (row, frame) in values.chunks_exact_mut(size).zip(starts) {
        let mean = if arguments.flag("center") {
            frame.iter().sum::<f32>() / length as f32
        } else {
            0.0
        };
        let mut previous = None;
        for ((value, sample), weight) in row[left..].iter_mut().zip(frame).zip(&taper) {
            let sample = sample - mean;
            *value = (sample - previous.map_or(0.0, |it: f32| emphasis * it)) * weight;
            previous = Some(sample);
        }
    }
    Ok(Data::Values(Array {
        shape: vec![count, size],
        values,
    }))
}

/// Returns the weights of a periodic window.
pub(super) fn taper(name: &str, length: usize) -> Vec<f32> {
    let (base, swing) = match name {
        "hann" => (0.5, 0.5),
        "hamming" => (0.54, 0.46),
        _ => (1.0, 0.0),
    };
    let turn = std::f64::consts::TAU / length as f64;
    let weights = (0..length).map(|at| base - swing * (turn * at as f64).cos());
    weights.map(|weight| weight as f32).collect()
}

/// Rules for segments, in samples.
struct SpeechRules {
    hop: usize,
    threshold: f64,
    exit: f64,
    /// True if speech begins only after `min_speech` without interruption.
    steady: bool,
    min_speech: usize,
    min_silence: usize,
    pad: usize,
    merge: usize,
}

/// Finds the segments with speech. The first value of each row is the score.
fn speech(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [_, columns] = array.last::<2>()?;
    let silence = arguments.word("score") == "silence";
    let rows = array.values.chunks_exact(columns.max(1));
    let scores = rows.map(|row| f64::from(row[0]));
    let hop = arguments.whole("hop");
    let scores: Vec<f64> = scores
        .map(|score| if silence { 1.0 - score } else { score })
        .take(context.samples.div_ceil(hop))
        .collect();
    let time = |name: &str| (arguments.number(name) * f64::from(sound::RATE)).round() as usize;
    let threshold = arguments.number("threshold");
    let rules = SpeechRules {
        hop,
        threshold,
        exit: (threshold - arguments.number("margin")).max(0.01),
        steady: arguments.flag("steady"),
        min_speech: time("min_speech"),
        min_silence: time("min_silence"),
        pad: time("pad"),
        merge: time("merge"),
    };
    let end = context.samples.min(scores.len().saturating_mul(rules.hop));
    let segments = rules.padded(rules.found(&scores, end), end);
    let segments = segments.into_iter().map(|[start, end]| {
        let own = scores
            .iter()
            .take(end.div_ceil(rules.hop))
            .skip(start / rules.hop);
        let (sum, count) = own.fold((0.0, 0_u32), |(sum, count), score| (sum + score, count + 1));
        SoundSegment {
            start: sound::seconds(start),
            end: sound::seconds(end),
            score: sum / f64::from(count.max(1)),
        }
    });
    Ok(Data::Answer(TypedAnswer::Segments(SegmentAnswer {
        segments: segments.collect(),
        seconds: sound::seconds(context.samples),
    })))
}

impl SpeechRules {
    /// Returns start and end of each segment.
    fn found(&self, scores: &[f64], end: usize) -> Vec<[usize; 2]> {
        let mut found = Vec::new();
        // Start of the segment, whether it is certain, and the start of a silence in it.
        let mut open: Option<(usize, bool)> = None;
        let mut silence = None;
        for (row, score) in scores.iter().enumerate() {
            let here = row * self.hop;
            let is_speech = *score >= self.threshold;
            let Some((start, certain)) = open else {
                if is_speech {
                    open = Some((here, !self.steady));
                }
                continue;
            };
            if !certain {
                open = is_speech.then(|| (start, here - start >= self.min_speech));
                continue;
            }
            if is_speech {
                silence = None;
            } else if *score < self.exit {
                let began = *silence.get_or_insert(here);
                if here - began >= self.min_silence {
                    found.push([start, began]);
                    (open, silence) = (None, None);
                }
            }
        }
        if let Some((start, true)) = open {
            found.push([start, end]);
        }
        found.retain(|[start, end]| self.steady || end - start > self.min_speech);
        found
    }

    /// Widens the segments, and merges those with small gaps.
    fn padded(&self, mut segments: Vec<[usize; 2]>, end: usize) -> Vec<[usize; 2]> {
        // The ends of neighbours stay apart.
        let ends: Vec<[usize; 2]> = segments.clone();
        for (place, segment) in segments.iter_mut().enumerate() {
            let before = place.checked_sub(1).map(|before| ends[before][1]);
            let after = ends.get(place + 1).map(|after| after[0]);
            let left = before.map_or(segment[0], |it| room(segment[0] - it, self.pad));
            let right = after.map_or(end - segment[1].min(end), |it| {
                room(it - segment[1], self.pad)
            });
            segment[0] -= left.min(self.pad);
            segment[1] += right.min(self.pad);
        }
        let mut merged: Vec<[usize; 2]> = Vec::new();
        for segment in segments {
            match merged.last_mut() {
                Some(last) if self.merge > 0 && segment[0] - last[1] <= self.merge => {
                    last[1] = segment[1];
                }
                _ => merged.push(segment),
            }
        }
        merged
    }
}

/// Returns how far each side of a gap may move.
fn room(gap: usize, pad: usize) -> usize {
    if gap < 2 * pad { gap / 2 } else { pad }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: SpeechRules = SpeechRules {
        hop: 10,
        threshold: 0.5,
        exit: 0.35,
        steady: false,
        min_speech: 20,
        min_silence: 20,
        pad: 0,
        merge: 0,
    };

    fn found(rules: &SpeechRules, scores: &[f64]) -> Vec<[usize; 2]> {
        let end = scores.len() * 10;
        rules.padded(rules.found(scores, end), end)
    }

    #[test]
    fn short_silences_and_short_speech_do_not_count() {
        let scores = [
            0.1, 0.9, 0.9, 0.1, 0.1, 0.9, 0.9, 0.1, 0.1, 0.1, 0.9, 0.1, 0.1, 0.1,
        ];
        assert_eq!(found(&RULES, &scores), [[10, 70]]);
        // Between the thresholds, nothing begins and nothing ends.
        assert_eq!(found(&RULES, &[0.4, 0.9, 0.4, 0.4, 0.4, 0.4]), [[10, 60]]);
        assert_eq!(found(&RULES, &[]), [[0; 2]; 0]);
        // Steady speech begins after three rows without interruption.
        let steady = SpeechRules {
            steady: true,
            exit: 0.5,
            ..RULES
        };
        assert_eq!(
            found(&steady, &[0.9, 0.9, 0.1, 0.9, 0.9, 0.9, 0.1]),
            [[30, 70]]
        );
        assert_eq!(found(&steady, &[0.9, 0.9, 0.1, 0.9, 0.9]), [[0; 2]; 0]);
    }

    #[test]
    fn wider_segments_stay_apart_or_merge() {
        let segments = vec![[5, 40], [50, 80], [200, 300]];
        let wide = SpeechRules { pad: 8, ..RULES };
        assert_eq!(
            wide.padded(segments.clone(), 301),
            [[0, 45], [45, 88], [192, 301]]
        );
        let merging = SpeechRules { merge: 10, ..RULES };
        assert_eq!(merging.padded(segments, 301), [[5, 80], [200, 300]]);
    }

    #[test]
    fn tapers_are_periodic() {
        assert_eq!(taper("hann", 4), [0.0, 0.5, 1.0, 0.5]);
        assert_eq!(taper("none", 2), [1.0, 1.0]);
    }
}
