//! Wording of the rules that several parts of the reader check.

use std::fmt::Display;

use crate::{FieldPosition, FormatError};

impl FieldPosition {
    /// A required field is absent.
    pub(crate) fn missing(&self) -> FormatError {
        self.expected("the field to be present", "none")
    }

    /// An index is out of range.
    pub(crate) fn index(
        &self,
        what: &str,
        count: impl Display,
        found: impl Display,
    ) -> FormatError {
        self.expected(format_args!("an index below {count} ({what})"), found)
    }

    /// A tensor has more dimensions than any real one.
    pub(crate) fn rank(&self, most: u64, found: u64) -> FormatError {
        self.expected(format_args!("at most {most} dimensions"), found)
    }

    /// A tensor or a memory has a negative size.
    pub(crate) fn negative_size(&self, found: impl Display) -> FormatError {
        self.expected("a size of at least 0", found)
    }

    /// A union has a type that the schema lacks.
    pub(crate) fn union_type(&self, most: impl Display, found: u8) -> FormatError {
        self.expected(format_args!("a union type of 1 to {most}"), found)
    }

    /// An enumeration has a value that the schema lacks.
    pub(crate) fn enum_value(&self, most: i8, found: i8) -> FormatError {
        self.expected(format_args!("a value of 0 to {most}"), found)
    }

    /// Two methods share a name.
    pub(crate) fn duplicate_method(&self, name: &str) -> FormatError {
        self.expected("a unique method name", format_args!("{name:?} again"))
    }

    /// The FlatBuffer extends beyond the range from the header to the end of the file.
    pub(super) fn flatbuffer_size(&self, least: u64, most: u64, found: u64) -> FormatError {
        let expected = format_args!("a FlatBuffer of {least} to {most} bytes");
        self.expected(expected, format_args!("a program size of {found}"))
    }

    /// The file ends before its segment data.
    pub(super) fn truncated(&self, base: u64, size: u64, len: u64) -> FormatError {
        let needs = u128::from(base) + u128::from(size);
        let message = format_args!(
            "the file is truncated: {self} declares segment data of {size} bytes from {base}, \
             so expected at least {needs} bytes, found {len}"
        );
        FormatError::at(self.offset, message)
    }

    /// Stored data begins after the end of its segment.
    pub(super) fn data_offset(&self, most: u64, found: u64) -> FormatError {
        let expected = format_args!("an offset of at most {most} into the segment");
        self.expected(expected, found)
    }

    /// A tensor has a storage offset, or its dimension order is not a permutation.
    pub(super) fn layout(&self, offset: i32) -> FormatError {
        self.expected(
            "a storage offset of 0 and a dimension order that names each dimension once",
            format_args!("an offset of {offset}"),
        )
    }

    /// The file system of a Core ML payload has unexpected content.
    pub(super) fn listing(&self, found: impl Display) -> FormatError {
        self.expected("a file system with an ML Program", found)
    }

    /// A protobuf message is invalid.
    pub(super) fn not_protobuf(&self) -> FormatError {
        self.expected("a field of the protobuf wire format", "other bytes")
    }

    /// The description of the file exceeds its memory limit.
    pub(crate) fn too_large(&self, most: u64) -> FormatError {
        let expected = format_args!("a description of at most {most} bytes");
        self.expected(expected, "more at this point")
    }
}
