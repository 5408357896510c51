//! The places of pictures in prompts: ids beyond every vocabulary.
//!
//! Invariant: the ids depend on the picture's bytes, so a conversation continues from cached tokens only with the same
//! pictures.

use sha2::{Digest as _, Sha256};

/// The first id of a place.
const FIRST_SLOT: u32 = 1 << 31;

/// A picture, by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureId(u64);

impl PictureId {
    /// Number of letters of its text.
    pub const LETTERS: usize = 16;

    /// Identifies a picture by its bytes.
    pub fn of(bytes: &[u8]) -> Self {
        let digest = Sha256::digest(bytes);
        let start = digest.iter().take(8);
        Self(start.fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }

    /// Returns the id of the place that takes a row of the picture.
    #[expect(clippy::cast_possible_truncation, reason = "31 bits of it are used")]
    pub fn slot(self, row: usize) -> u32 {
        (self.0 as u32).wrapping_add(row as u32) | FIRST_SLOT
    }

    /// Returns the row of this picture that a place takes, if it is one of the first `rows`.
    pub fn row(self, slot: u32, rows: usize) -> Option<usize> {
        let row = slot.wrapping_sub(self.slot(0)) & !FIRST_SLOT;
        let row = usize::try_from(row).ok()?;
        (is_slot(slot) && row < rows).then_some(row)
    }

    /// Converts it to a text of [`Self::LETTERS`] letters.
    pub(crate) fn to_text(self) -> String {
        format!("{:016x}", self.0)
    }

    /// Reads such a text.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        u64::from_str_radix(text, 16).ok().map(Self)
    }
}

/// Returns whether an id is a place of a picture.
pub fn is_slot(id: u32) -> bool {
    id >= FIRST_SLOT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_name_their_rows() {
        for start in [0, 1, u64::MAX, 0x7fff_fffe, 0x8000_0000] {
            let picture = PictureId(start);
            for row in 0..10 {
                let slot = picture.slot(row);
                assert!(is_slot(slot));
                assert_eq!(picture.row(slot, 10), Some(row), "{start:x}");
            }
            assert_eq!(picture.row(picture.slot(10), 10), None);
            assert_eq!(picture.row(7, 10), None);
            assert_eq!(PictureId::of_text(&picture.to_text()), Some(picture));
        }
        assert_ne!(PictureId::of(b"one"), PictureId::of(b"two"));
    }
}
