//! Reads input tensors from files: NumPy arrays and archives, and raw elements.
//!
//! Invariant: dtype and shape are checked against the input before the data is read. The sizes that
//! an archive claims are checked before anything is decompressed.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::dims::{AxisSize, DimSizes};
use super::error::{InputLabel, names};
use super::{Assembly, InputError};
use crate::tensor::npy::{NpyError, NpyHeader};
use crate::tensor::{DType, Signature, Tensor, TensorSpec, byte_size};

/// Remedy for a file that cannot be read.
const ANOTHER_FILE_HELP: &str = "give another file";

/// Opens a regular file, and returns its size in bytes.
pub(super) fn open(path: &Path) -> Result<(BufReader<File>, u64), String> {
    // Opening a pipe would block until another process writes to it.
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    Ok((BufReader::new(file), metadata.len()))
}

/// Reads an array file for one input.
pub(super) fn npy(
    assembly: &mut Assembly,
    input: usize,
    path: &Path,
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = InputLabel::of(assembly.signature, input);
    let (mut reader, size) =
        open(path).map_err(|reason| place.value(origin, reason, ANOTHER_FILE_HELP))?;
    array(assembly, input, &mut reader, (size, size), origin)
}

/// Reads an array of `size` bytes, of which `present` certainly exist.
fn array(
    assembly: &mut Assembly,
    input: usize,
    reader: &mut dyn Read,
    (size, present): (u64, u64),
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = || InputLabel::of(assembly.signature, input);
    let unreadable = |error: NpyError| place().value(origin, error, ANOTHER_FILE_HELP);
    let dtype = assembly.signature.inputs[input].dtype;
    let header = NpyHeader::read(reader).map_err(unreadable)?;
    let found = if header.gives(dtype) {
        dtype
    } else {
        header.dtype()
    };
    assembly.dims.fit(input, found, &header.shape, origin)?;
    let data = header
        .data_size()
        .map_err(|error| unreadable(error.into()))?;
    let expected = header.size + data;
    if size > expected {
        return Err(unreadable(NpyError::Trailing { expected: data }));
    }
    if size < expected {
        return Err(unreadable(NpyError::Short {
            expected: data,
            found: size.saturating_sub(header.size),
        }));
    }
    // Reordering temporarily needs the elements twice.
    assembly
        .memory
        .take(if header.fortran_order { 2 * data } else { data })?;
    header
        .read_data(reader, dtype, present.saturating_sub(header.size))
        .map_err(|error| {
            InputLabel::of(assembly.signature, input).value(origin, error, ANOTHER_FILE_HELP)
        })
}

/// Reads an archive with arrays for all inputs.
pub(super) fn npz(assembly: &mut Assembly, path: &Path, origin: &str) -> Result<(), InputError> {
    let failed = |reason: String, help: &str| InputError::Source {
        origin: origin.to_owned(),
        reason,
        help: help.to_owned(),
    };
    let (reader, _) = open(path).map_err(|reason| failed(reason, ANOTHER_FILE_HELP))?;
    let mut archive = ZipArchive::new(reader)
        .map_err(|error| failed(format!("not a .npz archive: {error}"), ANOTHER_FILE_HELP))?;
    if archive.has_duplicate_names() {
        let reason = "two of its members have the same name".to_owned();
        return Err(failed(reason, "save each array once"));
    }
    let signature = assembly.signature;
    let mut members = vec![None; signature.inputs.len()];
    let files: Vec<String> = archive
        .file_names()
        .map(|name| name.map(std::borrow::Cow::into_owned))
        .collect::<Result<_, _>>()
        .map_err(|error| failed(error.to_string(), ANOTHER_FILE_HELP))?;
    let positions = positional(signature, &files);
    if let Some(count) = positions
        .as_ref()
        .map(Vec::len)
        .filter(|count| *count != members.len())
    {
        let reason = format!(
            "it has {count} arrays, but there are {} inputs",
            members.len()
        );
        let help = format!("save one array for each, in order; {}", names(signature));
        return Err(failed(reason, &help));
    }
    for (member, file) in files.iter().enumerate() {
        let key = file.strip_suffix(".npy");
        let named = signature
            .inputs
            .iter()
            .position(|input| Some(input.name.as_str()) == key);
        let input = match &positions {
            Some(positions) => Some(positions[member]),
            None => named,
        };
        let Some(input) = input else {
            let file: String = file.chars().take(200).collect();
            let reason = format!("its member `{file}` matches no input");
            let help = format!(
                "the keys must be the names of all inputs, or arr_0, arr_1, … in their order; {}",
                names(signature)
            );
            return Err(failed(reason, &help));
        };
        members[input] = Some(member);
    }
    for (input, member) in members.into_iter().enumerate() {
        let Some(member) = member else { continue };
        let mut member = archive.by_index(member).map_err(|error| {
            InputLabel::of(signature, input).value(origin, error, ANOTHER_FILE_HELP)
        })?;
        let size = member.size();
        let tensor = array(assembly, input, &mut member, (size, 0), origin)?;
        assembly.tensors[input] = Some(tensor);
    }
    Ok(())
}

/// Returns the input of each member if all have NumPy's positional names, `arr_0` and up. If an
/// input has such a name, the names are not positional.
fn positional(signature: &Signature, files: &[String]) -> Option<Vec<usize>> {
    let place = |file: &String| {
        let number = file.strip_suffix(".npy")?.strip_prefix("arr_")?;
        let place: usize = number.parse().ok()?;
        (place.to_string() == number && place < files.len()).then_some(place)
    };
    let places: Vec<usize> = files.iter().map(place).collect::<Option<_>>()?;
    let is_name = |input: &TensorSpec| {
        files
            .iter()
            .any(|file| file.strip_suffix(".npy") == Some(&input.name))
    };
    (!files.is_empty() && !signature.inputs.iter().any(is_name)).then_some(places)
}

/// Reads raw elements for one input; the shape is derived from the file's size if possible.
pub(super) fn raw(
    assembly: &mut Assembly,
    input: usize,
    path: &Path,
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = || InputLabel::of(assembly.signature, input);
    let dtype = assembly.signature.inputs[input].dtype;
    let (reader, size) =
        open(path).map_err(|reason| place().value(origin, reason, ANOTHER_FILE_HELP))?;
    let help =
        "the file must hold exactly the elements, little-endian; a .npy file states its shape";
    let shape = raw_shape(&assembly.dims, input, dtype, size)
        .map_err(|reason| place().value(origin, reason, help))?;
    assembly.dims.fit(input, dtype, &shape, origin)?;
    assembly.memory.take(size)?;
    let place = InputLabel::of(assembly.signature, input);
    let mut bytes = Vec::new();
    let wanted = usize::try_from(size).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(wanted).is_err() {
        return Err(place.value(origin, "not enough memory", ANOTHER_FILE_HELP));
    }
    // A growing file is cut off; for a shrinking one, the tensor's size check fails.
    let read = reader.take(size).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Err(place.value(origin, error, ANOTHER_FILE_HELP));
    }
    if dtype == DType::Bool {
        for byte in &mut bytes {
            *byte = u8::from(*byte != 0);
        }
    }
    Tensor::new(dtype, shape, bytes).map_err(|error| place.value(origin, error, help))
}

/// Derives the shape of `size` bytes of raw elements. Defaults apply if they are the only sizes
/// that yield this number of bytes: all open dimensions at their bounds, or none with a bound.
/// Otherwise one open dimension is derived from the size.
fn raw_shape(dims: &DimSizes, input: usize, dtype: DType, size: u64) -> Result<Vec<u64>, String> {
    let Some(axes) = dims.axes(input) else {
        return Err("the model does not state the input's rank".to_owned());
    };
    let mut shape: Vec<u64> = axes.iter().map(|axis| dims.or_default(*axis)).collect();
    let free: Vec<AxisSize> = axes
        .iter()
        .copied()
        .filter(|axis| dims.known(*axis).is_none())
        .collect();
    let bounded = free
        .iter()
        .filter(|axis| dims.bound(**axis).is_some())
        .count();
    let fits = byte_size(dtype, &shape) == Ok(size);
    if fits && (bounded == free.len() || bounded == 0) {
        return Ok(shape);
    }
    let open: Vec<AxisSize> = free
        .into_iter()
        .filter(|axis| dims.is_open(*axis))
        .collect();
    match open[..] {
        [] => {
            let wanted = byte_size(dtype, &shape).map_err(|error| error.to_string())?;
            Err(format!(
                "it has {size} bytes, but {dtype}{shape:?} needs {wanted}"
            ))
        }
        [open] => {
            let at = axes.iter().position(|axis| *axis == open).unwrap_or(0);
            shape[at] = 1;
            let row = byte_size(dtype, &shape).map_err(|error| error.to_string())?;
            if row == 0 || !size.is_multiple_of(row) {
                let label = dims.label(open);
                return Err(format!(
                    "it has {size} bytes, which is not a multiple of {row}, the size of one step of `{label}`"
                ));
            }
            shape[at] = size / row;
            Ok(shape)
        }
        _ => {
            let mut labels: Vec<String> = open
                .iter()
                .map(|axis| format!("`{}`", dims.label(*axis)))
                .collect();
            labels.dedup();
            Err(format!(
                "its {size} bytes do not determine the sizes of {}: give them with `--dim`",
                labels.join(", ")
            ))
        }
    }
}
