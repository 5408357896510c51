//! Products of rows with packed weights, as operators in the library's graph.

use tract_onnx::tract_core::internal::*;

use super::kernel::Kernel;
use super::pool::on_pool;
use crate::kernels::Split;

/// An operator on float32 of this shape, of whose last dimension's rows `run` makes rows of `outputs`: from
/// their number, their elements, and where the products go. It keeps `bytes` of weights.
pub(super) fn product_of_rows(
    shape: &[TDim],
    outputs: usize,
    bytes: usize,
    run: impl Fn(usize, &[f32], &mut [f32], Split) -> Result<(), String> + Send + Sync + 'static,
) -> Kernel {
    let mut shape = shape.to_vec();
    if let Some(last) = shape.last_mut() {
        *last = outputs.to_dim();
    }
    let kernel = Kernel::new("PackedProduct", tvec!(f32::fact(&shape)), move |inputs| {
        let mut shape = inputs[0].shape().to_vec();
        let Some(last) = shape.last_mut() else {
            bail!("a product of one number");
        };
        *last = outputs;
        let rows = shape.iter().rev().skip(1).product();
        let view = inputs[0].try_as_plain_ram()?;
        let mut products = Tensor::zero::<f32>(&shape)?;
        let mut to = products.try_as_plain_ram_mut()?;
        let to = to.as_slice_mut::<f32>()?;
        let from = view.as_slice::<f32>()?;
        let done = on_pool(|split| run(rows, from, to, split));
        done.map_err(|told| format_err!("{told}"))?;
        Ok(tvec!(products))
    });
    kernel.holding(bytes)
}
