//! How windows of convolutions and pools move.

use tract_onnx::tract_core::internal::*;

use super::{Lowering, Operation};

/// Largest size, step, distance or padding.
const MOST: i64 = 1 << 24;

/// How a window moves.
pub(super) struct Window {
    /// Steps.
    pub(super) strides: Vec<i64>,
    /// Distances within a window.
    pub(super) dilations: Vec<i64>,
    /// Before and after, for each dimension.
    pub(super) pads: Vec<i64>,
}

impl Window {
    /// Reads a window of these sizes over spatial dimensions of these.
    pub(super) fn read(
        lowering: &Lowering<'_, '_, '_>,
        operation: &Operation,
        kernel: &[i64],
        sizes: &[TDim],
    ) -> TractResult<Self> {
        let spatial = kernel.len();
        ensure!(
            kernel.iter().all(|size| (1..=MOST).contains(size)),
            "a window of {kernel:?}"
        );
        let each = |name: &str| -> TractResult<Vec<i64>> {
            let numbers = lowering.ints(operation, name)?;
            let numbers = numbers.unwrap_or_else(|| vec![1; spatial]);
            ensure!(
                numbers.len() == spatial
                    && numbers.iter().all(|number| (1..=MOST).contains(number)),
                "`{name}` of {numbers:?}"
            );
            Ok(numbers)
        };
        let (strides, dilations) = (each("strides")?, each("dilations")?);
        let pads = match lowering.text(operation, "pad_type", "valid")?.as_str() {
            "valid" => vec![0; 2 * spatial],
            "custom" => {
                let pads = lowering.ints(operation, "pad")?;
                pads.unwrap_or_else(|| vec![0; 2 * spatial])
            }
            same @ ("same" | "same_lower") => {
                let mut pads = Vec::new();
                for at in 0..spatial {
                    let size = sizes[at].to_i64()?;
                    let reach = dilations[at] * (kernel[at] - 1) + 1;
                    let steps = (size + strides[at] - 1) / strides[at];
                    let all = ((steps - 1) * strides[at] + reach - size).max(0);
                    let less = all / 2;
                    pads.extend(if same == "same" {
                        [less, all - less]
                    } else {
                        [all - less, less]
                    });
                }
                pads
            }
            other => bail!("padding by {other} is not supported"),
        };
        ensure!(
            pads.len() == 2 * spatial && pads.iter().all(|pad| (0..=MOST).contains(pad)),
            "paddings of {pads:?} for {spatial} dimensions"
        );
        Ok(Self {
            strides,
            dilations,
            pads,
        })
    }

    /// The same padding on both sides, where it is.
    pub(super) fn even(&self) -> Option<Vec<i64>> {
        let (pairs, _) = self.pads.as_chunks::<2>();
        let even = pairs
            .iter()
            .map(|[before, after]| (before == after).then_some(*before));
        even.collect()
    }
}
