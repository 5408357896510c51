//! Errors of the ExecuTorch reader: one variant per invariant.
//!
//! Every message names the field, its offset in the file, the expected and the actual content.

use std::fmt;

use crate::FormatError;
use pkgtool_base::source::pages::PageError;

/// A position in the file: the path of a field from the root table, and its offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPosition {
    /// The field, as in `Program.execution_plan[0].values[3].sizes`.
    pub path: String,
    /// Offset from the beginning of the file.
    pub offset: u64,
}

impl fmt::Display for FieldPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.path, self.offset)
    }
}

/// A violation of the ExecuTorch format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file does not begin like an ExecuTorch program.
    #[error(
        "not an ExecuTorch program: expected identifier ET12 at offset {offset}, found {found}"
    )]
    Identifier {
        /// File offset of the expected identifier.
        offset: u64,
        /// The first bytes; in words if they are well known.
        found: String,
    },
    /// The file does not begin like a data file.
    #[error("not an ExecuTorch data file: expected identifier FT01 at offset 4, found {found}")]
    DataIdentifier {
        /// The bytes found instead.
        found: String,
    },
    /// A data file lacks the extended header that locates its parts.
    #[error(
        "{place}: expected an extended header FH01 in the first 48 bytes, found none in a file of {len}"
    )]
    DataHeader {
        /// The expected position.
        place: FieldPosition,
        /// Size of the file in bytes.
        len: u64,
    },
    /// A delegate's payload does not begin like a payload of its backend.
    #[error("{place}: expected {expected}, found {found}")]
    PayloadMagic {
        /// The identifier.
        place: FieldPosition,
        /// The expected identifiers.
        expected: &'static str,
        /// The actual content.
        found: String,
    },
    /// The program has an unsupported version of the format.
    #[error(
        "unsupported version of an ExecuTorch program: expected identifier {expected} at offset {offset}, found {found}"
    )]
    Version {
        /// File offset of the identifier.
        offset: u64,
        /// The supported identifier.
        expected: &'static str,
        /// The identifier in the file.
        found: String,
    },
    /// The bytes cannot be read.
    #[error("{place}: {error}")]
    Read {
        /// The position to read.
        place: FieldPosition,
        /// The cause.
        error: PageError,
    },
    /// The extended header is shorter than its fixed part.
    #[error("{place}: expected an extended header of at least 24 bytes, found a length of {found}")]
    HeaderLength {
        /// The length field.
        place: FieldPosition,
        /// Its value.
        found: u32,
    },
    /// The FlatBuffer extends beyond the range from the header to the end of the file.
    #[error(
        "{place}: expected a FlatBuffer of {least} to {most} bytes, found a program size of {found}"
    )]
    ProgramSize {
        /// The size field.
        place: FieldPosition,
        /// Its value.
        found: u64,
        /// Minimum size in bytes.
        least: u64,
        /// Number of bytes available.
        most: u64,
    },
    /// The segments begin inside the FlatBuffer.
    #[error(
        "{place}: expected segments to begin after the program's {least} bytes, found a base offset of {found}"
    )]
    SegmentBase {
        /// The base offset field.
        place: FieldPosition,
        /// Its value.
        found: u64,
        /// Size of the FlatBuffer in bytes.
        least: u64,
    },
    /// The file ends before its segment data.
    #[error(
        "the file is truncated: {place} declares segment data of {size} bytes from {base}, \
         so expected at least {needs} bytes, found {len}"
    )]
    Truncated {
        /// The size field.
        place: FieldPosition,
        /// Size of the segment data in bytes.
        size: u64,
        /// Start of the segment data, relative to the program.
        base: u64,
        /// Required size of the program in bytes.
        needs: u128,
        /// Actual size of the program in bytes.
        len: u64,
    },
    /// A FlatBuffer offset points outside the FlatBuffer.
    #[error(
        "{place}: expected an offset to a place inside the FlatBuffer, which ends at {end}; found {found}"
    )]
    Offset {
        /// The offset field.
        place: FieldPosition,
        /// Its value.
        found: u32,
        /// End of the FlatBuffer in the file.
        end: u64,
    },
    /// A value extends past the end of the FlatBuffer.
    #[error("{place}: expected {size} bytes before the end of the FlatBuffer at {end}")]
    OutsideBuffer {
        /// The value.
        place: FieldPosition,
        /// Its size in bytes.
        size: u64,
        /// End of the FlatBuffer in the file.
        end: u64,
    },
    /// A table's vtable is outside the FlatBuffer.
    #[error("{place}: expected a vtable inside the FlatBuffer, found a distance of {found}")]
    Vtable {
        /// The table.
        place: FieldPosition,
        /// The distance in the file.
        found: i32,
    },
    /// A vtable states impossible sizes.
    #[error(
        "{place}: expected a vtable of an even size and a table, of at least 4 bytes each, \
         inside the FlatBuffer; found {vtable} and {table}"
    )]
    VtableSize {
        /// The table.
        place: FieldPosition,
        /// Size of the vtable.
        vtable: u16,
        /// Size of the table.
        table: u16,
    },
    /// A vtable places a field outside its table.
    #[error(
        "{place}: expected a field of {size} bytes inside a table of {table}, found it at {found}"
    )]
    FieldOutsideTable {
        /// The table and field.
        place: FieldPosition,
        /// Size of the field.
        size: u16,
        /// Size of the table.
        table: u16,
        /// Offset of the field in the table, as the vtable states it.
        found: u16,
    },
    /// A vector claims more elements than the FlatBuffer can hold.
    #[error("{place}: expected a vector of at most {most} elements, found a length of {found}")]
    VectorLength {
        /// The vector.
        place: FieldPosition,
        /// Its claimed length.
        found: u32,
        /// Number of elements that fit the rest of the buffer.
        most: u64,
    },
    /// A string exceeds the buffer or the maximum length of a name.
    #[error("{place}: expected a string of at most {most} bytes, found a length of {found}")]
    StringLength {
        /// The string.
        place: FieldPosition,
        /// Its claimed length.
        found: u32,
        /// Maximum length in bytes.
        most: u64,
    },
    /// A number is not aligned to its size.
    #[error(
        "{place}: expected a multiple of {wanted} from the FlatBuffer's beginning, found {found}"
    )]
    Alignment {
        /// The number.
        place: FieldPosition,
        /// Its alignment in bytes.
        wanted: u8,
        /// Its offset.
        found: u64,
    },
    /// A string lacks its terminating zero byte.
    #[error("{place}: expected a zero byte after the string, found another byte")]
    Terminator {
        /// The byte after the string.
        place: FieldPosition,
    },
    /// The file has more tables than a device verifies.
    #[error("{place}: expected at most {most} tables, found more at this point")]
    TooManyTables {
        /// The first table above the limit.
        place: FieldPosition,
        /// The limit.
        most: u32,
    },
    /// A tensor's planned memory does not exist or is too small.
    #[error(
        "{place}: expected {size} bytes at {offset} inside planned memory {memory}, found {}",
        available.map_or("no such memory".to_owned(), |size| format!("{size} bytes in it"))
    )]
    MemoryPlan {
        /// The tensor's allocation.
        place: FieldPosition,
        /// Size of the tensor in bytes.
        size: u64,
        /// Its offset in the memory.
        offset: u64,
        /// The memory's number, from 1.
        memory: u32,
        /// Size of that memory in bytes; `None` if the plan lacks this number.
        available: Option<u64>,
    },
    /// A string is not UTF-8.
    #[error("{place}: expected UTF-8 text, found an invalid byte after {valid} bytes")]
    Utf8 {
        /// The string.
        place: FieldPosition,
        /// Length of the valid prefix in bytes.
        valid: usize,
    },
    /// A union has a type that the schema lacks.
    #[error("{place}: expected a union type of 1 to {most}, found {found}")]
    UnionType {
        /// The type field.
        place: FieldPosition,
        /// Its value.
        found: u8,
        /// The last known type.
        most: u8,
    },
    /// An enumeration has a value that the schema lacks.
    #[error("{place}: expected a value of 0 to {most}, found {found}")]
    EnumValue {
        /// The field.
        place: FieldPosition,
        /// Its value.
        found: i8,
        /// The last known value.
        most: i8,
    },
    /// A required field is absent.
    #[error("{place}: expected the field to be present, found none")]
    MissingField {
        /// The field, at the offset of its table.
        place: FieldPosition,
    },
    /// An index is out of range.
    #[error("{place}: expected an index below {count} ({what}), found {found}")]
    Index {
        /// The index.
        place: FieldPosition,
        /// The indexed items.
        what: &'static str,
        /// Number of items.
        count: u64,
        /// The index in the file.
        found: i64,
    },
    /// A tensor or a memory has a negative size.
    #[error("{place}: expected a size of at least 0, found {found}")]
    NegativeSize {
        /// The size.
        place: FieldPosition,
        /// Its value.
        found: i64,
    },
    /// A tensor has more dimensions than any real one.
    #[error("{place}: expected at most {most} dimensions, found {found}")]
    Rank {
        /// The sizes.
        place: FieldPosition,
        /// Number of dimensions.
        found: u64,
        /// Maximum number of dimensions.
        most: u64,
    },
    /// A tensor's size in bytes exceeds 64 bits.
    #[error("{place}: expected a tensor whose size fits 64 bits, found {found:?}")]
    TensorSize {
        /// The sizes.
        place: FieldPosition,
        /// All of them.
        found: Vec<u64>,
    },
    /// Two methods share a name.
    #[error("{place}: expected a unique method name, found {found:?} again")]
    DuplicateMethod {
        /// The position of the second name.
        place: FieldPosition,
        /// The name.
        found: String,
    },
    /// Segments are not in the order of their offsets.
    #[error("{place}: expected segments sorted by offset, found {found} after {previous}")]
    SegmentOrder {
        /// The segment's offset.
        place: FieldPosition,
        /// Its value.
        found: u64,
        /// Offset of the preceding segment.
        previous: u64,
    },
    /// A segment extends past the end of the file.
    #[error(
        "{place}: expected the segment to end inside the program's {len} bytes, found {size} bytes \
         at {offset} from base {base}"
    )]
    SegmentRange {
        /// The segment.
        place: FieldPosition,
        /// Its offset from the base.
        offset: u64,
        /// Its size.
        size: u64,
        /// The segment base offset.
        base: u64,
        /// Size of the program in bytes.
        len: u64,
    },
    /// A tensor's stored data extends past its segment or buffer.
    #[error("{place}: expected {size} bytes of tensor data at {offset}, found {available} there")]
    TensorData {
        /// The tensor's data reference.
        place: FieldPosition,
        /// File offset of the data.
        offset: u64,
        /// Size of the tensor in bytes.
        size: u64,
        /// Number of bytes up to the end of the segment or buffer.
        available: u64,
    },
    /// A tensor's stored data begins after the end of its segment.
    #[error("{place}: expected an offset of at most {most} into the segment, found {found}")]
    DataOffset {
        /// The offset.
        place: FieldPosition,
        /// Its value.
        found: u64,
        /// Size of the segment in bytes.
        most: u64,
    },
    /// A tensor has a storage offset, or its dimension order is not a permutation.
    #[error(
        "{place}: expected a storage offset of 0 and a dimension order that names each dimension once, \
         found an offset of {offset}"
    )]
    Layout {
        /// The dimension order.
        place: FieldPosition,
        /// The storage offset, in elements.
        offset: i32,
    },
    /// Two related lists differ in length, or a number is out of range.
    #[error("{place}: expected {expected}, found {found}")]
    Value {
        /// The field.
        place: FieldPosition,
        /// The expected values.
        expected: String,
        /// The actual value.
        found: u64,
    },
    /// A called operator does not exist.
    #[error("{place}: unknown operator `{found}`: expected {expected}")]
    Operator {
        /// Position of its name.
        place: FieldPosition,
        /// Its full name.
        found: String,
        /// The existing operators.
        expected: String,
    },
    /// A call of an operator has the wrong number of arguments.
    #[error(
        "{place}: expected {expected} arguments, as `{operator}` takes with its result, found {found}"
    )]
    Arguments {
        /// Position of the arguments.
        place: FieldPosition,
        /// The operator's full name.
        operator: String,
        /// The number that the operator takes.
        expected: usize,
        /// The number in the file.
        found: u64,
    },
    /// An instruction does not accept the type of a value.
    #[error("{place}: expected {expected}, found {found}")]
    Kind {
        /// Position of the value's index.
        place: FieldPosition,
        /// The accepted types, and the consumer.
        expected: String,
        /// The value and its type.
        found: String,
    },
    /// The file system of a Core ML payload has unexpected content.
    #[error("{place}: expected a file system with an ML Program, found {found}")]
    InvalidListing {
        /// The position.
        place: FieldPosition,
        /// The actual content.
        found: String,
    },
    /// A protobuf message is invalid.
    #[error("{place}: expected a field of the protobuf wire format, found other bytes")]
    InvalidProtobuf {
        /// The position.
        place: FieldPosition,
    },
    /// The description of the file exceeds its memory limit.
    #[error("{place}: expected a description of at most {most} bytes, found more at this point")]
    DescriptionTooLarge {
        /// The position at which the limit was exceeded.
        place: FieldPosition,
        /// The limit in bytes.
        most: u64,
    },
}

impl FormatError for Error {
    fn offset(&self) -> Option<u64> {
        Some(match self {
            Self::Identifier { offset, .. } | Self::Version { offset, .. } => *offset,
            Self::DataIdentifier { .. } => 4,
            Self::Read { error, .. } => error.offset(),
            Self::HeaderLength { place, .. }
            | Self::ProgramSize { place, .. }
            | Self::SegmentBase { place, .. }
            | Self::Truncated { place, .. }
            | Self::Offset { place, .. }
            | Self::OutsideBuffer { place, .. }
            | Self::Vtable { place, .. }
            | Self::VtableSize { place, .. }
            | Self::FieldOutsideTable { place, .. }
            | Self::VectorLength { place, .. }
            | Self::StringLength { place, .. }
            | Self::Utf8 { place, .. }
            | Self::DataHeader { place, .. }
            | Self::Alignment { place, .. }
            | Self::Terminator { place }
            | Self::TooManyTables { place, .. }
            | Self::MemoryPlan { place, .. }
            | Self::UnionType { place, .. }
            | Self::EnumValue { place, .. }
            | Self::MissingField { place }
            | Self::Index { place, .. }
            | Self::NegativeSize { place, .. }
            | Self::Rank { place, .. }
            | Self::TensorSize { place, .. }
            | Self::DuplicateMethod { place, .. }
            | Self::SegmentOrder { place, .. }
            | Self::SegmentRange { place, .. }
            | Self::TensorData { place, .. }
            | Self::DataOffset { place, .. }
            | Self::Layout { place, .. }
            | Self::PayloadMagic { place, .. }
            | Self::Value { place, .. }
            | Self::Operator { place, .. }
            | Self::Arguments { place, .. }
            | Self::Kind { place, .. }
            | Self::InvalidListing { place, .. }
            | Self::InvalidProtobuf { place }
            | Self::DescriptionTooLarge { place, .. } => place.offset,
        })
    }
}
