//! Kinds of values while a method runs.
//!
//! A value keeps the kind that the file gives it, unless an instruction replaces it: then it may be anything.

use super::super::error::Error;
use super::super::flatbuffer::Vector;
use super::super::schema::value;
use super::super::value::{
    BOOL, BOOL_LIST, DOUBLE, DOUBLE_LIST, Evalue, INT, INT_LIST, NULL, OPTIONAL_TENSOR_LIST,
    STRING, TENSOR, TENSOR_LIST,
};

/// A set of kinds: a bit for each member of the union `KernelTypes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds(u16);

/// Names of kinds, by their numbers.
const NAMES: [(u8, &str); 12] = [
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
    (OTHER_LIST, "a list of ints with items that are not ints"),
];

/// A list of ints whose items are not all ints.
const OTHER_LIST: u8 = 12;

impl Kinds {
    /// Any kind.
    pub(super) const ANY: Self = Self(u16::MAX);

    /// Returns the set of some kinds.
    pub(super) fn of(tags: &[u8]) -> Self {
        Self(tags.iter().fold(0, |bits, tag| bits | 1 << tag))
    }

    /// Returns what an argument of this letter of the table may be.
    pub(super) fn of_letter(letter: u8) -> Option<Self> {
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

    /// Returns whether a value of one of these kinds may be one of `others`.
    pub(super) fn may_be(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }

    /// Returns whether a value is certainly of this kind.
    pub(super) fn is(self, tag: u8) -> bool {
        self == Self::of(&[tag])
    }

    /// Returns the names of the kinds.
    pub(super) fn names(self) -> String {
        let names = NAMES.iter().filter(|(tag, _)| self.0 & 1 << tag != 0);
        let names: Vec<&str> = names.map(|(_, name)| *name).collect();
        names.join(" or ")
    }
}

/// Returns the kind of each value; `is_replaced` tells of which an instruction makes another.
pub(super) fn of_values(values: &Vector<'_>, is_replaced: &[bool]) -> Result<Vec<Kinds>, Error> {
    let mut kinds = Vec::new();
    for (table, is_replaced) in values.iter_tables().zip(is_replaced) {
        let tag = Evalue::read(table?)?.tag;
        kinds.push(if *is_replaced {
            Kinds::ANY
        } else {
            Kinds::of(&[tag])
        });
    }
    for position in 0..kinds.len() {
        if kinds[position].is(INT_LIST) && !holds_ints(values, position as u64, &kinds)? {
            kinds[position] = Kinds::of(&[OTHER_LIST]);
        }
    }
    Ok(kinds)
}

/// Returns whether the items of the list of ints at `index` are ints.
fn holds_ints(values: &Vector<'_>, index: u64, kinds: &[Kinds]) -> Result<bool, Error> {
    let found = Evalue::read(values.table(index)?)?;
    let items = found.table()?.vector(value::ITEMS, 8)?;
    for position in 0..items.len() {
        let item = usize::try_from(items.i64(position)?).ok();
        let kind = item.and_then(|item| kinds.get(item));
        if kind.is_some_and(|kind| !kind.may_be(Kinds::of(&[INT]))) {
            return Ok(false);
        }
    }
    Ok(true)
}
