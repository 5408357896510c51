//! Stored elements of a program and its data files, as tensors of the library.
//!
//! Each is read once for a graph, straight into the tensor's memory. float16 and bfloat16 become
//! float32, which holds both exactly.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use half::{bf16, f16};
use tract_onnx::tract_core::internal::{DatumType, Tensor};

use super::super::guard::{Failure, guarded};
use super::datum_type;
use crate::model::ElementType;
use crate::model::executorch::Data;
use crate::model::executorch::body::{ByteRange, DataFile, NamedTensor};
use crate::model::executorch::coreml::Package;
use crate::source::{FileSource, ReadAt};
use crate::tensor::{DType, byte_size};

/// The files of a program.
pub(super) struct Weights {
    program: FileSource,
    named: HashMap<String, ByteRange>,
    data: Vec<(PathBuf, FileSource, DataFile)>,
    package: Option<Arc<Package>>,
}

/// Where named bytes are.
struct Found<'w> {
    source: &'w FileSource,
    bytes: ByteRange,
}

impl Weights {
    /// The weights of the program at `path`: in itself, and in the data files beside it.
    pub(super) fn open(
        path: &Path,
        named: impl IntoIterator<Item = (String, ByteRange)>,
    ) -> Result<Self, Failure> {
        let program = FileSource::open(path)
            .map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
        Ok(Self {
            program,
            named: named.into_iter().collect(),
            data: Vec::new(),
            package: None,
        })
    }

    /// The weight file at `path` of a package that stands by itself.
    pub(super) fn of_package(path: &Path, package: Package) -> Result<Self, Failure> {
        let mut weights = Self::open(path, [])?;
        weights.package = Some(Arc::new(package));
        Ok(weights)
    }

    /// The package that stands by itself, if it is one.
    pub(super) fn package(&self) -> Option<Arc<Package>> {
        self.package.clone()
    }

    /// Adds data files, whose headers are read here.
    pub(super) fn add(&mut self, files: Vec<PathBuf>) -> Result<(), Failure> {
        for path in files {
            let fail = |error: String| Failure::new(format!("{}: {error}", path.display()));
            let source = FileSource::open(&path).map_err(|error| fail(error.to_string()))?;
            let file = DataFile::read(&source).map_err(|error| fail(error.to_string()))?;
            self.data.push((path, source, file));
        }
        Ok(())
    }

    /// About how many bytes they take: what the files do.
    pub(super) fn size(&self) -> u64 {
        let data = self.data.iter().map(|(_, source, _)| source.len());
        data.fold(self.program.len(), u64::saturating_add)
    }

    /// The program's file.
    pub(super) fn program(&self) -> &FileSource {
        &self.program
    }

    /// Where the program itself holds named bytes.
    pub(super) fn place(&self, name: &str) -> Option<ByteRange> {
        self.named.get(name).copied()
    }

    /// A tensor of these bytes of the program.
    pub(super) fn tensor(
        &self,
        dtype: DType,
        shape: &[u64],
        bytes: ByteRange,
    ) -> Result<Arc<Tensor>, Failure> {
        read(&self.program, dtype, shape, bytes)
    }

    /// A named tensor. Its dtype and sizes must be the data file's, where that says any.
    pub(super) fn named(
        &self,
        name: &str,
        dtype: DType,
        shape: &[u64],
    ) -> Result<Arc<Tensor>, Failure> {
        let found = self.find(name, |entry| {
            let Some((element, sizes)) = &entry.layout else {
                return Ok(());
            };
            let same = DType::from_element(element) == Some(dtype) && sizes == shape;
            if same {
                return Ok(());
            }
            Err(Failure::new(format!(
                "the data file has `{name}` as {}{sizes:?}, the program as {dtype}{shape:?}",
                element_name(element)
            )))
        })?;
        read(found.source, dtype, shape, found.bytes)
    }

    /// The bytes of a constant of a delegate: at least `size` of them.
    pub(super) fn bytes(&self, data: &Data, size: u64) -> Result<Vec<u8>, Failure> {
        let found = match data {
            Data::Payload(bytes) => Found {
                source: &self.program,
                bytes: *bytes,
            },
            Data::Named(name) => self.find(name, |_| Ok(()))?,
        };
        let range = first(found.bytes, size)?;
        let mut bytes = zeros(range.size)?;
        fill(found.source, range, &mut bytes)?;
        Ok(bytes)
    }

    /// How many bytes a constant of a delegate has at most.
    pub(super) fn available(&self, data: &Data) -> Result<u64, Failure> {
        Ok(match data {
            Data::Payload(bytes) => bytes.size,
            Data::Named(name) => self.find(name, |_| Ok(()))?.bytes.size,
        })
    }

    /// A constant of a delegate as a tensor.
    pub(super) fn constant(
        &self,
        data: &Data,
        dtype: DType,
        shape: &[u64],
    ) -> Result<Arc<Tensor>, Failure> {
        match data {
            Data::Payload(bytes) => read(&self.program, dtype, shape, *bytes),
            Data::Named(name) => {
                let found = self.find(name, |_| Ok(()))?;
                read(found.source, dtype, shape, found.bytes)
            }
        }
    }

    fn find(
        &self,
        name: &str,
        check: impl Fn(&NamedTensor) -> Result<(), Failure>,
    ) -> Result<Found<'_>, Failure> {
        if let Some(bytes) = self.named.get(name) {
            return Ok(Found {
                source: &self.program,
                bytes: *bytes,
            });
        }
        for (_, source, file) in &self.data {
            if let Some(entry) = file.named.get(name) {
                check(entry)?;
                return Ok(Found {
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
        Err(Failure::new(format!(
            "the data `{name}` is neither in the program nor in a data file (.ptd) beside it{}",
            match searched.as_slice() {
                [] => "; there is none".to_owned(),
                paths => format!(" ({})", paths.join(", ")),
            }
        )))
    }
}

fn element_name(element: &ElementType) -> String {
    element.name().to_owned()
}

fn first(bytes: ByteRange, size: u64) -> Result<ByteRange, Failure> {
    if size > bytes.size {
        return Err(Failure::new(format!(
            "a constant needs {size} bytes, {} are stored at offset {}",
            bytes.size, bytes.offset
        )));
    }
    Ok(ByteRange { size, ..bytes })
}

fn zeros(size: u64) -> Result<Vec<u8>, Failure> {
    let no_memory = || Failure::new(format!("there is no memory for a constant of {size} bytes"));
    let size = usize::try_from(size).map_err(|_| no_memory())?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).map_err(|_| no_memory())?;
    bytes.resize(size, 0);
    Ok(bytes)
}

fn fill(source: &FileSource, range: ByteRange, bytes: &mut [u8]) -> Result<(), Failure> {
    source.read_exact_at(range.offset, bytes).map_err(|error| {
        Failure::new(format!(
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
) -> Result<Arc<Tensor>, Failure> {
    let size = byte_size(dtype, shape).map_err(|error| Failure::new(error.to_string()))?;
    let range = first(bytes, size)?;
    let sizes = super::super::elements::sizes(shape)?;
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

/// The value of a float16 or bfloat16.
pub(super) fn widen(dtype: DType, bytes: [u8; 2]) -> f32 {
    match dtype {
        DType::Bfloat16 => bf16::from_le_bytes(bytes).to_f32(),
        _ => f16::from_le_bytes(bytes).to_f32(),
    }
}
