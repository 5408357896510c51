//! Writes the outputs of a run as files, one `.npy` per output, named after the output.
//!
//! Invariant: a file is complete or absent, since it is written under a temporary name and then
//! renamed. Whatever names a model gives its outputs, nothing outside the folder is written.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::{Tensor, TensorSpec, npy};

/// Maximum length of a file name without its extension, in bytes.
const MAX_NAME_BYTES: usize = 100;

/// File names that Windows reserves for devices, with any extension.
const RESERVED_NAMES: [&str; 4] = ["con", "prn", "aux", "nul"];

/// Reserved names that are followed by a digit.
const RESERVED_NUMBERED: [&str; 2] = ["com", "lpt"];

/// A failure to write outputs.
#[derive(Debug, thiserror::Error)]
#[error("cannot write `{}`: {source}", path.display())]
pub struct OutputError {
    /// The file or folder.
    pub path: PathBuf,
    /// The reason.
    #[source]
    pub source: io::Error,
}

/// Writes each tensor to `NAME.npy` in `directory`, which is created if it does not exist. Returns
/// the paths in the same order. Files of an earlier run are replaced. bfloat16 is written as its
/// raw bits: [`npy::BFLOAT16_NOTE`].
///
/// In a file name, every character except ASCII letters, digits, `_`, `-` and inner dots becomes
/// `_`. Names that then differ only in case get a number.
pub fn write_outputs(
    directory: &Path,
    outputs: &[TensorSpec],
    tensors: &[Tensor],
) -> Result<Vec<PathBuf>, OutputError> {
    let failed = |path: &Path, source| OutputError {
        path: path.to_owned(),
        source,
    };
    fs::create_dir_all(directory).map_err(|source| failed(directory, source))?;
    let names = file_names(outputs.iter().map(|output| output.name.as_str()));
    let mut paths = Vec::new();
    for (name, tensor) in names.iter().zip(tensors) {
        let path = directory.join(format!("{name}.npy"));
        write(directory, &path, tensor).map_err(|source| failed(&path, source))?;
        paths.push(path);
    }
    Ok(paths)
}

fn write(directory: &Path, path: &Path, tensor: &Tensor) -> io::Result<()> {
    let (file, temporary) = temporary(directory)?;
    let written = fill(file, tensor).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn fill(file: File, tensor: &Tensor) -> io::Result<()> {
    let mut writer = BufWriter::new(file);
    npy::write(&mut writer, tensor)?;
    writer.flush()
}

/// Creates a file with a unique name.
fn temporary(directory: &Path) -> io::Result<(File, PathBuf)> {
    let process = std::process::id();
    let mut number = 0_u32;
    loop {
        let path = directory.join(format!(".pkgtool-{process}-{number}.tmp"));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => {
                number += 1;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns a unique, portable file name without extension for each output name.
fn file_names<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut taken = HashSet::new();
    names
        .enumerate()
        .map(|(index, name)| {
            let safe = file_name(name).unwrap_or_else(|| format!("output_{index}"));
            let numbered = (2_u64..).map(|number| format!("{safe}_{number}"));
            let mut candidates = std::iter::once(safe.clone()).chain(numbered);
            candidates
                .find(|candidate| taken.insert(candidate.to_lowercase()))
                .expect("some number is free")
        })
        .collect()
}

/// Returns a portable name; `None` if nothing of the name is left.
fn file_name(name: &str) -> Option<String> {
    let safe = |c: char| {
        if c.is_ascii_alphanumeric() || "_-.".contains(c) {
            c
        } else {
            '_'
        }
    };
    let name: String = name.chars().map(safe).take(MAX_NAME_BYTES).collect();
    let name = name.trim_matches('.');
    if !name.contains(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let stem = name.split('.').next().unwrap_or_default().to_lowercase();
    let numbered = stem.strip_suffix(|c: char| c.is_ascii_digit());
    let is_reserved = RESERVED_NAMES.contains(&stem.as_str())
        || numbered.is_some_and(|stem| RESERVED_NUMBERED.contains(&stem));
    Some(if is_reserved {
        format!("_{name}")
    } else {
        name.to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_safe_and_differ() {
        let names = [
            "logits",
            "Logits",
            "a/b:0",
            "a_b_0",
            "../../etc/passwd",
            "..",
            "",
            "NUL",
            "com1.x",
            "\u{1b}[2J",
            "größe",
            ".hidden",
            "logits_2",
            "con",
            "日本",
        ];
        let expected = [
            "logits",
            "Logits_2",
            "a_b_0",
            "a_b_0_2",
            "_.._etc_passwd",
            "output_5",
            "output_6",
            "_NUL",
            "_com1.x",
            "__2J",
            "gr__e",
            "hidden",
            "logits_2_2",
            "_con",
            "output_14",
        ];
        assert_eq!(file_names(names.into_iter()), expected);
        let long = "x".repeat(1000);
        assert_eq!(
            file_names([long.as_str()].into_iter())[0].len(),
            MAX_NAME_BYTES
        );
    }
}
