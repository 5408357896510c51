//! Reads the files that sentence-transformers writes beside a model: maximum text length, pooling
//! and modules.
//!
//! Invariant: a missing file sets nothing; a broken one is an error. Only the folders of the
//! package's own files are searched.

use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use super::{EmbeddingError, Pooling, Sourced};
use pkgtool_base::source;

/// Maximum size of such a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Folder of the pooling settings, unless `modules.json` names another.
const DEFAULT_POOLING_DIR: &str = "1_Pooling";

/// The settings in the files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncoderSettings {
    /// Maximum number of tokens of a text.
    pub(super) longest: Option<Sourced<usize>>,
    /// Convert texts to lower case first.
    pub(super) lower_case: bool,
    /// The pooling methods.
    pub(super) pooling: Option<Vec<Pooling>>,
    /// Scale vectors to length 1; `None` without a `modules.json`.
    pub(super) normalize: Option<bool>,
    /// An unsupported module that is applied after pooling.
    pub(super) unsupported_module: Option<Sourced<String>>,
}

impl EncoderSettings {
    /// Reads the files in these folders; for each file, the first folder that has it wins.
    pub fn read(directories: &[PathBuf]) -> Result<Self, EmbeddingError> {
        let mut this = Self::default();
        if let Some(found) = find(directories, Path::new("sentence_bert_config.json"))? {
            this.longest = found.length("max_seq_length")?;
            this.lower_case = found.boolean("do_lower_case")?.unwrap_or(false);
        }
        let mut pooling = PathBuf::from(DEFAULT_POOLING_DIR);
        if let Some(found) = find(directories, Path::new("modules.json"))?
            && let Some(named) = this.modules(&found)?
        {
            pooling = named;
        }
        if let Some(found) = find(directories, &pooling.join("config.json"))? {
            this.pooling = Some(found.pooling()?);
        }
        Ok(this)
    }

    /// Reads `modules.json`, and returns the folder of the pooling settings.
    fn modules(&mut self, found: &JsonFile) -> Result<Option<PathBuf>, EmbeddingError> {
        let modules = found.value.as_array();
        let modules = modules.ok_or_else(|| found.wrong("must be a list of modules".to_owned()))?;
        let mut directory = None;
        self.normalize = Some(false);
        for module in modules {
            let kind = module.get("type").and_then(Value::as_str).unwrap_or("");
            let kind = kind.rsplit('.').next().unwrap_or(kind);
            match kind {
                "Transformer" | "Dropout" => {}
                "Pooling" => directory = directory_of(module),
                "Normalize" => self.normalize = Some(true),
                other => {
                    self.unsupported_module = Some(Sourced {
                        value: other.to_owned(),
                        by: found.name.clone(),
                    });
                }
            }
        }
        Ok(directory)
    }
}

/// Returns the folder of a module, if it lies beside `modules.json`.
fn directory_of(module: &Value) -> Option<PathBuf> {
    let path = PathBuf::from(module.get("path")?.as_str()?);
    let mut parts = path.components();
    let is_plain = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
    is_plain.then_some(path)
}

/// An existing JSON file.
struct JsonFile {
    path: PathBuf,
    /// Its name within the package. Clients see this name, but never the package's location.
    name: String,
    value: Value,
}

fn find(directories: &[PathBuf], name: &Path) -> Result<Option<JsonFile>, EmbeddingError> {
    let mut paths = directories.iter().map(|directory| directory.join(name));
    let Some(path) = paths.find(|path| path.is_file()) else {
        return Ok(None);
    };
    let error = |reason: String| EmbeddingError::File {
        file: path.clone(),
        reason,
    };
    let bytes = source::read(&path, MAX_FILE_BYTES);
    let bytes = bytes.map_err(|it| error(format!("cannot be read: {it}")))?;
    let value = serde_json::from_slice(&bytes);
    let value = value.map_err(|it| error(format!("is invalid JSON: {it}")))?;
    let name = name.display().to_string();
    Ok(Some(JsonFile { path, name, value }))
}

impl JsonFile {
    fn wrong(&self, reason: String) -> EmbeddingError {
        EmbeddingError::File {
            file: self.path.clone(),
            reason,
        }
    }

    fn get(&self, key: &str) -> Option<&Value> {
        self.value.get(key).filter(|value| !value.is_null())
    }

    fn length(&self, key: &str) -> Result<Option<Sourced<usize>>, EmbeddingError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let length = value
            .as_u64()
            .and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|length| *length > 0);
        let length = length.ok_or_else(|| {
            self.wrong(format!(
                "has an invalid `{key}`: expected a whole number above 0, got {value}"
            ))
        })?;
        Ok(Some(Sourced {
            value: length,
            by: format!("`{key}` of {}", self.name),
        }))
    }

    fn boolean(&self, key: &str) -> Result<Option<bool>, EmbeddingError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        let boolean = value.as_bool();
        let wrong = || {
            self.wrong(format!(
                "has an invalid `{key}`: expected true or false, got {value}"
            ))
        };
        boolean.map(Some).ok_or_else(wrong)
    }

    /// Returns the enabled pooling methods, by flags (in the order of the vector's parts) or by
    /// name.
    fn pooling(&self) -> Result<Vec<Pooling>, EmbeddingError> {
        const FLAGS: [(&str, Pooling); 6] = [
            ("pooling_mode_cls_token", Pooling::Cls),
            ("pooling_mode_max_tokens", Pooling::Max),
            ("pooling_mode_mean_tokens", Pooling::Mean),
            ("pooling_mode_mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
            ("pooling_mode_weightedmean_tokens", Pooling::WeightedMean),
            ("pooling_mode_lasttoken", Pooling::Last),
        ];
        let mut ways = Vec::new();
        if let Some(named) = self.get("pooling_mode") {
            let names = named
                .as_array()
                .map_or(std::slice::from_ref(named), Vec::as_slice);
            for name in names {
                let way = name.as_str().and_then(Pooling::from_name);
                let wrong = || self.wrong(format!("has the unknown pooling {name}"));
                ways.push(way.ok_or_else(wrong)?);
            }
        }
        if ways.is_empty() {
            for (flag, way) in FLAGS {
                if self.boolean(flag)? == Some(true) {
                    ways.push(way);
                }
            }
        }
        if ways.is_empty() {
            return Err(self.wrong("names no pooling method".to_owned()));
        }
        Ok(ways)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn directory(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().expect("it has one")).expect("it is made");
            fs::write(path, text).expect("it is written");
        }
        directory
    }

    fn read(files: &[(&str, &str)]) -> Result<EncoderSettings, String> {
        let directory = directory(files);
        let read = EncoderSettings::read(&[directory.path().to_owned()]);
        read.map_err(|error| error.to_string())
    }

    #[test]
    fn what_sentence_transformers_writes_is_read() {
        let modules = r#"[
            {"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "path": "2_Pool", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "path": "3_Normalize", "type": "sentence_transformers.models.Normalize"}]"#;
        let said = read(&[
            (
                "sentence_bert_config.json",
                r#"{"max_seq_length": 256, "do_lower_case": true}"#,
            ),
            ("modules.json", modules),
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode_cls_token": true}"#,
            ),
            (
                "2_Pool/config.json",
                r#"{"pooling_mode_cls_token": false, "pooling_mode_mean_tokens": true}"#,
            ),
        ])
        .expect("they are sound");
        assert_eq!(said.longest.map(|longest| longest.value), Some(256));
        assert!(said.lower_case);
        assert_eq!(said.pooling, Some(vec![Pooling::Mean]));
        assert_eq!(said.normalize, Some(true));
        assert_eq!(said.unsupported_module, None);
        assert_eq!(read(&[]), Ok(EncoderSettings::default()));
    }

    #[test]
    fn pooling_has_two_spellings() {
        let pooling = |text| {
            let said = read(&[("1_Pooling/config.json", text)]).expect("it is sound");
            said.pooling.expect("it is said")
        };
        assert_eq!(pooling(r#"{"pooling_mode": "lasttoken"}"#), [Pooling::Last]);
        assert_eq!(
            pooling(r#"{"pooling_mode_max_tokens": true, "pooling_mode_lasttoken": true}"#),
            [Pooling::Max, Pooling::Last]
        );
        assert_eq!(
            pooling(r#"{"pooling_mode": ["cls", "mean"]}"#),
            [Pooling::Cls, Pooling::Mean]
        );
    }

    #[test]
    fn a_module_that_is_not_applied_is_told() {
        let modules = r#"[{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../out"},
            {"type": "a.b.Dense", "path": "2_Dense"}]"#;
        let said = read(&[("modules.json", modules)]).expect("it is sound");
        assert_eq!(
            said.unsupported_module
                .map(|module| module.value)
                .as_deref(),
            Some("Dense")
        );
        assert_eq!(said.normalize, Some(false));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (name, text, told) in [
            ("modules.json", "{", "is invalid JSON"),
            ("modules.json", "{}", "must be a list of modules"),
            (
                "sentence_bert_config.json",
                r#"{"max_seq_length": "long"}"#,
                "`max_seq_length`",
            ),
            ("1_Pooling/config.json", "{}", "names no pooling method"),
            (
                "1_Pooling/config.json",
                r#"{"pooling_mode": "median"}"#,
                "unknown pooling",
            ),
        ] {
            let error = read(&[(name, text)]).expect_err(text);
            assert!(error.contains(told), "{error}");
        }
    }
}
