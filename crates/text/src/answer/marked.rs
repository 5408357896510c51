//! Finds marks (fixed strings) in a streamed text.
//!
//! Invariant: the result does not depend on how the text is split. The end of a text that may be
//! the beginning of a mark is held back.

/// The position of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MarkPosition {
    /// Its index in the list of marks.
    pub(super) mark: usize,
    /// Its first byte in the text.
    pub(super) start: usize,
}

/// Returns the first mark in a text; of marks at the same position, the longest one.
pub(super) fn first_mark(text: &str, marks: &[&str]) -> Option<MarkPosition> {
    let places = marks.iter().enumerate().filter_map(|(mark, of)| {
        let start = text.find(of)?;
        Some((start, usize::MAX - of.len(), mark))
    });
    let (start, _, mark) = places.min()?;
    Some(MarkPosition { mark, start })
}

/// Returns the number of bytes at the end of a text that may be the beginning of a mark.
pub(super) fn open(text: &str, marks: &[&str]) -> usize {
    let longest = marks.iter().map(|mark| mark.len()).max().unwrap_or(0);
    let from = text.len().saturating_sub(longest.saturating_sub(1));
    let starts = (from..text.len()).filter(|start| text.is_char_boundary(*start));
    let mut starts = starts.filter(|start| {
        let tail = &text[*start..];
        marks.iter().any(|mark| mark.starts_with(tail))
    });
    starts.next().map_or(0, |start| text.len() - start)
}

/// The result of testing whether a text begins with a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PrefixMatch {
    Yes,
    No,
    /// The text is a proper prefix of the mark.
    NotYet,
}

/// Tests whether a text begins with this mark.
pub(super) fn begins(text: &str, mark: &str) -> PrefixMatch {
    if text.starts_with(mark) {
        PrefixMatch::Yes
    } else if mark.starts_with(text) {
        PrefixMatch::NotYet
    } else {
        PrefixMatch::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_longest_mark_is_found() {
        let found = first_mark("a<b<bc>", &["<bc>", "<b"]);
        assert_eq!(found, Some(MarkPosition { mark: 1, start: 1 }));
        let found = first_mark("<bc>", &["<b", "<bc>"]);
        assert_eq!(found, Some(MarkPosition { mark: 1, start: 0 }));
        assert_eq!(first_mark("b", &["<b"]), None);
        assert_eq!(open("a <", &["<b>", "x"]), 1);
        assert_eq!(open("é<b", &["<b>"]), 2);
        assert_eq!(open("<b>", &["<b>"]), 0);
        assert_eq!(open("aé", &["éa"]), 2);
        assert_eq!(begins("<", "<b"), PrefixMatch::NotYet);
        assert_eq!(begins("", "<b"), PrefixMatch::NotYet);
        assert_eq!(begins("<bc", "<b"), PrefixMatch::Yes);
        assert_eq!(begins("x", "<b"), PrefixMatch::No);
    }
}
