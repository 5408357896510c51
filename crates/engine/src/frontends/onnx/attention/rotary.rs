//! Rotates pairs of numbers of queries and keys by angles of their positions.

use tract_onnx::model::ParsingContext;
use tract_onnx::pb::NodeProto;
use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::ops::cast::cast;

use crate::frontends::onnx::graph::{integer, is_default};
use crate::frontends::onnx::library::library_operator;
use crate::frontends::onnx::node_operator::{Built, integers_of, same_shape};
use crate::graph::guard::InvalidInput;
use crate::graph::kernel::Kernel;

/// The operator's name.
pub(in super::super) const NAME: &str = "RotaryEmbedding";

/// Builds a `RotaryEmbedding` of ONNX Runtime. The library has that of the standard.
pub(in super::super) fn build(context: &ParsingContext, node: &NodeProto) -> Built {
    if is_default(node) {
        return library_operator(context, node);
    }
    ensure!(
        integer(node, "is_packed_batching", 0) == 0,
        "sequences without padding between them are not supported"
    );
    let heads = usize::try_from(integer(node, "num_heads", 0))?;
    let is_interleaved = integer(node, "interleaved", 0) != 0;
    same_shape(NAME, 4, [None; 2], move |prefix, model, inputs| {
        let fact = model.outlet_fact(inputs[0])?.without_value();
        let dtype = fact.datum_type;
        let mut from: TVec<OutletId> = inputs.into();
        for at in [0, 2, 3] {
            let name = format!("{prefix}.real.{at}");
            from[at] = model.wire_node(name, cast(f32::datum_type()), &[inputs[at]])?[0];
        }
        let fact = f32::fact(fact.shape);
        let kernel = Kernel::new(NAME, tvec!(fact), move |inputs: &[TValue]| {
            let angles = Angles::of([&inputs[2], &inputs[3]], is_interleaved)?;
            Ok(tvec!(rotated(&inputs[0], &inputs[1], angles, heads)?))
        });
        let rotated = model.wire_node(format!("{prefix}.rotated"), kernel, &from)?;
        model.wire_node(prefix, cast(dtype), &rotated)
    })
}

/// Rotates all heads of `[batch, rows, heads * width]` or `[batch, heads, rows, width]`.
fn rotated(
    tensor: &Tensor,
    positions: &Tensor,
    angles: Angles<'_>,
    heads: usize,
) -> TractResult<Tensor> {
    let (batches, rows, heads, width, is_by_row) = match *tensor.shape() {
        [batches, heads, rows, width] => (batches, rows, heads, width, false),
        // Without their number, the angles are those of whole heads.
        [batches, rows, all] => {
            let width = all.checked_div(heads).unwrap_or(2 * angles.pairs);
            let heads = all.checked_div(width).unwrap_or(0);
            ensure!(
                heads * width == all,
                "{all} numbers do not divide into heads of {width}"
            );
            (batches, rows, heads, width, true)
        }
        ref shape => bail!("expected a tensor of rank 3 or 4, got {shape:?}"),
    };
    angles.check(width)?;
    let positions = integers_of(positions)?;
    let is_offset = positions.len() == 1 && batches * rows != 1;
    ensure!(
        is_offset || positions.len() == batches * rows,
        "{} positions for {batches} sequences of {rows}",
        positions.len()
    );
    let mut rotated = tensor.clone();
    let mut view = rotated.try_as_plain_ram_mut()?;
    let numbers = view.as_slice_mut::<f32>()?.chunks_exact_mut(width.max(1));
    for (at, numbers) in numbers.enumerate() {
        let (batch, row) = if is_by_row {
            (at / heads / rows, at / heads % rows)
        } else {
            (at / rows / heads, at % rows)
        };
        let position = if is_offset {
            positions[0].saturating_add(i64::try_from(row)?)
        } else {
            positions[batch * rows + row]
        };
        angles.rotate(NAME, position, numbers)?;
    }
    Ok(rotated)
}

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
    pub(super) fn rotate(
        &self,
        operator: &str,
        position: i64,
        numbers: &mut [f32],
    ) -> TractResult<()> {
        let row = usize::try_from(position)
            .ok()
            .filter(|row| *row < self.positions);
        let Some(row) = row else {
            let reason = format!(
                "position {position} has no angles: the tables have {} positions",
                self.positions
            );
            let operator = format!("com.microsoft::{operator}");
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
