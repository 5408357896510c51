//! Products of rows with stored bytes, as `DynamicQuantizeLSTM` of ONNX Runtime computes them: the
//! rows are quantised on a grid that covers them.

use tract_onnx::tract_core::internal::*;
use tract_onnx::tract_core::tract_data::itertools::izip;

use crate::graph::dynamic::quantise;
use crate::graph::rows::turned;
use pkgtool_kernels::bytes::{Sign, SumProduct};
use pkgtool_kernels::{Cpu, Split};

/// Stored bytes with their scales.
#[derive(Debug)]
pub(crate) struct RecurrentBytes {
    product: SumProduct,
    /// The scale of each output.
    scales: Vec<f32>,
}

impl RecurrentBytes {
    /// Returns the product of each direction. The bytes have the shape [directions, inputs,
    /// outputs]. Scales and zero points are given for each direction, or for each output of each.
    pub(crate) fn of_directions(
        stored: &Tensor,
        scales: &Tensor,
        zeros: Option<&Tensor>,
    ) -> TractResult<Vec<Self>> {
        let &[directions, inputs, outputs] = stored.shape() else {
            bail!(
                "expected weights of three dimensions, got the shape {:?}",
                stored.shape()
            );
        };
        let scales = of_outputs::<f32>(scales, [directions, outputs])?;
        let zeros = match zeros {
            Some(zeros) => of_outputs::<i32>(zeros, [directions, outputs])?,
            None => vec![0; directions * outputs],
        };
        let sign = match stored.datum_type() {
            DatumType::I8 => Sign::Signed,
            DatumType::U8 => Sign::Unsigned,
            other => bail!("expected weights of bytes, got {other:?}"),
        };
        let zeros: Vec<i32> = zeros.iter().map(|zero| zero - sign.moved()).collect();
        let stored = sign.signed(stored.try_as_plain_ram()?.as_bytes());
        let product = |side: usize| {
            let of_side = side * outputs..(side + 1) * outputs;
            let weights = &stored[side * inputs * outputs..(side + 1) * inputs * outputs];
            let product = SumProduct::new(
                Cpu::chosen(),
                [inputs, outputs],
                &turned(weights, outputs),
                &zeros[of_side.clone()],
                Sign::Unsigned,
            );
            Ok(Self {
                product: product.map_err(TractError::msg)?,
                scales: scales[of_side].to_vec(),
            })
        };
        (0..directions).map(product).collect()
    }

    /// Returns the number of outputs of a row.
    pub(crate) fn outputs(&self) -> usize {
        self.scales.len()
    }

    /// Returns the memory used, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.product.bytes() + size_of_val(self.scales.as_slice())
    }

    /// Multiplies rows, which share a grid.
    pub(crate) fn run(&self, rows: &[f32], to: &mut [f32], split: Split) -> Result<(), String> {
        let mut bytes = vec![0; rows.len()];
        let grid = quantise(rows, &mut bytes, split)?;
        let mut sums = vec![0; to.len()];
        self.product
            .run(grid.zero_point, &bytes, &mut sums, split)?;
        let outputs = self.outputs();
        for (to, sums) in izip!(to.chunks_exact_mut(outputs), sums.chunks_exact(outputs)) {
            for (to, sum, scale) in izip!(to, sums, &self.scales) {
                #[expect(clippy::cast_precision_loss, reason = "ONNX Runtime rounds it, too")]
                let sum = *sum as f32;
                *to = sum * (grid.scale * scale);
            }
        }
        Ok(())
    }
}

/// Returns one value for each output of each direction.
fn of_outputs<T: Datum + Copy>(
    tensor: &Tensor,
    [directions, outputs]: [usize; 2],
) -> TractResult<Vec<T>> {
    let values = tensor.cast_to::<T>()?;
    let values = values.try_as_plain_ram()?.as_slice::<T>()?.to_vec();
    if values.len() == directions * outputs {
        return Ok(values);
    }
    ensure!(
        values.len() == directions,
        "got {} scales or zero points for {directions} directions of {outputs} outputs",
        values.len()
    );
    let spread = values.iter();
    Ok(spread
        .flat_map(|value| std::iter::repeat_n(*value, outputs))
        .collect())
}
