//! Batched decoding: several texts share one run of a model, one row each, and each continues in
//! its own lane of the session.
//!
//! A lane is the part of a session that keeps the state of one text. Invariant: each row gets the
//! outputs that a run of its own would produce, or the trial reports that it does not.

use super::error::DecodeError;
use super::recognise::DecoderModel;
use super::shape::StepTokens;
use super::steps::{StepError, StepResult};
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{self as engine, Lanes, RunStart};

/// Maximum difference of equal logits, relative to the largest one. Other batch sizes add up
/// numbers in another order.
const LOGIT_TOLERANCE: f32 = 1e-3;
/// The texts of a trial, with different lengths, and the token that continues each.
const TRIAL_TEXTS: [(&[u32], u32); 2] = [(&[1, 2, 3], 2), (&[3], 1)];

/// The tokens that a run feeds in one lane.
#[derive(Debug, Clone, Copy)]
pub struct LaneRow<'a> {
    /// The lane.
    pub lane: u32,
    /// The tokens to feed, and the number of tokens held before them.
    pub fed: StepTokens<'a>,
}

/// Runs the model with these inputs.
type RunModel<'r> = &'r mut dyn FnMut(RunStart, Vec<Tensor>) -> StepResult;

impl DecoderModel {
    /// Feeds rows in one run of a model that [has lanes](Self::has_lanes). Several rows are fed one
    /// token each. `lanes` names the lanes to clear first. Returns the outputs of each row.
    pub fn run_rows(
        &self,
        rows: &[LaneRow<'_>],
        mut lanes: Lanes,
        run: RunModel<'_>,
    ) -> Result<Vec<Vec<Tensor>>, StepError> {
        let fed: Vec<StepTokens<'_>> = rows.iter().map(|row| row.fed).collect();
        let inputs = self.inputs(&fed).map_err(StepError::failed)?;
        let of_row = |row: &LaneRow<'_>| engine::StateRow {
            lane: row.lane,
            held: row.fed.held as u64,
        };
        lanes.rows = rows.iter().map(of_row).collect();
        let outputs = run(RunStart::Lanes(lanes), inputs)?;
        let count = rows.len() as u64;
        (0..count)
            .map(|row| row_outputs(&outputs, row, count))
            .collect()
    }

    /// Tests with a few runs whether rows that share a run get the same results as alone. `lanes`
    /// are two unused lanes.
    pub fn try_rows(&self, lanes: [u32; 2], run: RunModel<'_>) -> Result<bool, StepError> {
        if !self.has_lanes() || self.vocabulary < 4 || self.context < 4 {
            return Ok(false);
        }
        let mut alone = Vec::new();
        for (lane, (text, next)) in lanes.into_iter().zip(TRIAL_TEXTS) {
            for (held, tokens) in [(0, text), (text.len(), &[next])] {
                let fed = StepTokens::new(held, tokens);
                let row = LaneRow { lane, fed };
                alone = [alone, self.run_rows(&[row], Lanes::default(), run)?].concat();
            }
        }
        let rows: Vec<LaneRow<'_>> = lanes
            .into_iter()
            .zip(&TRIAL_TEXTS)
            .map(|(lane, (text, next))| LaneRow {
                lane,
                fed: StepTokens::new(text.len(), std::slice::from_ref(next)),
            })
            .collect();
        let together = self.run_rows(&rows, Lanes::default(), run)?;
        // The first run of each lane feeds its text, and the second the next token.
        let pairs = [(&alone[1], &together[0]), (&alone[3], &together[1])];
        for (alone, together) in pairs {
            if !self.is_same(alone, together).map_err(StepError::failed)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn is_same(&self, one: &[Tensor], other: &[Tensor]) -> Result<bool, DecodeError> {
        let logits = |outputs: &[Tensor]| {
            let logits = outputs.get(self.shape.place);
            let logits = logits
                .ok_or_else(|| DecodeError::Model("the model returned no logits".to_owned()))?;
            self.logits(logits, 0)
        };
        Ok(logits_match(&logits(one)?, &logits(other)?))
    }
}

/// Returns whether logits differ by no more than rounding.
pub(super) fn logits_match(one: &[f32], other: &[f32]) -> bool {
    let largest = one.iter().fold(0_f32, |most, logit| most.max(logit.abs()));
    let mut pairs = one.iter().zip(other);
    pairs.all(|(one, other)| (one - other).abs() <= LOGIT_TOLERANCE * largest)
}

/// Returns the outputs of one row out of `count`.
fn row_outputs(outputs: &[Tensor], row: u64, count: u64) -> StepResult {
    let parts = outputs.iter().map(|output| {
        if output.shape().first() != Some(&count) {
            let reason = format!("the model returned {output:?} for {count} rows");
            return Err(StepError::failed(DecodeError::Model(reason)));
        }
        let part = output.clone().part(0, row..row + 1);
        part.map_err(StepError::failed)
    });
    parts.collect()
}
