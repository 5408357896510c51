//! Lists of checksums, as `sha256sum` writes them: 64 hex digits, two spaces or a space and `*`, a name.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use super::plan::Wanted;
use crate::remote::listing;
use crate::remote::{Mirror, RemoteError};
use crate::source;

/// The name under which a source has such a list.
const FILE_NAME: &str = "SHA256SUMS";
/// Largest list, in bytes.
const MAX_SIZE: u64 = 4 << 20;

/// The sums that are told of files, by their paths in the directory.
pub(super) struct Sums(HashMap<String, String>);

impl Sums {
    /// Those of lists in the source and of the user's own list.
    pub(super) fn read(
        mirror: &Mirror,
        wanted: &[Wanted],
        own: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        let lists = wanted
            .iter()
            .filter(|one| one.path.rsplit('/').next() == Some(FILE_NAME));
        let lists: Vec<(String, String)> = lists
            .map(|one| (one.path.clone(), one.target.clone()))
            .collect();
        let mut sums = HashMap::new();
        for (path, target) in lists {
            let folder = target.strip_suffix(FILE_NAME).unwrap_or_default();
            for (name, sum) in read(&mirror.local(&path))? {
                sums.insert(format!("{folder}{name}"), sum);
            }
        }
        let own = own.map(read).transpose()?.unwrap_or_default();
        sums.extend(own);
        Ok(Self(sums))
    }

    /// Gives files the sums that are told of them.
    pub(super) fn apply(&self, wanted: &mut [Wanted]) -> Result<(), RemoteError> {
        for one in wanted {
            let Some(sum) = self.0.get(&one.target) else {
                continue;
            };
            match &one.sha256 {
                Some(other) if other != sum => {
                    let reason = format!(
                        "SHA-256 of `{}`: its listing says {other}, the list of checksums {sum}",
                        one.target
                    );
                    return Err(RemoteError::lie(&one.url, reason));
                }
                _ => one.sha256 = Some(sum.clone()),
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> Result<Vec<(String, String)>, RemoteError> {
    let fail = |error| RemoteError::disk(path, &error);
    let mut text = String::new();
    let file = source::open(path).map_err(fail)?;
    file.take(MAX_SIZE)
        .read_to_string(&mut text)
        .map_err(fail)?;
    let mut sums = Vec::new();
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let Some((name, sum)) = entry(line) else {
            return Err(RemoteError::Disk {
                path: path.display().to_string(),
                reason: format!(
                    "line {}: expected a SHA-256 in hex, two spaces and a file's name",
                    number + 1
                ),
            });
        };
        sums.push((name, sum));
    }
    Ok(sums)
}

fn entry(line: &str) -> Option<(String, String)> {
    let (sum, name) = line.split_once(' ')?;
    let name = name.strip_prefix([' ', '*'])?.trim_end();
    let name = name.strip_prefix("./").unwrap_or(name);
    Some((name.to_owned(), listing::sha256(sum)?))
}
