//! Tensors that are computed on the threads of a run.

use std::sync::Arc;

use tract_linalg::multithread::{Executor, current_tract_executor};
use tract_onnx::tract_core::internal::{
    Datum, PlainView, TValue, TVec, Tensor, TractError, TractErrorContext as _, TractResult,
};

use super::spare;
use crate::kernels::Split;

/// A tensor of this shape whose elements `work` writes, from those of the inputs, on a thread of the run's pool:
/// it is told how many there are. What it writes over is of no meaning. The tensor's memory is used again when
/// nothing reads it any more, so it cannot be changed in place.
pub(super) fn computed<F: Datum + Copy, T: Datum + Copy>(
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<Arc<Tensor>> {
    let mut output = spare::tensor::<T>(shape)?;
    let tensor = Arc::get_mut(&mut output).context("a tensor that is read")?;
    write(tensor, inputs, work)?;
    spare::keep(&output);
    Ok(output)
}

/// The same in memory of its own, for what operators of the library then change in place.
pub(super) fn computed_anew<F: Datum + Copy, T: Datum + Copy>(
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<Tensor> {
    let mut output = Tensor::zero_dt(T::datum_type(), shape)?;
    write(&mut output, inputs, work)?;
    Ok(output)
}

fn write<F: Datum + Copy, T: Datum + Copy>(
    output: &mut Tensor,
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<()> {
    let views = inputs.iter().map(|input| input.try_as_plain_ram());
    let views: TVec<_> = views.collect::<TractResult<_>>()?;
    let from = views.iter().map(PlainView::as_slice::<F>);
    let from: TVec<&[F]> = from.collect::<TractResult<_>>()?;
    let mut view = output.try_as_plain_ram_mut()?;
    let to = view.as_slice_mut::<T>()?;
    on_pool(|split| work(&from, to, split)).map_err(TractError::msg)
}

fn on_pool<R: Send>(work: impl FnOnce(Split) -> R + Send) -> R {
    match current_tract_executor() {
        Executor::MultiThread(pool) => pool.install(|| work(Split::current())),
        _ => work(Split::ONE),
    }
}
