//! Files with voices: rows of float32 numbers, one row for each number of phonemes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files;

/// Directory of voices, beside a model or in the directory above.
const DIRECTORY: &str = "voices";

/// Ending of the files.
const ENDING: &str = "bin";

/// Maximum size of a file, in bytes, and maximum number of voices.
const MAX_BYTES: u64 = 16 << 20;
const MAX_VOICES: usize = 1000;

/// The name of the voice that applies if nothing else is wished.
const AUTO_VOICE: &str = "auto";

/// The voice that `auto` prefers; otherwise it is the first one.
const PREFERRED: &str = "af_heart";

/// A voice.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Voice {
    pub(crate) name: String,
    values: Vec<f32>,
}

/// Returns the names of the voices beside a model.
pub fn voice_names(model: &Path) -> Vec<String> {
    directory(model).map_or_else(Vec::new, |directory| names_in(&directory))
}

fn directory(model: &Path) -> Option<PathBuf> {
    let mut directories = files::directories(model).map(|it| it.join(DIRECTORY));
    directories.find(|directory| directory.is_dir())
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let voices = paths.filter(|path| path.extension().is_some_and(|it| it == ENDING));
    let names = voices.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()));
    let mut names: Vec<String> = names.take(MAX_VOICES).collect();
    names.sort_unstable();
    names
}

impl Voice {
    /// Reads the voice with this name beside a model.
    pub(crate) fn read(model: &Path, name: &str) -> Result<Self, String> {
        let found = directory(model).map(|directory| (names_in(&directory), directory));
        let (names, directory) = found.filter(|(names, _)| !names.is_empty()).ok_or_else(|| {
            format!(
                "{}: no voices: put files NAME.{ENDING} of float32 numbers into the directory `{DIRECTORY}` beside the model",
                model.display()
            )
        })?;
        let mut wished = names.iter().filter(|known| match name {
            AUTO_VOICE => *known == PREFERRED,
            name => *known == name,
        });
        let first = names.first().filter(|_| name == AUTO_VOICE);
        let found = wished.next().or(first);
        let name = found.ok_or_else(|| {
            format!(
                "unknown voice `{name}`: the package has {}",
                names.join(", ")
            )
        })?;
        let path = directory.join(name).with_extension(ENDING);
        let bytes = files::bytes(&path, MAX_BYTES)?;
        let (numbers, rest) = bytes.as_chunks::<4>();
        let values: Vec<f32> = numbers.iter().map(|it| f32::from_le_bytes(*it)).collect();
        if !rest.is_empty() || values.is_empty() || !values.iter().all(|it| it.is_finite()) {
            let reason =
                "invalid voice: expected finite float32 numbers, little-endian, without a header";
            return Err(format!("{}: {reason}", path.display()));
        }
        Ok(Self {
            name: name.clone(),
            values,
        })
    }

    /// Returns `size` values of the row for this number of phonemes, from the `start`th on. Longer texts have the last
    /// row.
    pub(crate) fn row(
        &self,
        phonemes: usize,
        columns: usize,
        [start, size]: [usize; 2],
    ) -> Result<&[f32], String> {
        let (rows, rest) = (
            self.values.chunks_exact(columns),
            self.values.len() % columns,
        );
        let last = rows.len().checked_sub(1).filter(|_| rest == 0);
        let last = last.ok_or_else(|| {
            format!(
                "the voice `{}` has {} numbers: expected rows of {columns}",
                self.name,
                self.values.len()
            )
        })?;
        let place = phonemes.saturating_sub(1).min(last);
        let row = &self.values[place * columns..][..columns];
        row.get(start..start + size)
            .ok_or_else(|| format!("a row has {columns} numbers, not {}", start + size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(files: &[(&str, &[u8])]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let voices = directory.path().join("voices");
        fs::create_dir(&voices).expect("a directory");
        for (name, bytes) in files {
            fs::write(voices.join(name), bytes).expect("a file");
        }
        let model = directory.path().join("variant").join("model.onnx");
        (directory, model)
    }

    #[test]
    fn a_row_follows_the_number_of_phonemes() {
        let numbers: Vec<u8> = (0_u8..12)
            .flat_map(|it| f32::from(it).to_le_bytes())
            .collect();
        let (_directory, model) = package(&[
            ("b.bin", &numbers),
            ("a.bin", &numbers[..16]),
            ("x.txt", b""),
        ]);
        assert_eq!(voice_names(&model), ["a", "b"]);
        let voice = Voice::read(&model, "b").expect("a voice");
        assert_eq!(voice.row(1, 4, [0, 4]), Ok(&[0.0, 1.0, 2.0, 3.0][..]));
        assert_eq!(voice.row(2, 4, [2, 2]), Ok(&[6.0, 7.0][..]));
        assert_eq!(voice.row(99, 4, [0, 1]), Ok(&[8.0][..]));
        assert!(voice.row(1, 5, [0, 1]).is_err());
        assert!(voice.row(1, 4, [3, 2]).is_err());
        assert_eq!(Voice::read(&model, AUTO_VOICE).expect("a voice").name, "a");
    }

    #[test]
    fn invalid_voices_have_a_reason() {
        let nan = f32::NAN.to_le_bytes();
        let (_directory, model) = package(&[
            ("odd.bin", &[1, 2, 3]),
            ("nan.bin", &nan),
            ("none.bin", &[]),
        ]);
        for name in ["odd", "nan", "none"] {
            let error = Voice::read(&model, name).expect_err(name);
            assert!(error.contains("expected finite float32 numbers"), "{error}");
        }
        for name in ["no", "../odd", "", "odd.bin", "/etc/passwd"] {
            let error = Voice::read(&model, name).expect_err(name);
            assert!(error.contains("the package has nan, none, odd"), "{error}");
        }
        let error = Voice::read(Path::new("/nowhere/model.onnx"), "a").expect_err("no directory");
        assert!(error.contains("no voices: put files"), "{error}");
    }
}
