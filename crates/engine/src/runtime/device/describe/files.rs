//! Reads small files and lists directories, and keeps no more of them than a limit.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

/// The number of bytes that are read from one file at most.
pub(super) const FILE_LIMIT: u64 = 64 * 1024;
/// The number of cores, zones or sensors that are looked at, at most.
pub(super) const ENTRY_LIMIT: usize = 512;
/// The number of characters that are kept of one name at most.
const NAME_LIMIT: usize = 200;

/// Returns the first line with content, without control characters and doubled spaces.
pub(super) fn clean(text: &str) -> Option<String> {
    let words = |line: &str| {
        let gap = |c: char| c.is_whitespace() || c.is_control();
        let words: Vec<_> = line.split(gap).filter(|word| !word.is_empty()).collect();
        words.join(" ").chars().take(NAME_LIMIT).collect::<String>()
    };
    text.split(['\n', '\r', '\0'])
        .map(words)
        .find(|line| !line.is_empty())
}

/// Returns the beginning of a file, or nothing when it cannot be read.
pub(super) fn read_text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(FILE_LIMIT).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the first line of a file that has content.
pub(super) fn read_line(path: &Path) -> Option<String> {
    clean(&read_text(path)?)
}

/// Returns the number at the beginning of a file.
pub(super) fn read_number<T: FromStr>(path: &Path) -> Option<T> {
    read_text(path)?.split_whitespace().next()?.parse().ok()
}

/// Returns the numbers between `prefix` and `suffix` in a directory's names, in order.
pub(super) fn numbered(directory: &Path, prefix: &str, suffix: &str) -> Vec<u32> {
    let number = |name: &str| {
        let digits = name.strip_prefix(prefix)?.strip_suffix(suffix)?;
        digits.parse::<u32>().ok()
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers: BTreeSet<_> = entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect();
    numbers.into_iter().take(ENTRY_LIMIT).collect()
}

#[cfg(test)]
mod tests {
    use super::super::trees::Tree;
    use super::*;

    #[test]
    fn no_more_than_the_limit_is_read() {
        let tree = Tree::new(&[]);
        let text = "7 ".repeat(64 * 1024);
        tree.file("long", &text);
        let path = tree.root().join("long");
        assert_eq!(read_text(&path).as_deref(), Some(&text[..64 * 1024]));
        assert_eq!(read_number::<u8>(&path), Some(7));
        let line = read_line(&path).expect("the file has a line");
        assert_eq!(line.len(), NAME_LIMIT);
        assert_eq!(read_text(tree.root()), None);
    }

    #[test]
    fn names_are_numbered_in_order() {
        let names = ["cpu10", "cpu2", "cpu", "cpufreq", "cpu99999999999"];
        let tree = Tree::new(&names.map(|name| (name, "")));
        assert_eq!(numbered(tree.root(), "cpu", ""), [2, 10]);
        for number in 0..600 {
            tree.file(&format!("zone{number}_input"), "");
        }
        let zones = numbered(tree.root(), "zone", "_input");
        assert_eq!(zones.len(), ENTRY_LIMIT);
        assert!(numbered(&tree.root().join("none"), "cpu", "").is_empty());
    }
}
