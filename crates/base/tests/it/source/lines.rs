//! Line and column positions, compared with a model that counts character by character.

use pkgtool_base::source::LineIndex;
use proptest::prelude::*;

fn naive(text: &str, offset: usize) -> (usize, usize, usize) {
    let (mut line, mut column, mut at) = (1, 1, 0);
    for letter in text.chars() {
        if at + letter.len_utf8() > offset {
            break;
        }
        at += letter.len_utf8();
        if letter == '\n' {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    (line, column, at)
}

proptest! {
    #[test]
    fn positions_are_those_of_a_count(text in "[a\n\r\té😀\u{2028}]{0,40}", past in 0..9_usize) {
        let index = LineIndex::new(&text);
        for offset in 0..=text.len() + past {
            let position = index.position(&text, offset);
            let found = (position.line, position.column, position.offset);
            prop_assert_eq!(found, naive(&text, offset), "{} of {:?}", offset, text);
        }
    }
}
