//! Windows of Core ML convolutions and pooling: strides, dilations and padding.

use tract_onnx::tract_core::internal::*;

use super::{CoremlLowering, Operation};

/// Maximum size, stride, dilation or padding.
const MAX_WINDOW_PARAM: i64 = 1 << 24;

/// Parameters of a sliding window.
pub(super) struct CoremlWindow {
    /// Strides.
    pub(super) strides: Vec<i64>,
    /// Dilations: distances between elements within a window.
    pub(super) dilations: Vec<i64>,
    /// Padding before and after, for each dimension.
    pub(super) pads: Vec<i64>,
}

impl CoremlWindow {
    /// Reads a window of the given kernel sizes over the given spatial sizes.
    pub(super) fn read(
        lowering: &CoremlLowering<'_, '_>,
        operation: &Operation,
        kernel: &[i64],
        sizes: &[TDim],
    ) -> TractResult<Self> {
        let spatial = kernel.len();
        ensure!(
            kernel
                .iter()
                .all(|size| (1..=MAX_WINDOW_PARAM).contains(size)),
            "invalid window sizes {kernel:?}"
        );
        let each = |name: &str| -> TractResult<Vec<i64>> {
            let numbers = lowering.ints(operation, name)?;
            let numbers = numbers.unwrap_or_else(|| vec![1; spatial]);
            ensure!(
                numbers.len() == spatial
                    && numbers
                        .iter()
                        .all(|number| (1..=MAX_WINDOW_PARAM).contains(number)),
                "invalid `{name}`: {numbers:?}"
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
            other => bail!("unsupported padding type `{other}`"),
        };
        ensure!(
            pads.len() == 2 * spatial
                && pads.iter().all(|pad| (0..=MAX_WINDOW_PARAM).contains(pad)),
            "invalid padding {pads:?} for {spatial} dimensions"
        );
        Ok(Self {
            strides,
            dilations,
            pads,
        })
    }

    /// Returns the padding of each dimension if it is the same on both sides.
    pub(super) fn symmetric_padding(&self) -> Option<Vec<i64>> {
        let (pairs, _) = self.pads.as_chunks::<2>();
        let even = pairs
            .iter()
            .map(|[before, after]| (before == after).then_some(*before));
        even.collect()
    }
}
