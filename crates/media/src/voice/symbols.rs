//! Ids of phonemes: a built-in table, or a file beside the model.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::files;

/// The table of Kokoro.
const KOKORO: &str = include_str!("../../symbols/kokoro.json");

/// Names of files with a table beside a model or in the directory above, in order of preference.
const FILE_NAMES: [&str; 2] = ["symbols.json", "vocab.json"];

/// Maximum size of a file, in bytes.
const MAX_BYTES: u64 = 4 << 20;

/// Places of a table in a file.
const PLACES: [&str; 3] = ["/phoneme_id_map", "/model/vocab", "/vocab"];

/// Phonemes of English as one letter, and as those of other tables.
const SPELLED: [(char, &str); 9] = [
    ('A', "eɪ"),
    ('I', "aɪ"),
    ('O', "oʊ"),
    ('W', "aʊ"),
    ('Y', "ɔɪ"),
    ('ʤ', "dʒ"),
    ('ʧ', "tʃ"),
    ('ᵊ', "ə"),
    ('T', "ɾ"),
];

/// A value of recipes that Piper's files have: name, place, and whether it is the inverse.
type PiperSetting = (&'static str, &'static str, bool);

const SETTINGS: [PiperSetting; 4] = [
    ("rate", "/audio/sample_rate", false),
    ("noise", "/inference/noise_scale", false),
    ("width", "/inference/noise_w", false),
    ("speed", "/inference/length_scale", true),
];

/// The ids of phonemes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct SymbolTable {
    ids: HashMap<char, Vec<u32>>,
}

/// The ids of phonemes with values for recipes, of a file beside a model.
#[derive(Debug)]
pub(crate) struct SymbolFile {
    pub(crate) table: SymbolTable,
    /// Values for recipes, by name.
    pub(crate) settings: Vec<(&'static str, Json)>,
    /// Name of the file, the origin of the values.
    pub(crate) name: String,
}

impl SymbolFile {
    /// Reads the file beside a model: Piper's, or another one. Without a file, the ids are Kokoro's.
    pub(crate) fn of_package(model: &Path) -> Result<Self, String> {
        let piper = Some(piper_file(model)).filter(|path| path.is_file());
        let is_piper = piper.is_some();
        let Some(path) = piper.or_else(|| files::beside(model, &FILE_NAMES)) else {
            let kokoro = serde_json::from_str(KOKORO).unwrap_or_default();
            return Self::of_json(&kokoro, String::new(), &[]);
        };
        let settings: &[_] = if is_piper { &SETTINGS } else { &[] };
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let read = Self::of_json(&files::json(&path, MAX_BYTES)?, name.into_owned(), settings);
        read.map_err(|reason| format!("{}: {reason}", path.display()))
    }

    fn of_json(json: &Json, name: String, settings: &[PiperSetting]) -> Result<Self, String> {
        let settings = settings.iter().filter_map(|(name, place, is_inverse)| {
            let value = json.pointer(place)?;
            let inverse = value.as_f64().filter(|it| *is_inverse && *it > 0.0);
            let inverse = inverse.map(|it| json!(1.0 / it));
            Some((*name, inverse.unwrap_or_else(|| value.clone())))
        });
        Ok(Self {
            table: SymbolTable::of_json(json)?,
            settings: settings.collect(),
            name,
        })
    }
}

impl SymbolTable {
    fn of_json(json: &Json) -> Result<Self, String> {
        let inner = PLACES.iter().find_map(|place| json.pointer(place));
        let table = inner.unwrap_or(json).as_object();
        let table = table.ok_or("expected an object from phonemes to ids")?;
        let mut ids = HashMap::new();
        for (symbol, value) in table {
            let mut chars = symbol.chars();
            let (Some(symbol), None) = (chars.next(), chars.next()) else {
                // Tokens of several letters are no phonemes.
                continue;
            };
            let one = std::slice::from_ref(value);
            let numbers = value.as_array().map_or(one, Vec::as_slice).iter();
            let numbers = numbers.map(|it| u32::try_from(it.as_u64()?).ok());
            let numbers: Option<Vec<u32>> = numbers.collect();
            let numbers = numbers.ok_or_else(|| format!("`{symbol}`: expected an id or a list"))?;
            ids.insert(symbol, numbers);
        }
        if ids.is_empty() {
            return Err("no phoneme has an id".to_owned());
        }
        Ok(Self { ids })
    }

    /// Returns the phonemes that have ids. A phoneme without one may be spelled by others; otherwise it is left out.
    pub(crate) fn known(&self, phonemes: &str) -> String {
        let has = |phoneme: char| phoneme.is_whitespace() || !self.ids(phoneme).is_empty();
        let mut known = String::new();
        for phoneme in phonemes.chars() {
            if has(phoneme) {
                known.push(phoneme);
            } else if let Some((_, spelled)) = SPELLED.iter().find(|(it, _)| *it == phoneme) {
                known.extend(spelled.chars().filter(|it| has(*it)));
            }
        }
        known
    }

    /// Returns the ids of a symbol; none for an unknown one.
    pub(crate) fn ids(&self, symbol: char) -> &[u32] {
        self.ids.get(&symbol).map_or(&[], Vec::as_slice)
    }
}

/// Returns the path of the file that Piper's models have beside them.
fn piper_file(model: &Path) -> PathBuf {
    let mut name = model.as_os_str().to_owned();
    name.push(".json");
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_have_several_forms() {
        for json in [
            json!({"a": 1, "b": [2, 3], "long": 4}),
            json!({"vocab": {"a": 1, "b": [2, 3]}}),
            json!({"model": {"vocab": {"a": 1, "b": [2, 3]}}}),
            json!({"phoneme_id_map": {"a": [1], "b": [2, 3]}, "vocab": 1}),
        ] {
            let table =
                SymbolTable::of_json(&json).unwrap_or_else(|error| panic!("{json}: {error}"));
            assert_eq!(table.ids('a'), [1]);
            assert_eq!(table.ids('b'), [2, 3]);
            assert!(table.ids('c').is_empty());
        }
        for json in [
            json!([]),
            json!({}),
            json!({"a": -1}),
            json!({"a": ["b"]}),
            json!({"vocab": []}),
        ] {
            assert!(SymbolTable::of_json(&json).is_err(), "{json}");
        }
        let table = SymbolTable::of_json(&json!({"o": 1, "ʊ": 2, "d": 3, " ": 4, "T": 5}));
        assert_eq!(table.expect("a table").known("Oʤ xT\nY"), "oʊd T\n");
        let kokoro = SymbolFile::of_package(Path::new("/nowhere/model.onnx"));
        let kokoro = kokoro.expect("a table").table;
        assert_eq!(kokoro.ids.len(), 115);
        assert_eq!([kokoro.ids('$'), kokoro.ids('ᵻ')], [[0], [177]]);
    }
}
