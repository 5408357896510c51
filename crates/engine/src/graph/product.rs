//! Matrix products with broadcast leading dimensions.

use tract_onnx::tract_core::internal::*;

use super::builder::Builder;
use super::operators::einsum;
use crate::tensor::DType;

/// Multiplies the last two dimensions in float32; either side may be transposed.
pub(crate) fn matrix_product(
    builder: &mut Builder,
    (x, swap_x): (OutletId, bool),
    (y, swap_y): (OutletId, bool),
) -> TractResult<OutletId> {
    let [x, y] = builder.same_rank([x, y])?;
    let (of_x, of_y) = (builder.shape(x)?, builder.shape(y)?);
    let rank = of_x.len();
    ensure!(
        (2..=6).contains(&rank),
        "invalid rank of a matrix product: expected 2 to 6, got {rank}"
    );
    let broadcast = |axis: usize| match (&of_x[axis], &of_y[axis]) {
        (a, b) if a.is_one() => Ok(b.clone()),
        (a, b) if b.is_one() || a == b => Ok(a.clone()),
        (a, b) => bail!("sizes {a} and {b} do not broadcast"),
    };
    let lead: Vec<TDim> = (0..rank - 2).map(broadcast).collect::<TractResult<_>>()?;
    let mut wide = [x, y];
    for (outlet, own) in wide.iter_mut().zip([&of_x, &of_y]) {
        let shape: Vec<TDim> = lead.iter().chain(&own[rank - 2..]).cloned().collect();
        *outlet = builder.expand(*outlet, &shape)?;
    }
    let letters = &"abcd"[..rank - 2];
    let left = if swap_x { "km" } else { "mk" };
    let right = if swap_y { "nk" } else { "kn" };
    let formula = format!("{letters}{left},{letters}{right}->{letters}mn");
    einsum(builder, &formula, &wide, DType::Float32)
}
