//! Weights that are packed: codes of few bits, with what they stand for.

use tract_onnx::tract_core::internal::*;

use super::held::Held;
use super::{Lowering, Operation, Table, Value, one};
use crate::tensor::DType;

/// The operations of this theme.
pub(super) const TABLE: Table = &[(&["constexpr_blockwise_shift_scale"], blockwise)];

/// `scale · (data − offset)`: each scale and offset for a block of the data, along any dimension.
#[expect(clippy::cast_precision_loss, reason = "codes are small")]
fn blockwise(lowering: &mut Lowering<'_, '_, '_>, operation: &Operation) -> TractResult<Vec<Held>> {
    let Held::Constant(data) = lowering.held_arg(operation, "data")? else {
        bail!("packed weights that are no constant");
    };
    let sizes = |value: &Value| -> TractResult<Vec<usize>> {
        let dims = value.ty.dims.iter();
        dims.map(|dim| Ok(usize::try_from(dim.context("open sizes")?)?))
            .collect()
    };
    let shape = sizes(&data)?;
    let codes = lowering.elements(&data)?;
    let scale = lowering.tensor(operation, "scale")?;
    let of_scale = lowering.shape(scale)?;
    let scale = lowering
        .frame
        .builder
        .known(scale.outlet)?
        .context("scales that are no constant")?;
    let scale = scale.cast_to::<f32>()?;
    let scale = scale.try_as_plain_ram()?;
    let scale = scale.as_slice::<f32>()?;
    let offsets = match lowering.optional(operation, "offset")? {
        Some(Held::Constant(offset)) => Some(lowering.elements(&offset)?),
        Some(_) => bail!("offsets that are no constant"),
        None => None,
    };
    ensure!(
        of_scale.len() == shape.len(),
        "scales of {} dimensions",
        of_scale.len()
    );
    let blocks: Vec<usize> = of_scale
        .iter()
        .map(|dim| Ok(dim.to_usize()?))
        .collect::<TractResult<_>>()?;
    let fits = |(size, blocks): (&usize, &usize)| *blocks > 0 && size.is_multiple_of(*blocks);
    ensure!(
        shape.iter().zip(&blocks).all(fits),
        "{blocks:?} blocks of {shape:?}"
    );
    ensure!(
        offsets
            .as_ref()
            .is_none_or(|offsets| offsets.len() == scale.len()),
        "as many offsets as scales"
    );
    let mut values = Vec::with_capacity(codes.len());
    let mut place = vec![0; shape.len()];
    for code in codes {
        let mut block = 0;
        for ((at, size), blocks) in place.iter().zip(&shape).zip(&blocks) {
            block = block * blocks + at / (size / blocks);
        }
        let offset = offsets.as_ref().map_or(0, |offsets| offsets[block]);
        values.push((code - offset) as f32 * scale[block]);
        for (at, size) in place.iter_mut().zip(&shape).rev() {
            *at += 1;
            if *at < *size {
                break;
            }
            *at = 0;
        }
    }
    let tensor = Tensor::from_shape(&shape, &values)?;
    let wire = lowering
        .frame
        .builder
        .constant(Arc::new(tensor), DType::Float32)?;
    Ok(one(wire))
}
