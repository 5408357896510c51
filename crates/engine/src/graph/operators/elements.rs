//! Access to tensor elements as plain numbers, for operators that are too rare to optimise.

use tract_onnx::tract_core::internal::*;

use crate::graph::guard::InvalidInput;
pub(super) use crate::graph::places::places;

/// Returns all elements as integers.
pub(crate) fn ints(tensor: &Tensor) -> TractResult<Vec<i64>> {
    let cast = tensor.cast_to::<i64>()?;
    let view = cast.try_as_plain_ram()?;
    Ok(view.as_slice::<i64>()?.to_vec())
}

/// Returns all elements as floats.
pub(crate) fn floats(tensor: &Tensor) -> TractResult<Vec<f64>> {
    let cast = tensor.cast_to::<f64>()?;
    let view = cast.try_as_plain_ram()?;
    Ok(view.as_slice::<f64>()?.to_vec())
}

/// Creates a tensor from integers.
pub(crate) fn tensor_of_ints(
    shape: &[usize],
    values: &[i64],
    to: DatumType,
) -> TractResult<Tensor> {
    if to == DatumType::Bool {
        let values: Vec<bool> = values.iter().map(|value| *value != 0).collect();
        return Tensor::from_shape(shape, &values);
    }
    let tensor = Tensor::from_shape(shape, values)?;
    Ok(tensor.cast_to_dt(to)?.into_owned())
}

/// Creates a tensor from floats.
pub(crate) fn tensor_of_floats(
    shape: &[usize],
    values: &[f64],
    to: DatumType,
) -> TractResult<Tensor> {
    let tensor = Tensor::from_shape(shape, values)?;
    Ok(tensor.cast_to_dt(to)?.into_owned())
}

/// Returns the strides of a row-major array, in elements.
pub(crate) fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for at in (1..shape.len()).rev() {
        strides[at - 1] = strides[at] * shape[at].max(1);
    }
    strides
}

/// Returns the strides of an array broadcast to a larger shape; repeated dimensions have stride 0.
pub(super) fn broadcast_strides(from: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(from);
    let offset = to.len() - from.len().min(to.len());
    (0..to.len())
        .map(|at| match at.checked_sub(offset) {
            Some(at) if from[at] != 1 => own[at],
            _ => 0,
        })
        .collect()
}

/// Copies elements one by one, regardless of their type.
pub(crate) fn gather_elements(
    tensor: &Tensor,
    shape: &[usize],
    from: &[usize],
) -> TractResult<Tensor> {
    let size = tensor.datum_type().size_of();
    let mut picked = Tensor::zero_dt(tensor.datum_type(), shape)?;
    ensure!(
        picked.len() == from.len(),
        "wrong number of elements: got {} for the shape {shape:?}",
        from.len()
    );
    let bytes = tensor.as_bytes();
    for (to, &at) in picked.as_bytes_mut().chunks_exact_mut(size).zip(from) {
        let Some(element) = bytes.get(at * size..(at + 1) * size) else {
            bail!("element {at} is out of range, there are {}", tensor.len());
        };
        to.copy_from_slice(element);
    }
    Ok(picked)
}

/// The index check of an operator, as in ExecuTorch's kernel of the same name.
#[derive(Debug, Clone)]
pub(crate) struct IndexCheck {
    operator: String,
    from_end: bool,
}

impl IndexCheck {
    /// Creates the index check of this operator; `from_end` allows negative indices, counted from
    /// the end.
    pub(crate) fn new(operator: &str, from_end: bool) -> Self {
        Self {
            operator: operator.to_owned(),
            from_end,
        }
    }

    /// Returns the non-negative index among `count` elements.
    pub(crate) fn place(&self, index: i64, count: usize) -> TractResult<usize> {
        let size = i64::try_from(count)?;
        let least = if self.from_end { -size } else { 0 };
        if (least..size).contains(&index) {
            return Ok(usize::try_from(if index < 0 {
                index + size
            } else {
                index
            })?);
        }
        let valid = if size == 0 {
            "no index is valid".to_owned()
        } else {
            format!("{least} to {} are valid", size - 1)
        };
        self.reject(format!("index {index} of a dimension of {count}; {valid}"))
    }

    /// Rejects a value for this reason.
    pub(crate) fn reject<T>(&self, reason: String) -> TractResult<T> {
        let operator = self.operator.clone();
        Err(InvalidInput { operator, reason }.into())
    }
}
