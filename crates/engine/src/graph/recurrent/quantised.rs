//! The arithmetic of `DynamicQuantizeLSTM`: stored integers are dequantised, and the other operand
//! is first rounded to 256 steps, as in ONNX Runtime.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::tract_data::itertools::izip;

use crate::graph::kernel::Kernel;

/// Rounds numbers to 256 steps between their minimum, or zero, and their maximum.
pub(crate) fn round(values: &mut [f32]) {
    let least = values.iter().copied().fold(0.0, f32::min);
    let most = values.iter().copied().fold(0.0, f32::max);
    let scale = if most > least {
        (most - least) / 255.0
    } else {
        1.0
    };
    let zero = (-least / scale).clamp(0.0, 255.0).round_ties_even();
    for value in values {
        let step = ((*value / scale).round_ties_even() + zero).clamp(0.0, 255.0);
        *value = (step - zero) * scale;
    }
}

/// Dequantises integers of shape [directions, inputs, rows] to numbers of shape [directions, rows,
/// inputs]. Scales and zero points are given per direction, or per direction and row.
pub(crate) fn dequantise(
    stored: &Tensor,
    scale: &Tensor,
    zero: Option<&Tensor>,
) -> TractResult<Tensor> {
    let &[directions, columns, rows] = stored.shape() else {
        bail!(
            "expected weights of three dimensions, got the shape {:?}",
            stored.shape()
        );
    };
    let spread = |tensor: &Tensor| -> TractResult<Vec<f32>> {
        let values = tensor.cast_to::<f32>()?;
        let values = values.try_as_plain_ram()?.as_slice::<f32>()?.to_vec();
        if values.len() == directions * rows {
            return Ok(values);
        }
        ensure!(
            values.len() == directions,
            "got {} scales or zero points for {directions} directions of {rows} rows",
            values.len()
        );
        Ok(values
            .iter()
            .flat_map(|value| std::iter::repeat_n(*value, rows))
            .collect())
    };
    let scales = spread(scale)?;
    let zeros = match zero {
        Some(zero) => spread(zero)?,
        None => vec![0.0; scales.len()],
    };
    let stored = stored.cast_to::<f32>()?;
    let stored = stored.try_as_plain_ram()?;
    let stored = stored.as_slice::<f32>()?;
    let mut values = vec![0.0; stored.len()];
    for direction in 0..directions {
        for row in 0..rows {
            let at = direction * rows + row;
            let to = &mut values[at * columns..(at + 1) * columns];
            let from = stored[direction * columns * rows + row..]
                .iter()
                .step_by(rows);
            for (to, from) in izip!(to, from) {
                *to = (from - zeros[at]) * scales[at];
            }
        }
    }
    Tensor::from_shape(&[directions, rows, columns], &values)
}

/// Creates an operator that rounds a tensor with this fact.
pub(crate) fn rounding(fact: &TypedFact) -> Kernel {
    Kernel::new("RoundDynamically", tvec!(fact.without_value()), |inputs| {
        let mut values = Tensor::clone(&inputs[0]);
        round(values.try_as_plain_ram_mut()?.as_slice_mut::<f32>()?);
        Ok(tvec!(values))
    })
}
