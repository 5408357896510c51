//! Computes tensors on the threads of a run's pool.

use std::sync::Arc;

use tract_linalg::multithread::{Executor, current_tract_executor};
use tract_onnx::tract_core::internal::{
    Datum, DatumType, PlainView, TValue, TVec, Tensor, TractError, TractErrorContext as _,
    TractResult,
};

use super::spare;
use pkgtool_kernels::Split;

/// Computes a tensor of this shape: `work` writes its elements from those of the inputs, on a
/// thread of the run's pool. It receives the number of threads, and must write every element,
/// because the memory is not cleared. The memory is reused when nothing reads the tensor any more,
/// so it cannot be changed in place.
pub(crate) fn computed<F: Datum + Copy, T: Datum + Copy>(
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<Arc<Tensor>> {
    let work = |from: &[&[F]], to: &mut [&mut [T]], split| work(from, to[0], split);
    let outputs = computed_together(shape, 1, inputs, work)?;
    outputs
        .into_iter()
        .next()
        .context("the output tensor is missing")
}

/// Like [`computed`], for several tensors of this shape.
pub(crate) fn computed_together<F: Datum + Copy, T: Datum + Copy>(
    shape: &[usize],
    count: usize,
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [&mut [T]], Split) -> Result<(), String> + Send,
) -> TractResult<TVec<Arc<Tensor>>> {
    let outputs = (0..count).map(|_| spare::tensor(T::datum_type(), shape));
    let mut outputs: TVec<Arc<Tensor>> = outputs.collect::<TractResult<_>>()?;
    {
        let tensors = outputs.iter_mut().map(|output| {
            let tensor = Arc::get_mut(output).context("the output tensor is still in use")?;
            tensor.try_as_plain_ram_mut()
        });
        let mut views: TVec<_> = tensors.collect::<TractResult<_>>()?;
        let to = views.iter_mut().map(|view| view.as_slice_mut::<T>());
        let mut to: TVec<&mut [T]> = to.collect::<TractResult<_>>()?;
        of_elements(inputs, |from, split| work(from, &mut to, split))?;
    }
    outputs.iter().for_each(spare::keep);
    Ok(outputs)
}

/// Like [`computed`], with fresh memory, so that operators of the library can change the tensor in
/// place.
pub(crate) fn computed_anew<F: Datum + Copy, T: Datum + Copy>(
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<Tensor> {
    anew(shape, |to| {
        of_elements(inputs, |from, split| work(from, to, split))
    })
}

/// Computes a tensor of bytes of `dtype`, signed or not, from bytes of either kind.
pub(crate) fn computed_bytes(
    dtype: DatumType,
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[u8]], &mut [u8], Split) -> Result<(), String> + Send,
) -> TractResult<Arc<Tensor>> {
    to_bytes(dtype, shape, |to| {
        of_bytes(inputs, |from, split| work(from, to, split))
    })
}

/// Computes a tensor of bytes of `dtype`, signed or not, from other elements.
pub(crate) fn computed_to_bytes<F: Datum + Copy>(
    dtype: DatumType,
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], &mut [u8], Split) -> Result<(), String> + Send,
) -> TractResult<Arc<Tensor>> {
    to_bytes(dtype, shape, |to| {
        of_elements(inputs, |from, split| work(from, to, split))
    })
}

/// Computes a tensor of other elements, in fresh memory, from bytes of either kind.
pub(crate) fn computed_from_bytes<T: Datum + Copy>(
    shape: &[usize],
    inputs: &[TValue],
    work: impl FnOnce(&[&[u8]], &mut [T], Split) -> Result<(), String> + Send,
) -> TractResult<Tensor> {
    anew(shape, |to| {
        of_bytes(inputs, |from, split| work(from, to, split))
    })
}

fn anew<T: Datum + Copy>(
    shape: &[usize],
    work: impl FnOnce(&mut [T]) -> TractResult<()>,
) -> TractResult<Tensor> {
    let mut output = Tensor::zero_dt(T::datum_type(), shape)?;
    work(output.try_as_plain_ram_mut()?.as_slice_mut::<T>()?)?;
    Ok(output)
}

fn to_bytes(
    dtype: DatumType,
    shape: &[usize],
    work: impl FnOnce(&mut [u8]) -> TractResult<()>,
) -> TractResult<Arc<Tensor>> {
    check_bytes(dtype)?;
    let mut output = spare::tensor(dtype, shape)?;
    let tensor = Arc::get_mut(&mut output).context("the output tensor is still in use")?;
    work(tensor.try_as_plain_ram_mut()?.as_bytes_mut())?;
    spare::keep(&output);
    Ok(output)
}

fn of_elements<F: Datum + Copy>(
    inputs: &[TValue],
    work: impl FnOnce(&[&[F]], Split) -> Result<(), String> + Send,
) -> TractResult<()> {
    let views = inputs.iter().map(|input| input.try_as_plain_ram());
    let views: TVec<_> = views.collect::<TractResult<_>>()?;
    let from = views.iter().map(PlainView::as_slice::<F>);
    let from: TVec<&[F]> = from.collect::<TractResult<_>>()?;
    on_pool(|split| work(&from, split)).map_err(TractError::msg)
}

fn of_bytes(
    inputs: &[TValue],
    work: impl FnOnce(&[&[u8]], Split) -> Result<(), String> + Send,
) -> TractResult<()> {
    for input in inputs {
        check_bytes(input.datum_type())?;
    }
    let views = inputs.iter().map(|input| input.try_as_plain_ram());
    let views: TVec<_> = views.collect::<TractResult<_>>()?;
    let from: TVec<&[u8]> = views.iter().map(PlainView::as_bytes).collect();
    on_pool(|split| work(&from, split)).map_err(TractError::msg)
}

fn check_bytes(dtype: DatumType) -> TractResult<()> {
    match dtype {
        DatumType::I8 | DatumType::U8 => Ok(()),
        _ => Err(TractError::msg(format!(
            "expected a tensor of bytes, got {dtype:?}"
        ))),
    }
}

fn on_pool<R: Send>(work: impl FnOnce(Split) -> R + Send) -> R {
    match current_tract_executor() {
        Executor::MultiThread(pool) => pool.install(|| work(Split::current())),
        _ => work(Split::ONE),
    }
}
