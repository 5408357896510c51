//! Reads the header of a `TensorProto`: its name, the size of its data in the file, and the
//! location of external data.
//!
//! Data is never read; its size follows from the lengths of the fields.

use super::external::ExternalFiles;
use super::load::rejected;
use super::wire::WireField;
use super::{schema, value};
use crate::FormatError;

/// Maximum length of a value in an error, in characters.
const MAX_SHOWN_CHARS: usize = 40;
/// Maximum size of a field of packed numbers that is read to count them, in bytes.
const MAX_COUNTED_BYTES: u64 = 1024;
/// Maximum size of a number in a packed field, in bytes.
const MAX_VARINT_BYTES: u64 = 10;

/// The header of a tensor.
#[derive(Default)]
pub(super) struct TensorHeader {
    /// Its name, if it is within the length limit for names.
    pub(super) name: Option<Vec<u8>>,
    /// Size of its data inside the file, in bytes.
    pub(super) bytes: u64,
    /// Its element type number.
    pub(super) data_type: i64,
    /// Its number of elements; 0 if that is invalid.
    pub(super) elements: u64,
}

/// Reads a `TensorProto`. Adds its external data to `locations`.
pub(super) fn read(
    field: &WireField<'_>,
    locations: &mut ExternalFiles,
) -> Result<TensorHeader, FormatError> {
    let mut tensor = TensorHeader::default();
    let mut external = ExternalLocation::default();
    let mut data = DataSizes::default();
    let mut message = field.message(schema::TENSOR)?;
    while let Some(field) = message.next()? {
        match field.name() {
            "name" => tensor.name = field.name_bytes()?,
            "dims" => field.each_int(|dim| external.multiply(dim))?,
            "data_type" => external.data_type = field.int()?,
            "data_location" => external.used = field.int()? == 1,
            "external_data" => external.entry(&field)?,
            "raw_data" | "float_data" | "int32_data" | "string_data" | "int64_data"
            | "double_data" | "uint64_data" => {
                tensor.bytes = tensor.bytes.saturating_add(field.size());
                data.add(&field)?;
            }
            _ => {}
        }
    }
    tensor.data_type = external.data_type;
    tensor.elements = external.elements.unwrap_or(0);
    if external.is_negative {
        return Err(rejected(
            field,
            "the tensor has a negative dimension".to_owned(),
        ));
    }
    if !external.used
        && let Some(elements) = external.elements
    {
        data.check(tensor.data_type, elements)
            .map_err(|fault| rejected(field, fault))?;
    }
    if external.used {
        let (location, end) = external.finish(field)?;
        locations.add(field, location, end)?;
    }
    Ok(tensor)
}

/// Reads a `SparseTensorProto`: values and indices, named after its values.
pub(super) fn read_sparse(
    field: &WireField<'_>,
    locations: &mut ExternalFiles,
) -> Result<TensorHeader, FormatError> {
    let mut tensor = TensorHeader::default();
    let mut message = field.message(schema::SPARSE_TENSOR)?;
    while let Some(field) = message.next()? {
        if !matches!(field.name(), "values" | "indices") {
            continue;
        }
        let part = read(&field, locations)?;
        tensor.bytes = tensor.bytes.saturating_add(part.bytes);
        if field.name() == "values" {
            tensor.name = part.name;
            tensor.data_type = part.data_type;
            tensor.elements = part.elements;
        }
    }
    Ok(tensor)
}

/// Amount of a tensor's data in the file, by encoding.
#[derive(Default)]
struct DataSizes {
    /// Bytes of `raw_data`, if present.
    raw: Option<u64>,
    /// Bytes of the fields with fixed-size numbers.
    fixed: u64,
    /// Bytes of the fields with varints.
    packed: u64,
    /// Number of varints in fields that are short enough to count.
    numbers: u64,
    /// True if a field is too long to count its varints.
    is_long: bool,
}

impl DataSizes {
    fn add(&mut self, field: &WireField<'_>) -> Result<(), FormatError> {
        match field.name() {
            "raw_data" => self.raw = Some(field.size()),
            "string_data" => {}
            "float_data" | "double_data" => self.fixed = self.fixed.saturating_add(field.size()),
            _ => {
                self.packed = self.packed.saturating_add(field.size());
                if field.size() <= MAX_COUNTED_BYTES {
                    field.each_int(|_| self.numbers += 1)?;
                } else {
                    self.is_long = true;
                }
            }
        }
        Ok(())
    }

    /// Checks that the data matches a number of elements of a type.
    fn check(&self, data_type: i64, elements: u64) -> Result<(), String> {
        let Some(bits) = value::element_bits(data_type) else {
            return Ok(());
        };
        let bytes = |count: u64| format!("{count} bytes");
        let wrong = |found: String, expected: String| {
            format!("the tensor has {found} of data in the file: expected {expected}")
        };
        let Some(whole) = elements.checked_mul(bits).map(|bits| bits.div_ceil(8)) else {
            return Err(wrong(
                bytes(self.raw.unwrap_or(0)),
                "more than 2^61 bytes".to_owned(),
            ));
        };
        if let Some(raw) = self.raw {
            let fits = raw == whole;
            return if fits {
                Ok(())
            } else {
                Err(wrong(bytes(raw), bytes(whole)))
            };
        }
        if self.fixed > 0 {
            let fits = self.fixed == whole;
            return if fits {
                Ok(())
            } else {
                Err(wrong(bytes(self.fixed), bytes(whole)))
            };
        }
        // A number takes one to ten bytes; two 4-bit numbers share one.
        let numbers = if bits < 8 { whole } else { elements };
        let most = numbers.saturating_mul(MAX_VARINT_BYTES);
        if self.numbers == numbers && !self.is_long {
            return Ok(());
        }
        if !self.is_long {
            let count = |count| format!("{count} numbers");
            return Err(wrong(count(self.numbers), count(numbers)));
        }
        if (numbers..=most).contains(&self.packed) {
            return Ok(());
        }
        Err(wrong(
            bytes(self.packed),
            format!("{numbers} to {most} bytes"),
        ))
    }
}

/// The location of a tensor's external data; its fields may occur in any order.
struct ExternalLocation {
    used: bool,
    location: Option<String>,
    offset: u64,
    length: Option<u64>,
    data_type: i64,
    /// Product of the dimensions; `None` after an overflow or a negative dimension.
    elements: Option<u64>,
    /// True if a dimension is negative.
    is_negative: bool,
}

impl Default for ExternalLocation {
    fn default() -> Self {
        Self {
            used: false,
            location: None,
            offset: 0,
            length: None,
            data_type: 0,
            elements: Some(1),
            is_negative: false,
        }
    }
}

impl ExternalLocation {
    fn multiply(&mut self, dim: i64) {
        self.is_negative |= dim < 0;
        let dim = u64::try_from(dim).ok();
        self.elements = self
            .elements
            .zip(dim)
            .and_then(|(elements, dim)| elements.checked_mul(dim));
    }

    /// Reads an entry of `external_data`: `location`, `offset` or `length`; other keys are ignored.
    fn entry(&mut self, field: &WireField<'_>) -> Result<(), FormatError> {
        let mut key = String::new();
        let mut value = None;
        let mut message = field.message(schema::ENTRY)?;
        while let Some(field) = message.next()? {
            match field.name() {
                "key" => key = field.text()?,
                "value" => value = Some(field.text()?),
                _ => {}
            }
        }
        let value = value.unwrap_or_default();
        match key.as_str() {
            "location" => self.location = Some(value).filter(|location| !location.is_empty()),
            "offset" => self.offset = number(field, "offset", &value)?,
            "length" => self.length = Some(number(field, "length", &value)?),
            _ => {}
        }
        Ok(())
    }

    /// Returns the file and the end of the data in it. Without a length, the data has the size of
    /// the tensor; if that is unknown, it counts as empty.
    fn finish(self, tensor: &WireField<'_>) -> Result<(String, u64), FormatError> {
        let location = self.location.ok_or_else(|| {
            let list = tensor.place().field("external_data");
            let message = format_args!("{} is missing", list.field("location"));
            FormatError::at(tensor.offset(), message)
        })?;
        let too_large = || {
            tensor
                .position()
                .violates("the end of its external data does not fit 64 bits")
        };
        let length = match (self.length, value::element_bits(self.data_type)) {
            (Some(length), _) => length,
            (None, None) => 0,
            (None, Some(bits)) => self
                .elements
                .and_then(|elements| elements.checked_mul(bits))
                .ok_or_else(too_large)?
                .div_ceil(8),
        };
        let end = self.offset.checked_add(length).ok_or_else(too_large)?;
        Ok((location, end))
    }
}

fn number(field: &WireField<'_>, key: &'static str, value: &str) -> Result<u64, FormatError> {
    value.parse().map_err(|_| {
        field.position().expected(
            format_args!("a number of bytes as {key:?}"),
            format_args!(
                "{:?}",
                value.chars().take(MAX_SHOWN_CHARS).collect::<String>()
            ),
        )
    })
}
