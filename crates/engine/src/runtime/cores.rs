//! Cores of a machine: the user's choice, and the cores that a process uses.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Number of cores that a system call can name.
pub(super) const MAX_CORES: u32 = 1024;

/// The cores on which a model runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreChoice {
    /// The fastest cores.
    Big,
    /// The slowest cores.
    Little,
    /// All cores that the system lets the process use.
    All,
    /// The cores with these numbers.
    Listed(BTreeSet<u32>),
}

impl FromStr for CoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "big" => return Ok(Self::Big),
            "little" => return Ok(Self::Little),
            "all" => return Ok(Self::All),
            _ => {}
        }
        let mut cores = BTreeSet::new();
        for piece in text.split(',') {
            let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
            let (Ok(first), Ok(last)) = (first.trim().parse::<u32>(), last.trim().parse()) else {
                return Err(
                    "expected `big`, `little`, `all`, or numbers of cores such as `0-3,6`"
                        .to_owned(),
                );
            };
            if first > last {
                return Err(format!(
                    "`{piece}` is empty: expected the smaller number first"
                ));
            }
            if last >= MAX_CORES {
                return Err(format!(
                    "expected numbers of cores below {MAX_CORES}, got {last}"
                ));
            }
            cores.extend(first..=last);
        }
        Ok(Self::Listed(cores))
    }
}

/// Formats as on the command line.
impl fmt::Display for CoreChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Big => f.write_str("big"),
            Self::Little => f.write_str("little"),
            Self::All => f.write_str("all"),
            Self::Listed(cores) => f.write_str(&core_list(cores)),
        }
    }
}

/// Formats numbers of cores in ascending order, such as `0-3,6`.
pub fn core_list<'c>(cores: impl IntoIterator<Item = &'c u32>) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &core in cores {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(core) => *last = core,
            _ => ranges.push((core, core)),
        }
    }
    let texts = ranges.into_iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Returns the cores on which any thread of this process may run, if the system reports them.
pub fn of_this_process() -> Option<Vec<u32>> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let mut cores = BTreeSet::new();
    for thread in threads.flatten() {
        // A thread may have ended since.
        let status = std::fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let listed = list.map(|list| list.trim().parse());
        if let Some(Ok(CoreChoice::Listed(listed))) = listed {
            cores.extend(listed);
        }
    }
    (!cores.is_empty()).then(|| cores.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (text, expected) in [
            ("0", "0"),
            ("3,1,2", "1-3"),
            ("0-3,6", "0-3,6"),
            (" 7 - 7 ,0", "0,7"),
            ("big", "big"),
        ] {
            let choice: CoreChoice = text.parse().expect("valid");
            assert_eq!(choice.to_string(), expected, "{text}");
        }
        for text in [
            "",
            "fast",
            "1,",
            "-1",
            "1-",
            "3-1",
            "1024",
            "0-4294967295",
            "0-3;6",
        ] {
            assert!(text.parse::<CoreChoice>().is_err(), "{text}");
        }
    }
}
