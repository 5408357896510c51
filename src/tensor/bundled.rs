//! The test cases that a bundled program (`.bpte`) carries, as tensors.

use std::path::Path;

use super::{DType, Tensor, TensorError};
use crate::model::executorch;
use crate::model::executorch::body::{BundledValue, bundled_cases};
use crate::source::{FileSource, ReadAt};

/// A test case.
#[derive(Debug, Clone, PartialEq)]
pub struct Case {
    /// The method it calls.
    pub method: String,
    /// Its place among the method's cases, from 0.
    pub index: usize,
    /// What the method is called with.
    pub inputs: Vec<Tensor>,
    /// What should come out; empty if the program does not say.
    pub expected: Vec<Tensor>,
}

/// Why the cases cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum BundledError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is broken, or no program.
    #[error("{0}")]
    Broken(#[from] executorch::Error),
    /// It carries no cases.
    #[error("carries no test cases; `--bundled` is for bundled programs (.bpte) that do")]
    None,
    /// A tensor of a dtype that does not exist here.
    #[error("has a tensor of dtype {0} in a test case, which cannot be given here")]
    DType(String),
    /// A tensor that is too large.
    #[error("has a test case with a tensor that cannot be made: {0}")]
    Tensor(#[from] TensorError),
}

/// The cases of the program at `path`, in the file's order.
pub fn cases(path: &Path) -> Result<Vec<Case>, BundledError> {
    let source = FileSource::open(path)?;
    let found = bundled_cases(&source)?;
    if found.is_empty() {
        return Err(BundledError::None);
    }
    let tensors = |values: &[BundledValue]| {
        let tensors = values.iter().map(|value| tensor(&source, value));
        tensors.collect::<Result<Vec<_>, _>>()
    };
    let cases = found.iter().map(|case| {
        Ok(Case {
            method: case.method.clone(),
            index: case.index,
            inputs: tensors(&case.inputs)?,
            expected: tensors(&case.expected)?,
        })
    });
    cases.collect()
}

fn tensor(source: &FileSource, value: &BundledValue) -> Result<Tensor, BundledError> {
    let number = |dtype, value| Tensor::from_f64(dtype, Vec::new(), [value]);
    match value {
        BundledValue::Int(value) => {
            let bytes = value.to_le_bytes().to_vec();
            Ok(Tensor::new(DType::Int64, Vec::new(), bytes)?)
        }
        BundledValue::Bool(value) => Ok(number(DType::Bool, f64::from(u8::from(*value)))?),
        BundledValue::Double(value) => Ok(number(DType::Float64, *value)?),
        BundledValue::Tensor {
            element,
            sizes,
            dim_order,
            bytes,
        } => {
            let dtype = DType::from_element(element)
                .ok_or_else(|| BundledError::DType(element.name().to_owned()))?;
            // The reader held it against the file, so this much is there.
            let size = usize::try_from(bytes.size)
                .map_err(|_| TensorError::NoMemory { bytes: bytes.size })?;
            let mut stored = vec![0; size];
            source.read_exact_at(bytes.offset, &mut stored)?;
            let stored = in_order(&stored, dtype, sizes, dim_order);
            Ok(Tensor::new(dtype, sizes.clone(), stored)?)
        }
    }
}

/// Elements in row-major order, from those of a tensor whose dimensions lie in memory in `dim_order`.
fn in_order(stored: &[u8], dtype: DType, sizes: &[u64], dim_order: &[usize]) -> Vec<u8> {
    if dim_order.iter().copied().eq(0..sizes.len()) {
        return stored.to_vec();
    }
    let width = usize::try_from(dtype.size()).unwrap_or(1);
    let size = |dim: usize| usize::try_from(sizes[dim]).unwrap_or(0);
    let mut steps = vec![0; sizes.len()];
    let mut step = 1;
    for &dim in dim_order.iter().rev() {
        steps[dim] = step;
        step *= size(dim);
    }
    let mut places = vec![0];
    for (dim, step) in steps.iter().enumerate() {
        let each = |place: usize| (0..size(dim)).map(move |at| place + at * step);
        places = places.into_iter().flat_map(each).collect();
    }
    let element = |place: usize| &stored[place * width..(place + 1) * width];
    places.into_iter().flat_map(element).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_that_come_last_in_memory_come_first_in_order() {
        let stored: Vec<u8> = (0..6).collect();
        let ordered = in_order(&stored, DType::Uint8, &[1, 2, 3], &[0, 2, 1]);
        assert_eq!(ordered, [0, 2, 4, 1, 3, 5]);
    }
}
