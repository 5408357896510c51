//! Reads the constants of a program, from its file and its data files, into tract tensors.
//!
//! Each constant is read once for a graph, straight into the tensor's memory. float16 and bfloat16
//! become float32, which represents both exactly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use tract_onnx::tract_core::internal::{DatumType, Tensor};

use super::datum_type;
use super::guard::{LibraryFailure, guarded};
use crate::tensor::{DType, byte_size};
use pkgtool_base::source::{FileSource, ReadAt};
use pkgtool_model::ElementType;
use pkgtool_model::executorch::ConstantData;
use pkgtool_model::executorch::body::{ByteRange, DataFile, NamedTensor};
use pkgtool_model::executorch::coreml::PackageFunction;

/// The files that hold a program's weights.
pub(crate) struct ProgramWeights {
    program: FileSource,
    named: HashMap<String, ByteRange>,
    data: Vec<(PathBuf, FileSource, DataFile)>,
    package: Option<Arc<PackageFunction>>,
}

/// Location of named bytes.
struct Located<'w> {
    source: &'w FileSource,
    bytes: ByteRange,
}

impl ProgramWeights {
    /// Opens the weights of the program at `path`, which are stored in the program and in the data
    /// files beside it.
    pub(crate) fn open(
        path: &Path,
        named: impl IntoIterator<Item = (String, ByteRange)>,
    ) -> Result<Self, LibraryFailure> {
        let program = FileSource::open(path)
            .map_err(|error| LibraryFailure::new(format!("{}: {error}", path.display())))?;
        Ok(Self {
            program,
            named: named.into_iter().collect(),
            data: Vec::new(),
            package: None,
        })
    }

    /// Opens the weight file at `path` of a standalone package.
    pub(crate) fn of_package(
        path: &Path,
        package: PackageFunction,
    ) -> Result<Self, LibraryFailure> {
        let mut weights = Self::open(path, [])?;
        weights.package = Some(Arc::new(package));
        Ok(weights)
    }

    /// Returns the package if it is standalone.
    pub(crate) fn package(&self) -> Option<Arc<PackageFunction>> {
        self.package.clone()
    }

    /// Adds data files and reads their headers.
    pub(crate) fn add(&mut self, files: Vec<PathBuf>) -> Result<(), LibraryFailure> {
        for path in files {
            let fail = |error: String| LibraryFailure::new(format!("{}: {error}", path.display()));
            let source = FileSource::open(&path).map_err(|error| fail(error.to_string()))?;
            let file = DataFile::read(&source).map_err(|error| fail(error.to_string()))?;
            self.data.push((path, source, file));
        }
        Ok(())
    }

    /// Returns the approximate size of the weights in bytes: the total size of the files.
    pub(crate) fn size(&self) -> u64 {
        let data = self.data.iter().map(|(_, source, _)| source.len());
        data.fold(self.program.len(), u64::saturating_add)
    }

    /// Returns the program's file.
    pub(crate) fn program(&self) -> &FileSource {
        &self.program
    }

    /// Returns the location of named bytes inside the program.
    pub(crate) fn place(&self, name: &str) -> Option<ByteRange> {
        self.named.get(name).copied()
    }

    /// Reads a tensor from these bytes of the program.
    pub(crate) fn tensor(
        &self,
        dtype: DType,
        shape: &[u64],
        bytes: ByteRange,
    ) -> Result<Arc<Tensor>, LibraryFailure> {
        read(&self.program, dtype, shape, bytes)
    }

    /// Reads a named tensor. Its dtype and sizes must match the data file's, if the file declares
    /// them.
    pub(crate) fn named(
        &self,
        name: &str,
        dtype: DType,
        shape: &[u64],
    ) -> Result<Arc<Tensor>, LibraryFailure> {
        let found = self.find(name, |entry| {
            let Some((element, sizes)) = &entry.layout else {
                return Ok(());
            };
            let same = element.dtype() == Some(dtype) && sizes == shape;
            if same {
                return Ok(());
            }
            Err(LibraryFailure::new(format!(
                "layout of `{name}` differs: the data file has {}{sizes:?}, the program has {dtype}{shape:?}",
                element_name(element)
            )))
        })?;
        read(found.source, dtype, shape, found.bytes)
    }

    /// Reads at least `size` bytes of a delegate's constant.
    pub(crate) fn bytes(&self, data: &ConstantData, size: u64) -> Result<Vec<u8>, LibraryFailure> {
        let found = match data {
            ConstantData::Payload(bytes) => Located {
                source: &self.program,
                bytes: *bytes,
            },
            ConstantData::Named(name) => self.find(name, |_| Ok(()))?,
        };
        let range = checked_range(found.bytes, size)?;
        let mut bytes = zeros(range.size)?;
        fill(found.source, range, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns the maximum number of bytes of a delegate's constant.
    pub(crate) fn available(&self, data: &ConstantData) -> Result<u64, LibraryFailure> {
        Ok(match data {
            ConstantData::Payload(bytes) => bytes.size,
            ConstantData::Named(name) => self.find(name, |_| Ok(()))?.bytes.size,
        })
    }

    /// Reads a constant of a delegate as a tensor.
    pub(crate) fn constant(
        &self,
        data: &ConstantData,
        dtype: DType,
        shape: &[u64],
    ) -> Result<Arc<Tensor>, LibraryFailure> {
        match data {
            ConstantData::Payload(bytes) => read(&self.program, dtype, shape, *bytes),
            ConstantData::Named(name) => {
                let found = self.find(name, |_| Ok(()))?;
                read(found.source, dtype, shape, found.bytes)
            }
        }
    }

    fn find(
        &self,
        name: &str,
        check: impl Fn(&NamedTensor) -> Result<(), LibraryFailure>,
    ) -> Result<Located<'_>, LibraryFailure> {
        if let Some(bytes) = self.named.get(name) {
            return Ok(Located {
                source: &self.program,
                bytes: *bytes,
            });
        }
        for (_, source, file) in &self.data {
            if let Some(entry) = file.named.get(name) {
                check(entry)?;
                return Ok(Located {
                    source,
                    bytes: entry.bytes,
                });
            }
        }
        let searched: Vec<String> = self
            .data
            .iter()
            .map(|(path, ..)| path.display().to_string())
            .collect();
        Err(LibraryFailure::new(format!(
            "data `{name}` is missing in the program and in the data files (.ptd) beside it{}",
            match searched.as_slice() {
                [] => "; no data file was found".to_owned(),
                paths => format!(" ({})", paths.join(", ")),
            }
        )))
    }
}

fn element_name(element: &ElementType) -> String {
    element.name().to_owned()
}

fn checked_range(bytes: ByteRange, size: u64) -> Result<ByteRange, LibraryFailure> {
    if size > bytes.size {
        return Err(LibraryFailure::new(format!(
            "constant too short: expected {size} bytes, got {} at offset {}",
            bytes.size, bytes.offset
        )));
    }
    Ok(ByteRange { size, ..bytes })
}

fn zeros(size: u64) -> Result<Vec<u8>, LibraryFailure> {
    let no_memory =
        || LibraryFailure::new(format!("not enough memory for a constant of {size} bytes"));
    let size = usize::try_from(size).map_err(|_| no_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
    bytes.resize(size, 0);
    Ok(bytes)
}

fn fill(source: &FileSource, range: ByteRange, bytes: &mut [u8]) -> Result<(), LibraryFailure> {
    source.read_exact_at(range.offset, bytes).map_err(|error| {
        LibraryFailure::new(format!(
            "cannot read {} bytes at offset {}: {error}",
            range.size, range.offset
        ))
    })
}

fn read(
    source: &FileSource,
    dtype: DType,
    shape: &[u64],
    bytes: ByteRange,
) -> Result<Arc<Tensor>, LibraryFailure> {
    let size = byte_size(dtype, shape).map_err(|error| LibraryFailure::new(error.to_string()))?;
    let range = checked_range(bytes, size)?;
    let sizes = super::elements::sizes(shape)?;
    let mut tensor = guarded(|| Tensor::zero_dt(datum_type(dtype), &sizes))?;
    match dtype {
        DType::Float16 | DType::Bfloat16 => {
            let mut raw = zeros(range.size)?;
            fill(source, range, &mut raw)?;
            guarded(|| {
                let mut view = tensor.try_as_plain_ram_mut()?;
                let floats = view.as_slice_mut::<f32>()?;
                let (halves, _) = raw.as_chunks::<2>();
                for (to, from) in floats.iter_mut().zip(halves) {
                    *to = widen(dtype, *from);
                }
                Ok(())
            })?;
        }
        _ => fill(source, range, tensor.as_bytes_mut())?,
    }
    if datum_type(dtype) == DatumType::Bool {
        for byte in tensor.as_bytes_mut() {
            *byte = u8::from(*byte != 0);
        }
    }
    Ok(Arc::new(tensor))
}

/// Returns the value of a float16 or bfloat16 number as float32.
pub(crate) fn widen(dtype: DType, bytes: [u8; 2]) -> f32 {
    match dtype {
        DType::Bfloat16 => bf16::from_le_bytes(bytes).to_f32(),
        _ => f16::from_le_bytes(bytes).to_f32(),
    }
}
