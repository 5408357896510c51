//! The types that values may have while a method runs, as sets of types.
//!
//! A value keeps the type that the file gives it. A value that an instruction replaces may have any
//! type. `calls` compares these sets with the types that operators and delegates accept.

use super::super::flatbuffer::Vector;
use super::super::schema::value;
use super::super::value::{
    BOOL, BOOL_LIST, DOUBLE, DOUBLE_LIST, Evalue, INT, INT_LIST, NULL, OPTIONAL_TENSOR_LIST,
    STRING, TENSOR, TENSOR_LIST,
};
use crate::FormatError;

/// A set of types, one bit per member of the union `KernelTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValueTypes(u16);

/// Display names of types, by number.
const TYPE_NAMES: [(u8, &str); 12] = [
    (NULL, "none"),
    (INT, "an int"),
    (BOOL, "a bool"),
    (DOUBLE, "a double"),
    (TENSOR, "a tensor"),
    (STRING, "a string"),
    (INT_LIST, "a list of ints"),
    (DOUBLE_LIST, "a list of doubles"),
    (BOOL_LIST, "a list of bools"),
    (TENSOR_LIST, "a list of tensors"),
    (OPTIONAL_TENSOR_LIST, "a list of optional tensors"),
    (MIXED_LIST, "a list of ints with items that are not ints"),
];

/// Number of the type for a list of ints with items that are not ints.
const MIXED_LIST: u8 = 12;

impl ValueTypes {
    /// Any type.
    pub(super) const ANY: Self = Self(u16::MAX);

    /// Returns the set of these types.
    pub(super) fn of(tags: &[u8]) -> Self {
        Self(tags.iter().fold(0, |bits, tag| bits | 1 << tag))
    }

    /// Returns the types that an argument with this letter of the table accepts.
    pub(super) fn from_letter(letter: u8) -> Option<Self> {
        let tags: &[u8] = match letter.to_ascii_lowercase() {
            b't' => &[TENSOR],
            b'v' => &[TENSOR_LIST],
            b'w' => &[OPTIONAL_TENSOR_LIST],
            b'i' => &[INT],
            b'l' => &[INT_LIST],
            b'f' => &[DOUBLE],
            b'd' => &[DOUBLE_LIST],
            b'b' => &[BOOL],
            b'k' => &[BOOL_LIST],
            b'c' => &[STRING],
            b'n' => &[INT, DOUBLE],
            b's' => &[INT, DOUBLE, BOOL],
            b'.' | b'#' => return Some(Self::ANY),
            _ => return None,
        };
        let mut kinds = Self::of(tags);
        if letter.is_ascii_uppercase() {
            kinds.0 |= 1 << NULL;
        }
        Some(kinds)
    }

    /// Returns whether a value of one of these types may have one of the types in `others`.
    pub(super) fn overlaps(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns whether a value certainly has this type.
    pub(super) fn is(self, tag: u8) -> bool {
        self == Self::of(&[tag])
    }

    /// Returns the names of the types.
    pub(super) fn names(self) -> String {
        let names = TYPE_NAMES.iter().filter(|(tag, _)| self.0 & 1 << tag != 0);
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        names.join(" or ")
    }
}

/// Returns the possible types of each value; `is_replaced` marks the values that an instruction
/// replaces.
pub(super) fn types_of_values(
    values: &Vector<'_>,
    is_replaced: &[bool],
) -> Result<Vec<ValueTypes>, FormatError> {
    let mut kinds = Vec::new();
    for (table, is_replaced) in values.iter_tables().zip(is_replaced) {
        let tag = Evalue::read(table?)?.tag;
        kinds.push(if *is_replaced {
            ValueTypes::ANY
        } else {
            ValueTypes::of(&[tag])
        });
    }
    for position in 0..kinds.len() {
        if kinds[position].is(INT_LIST) && !contains_only_ints(values, position as u64, &kinds)? {
            kinds[position] = ValueTypes::of(&[MIXED_LIST]);
        }
    }
    Ok(kinds)
}

/// Returns whether all items of the list of ints at `index` are ints.
fn contains_only_ints(
    values: &Vector<'_>,
    index: u64,
    kinds: &[ValueTypes],
) -> Result<bool, FormatError> {
    let found = Evalue::read(values.table(index)?)?;
    let items = found.table()?.vector(value::ITEMS, 8)?;
    for position in 0..items.len() {
        let item = usize::try_from(items.i64(position)?).ok();
        let kind = item.and_then(|item| kinds.get(item));
        if kind.is_some_and(|kind| !kind.overlaps(ValueTypes::of(&[INT]))) {
            return Ok(false);
        }
    }
    Ok(true)
}
