//! MLX rotary embeddings: rotate pairs of numbers by an angle that grows with the position of their
//! row.

use tract_onnx::tract_core::internal::*;

use super::{InstructionField, InstructionTable, MlxInstruction, MlxLowering, Number};
use crate::tensor::DType;

/// The instructions of this file.
pub(super) const TABLE: InstructionTable = &[(&["Rope"], rope)];

/// Parameters of the rotation.
#[derive(Debug, Clone, Copy)]
struct Rotation {
    /// Number of elements of a row that are rotated.
    size: usize,
    /// Whether neighbours form pairs. Otherwise element i pairs with element i of the second half.
    neighbours: bool,
    /// Factor of positions.
    scale: f32,
    /// Base of the frequencies, unless frequencies are given.
    base: f32,
}

fn rope(lowering: &mut MlxLowering<'_, '_>, node: &MlxInstruction) -> TractResult<()> {
    let x = lowering.tensor(node, "x")?;
    let shape = lowering.shape(x)?;
    #[expect(
        clippy::cast_possible_truncation,
        reason = "they are float32 in the file"
    )]
    let turn = Rotation {
        size: usize::try_from(lowering.int(node, "dims")?)?,
        neighbours: lowering.flag(node, "traditional")?,
        scale: lowering.float(node, "scale")? as f32,
        base: lowering.float(node, "base")? as f32,
    };
    ensure!(
        shape.len() >= 3,
        "invalid rank of a rotary embedding: expected 3 or more, got {}",
        shape.len()
    );
    let width = shape[shape.len() - 1].to_usize()?;
    ensure!(
        turn.size > 0 && turn.size.is_multiple_of(2) && turn.size <= width,
        "invalid rotary size {} for rows of {width}",
        turn.size
    );
    let offset = match node.fields.get("offset") {
        Some(InstructionField::Number(Number::Tensor(slot))) => {
            let wire = lowering.slot(*slot)?;
            lowering.frame.builder.cast(wire, DType::Int64)?.outlet
        }
        Some(InstructionField::Number(number)) => {
            let slot = lowering.number(*number)?;
            lowering.as_tensor(&slot)?
        }
        _ => bail!("missing field `offset`"),
    };
    let freqs = lowering.optional(node, "freqs")?;
    let builder = &mut lowering.frame.builder;
    let float = DType::Float32;
    let mut inputs = vec![builder.cast(x, float)?.outlet, offset];
    if let Some(freqs) = freqs {
        let freqs = builder.cast(freqs, float)?.outlet;
        let of_freqs = builder.shape(freqs)?;
        ensure!(
            of_freqs == [(turn.size / 2).to_dim()],
            "frequencies of shape {of_freqs:?} do not match {} pairs",
            turn.size / 2
        );
        inputs.push(freqs);
    }
    let wire = builder.kernel("Rope", float, &shape, &inputs, move |inputs| {
        let freqs = inputs.get(2).map(|freqs| freqs.try_as_plain_ram());
        let freqs = freqs.transpose()?;
        let freqs: Vec<f32> = match &freqs {
            Some(view) => view.as_slice::<f32>()?.iter().map(|x| x.recip()).collect(),
            None => turn.frequencies(),
        };
        let offsets = inputs[1].try_as_plain_ram()?;
        turn.rows(&inputs[0], offsets.as_slice::<i64>()?, &freqs)
    })?;
    let wire = builder.cast(wire, x.dtype)?;
    lowering.write_output(node, wire)
}

impl Rotation {
    /// Returns the growth of each pair's angle from position to position.
    #[expect(clippy::cast_precision_loss, reason = "a few pairs")]
    fn frequencies(&self) -> Vec<f32> {
        let half = self.size / 2;
        let step = self.base.ln() / half as f32;
        (0..half).map(|at| (-(at as f32) * step).exp()).collect()
    }

    /// Returns sine and cosine of each pair's angle, for `places` positions starting at `first`.
    #[expect(clippy::cast_precision_loss, reason = "places are small")]
    fn angles(&self, first: i64, places: usize, freqs: &[f32]) -> Vec<(f32, f32)> {
        let places = (0..places).map(|place| (first as f32 + place as f32) * self.scale);
        places
            .flat_map(|place| {
                freqs
                    .iter()
                    .map(move |frequency| (place * frequency).sin_cos())
            })
            .collect()
    }

    /// Rotates rows `[batch, .., position, size]`. `offsets` has the first position of each batch
    /// entry, or one for all.
    fn rows(&self, x: &Tensor, offsets: &[i64], freqs: &[f32]) -> TractResult<Tensor> {
        let shape = x.shape();
        let (batch, places, width) = (shape[0], shape[shape.len() - 2], shape[shape.len() - 1]);
        ensure!(
            offsets.len() == 1 || offsets.len() == batch,
            "wrong number of offsets: got {} for a batch of {batch}",
            offsets.len()
        );
        let mut turned = Tensor::clone(x);
        let mut view = turned.try_as_plain_ram_mut()?;
        let all = view.as_slice_mut::<f32>()?;
        let text = (all.len() / batch.max(1)).max(1);
        let half = self.size / 2;
        // Angles are the same for all heads, and for all batch entries with the same offset.
        let mut angles = Vec::new();
        for (text, block) in all.chunks_mut(text).enumerate() {
            if text == 0 || offsets.len() > 1 {
                let first = offsets[if offsets.len() == 1 { 0 } else { text }];
                angles = self.angles(first, places, freqs);
            }
            for (row, numbers) in block.chunks_mut(width).enumerate() {
                let of_place = &angles[row % places * half..][..half];
                for (at, (sin, cos)) in of_place.iter().enumerate() {
                    let (a, b) = if self.neighbours {
                        (2 * at, 2 * at + 1)
                    } else {
                        (at, at + half)
                    };
                    let (x, y) = (numbers[a], numbers[b]);
                    numbers[a] = x * cos - y * sin;
                    numbers[b] = x * sin + y * cos;
                }
            }
        }
        Ok(turned)
    }
}
