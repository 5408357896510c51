//! Tensors from files: NumPy's arrays and archives, raw elements.
//!
//! Invariant: dtype and shape are held against the input before the data is read, and an archive's
//! claimed sizes before anything is inflated.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use zip::ZipArchive;

use super::dims::{Dims, Size};
use super::error::{Place, names};
use super::{Assembly, InputError};
use crate::tensor::npy::{Header, NpyError};
use crate::tensor::{DType, Signature, Tensor, TensorSpec, byte_size};

/// What to do about a file that cannot be read.
const ANOTHER: &str = "give another file";

/// Opens a regular file; also its size in bytes.
pub(super) fn open(path: &Path) -> Result<(BufReader<File>, u64), String> {
    // Opening a pipe would wait for somebody to write into it.
    let metadata = std::fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let file = File::open(path).map_err(|error| error.to_string())?;
    Ok((BufReader::new(file), metadata.len()))
}

/// Reads an array for one input.
pub(super) fn npy(
    assembly: &mut Assembly,
    input: usize,
    path: &Path,
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = Place::of(assembly.signature, input);
    let (mut reader, size) = open(path).map_err(|reason| place.value(origin, reason, ANOTHER))?;
    array(assembly, input, &mut reader, (size, size), origin)
}

/// Reads an array of `size` bytes, `present` of which are certainly there.
fn array(
    assembly: &mut Assembly,
    input: usize,
    reader: &mut dyn Read,
    (size, present): (u64, u64),
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = || Place::of(assembly.signature, input);
    let unreadable = |error: NpyError| place().value(origin, error, ANOTHER);
    let dtype = assembly.signature.inputs[input].dtype;
    let header = Header::read(reader).map_err(unreadable)?;
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
    // Reordering needs the elements twice for a moment.
    assembly
        .memory
        .take(if header.fortran_order { 2 * data } else { data })?;
    header
        .read_data(reader, dtype, present.saturating_sub(header.size))
        .map_err(|error| Place::of(assembly.signature, input).value(origin, error, ANOTHER))
}

/// Reads an archive for all inputs.
pub(super) fn npz(assembly: &mut Assembly, path: &Path, origin: &str) -> Result<(), InputError> {
    let failed = |reason: String, help: &str| InputError::Source {
        origin: origin.to_owned(),
        reason,
        help: help.to_owned(),
    };
    let (reader, _) = open(path).map_err(|reason| failed(reason, ANOTHER))?;
    let mut archive = ZipArchive::new(reader)
        .map_err(|error| failed(format!("it is no .npz archive: {error}"), ANOTHER))?;
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
        .map_err(|error| failed(error.to_string(), ANOTHER))?;
    let positions = positional(signature, &files);
    if let Some(count) = positions
        .as_ref()
        .map(Vec::len)
        .filter(|count| *count != members.len())
    {
        let reason = format!(
            "it has {count} arrays, and there are {} inputs",
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
            let reason = format!("its member `{file}` is of no input");
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
        let mut member = archive
            .by_index(member)
            .map_err(|error| Place::of(signature, input).value(origin, error, ANOTHER))?;
        let size = member.size();
        let tensor = array(assembly, input, &mut member, (size, 0), origin)?;
        assembly.tensors[input] = Some(tensor);
    }
    Ok(())
}

/// The input of each member, where all are named as NumPy names positional arrays: `arr_0` to the last.
/// An input of such a name is one that names are meant for.
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

/// Reads raw elements for one input; its shape follows from the file's size where it can.
pub(super) fn raw(
    assembly: &mut Assembly,
    input: usize,
    path: &Path,
    origin: &str,
) -> Result<Tensor, InputError> {
    let place = || Place::of(assembly.signature, input);
    let dtype = assembly.signature.inputs[input].dtype;
    let (reader, size) = open(path).map_err(|reason| place().value(origin, reason, ANOTHER))?;
    let help =
        "the file has to hold exactly the elements, little endian; a .npy file says its shape";
    let shape = raw_shape(&assembly.dims, input, dtype, size)
        .map_err(|reason| place().value(origin, reason, help))?;
    assembly.dims.fit(input, dtype, &shape, origin)?;
    assembly.memory.take(size)?;
    let place = Place::of(assembly.signature, input);
    let mut bytes = Vec::new();
    let wanted = usize::try_from(size).unwrap_or(usize::MAX);
    if bytes.try_reserve_exact(wanted).is_err() {
        return Err(place.value(origin, "there is no memory for it", ANOTHER));
    }
    // A file that grows meanwhile is cut, one that shrinks is found by the tensor's own check.
    let read = reader.take(size).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Err(place.value(origin, error, ANOTHER));
    }
    if dtype == DType::Bool {
        for byte in &mut bytes {
            *byte = u8::from(*byte != 0);
        }
    }
    Tensor::new(dtype, shape, bytes).map_err(|error| place.value(origin, error, help))
}

/// The shape of `size` bytes of raw elements. Defaults are taken where no other sizes can give as
/// many bytes: all open dimensions at their bounds, or none with a bound. Otherwise one open dimension
/// follows from the size.
fn raw_shape(dims: &Dims, input: usize, dtype: DType, size: u64) -> Result<Vec<u64>, String> {
    let Some(axes) = dims.axes(input) else {
        return Err("the model does not say the input's rank".to_owned());
    };
    let mut shape: Vec<u64> = axes.iter().map(|axis| dims.or_default(*axis)).collect();
    let free: Vec<Size> = axes
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
    let open: Vec<Size> = free
        .into_iter()
        .filter(|axis| dims.is_open(*axis))
        .collect();
    match open[..] {
        [] => {
            let wanted = byte_size(dtype, &shape).map_err(|error| error.to_string())?;
            Err(format!(
                "it has {size} bytes, and {dtype}{shape:?} has {wanted}"
            ))
        }
        [open] => {
            let at = axes.iter().position(|axis| *axis == open).unwrap_or(0);
            shape[at] = 1;
            let row = byte_size(dtype, &shape).map_err(|error| error.to_string())?;
            if row == 0 || !size.is_multiple_of(row) {
                let label = dims.label(open);
                return Err(format!(
                    "it has {size} bytes, which is no multiple of the {row} that one step of `{label}` has"
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
                "its {size} bytes do not tell the sizes of {}: give them with `--dim`",
                labels.join(", ")
            ))
        }
    }
}
