//! From phonemes to a model's inputs, and from its sound to speech.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "ids are small, and samples are 16 bits"
)]
#![allow(
    clippy::unnecessary_wraps,
    reason = "operators are functions of one form"
)]

use super::{Array, Data, DataKind, Operator, StepContext, values};
use crate::answer::{SpeechAnswer, TypedAnswer, TypedAnswerKind};
use crate::operators::{Arguments, Parameter, ParameterKind};
use crate::voice::PieceContext;

/// Maximum number of ids of a piece.
const MAX_IDS: u64 = 4096;

/// Number of samples whose mean tells whether a place is silent, and the level below which it is.
const QUIET_SAMPLES: usize = 10;
const QUIET: f32 = 0.01;

/// Time that is kept around what is not silent, in seconds.
const QUIET_MARGIN: f64 = 0.05;

const SPEED: Parameter = Parameter {
    name: "speed",
    kind: ParameterKind::Number(0.1, 4.0),
    default: Some("1"),
};

/// Least number of ids or frames.
const LEAST: Parameter = Parameter {
    name: "least",
    kind: ParameterKind::Whole(0, MAX_IDS),
    default: Some("0"),
};

/// The symbol of a size of the model, which is the number of ids or frames if the model has a fixed one.
const FILL: Parameter = symbol("fill");

/// A parameter that is a symbol; without one, it is empty.
const fn symbol(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: ParameterKind::Word,
        default: Some("\"\""),
    }
}

pub(super) const TABLE: &[Operator] = &[
    Operator {
        name: "symbols",
        from: &[DataKind::Text],
        to: DataKind::Values,
        parameters: &[
            // Symbols in front of the phonemes, behind them, and behind each one.
            symbol("start"),
            symbol("end"),
            symbol("between"),
            LEAST,
            // Ids of a piece; longer texts have several.
            Parameter {
                name: "most",
                kind: ParameterKind::Whole(8, MAX_IDS),
                default: Some("512"),
            },
            FILL,
        ],
        run: symbols,
    },
    Operator {
        name: "mask",
        from: &[DataKind::Values],
        to: DataKind::Values,
        parameters: &[],
        run: mask,
    },
    Operator {
        name: "count",
        from: &[DataKind::Values],
        to: DataKind::Values,
        parameters: &[],
        run: count,
    },
    Operator {
        name: "voice",
        from: &[],
        to: DataKind::Values,
        parameters: &[
            Parameter {
                name: "voice",
                kind: ParameterKind::Word,
                default: Some("\"auto\""),
            },
            // Numbers of a row, and those of them that the model takes.
            Parameter {
                name: "columns",
                kind: ParameterKind::Whole(1, 1 << 16),
                default: Some("256"),
            },
            Parameter {
                name: "first",
                kind: ParameterKind::Whole(0, 1 << 16),
                default: Some("0"),
            },
            Parameter {
                name: "size",
                kind: ParameterKind::Whole(1, 1 << 16),
                default: Some("256"),
            },
        ],
        run: voice,
    },
    Operator {
        name: "speed",
        from: &[],
        to: DataKind::Values,
        parameters: &[SPEED],
        run: speed,
    },
    Operator {
        name: "scales",
        from: &[],
        to: DataKind::Values,
        parameters: &[
            SPEED,
            // Of the sound, and of the times.
            Parameter {
                name: "noise",
                kind: ParameterKind::Number(0.0, 2.0),
                default: Some("0.667"),
            },
            Parameter {
                name: "width",
                kind: ParameterKind::Number(0.0, 2.0),
                default: Some("0.8"),
            },
        ],
        run: scales,
    },
    Operator {
        name: "stretch",
        from: &[DataKind::Values],
        to: DataKind::Values,
        parameters: &[
            LEAST,
            // Frames of a piece; one that asks for more is split.
            Parameter {
                name: "most",
                kind: ParameterKind::Whole(1, MAX_IDS),
                default: Some("4096"),
            },
            FILL,
        ],
        run: stretch,
    },
    Operator {
        name: "spoken",
        from: &[DataKind::Values],
        to: DataKind::Answer(TypedAnswerKind::Speech),
        parameters: &[
            // Samples per second.
            Parameter {
                name: "rate",
                kind: ParameterKind::Whole(8000, 48_000),
                default: None,
            },
            // Whether silence at both ends is cut off, and pauses follow each piece.
            Parameter {
                name: "trim",
                kind: ParameterKind::Flag,
                default: Some("true"),
            },
        ],
        run: spoken,
    },
];

/// How the step `symbols` makes ids.
pub(crate) struct SymbolRule {
    start: Option<char>,
    end: Option<char>,
    between: Option<char>,
    /// Maximum number of ids, and the number that zeros fill.
    most: usize,
    filled: usize,
}

impl SymbolRule {
    pub(crate) fn of(arguments: &Arguments, context: &StepContext<'_>) -> Self {
        let symbol = |name: &str| arguments.word(name).chars().next();
        let fixed = context.fixed(arguments.word("fill"));
        let most = arguments.whole("most");
        Self {
            start: symbol("start"),
            end: symbol("end"),
            between: symbol("between"),
            most: fixed.map_or(most, |fixed| fixed.min(most)),
            filled: arguments.whole("least").max(fixed.unwrap_or(0)),
        }
    }

    /// Returns the maximum number of phonemes, if each has one id.
    pub(crate) fn phonemes(&self) -> usize {
        let ends = usize::from(self.start.is_some()) + usize::from(self.end.is_some());
        let left = self.most.saturating_sub(ends);
        match self.between {
            Some(_) => left.saturating_sub(1) / 2,
            None => left,
        }
    }
}

fn piece<'c>(context: &StepContext<'c>) -> Result<PieceContext<'c>, String> {
    context
        .piece
        .ok_or_else(|| "expected phonemes of a text".to_owned())
}

fn row(values: Vec<f32>) -> Data {
    Data::Values(Array {
        shape: vec![values.len()],
        values,
    })
}

fn symbols(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let [Data::Text(phonemes)] = from else {
        return Err("expected phonemes".to_owned());
    };
    let table = piece(context)?.symbols;
    let rule = SymbolRule::of(arguments, context);
    let of_symbol = |symbol: Option<char>| match symbol {
        Some(symbol) => match table.ids(symbol) {
            [] => Err(format!("no id for the symbol `{symbol}`")),
            ids => Ok(ids),
        },
        None => Ok(&[][..]),
    };
    let (start, end) = (of_symbol(rule.start)?, of_symbol(rule.end)?);
    let between = of_symbol(rule.between)?;
    let mut ids = [start, if start.is_empty() { &[] } else { between }].concat();
    for phoneme in phonemes.chars() {
        ids.extend(table.ids(phoneme));
        ids.extend(between);
    }
    ids.extend(end);
    if ids.len() > rule.most {
        return Err(format!(
            "{} ids: the model takes {} at once",
            ids.len(),
            rule.most
        ));
    }
    context.tokens = ids.len();
    ids.resize(ids.len().max(rule.filled), 0);
    Ok(row(ids.into_iter().map(|id| id as f32).collect()))
}

/// Ones for ids, and zeros for what fills them.
fn mask(from: &[&Data], _: &Arguments, context: &mut StepContext<'_>) -> Result<Data, String> {
    let mut mask = vec![1.0; context.tokens];
    mask.resize(values(from, 0)?.values.len(), 0.0);
    Ok(row(mask))
}

fn count(_: &[&Data], _: &Arguments, context: &mut StepContext<'_>) -> Result<Data, String> {
    Ok(row(vec![context.tokens as f32]))
}

fn voice(
    _: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let piece = piece(context)?;
    let voice = piece.voice.ok_or("expected a voice")?;
    let phonemes = piece.phonemes.chars().count();
    let part = [arguments.whole("first"), arguments.whole("size")];
    let values = voice.row(phonemes, arguments.whole("columns"), part)?;
    Ok(row(values.to_vec()))
}

fn speed(_: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    Ok(row(vec![arguments.single("speed")]))
}

fn scales(_: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let [speed, noise, width] = ["speed", "noise", "width"].map(|name| arguments.single(name));
    Ok(row(vec![noise, 1.0 / speed, width]))
}

/// The place of each id, as often as its duration says.
fn stretch(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let durations = values(from, 0)?.values.iter().take(context.tokens);
    // A duration that is not a number is 0.
    let durations = durations.map(|it| it.round().clamp(0.0, MAX_IDS as f32) as usize);
    let durations: Vec<usize> = durations.collect();
    let asked: usize = durations.iter().sum();
    let fixed = context.fixed(arguments.word("fill"));
    let room = fixed.unwrap_or(usize::MAX).min(arguments.whole("most"));
    let places = durations.iter().enumerate();
    let places = places.flat_map(|(place, count)| std::iter::repeat_n(place as f32, *count));
    let mut made: Vec<f32> = places.take(room).collect();
    let end = context.tokens.saturating_sub(1) as f32;
    let least = arguments.whole("least").min(room);
    made.resize(made.len().max(least).max(fixed.unwrap_or(0)), end);
    context.frames = [asked, made.len()];
    Ok(row(made))
}

fn spoken(from: &[&Data], arguments: &Arguments, _: &mut StepContext<'_>) -> Result<Data, String> {
    let [_] = values(from, 0)?.last::<1>()?;
    let mut samples = &values(from, 0)?.values[..];
    let rate = arguments.whole("rate") as u32;
    let trim = arguments.flag("trim");
    if trim {
        samples = trimmed(samples, (f64::from(rate) * QUIET_MARGIN) as usize);
    }
    let samples = samples.iter();
    // A value that is not a number is silent.
    let samples = samples.map(|sample| (sample.clamp(-1.0, 1.0) * 32767.0).round() as i16);
    Ok(Data::Answer(TypedAnswer::Speech(SpeechAnswer {
        samples: samples.collect(),
        rate,
        pauses: trim,
        phonemes: String::new(),
    })))
}

/// Returns the samples without the silence at both ends.
fn trimmed(samples: &[f32], margin: usize) -> &[f32] {
    let is_loud = |window: &[f32]| {
        let sum: f32 = window.iter().map(|sample| sample.abs()).sum();
        sum >= QUIET * window.len() as f32
    };
    let mut windows = samples.windows(QUIET_SAMPLES);
    let Some(first) = windows.position(is_loud) else {
        return &[];
    };
    let last = windows
        .rposition(is_loud)
        .map_or(first, |at| first + 1 + at);
    let end = (last + QUIET_SAMPLES + margin).min(samples.len());
    &samples[first.saturating_sub(margin)..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_at_both_ends_is_cut_off() {
        let mut samples = vec![0.0; 100];
        samples[40..60].fill(0.5);
        assert_eq!(trimmed(&samples, 3).len(), 44);
        assert_eq!(trimmed(&samples, 1000).len(), 100);
        assert!(trimmed(&[0.001; 100], 3).is_empty());
        assert!(trimmed(&[], 3).is_empty());
    }
}
