//! What can be broken in an ExecuTorch file: one variant per broken invariant.
//!
//! Every message names the field, its offset in the file, what was expected and what was found.

use std::fmt;

use crate::model::Breach;
use crate::source::pages::PageError;

/// A field of the file: its path from the root table, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The field, as in `Program.execution_plan[0].values[3].sizes`.
    pub path: String,
    /// Offset from the beginning of the file.
    pub offset: u64,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at offset {}", self.path, self.offset)
    }
}

/// What is broken in an ExecuTorch program.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The first bytes are not those of an ExecuTorch file.
    #[error(
        "not an ExecuTorch program: expected identifier ET12 at offset {offset}, found {found}"
    )]
    Identifier {
        /// Where the identifier should stand.
        offset: u64,
        /// The first bytes, in words where they are well known.
        found: String,
    },
    /// The first bytes are not those of a data file.
    #[error("not an ExecuTorch data file: expected identifier FT01 at offset 4, found {found}")]
    DataIdentifier {
        /// What stands there.
        found: String,
    },
    /// A data file without the header that says where its parts are.
    #[error(
        "{place}: expected an extended header FH01 in the first 48 bytes, found none in a file of {len}"
    )]
    DataHeader {
        /// Where it should stand.
        place: Place,
        /// Bytes of the file.
        len: u64,
    },
    /// A delegate's payload is not what its backend's name promises.
    #[error("{place}: expected {expected}, found {found}")]
    PayloadMagic {
        /// The identifier.
        place: Place,
        /// What payloads of that backend begin with.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// An ExecuTorch program of another version of the format.
    #[error(
        "an ExecuTorch program of another version: expected identifier {expected} at offset {offset}, found {found}"
    )]
    Version {
        /// Where the identifier stands.
        offset: u64,
        /// The identifier this reader knows.
        expected: &'static str,
        /// The identifier in the file.
        found: String,
    },
    /// The file or the operating system does not give the bytes.
    #[error("{place}: {error}")]
    Read {
        /// What was to be read.
        place: Place,
        /// Why it could not be.
        error: PageError,
    },
    /// The extended header is shorter than its fixed part.
    #[error("{place}: expected an extended header of at least 24 bytes, found a length of {found}")]
    HeaderLength {
        /// The length field.
        place: Place,
        /// Its value.
        found: u32,
    },
    /// The FlatBuffer does not lie between the header and the end of the file.
    #[error(
        "{place}: expected a FlatBuffer of {least} to {most} bytes, found a program size of {found}"
    )]
    ProgramSize {
        /// The size field.
        place: Place,
        /// Its value.
        found: u64,
        /// The smallest that makes sense.
        least: u64,
        /// All bytes there are.
        most: u64,
    },
    /// The segments begin inside the FlatBuffer.
    #[error(
        "{place}: expected segments to begin after the program's {least} bytes, found a base offset of {found}"
    )]
    SegmentBase {
        /// The base offset field.
        place: Place,
        /// Its value.
        found: u64,
        /// Size of the FlatBuffer.
        least: u64,
    },
    /// The file ends before its segment data does.
    #[error(
        "the file is truncated: {place} declares segment data of {size} bytes from {base}, \
         so expected at least {needs} bytes, found {len}"
    )]
    Truncated {
        /// The size field.
        place: Place,
        /// Bytes of segment data.
        size: u64,
        /// Where they begin, relative to the program.
        base: u64,
        /// Bytes the program must have.
        needs: u128,
        /// Bytes it has.
        len: u64,
    },
    /// A FlatBuffer offset leads nowhere.
    #[error(
        "{place}: expected an offset to a place inside the FlatBuffer, which ends at {end}; found {found}"
    )]
    Offset {
        /// The offset field.
        place: Place,
        /// Its value.
        found: u32,
        /// End of the FlatBuffer in the file.
        end: u64,
    },
    /// A value reaches over the end of the FlatBuffer.
    #[error("{place}: expected {size} bytes before the end of the FlatBuffer at {end}")]
    OutsideBuffer {
        /// The value.
        place: Place,
        /// Its size in bytes.
        size: u64,
        /// End of the FlatBuffer in the file.
        end: u64,
    },
    /// A table's vtable is not inside the FlatBuffer.
    #[error("{place}: expected a vtable inside the FlatBuffer, found its distance to be {found}")]
    Vtable {
        /// The table.
        place: Place,
        /// The distance that stands there.
        found: i32,
    },
    /// A vtable's own sizes are impossible.
    #[error(
        "{place}: expected a vtable of an even size and a table, of at least 4 bytes each, \
         inside the FlatBuffer; found {vtable} and {table}"
    )]
    VtableSize {
        /// The table.
        place: Place,
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
        place: Place,
        /// Size of the field.
        size: u16,
        /// Size of the table.
        table: u16,
        /// Where the vtable puts the field.
        found: u16,
    },
    /// A vector claims more elements than the FlatBuffer has bytes for.
    #[error("{place}: expected a vector of at most {most} elements, found a length of {found}")]
    VectorLength {
        /// The vector.
        place: Place,
        /// Its claimed length.
        found: u32,
        /// What the rest of the buffer has room for.
        most: u64,
    },
    /// A string is longer than the buffer, or than any name is.
    #[error("{place}: expected a string of at most {most} bytes, found a length of {found}")]
    StringLength {
        /// The string.
        place: Place,
        /// Its claimed length.
        found: u32,
        /// The longest that is read here.
        most: u64,
    },
    /// A number does not lie where its kind must.
    #[error(
        "{place}: expected a multiple of {wanted} from the FlatBuffer's beginning, found {found}"
    )]
    Alignment {
        /// The number.
        place: Place,
        /// Its alignment in bytes.
        wanted: u8,
        /// Where it lies.
        found: u64,
    },
    /// A string does not end with a zero byte.
    #[error("{place}: expected a zero byte behind the string, found another")]
    Terminator {
        /// The byte behind the string.
        place: Place,
    },
    /// More tables than a device walks.
    #[error("{place}: expected at most {most} tables, found more by here")]
    TooManyTables {
        /// The first that is too much.
        place: Place,
        /// The limit.
        most: u32,
    },
    /// A tensor was planned a place that its memory does not have.
    #[error(
        "{place}: expected {size} bytes at {offset} inside planned memory {memory}, found {}",
        available.map_or("no such memory".to_owned(), |size| format!("{size} bytes in it"))
    )]
    MemoryPlan {
        /// The tensor's allocation.
        place: Place,
        /// Bytes of the tensor.
        size: u64,
        /// Its place in the memory.
        offset: u64,
        /// The memory's number, from 1.
        memory: u32,
        /// Bytes of that memory; `None` if the plan has none of this number.
        available: Option<u64>,
    },
    /// A string is not UTF-8.
    #[error("{place}: expected UTF-8 text, found an invalid byte after {valid} bytes")]
    Utf8 {
        /// The string.
        place: Place,
        /// Length of the valid beginning.
        valid: usize,
    },
    /// A union holds a type the schema does not have.
    #[error("{place}: expected a union type of 1 to {most}, found {found}")]
    UnionType {
        /// The type field.
        place: Place,
        /// Its value.
        found: u8,
        /// The last known type.
        most: u8,
    },
    /// An enumeration holds a value the schema does not have.
    #[error("{place}: expected a value of 0 to {most}, found {found}")]
    EnumValue {
        /// The field.
        place: Place,
        /// Its value.
        found: i8,
        /// The last known value.
        most: i8,
    },
    /// A field without which nothing can be said is absent.
    #[error("{place}: expected the field to be present, found none")]
    MissingField {
        /// The field, at the offset of its table.
        place: Place,
    },
    /// An index points past what it indexes.
    #[error("{place}: expected an index below {count} ({what}), found {found}")]
    Index {
        /// The index.
        place: Place,
        /// What is indexed.
        what: &'static str,
        /// How many of these there are.
        count: u64,
        /// The index that was found.
        found: i64,
    },
    /// A tensor or a memory has a negative size.
    #[error("{place}: expected a size of at least 0, found {found}")]
    NegativeSize {
        /// The size.
        place: Place,
        /// Its value.
        found: i64,
    },
    /// A tensor has more dimensions than any real one.
    #[error("{place}: expected at most {most} dimensions, found {found}")]
    Rank {
        /// The sizes.
        place: Place,
        /// How many there are.
        found: u64,
        /// How many are allowed.
        most: u64,
    },
    /// A tensor's size in bytes does not fit 64 bits.
    #[error("{place}: expected a tensor whose size fits 64 bits, found {found:?}")]
    TensorSize {
        /// The sizes.
        place: Place,
        /// All of them.
        found: Vec<u64>,
    },
    /// Two methods share a name.
    #[error("{place}: expected a method name of its own, found {found:?} again")]
    DuplicateMethod {
        /// The second one's name.
        place: Place,
        /// The name.
        found: String,
    },
    /// Segments are not in the order of their offsets.
    #[error("{place}: expected segments sorted by offset, found {found} after {previous}")]
    SegmentOrder {
        /// The segment's offset.
        place: Place,
        /// Its value.
        found: u64,
        /// The one before.
        previous: u64,
    },
    /// A segment does not lie inside the file.
    #[error(
        "{place}: expected the segment to end inside the program's {len} bytes, found {size} bytes \
         at {offset} from base {base}"
    )]
    SegmentRange {
        /// The segment.
        place: Place,
        /// Its offset from the base.
        offset: u64,
        /// Its size.
        size: u64,
        /// The segment base offset.
        base: u64,
        /// Bytes the program has.
        len: u64,
    },
    /// A tensor's stored data does not lie inside its segment or buffer.
    #[error("{place}: expected {size} bytes of tensor data at {offset}, found {available} there")]
    TensorData {
        /// The tensor's data reference.
        place: Place,
        /// File offset of the data.
        offset: u64,
        /// Size of the tensor in bytes.
        size: u64,
        /// Bytes from there to the end of the segment or buffer.
        available: u64,
    },
    /// A tensor's stored data would begin after its segment.
    #[error("{place}: expected an offset of at most {most} into the segment, found {found}")]
    DataOffset {
        /// The offset.
        place: Place,
        /// Its value.
        found: u64,
        /// Bytes of the segment.
        most: u64,
    },
    /// A tensor does not begin where its storage does, or its dimension order is none.
    #[error(
        "{place}: expected a storage offset of 0 and a dimension order that names each dimension once, \
         found an offset of {offset}"
    )]
    Layout {
        /// The dimension order.
        place: Place,
        /// The storage offset, in elements.
        offset: i32,
    },
    /// Two lists that belong together differ in length, or a number is none of those that make sense.
    #[error("{place}: expected {expected}, found {found}")]
    Value {
        /// The field.
        place: Place,
        /// What would make sense.
        expected: String,
        /// What is there.
        found: u64,
    },
    /// A call of an operator that does not exist.
    #[error("{place}: unknown operator `{found}`: expected {expected}")]
    Operator {
        /// Its name.
        place: Place,
        /// Its full name.
        found: String,
        /// Which operators there are.
        expected: String,
    },
    /// A call of an operator with more or fewer arguments than it takes.
    #[error(
        "{place}: expected {expected} arguments, as `{operator}` takes with its result, found {found}"
    )]
    Arguments {
        /// The arguments.
        place: Place,
        /// The operator's full name.
        operator: String,
        /// How many it takes.
        expected: usize,
        /// How many there are.
        found: u64,
    },
    /// A value of a kind that an instruction does not take.
    #[error("{place}: expected {expected}, found {found}")]
    Kind {
        /// The value's index.
        place: Place,
        /// The kinds that are taken, and by what.
        expected: String,
        /// The value and its kind.
        found: String,
    },
    /// What a Core ML payload holds is not what it should.
    #[error("{place}: expected a file system with an ML Program, found {found}")]
    Listing {
        /// Where.
        place: Place,
        /// What is there.
        found: String,
    },
    /// A protobuf message is broken.
    #[error("{place}: expected a field of the protobuf wire format, found other bytes")]
    Wire {
        /// Where.
        place: Place,
    },
    /// The file says more than any real header does.
    #[error("{place}: expected a description of at most {most} bytes, found more by here")]
    TooMuch {
        /// Where the limit was reached.
        place: Place,
        /// The limit.
        most: u64,
    },
}

impl Breach for Error {
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
            | Self::Listing { place, .. }
            | Self::Wire { place }
            | Self::TooMuch { place, .. } => place.offset,
        })
    }
}
