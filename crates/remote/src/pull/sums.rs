//! Lists of checksums in the format of `sha256sum`: 64 hexadecimal digits, two spaces or a space
//! and `*`, a file name.

use std::collections::HashMap;
use std::io::Read as _;
use std::path::Path;

use super::plan::WantedFile;
use crate::listing;
use crate::{Mirror, RemoteError};
use pkgtool_base::source;

/// Name of such a list in a source.
const CHECKSUMS_FILE: &str = "SHA256SUMS";
/// Maximum size of a list, in bytes.
const MAX_LIST_BYTES: u64 = 4 << 20;

/// Known checksums by the path of the file in the directory.
pub(super) struct Checksums(HashMap<String, String>);

impl Checksums {
    /// Reads the lists in the source and the user's own list.
    pub(super) fn read(
        mirror: &Mirror,
        wanted: &[WantedFile],
        own: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        let lists = wanted
            .iter()
            .filter(|one| one.path.rsplit('/').next() == Some(CHECKSUMS_FILE));
        let lists: Vec<(String, String)> = lists
            .map(|one| (one.path.clone(), one.target.clone()))
            .collect();
        let mut sums = HashMap::new();
        for (path, target) in lists {
            let folder = target.strip_suffix(CHECKSUMS_FILE).unwrap_or_default();
            for (name, sum) in read(&mirror.local(&path))? {
                sums.insert(format!("{folder}{name}"), sum);
            }
        }
        let own = own.map(read).transpose()?.unwrap_or_default();
        sums.extend(own);
        Ok(Self(sums))
    }

    /// Sets the checksums of files.
    pub(super) fn apply(&self, wanted: &mut [WantedFile]) -> Result<(), RemoteError> {
        for one in wanted {
            let Some(sum) = self.0.get(&one.target) else {
                continue;
            };
            match &one.sha256 {
                Some(other) if other != sum => {
                    let reason = format!(
                        "SHA-256 of `{}`: {other} in the listing, {sum} in the list of checksums",
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
    file.take(MAX_LIST_BYTES)
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
                    "line {}: expected a SHA-256 in hexadecimal, two spaces and a file name",
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
