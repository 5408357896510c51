//! Reads the test cases in a bundled ExecuTorch program (`.bpte`) as tensors.

use std::path::Path;

use super::{DType, Tensor, TensorError};
use pkgtool_base::source::{FileSource, ReadAt};
use pkgtool_model::FormatError;
use pkgtool_model::executorch::body::{BundledValue, bundled_cases};

/// A test case.
#[derive(Debug, Clone, PartialEq)]
pub struct TestCase {
    /// The method it calls.
    pub method: String,
    /// Index among the method's cases, from 0.
    pub index: usize,
    /// Inputs of the method.
    pub inputs: Vec<Tensor>,
    /// Expected outputs; empty if the program has none.
    pub expected: Vec<Tensor>,
}

/// Test cases that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum BundledError {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] std::io::Error),
    /// The file is broken, or not a program.
    #[error("{0}")]
    Broken(#[from] FormatError),
    /// The program has no test cases.
    #[error("carries no test cases; `--bundled` is for bundled programs (.bpte) that do")]
    None,
    /// A tensor has an unsupported dtype.
    #[error("has a test case with a tensor of the unsupported dtype {0}")]
    DType(String),
    /// A tensor is too large.
    #[error("has a test case with an invalid tensor: {0}")]
    Tensor(#[from] TensorError),
}

/// Reads the test cases of the program at `path`, in the file's order.
pub fn read_cases(path: &Path) -> Result<Vec<TestCase>, BundledError> {
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
        Ok(TestCase {
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
            let dtype = element
                .dtype()
                .ok_or_else(|| BundledError::DType(element.name().to_owned()))?;
            // The reader checked this size against the file.
            let size = usize::try_from(bytes.size)
                .map_err(|_| TensorError::NoMemory { bytes: bytes.size })?;
            let mut stored = vec![0; size];
            source.read_exact_at(bytes.offset, &mut stored)?;
            let stored = to_row_major(&stored, dtype, sizes, dim_order);
            Ok(Tensor::new(dtype, sizes.clone(), stored)?)
        }
    }
}

/// Reorders elements to row-major order, from a tensor whose dimensions lie in memory in
/// `dim_order`.
fn to_row_major(stored: &[u8], dtype: DType, sizes: &[u64], dim_order: &[usize]) -> Vec<u8> {
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
        let ordered = to_row_major(&stored, DType::Uint8, &[1, 2, 3], &[0, 2, 1]);
        assert_eq!(ordered, [0, 2, 4, 1, 3, 5]);
    }
}
