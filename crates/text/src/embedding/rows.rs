//! Distributes texts over runs of the model, builds each run's inputs, and splits its output into
//! rows.
//!
//! Invariant: texts in one run are padded to one length only if the model has a mask for padding,
//! or a fixed length. Each row of an output goes back to its text.

use std::cmp::Reverse;

use super::EmbeddingError;
use super::encoder::{DimSize, Encoder, EncoderRole};
use super::pooling::States;
use crate::tokenizer::{EncodedText, Padding, SequenceSide};
use pkgtool_engine::tensor::{DType, Tensor};

/// Maximum number of texts in a run.
const MAX_TEXTS_PER_RUN: usize = 32;

/// Maximum number of tokens in a run with several texts, including padding. The cost of attention
/// grows with the square of the length.
const MAX_TOKENS_PER_RUN: usize = 16_384;

/// Maximum length of a row, in tokens. No embedding model accepts more.
const MAX_ROW_TOKENS: usize = 1 << 20;

/// One run of the model.
#[derive(Debug, Clone)]
pub struct EmbeddingRun {
    /// The model's inputs, in order.
    pub inputs: Vec<Tensor>,
    /// Index of the output to read.
    output: usize,
    /// Index of the text in each row.
    texts: Vec<usize>,
    /// Number of tokens of each text.
    tokens: Vec<usize>,
    /// Number of tokens of a row, including padding.
    length: usize,
    /// Number of rows; more than texts if the model has a fixed batch size.
    rows: usize,
    side: SequenceSide,
    /// True if the model has a batch dimension.
    has_rows: bool,
}

/// The output row of one text.
#[derive(Debug)]
pub(super) enum OutputRow {
    /// Its vector.
    Vector(Vec<f32>),
    /// The states of its tokens.
    States(States),
}

/// A run's output, split into rows.
#[derive(Debug)]
pub(super) struct RunOutput<'r> {
    run: &'r EmbeddingRun,
    values: Vec<f32>,
    /// Dimensions of one row.
    shape: Vec<usize>,
}

/// Distributes texts over runs, longest first, so that the texts of a run have similar lengths.
pub(super) fn plan_runs(
    encoder: &Encoder,
    texts: &[EncodedText],
    padding: Padding,
) -> Result<Vec<EmbeddingRun>, EmbeddingError> {
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|text| Reverse(texts[*text].ids.len()));
    let mut runs = Vec::new();
    let mut rest = &order[..];
    while let Some(first) = rest.first() {
        let longest = texts[*first].ids.len();
        let length = encoder.length.from(longest as u64);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length <= MAX_ROW_TOKENS);
        let length = length.ok_or_else(|| {
            let reason = format!("it accepts no text of {longest} tokens");
            EmbeddingError::Signature(reason)
        })?;
        let room = max_texts(encoder, length);
        // Without a mask, padding would change the result, so only texts of equal length share a
        // run.
        let may_fill = encoder.is_masked() || matches!(encoder.length, DimSize::Fixed(_));
        let shares = |text: &&usize| may_fill || texts[**text].ids.len() == longest;
        let count = rest.iter().take(room).take_while(shares).count();
        let (these, others) = rest.split_at(count);
        rest = others;
        runs.push(run(encoder, texts, these, length, padding)?);
    }
    Ok(runs)
}

/// Returns the maximum number of texts of this length in one run.
fn max_texts(encoder: &Encoder, length: usize) -> usize {
    let by_tokens = (MAX_TOKENS_PER_RUN / length.max(1)).clamp(1, MAX_TEXTS_PER_RUN);
    let Some(rows) = &encoder.rows else { return 1 };
    let by_model = rows.largest().and_then(|rows| usize::try_from(rows).ok());
    let by_model = by_model.unwrap_or(usize::MAX).max(1);
    match rows {
        DimSize::Fixed(_) => by_model,
        DimSize::Open { .. } => by_tokens.min(by_model),
    }
}

fn run(
    encoder: &Encoder,
    texts: &[EncodedText],
    these: &[usize],
    length: usize,
    padding: Padding,
) -> Result<EmbeddingRun, EmbeddingError> {
    let rows = encoder
        .rows
        .as_ref()
        .map(|rows| rows.from(these.len() as u64));
    let rows = rows.map_or(Some(1), |rows| usize::try_from(rows?).ok());
    let rows = rows.ok_or_else(|| {
        let reason = format!("it accepts no batch of {} texts", these.len());
        EmbeddingError::Signature(reason)
    })?;
    let run = EmbeddingRun {
        inputs: Vec::new(),
        output: encoder.output,
        texts: these.to_vec(),
        tokens: these.iter().map(|text| texts[*text].ids.len()).collect(),
        length,
        rows,
        side: padding.side,
        has_rows: encoder.rows.is_some(),
    };
    // Extra rows repeat the last text: rows of pure padding make some models fail.
    let last = these.last().copied();
    let filled = || (0..rows).filter_map(|row| these.get(row).copied().or(last));
    let inputs = encoder.inputs.iter().map(|input| {
        let values = filled().flat_map(|text| run.row_of(&texts[text], input.role, padding));
        let shape = if run.has_rows {
            vec![rows as u64, length as u64]
        } else {
            vec![length as u64]
        };
        tensor(input.dtype, shape, values)
    });
    let inputs = inputs.collect::<Result<_, _>>()?;
    Ok(EmbeddingRun { inputs, ..run })
}

fn tensor(
    dtype: DType,
    shape: Vec<u64>,
    values: impl Iterator<Item = u32>,
) -> Result<Tensor, EmbeddingError> {
    Ok(Tensor::from_f64(dtype, shape, values.map(f64::from))?)
}

impl EmbeddingRun {
    /// Returns a text's row for the input with this role.
    fn row_of(&self, text: &EncodedText, role: EncoderRole, padding: Padding) -> Vec<u32> {
        let count = text.ids.len();
        let (own, fill): (Vec<u32>, u32) = match role {
            EncoderRole::Ids => (text.ids.clone(), padding.id.unwrap_or(0)),
            EncoderRole::Mask => (vec![1; count], 0),
            EncoderRole::Types => (text.type_ids.clone(), padding.type_id),
            EncoderRole::Positions => ((0..).take(count).collect(), 0),
        };
        let fill = std::iter::repeat_n(fill, self.length - count);
        match self.side {
            SequenceSide::Right => own.into_iter().chain(fill).collect(),
            SequenceSide::Left => fill.chain(own).collect(),
        }
    }

    /// Iterates over the index and the token count of each text, in row order.
    pub(super) fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.texts.iter().copied().zip(self.tokens.iter().copied())
    }

    /// Checks the shape of the run's output.
    pub(super) fn answer(&self, outputs: &[Tensor]) -> Result<RunOutput<'_>, EmbeddingError> {
        let output = outputs.get(self.output);
        let output =
            output.ok_or_else(|| EmbeddingError::Output("an output is missing".to_owned()))?;
        let wrong = || {
            let (rows, length) = (self.rows, self.length);
            EmbeddingError::Output(format!(
                "{output:?} for {rows} texts of {length} tokens: expected a vector per text or a state \
                 per token"
            ))
        };
        let shape = output
            .shape()
            .iter()
            .map(|size| usize::try_from(*size).ok());
        let shape: Vec<usize> = shape.collect::<Option<_>>().ok_or_else(wrong)?;
        let is_states = |shape: &[usize]| shape.len() == 2 && shape[0] == self.length;
        let own = match &shape[..] {
            [rows, own @ ..] if *rows == self.rows && (own.len() == 1 || is_states(own)) => own,
            own if !self.has_rows && (own.len() == 1 || is_states(own)) => own,
            _ => return Err(wrong()),
        };
        if own.contains(&0) {
            return Err(wrong());
        }
        Ok(RunOutput {
            run: self,
            values: output.to_f32(),
            shape: own.to_vec(),
        })
    }
}

impl RunOutput<'_> {
    /// Returns the row at this index.
    pub(super) fn row(&self, place: usize) -> Result<OutputRow, EmbeddingError> {
        let size: usize = self.shape.iter().product();
        let values = self.values.get(place * size..(place + 1) * size);
        let values = values.ok_or_else(|| EmbeddingError::Output("a row is missing".to_owned()))?;
        let row = match self.shape[..] {
            [_, width] => OutputRow::States(States {
                values: values.to_vec(),
                width,
                first: self.first(place),
            }),
            _ => OutputRow::Vector(values.to_vec()),
        };
        // The states of padding may hold NaN or infinity; the text's own states may not.
        let own = match &row {
            OutputRow::Vector(vector) => Some(&vector[..]),
            OutputRow::States(states) => states.own(self.run.tokens[place]),
        };
        if own.is_some_and(|own| own.iter().all(|value| value.is_finite())) {
            return Ok(row);
        }
        Err(EmbeddingError::Output(
            "it contains NaN or infinity".to_owned(),
        ))
    }

    /// Returns the index of the text's first own token.
    fn first(&self, place: usize) -> usize {
        match self.run.side {
            SequenceSide::Right => 0,
            SequenceSide::Left => self.run.length - self.run.tokens[place],
        }
    }
}
