//! Reads and writes NumPy's `.npy` files, versions 1.0, 2.0 and 3.0.
//!
//! This parser exists because files may be hostile: the published crate multiplies the sizes of a
//! shape unchecked, and allocates as many bytes as a header claims. Invariant: nothing is allocated
//! only because a file claims it. A file yields exactly the tensor that it describes, or an error.
//! The format: <https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>.

mod header;

use std::io::{self, Read, Write};

use super::{DType, Tensor, TensorError, byte_size};

pub use header::{MAX_HEADER, MAX_RANK, NpyElement, NpyHeader};

/// The first bytes of every file.
const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Memory allocated in advance for data of unproven size, in bytes.
const FIRST_RESERVE: u64 = 1 << 20;

/// A note about written bfloat16 tensors, since the format has no such type.
pub const BFLOAT16_NOTE: &str = "bfloat16 is written as its raw 16 bits (uint16)";

/// A file that cannot be read as a tensor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NpyError {
    /// The first bytes are not those of a `.npy` file.
    #[error("not a .npy file: it does not begin with `\\x93NUMPY`")]
    NotNpy,
    /// The version is unknown.
    #[error("unsupported version {major}.{minor} of the .npy format; supported: 1.0, 2.0 and 3.0")]
    Version {
        /// First number.
        major: u8,
        /// Second number.
        minor: u8,
    },
    /// The header exceeds [`MAX_HEADER`] bytes.
    #[error("the header is too large: expected at most {MAX_HEADER} bytes, got {claimed}")]
    HeaderSize {
        /// Size of the header by the file, in bytes.
        claimed: u64,
    },
    /// The file ends within its header.
    #[error("the file ends within its header")]
    HeaderEnd,
    /// The header is not the expected dictionary.
    #[error("the header is malformed at byte {at}: {reason}")]
    Header {
        /// Offset in the header's text.
        at: usize,
        /// The problem.
        reason: String,
    },
    /// The elements have an unsupported type.
    #[error("its elements are {what} (`{descr}`), which are not supported; {help}")]
    Unsupported {
        /// The type as the file writes it.
        descr: String,
        /// The type in words.
        what: &'static str,
        /// The remedy.
        help: &'static str,
    },
    /// The elements have an unexpected type.
    #[error("its elements are {found}, not {expected}")]
    DType {
        /// The expected dtype.
        expected: DType,
        /// The file's dtype.
        found: DType,
    },
    /// The data is shorter than the header states.
    #[error("the data ends after {found} of {expected} bytes")]
    Short {
        /// Number of bytes that dtype and shape require.
        expected: u64,
        /// Number of bytes in the file.
        found: u64,
    },
    /// Extra bytes follow the data.
    #[error("more bytes follow after the {expected} bytes of data")]
    Trailing {
        /// Number of bytes that dtype and shape require.
        expected: u64,
    },
    /// The tensor is too large.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Reading failed.
    #[error("cannot be read: {reason}")]
    Read {
        /// The reason.
        reason: String,
    },
}

/// Reads a whole file. Elements of two raw bytes (`|V2`, as NumPy stores bfloat16) become bfloat16.
pub fn read(reader: &mut dyn Read) -> Result<Tensor, NpyError> {
    let header = NpyHeader::read(reader)?;
    header.read_data(reader, header.dtype(), 0)
}

/// Writes a file, byte for byte as `numpy.save` does; bfloat16 as its raw bits in `uint16`.
pub fn write(writer: &mut dyn Write, tensor: &Tensor) -> io::Result<()> {
    writer.write_all(&header::text(tensor.dtype(), tensor.shape()))?;
    writer.write_all(tensor.bytes())
}

impl NpyHeader {
    /// Returns the size of the data that follows the header, in bytes.
    pub fn data_size(&self) -> Result<u64, TensorError> {
        byte_size(self.dtype(), &self.shape)
    }

    /// Returns whether the elements can be read as `dtype`. For bfloat16, its raw bits in `uint16`
    /// are accepted.
    pub fn gives(&self, dtype: DType) -> bool {
        self.dtype() == dtype
            || (dtype == DType::Bfloat16 && self.element == NpyElement::Of(DType::Uint16))
    }

    /// Reads the data after the header, up to the reader's end. `present` is the number of bytes
    /// that the reader certainly has; that much memory is allocated at once.
    pub fn read_data(
        &self,
        reader: &mut dyn Read,
        dtype: DType,
        present: u64,
    ) -> Result<Tensor, NpyError> {
        if !self.gives(dtype) {
            return Err(NpyError::DType {
                expected: dtype,
                found: self.dtype(),
            });
        }
        let expected = self.data_size()?;
        let mut bytes = read_exactly(reader, expected, present)?;
        let size = usize::try_from(dtype.size()).unwrap_or(1);
        if dtype == DType::Bool {
            // NumPy treats any other byte as true; tensors here hold only 0 and 1.
            for byte in &mut bytes {
                *byte = u8::from(*byte != 0);
            }
        }
        if self.big_endian && size > 1 {
            bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        }
        if self.fortran_order && self.shape.len() > 1 && !bytes.is_empty() {
            bytes = to_row_major(&bytes, &self.shape, size)?;
        }
        Ok(Tensor::new(dtype, self.shape.clone(), bytes)?)
    }
}

/// Reads `expected` bytes, and checks that no bytes follow.
fn read_exactly(reader: &mut dyn Read, expected: u64, present: u64) -> Result<Vec<u8>, NpyError> {
    let mut bytes = Vec::new();
    let reserved = expected.min(present.max(FIRST_RESERVE));
    let reserve = usize::try_from(reserved).map(|size| bytes.try_reserve_exact(size));
    if !matches!(reserve, Ok(Ok(()))) {
        return Err(TensorError::NoMemory { bytes: reserved }.into());
    }
    let failed = |error: &io::Error| NpyError::Read {
        reason: error.to_string(),
    };
    reader
        .take(expected)
        .read_to_end(&mut bytes)
        .map_err(|error| failed(&error))?;
    if (bytes.len() as u64) < expected {
        return Err(NpyError::Short {
            expected,
            found: bytes.len() as u64,
        });
    }
    // Reading to the end also makes an archive verify its checksum.
    let mut more = Vec::new();
    match reader.take(1).read_to_end(&mut more) {
        Ok(0) => Ok(bytes),
        Ok(_) => Err(NpyError::Trailing { expected }),
        Err(error) => Err(failed(&error)),
    }
}

/// Reorders elements from column-major to row-major order.
fn to_row_major(bytes: &[u8], shape: &[u64], size: usize) -> Result<Vec<u8>, TensorError> {
    let mut ordered = Vec::new();
    if ordered.try_reserve_exact(bytes.len()).is_err() {
        return Err(TensorError::NoMemory {
            bytes: bytes.len() as u64,
        });
    }
    let sizes: Vec<usize> = shape
        .iter()
        .map(|size| usize::try_from(*size).expect("a size of a tensor in memory"))
        .collect();
    let mut strides = vec![size; sizes.len()];
    for axis in 1..sizes.len() {
        strides[axis] = strides[axis - 1] * sizes[axis - 1];
    }
    let mut index = vec![0; sizes.len()];
    let mut at = 0;
    while ordered.len() < bytes.len() {
        ordered.extend_from_slice(&bytes[at..at + size]);
        for axis in (0..sizes.len()).rev() {
            index[axis] += 1;
            at += strides[axis];
            if index[axis] < sizes[axis] {
                break;
            }
            at -= strides[axis] * sizes[axis];
            index[axis] = 0;
        }
    }
    Ok(ordered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn column_major_becomes_row_major() {
        // [[1, 2, 3], [4, 5, 6]], stored column by column.
        let ordered = to_row_major(&[1, 4, 2, 5, 3, 6], &[2, 3], 1);
        assert_eq!(ordered, Ok(vec![1, 2, 3, 4, 5, 6]));
        let pairs = to_row_major(&[1, 1, 3, 3, 2, 2, 4, 4], &[2, 1, 2], 2);
        assert_eq!(pairs, Ok(vec![1, 1, 2, 2, 3, 3, 4, 4]));
    }
}
