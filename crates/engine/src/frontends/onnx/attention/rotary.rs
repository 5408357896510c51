//! Rotates pairs of numbers of queries and keys by angles of their positions.

use tract_onnx::tract_core::internal::*;

use crate::graph::guard::InvalidInput;

/// Cosines and sines of the angles for each position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Angles<'t> {
    tables: [&'t [f32]; 2],
    positions: usize,
    pairs: usize,
    /// Pairs of neighbours instead of halves.
    is_interleaved: bool,
}

impl<'t> Angles<'t> {
    /// Reads tables `[positions, pairs]`.
    pub(super) fn of([cos, sin]: [&'t Tensor; 2], is_interleaved: bool) -> TractResult<Self> {
        let (&[positions, pairs], true) = (cos.shape(), cos.shape() == sin.shape()) else {
            bail!(
                "expected cosines and sines of one shape [positions, pairs], got {:?} and {:?}",
                cos.shape(),
                sin.shape()
            );
        };
        Ok(Self {
            tables: [
                cos.try_as_plain_ram()?.as_slice::<f32>()?,
                sin.try_as_plain_ram()?.as_slice::<f32>()?,
            ],
            positions,
            pairs,
            is_interleaved,
        })
    }

    /// Fails if there are more pairs than a head has.
    pub(super) fn check(&self, width: usize) -> TractResult<()> {
        let pairs = self.pairs;
        ensure!(
            pairs <= width / 2,
            "{pairs} pairs of angles for heads of {width} numbers"
        );
        Ok(())
    }

    /// Rotates the numbers of a head at a position. Numbers after the pairs stay.
    pub(super) fn rotate(&self, position: i64, numbers: &mut [f32]) -> TractResult<()> {
        let row = usize::try_from(position)
            .ok()
            .filter(|row| *row < self.positions);
        let Some(row) = row else {
            let reason = format!(
                "position {position} has no angles: the tables have {} positions",
                self.positions
            );
            let operator = super::grouped::FULL_NAME.to_owned();
            return Err(InvalidInput { operator, reason }.into());
        };
        let [cos, sin] = self
            .tables
            .map(|table| &table[row * self.pairs..][..self.pairs]);
        for (pair, (cos, sin)) in cos.iter().zip(sin).enumerate() {
            let [a, b] = if self.is_interleaved {
                [2 * pair, 2 * pair + 1]
            } else {
                [pair, pair + self.pairs]
            };
            let (x, y) = (numbers[a], numbers[b]);
            numbers[a] = x * cos - y * sin;
            numbers[b] = x * sin + y * cos;
        }
        Ok(())
    }
}
