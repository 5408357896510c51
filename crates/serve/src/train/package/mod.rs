//! The result of a training: a package with the components `encoder` and `head` and a file of
//! labels.
//!
//! Invariant: the encoder's files are copies, and nothing in the package depends on when or where
//! it was written. The name of the head contains a hash of its content, so a server of an older
//! package at the same path never loads a newer head.

mod head;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::classifier::Classifier;
use crate::database::sync_tree;
use crate::service::EncoderFiles;
use pkgtool_base::package::{PrecisionList, config, precision};
use pkgtool_base::source::text::hexadecimal;
use pkgtool_media::trained::{DECISION_FILE, ENCODER, HEAD, LABELS_FILE, LabelDecision};

/// Name of the file that records the training.
const TRAINING_FILE: &str = "training.json";

/// Name of the page about the training.
const REPORT_FILE: &str = "report.html";

/// Path of the pooling settings, unless `modules.json` names another one.
const POOLING: &str = "1_Pooling/config.json";

/// The parts of a package to write.
#[derive(Debug)]
pub(super) struct PackageContents<'a> {
    /// The model token.
    pub(super) name: &'a str,
    /// The embedding model.
    pub(super) encoder: &'a EncoderFiles,
    /// The classifier on its vectors.
    pub(super) classifier: &'a Classifier,
    /// The labels, in the classifier's order.
    pub(super) labels: &'a [String],
    /// Config and metrics of the training.
    pub(super) training: &'a Value,
    /// A page about the training.
    pub(super) report: &'a str,
    /// How probabilities become an answer, if not by the greatest one alone.
    pub(super) decision: Option<LabelDecision>,
}

/// Maximum length of a model token.
const MAX_TOKEN_LENGTH: usize = 100;

/// Returns the model token for a service's package: letters `a` to `z`, digits and `_`.
pub(crate) fn model_token(service: &str) -> String {
    let of = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '_'
        }
    };
    let token: String = service.chars().take(MAX_TOKEN_LENGTH).map(of).collect();
    if token.is_empty() {
        "trained".to_owned()
    } else {
        token
    }
}

/// An error of reading or writing a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", path.display())]
pub struct PackageError {
    path: PathBuf,
    error: io::Error,
}

impl PackageError {
    pub(super) fn at(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self { path, error }
    }
}

impl PackageContents<'_> {
    /// Writes the package into a new directory and waits until it is on disk.
    pub(super) fn write(&self, into: &Path) -> Result<(), PackageError> {
        let encoder = self.encoder;
        let backend = encoder.backend.name();
        let models = into.join(backend);
        fs::create_dir_all(&models).map_err(PackageError::at(&models))?;
        let encoder_name = self.encoder_name();
        let mut size = copy(&encoder.model, &models.join(&encoder_name))?;
        self.copy_external(&models)?;
        let head = head::onnx(self.classifier);
        let sum = Sha256::digest(&head);
        let mark = hexadecimal(&sum[..4]);
        let (name, precision) = (self.name, &encoder.precision);
        let head_name = format!("{name}_head_{backend}_{precision}_{mark}.onnx");
        write(&models.join(&head_name), &head)?;
        size += head.len() as u64;
        self.copy_text_files(into)?;
        self.write_precisions(into)?;
        write_json(&into.join(LABELS_FILE), &json!(self.labels))?;
        write_json(&into.join(TRAINING_FILE), self.training)?;
        write(&into.join(REPORT_FILE), self.report.as_bytes())?;
        if let Some(decision) = &self.decision {
            write_json(&into.join(DECISION_FILE), &json!(decision))?;
        }
        let config = self.config((&encoder_name, &head_name), size);
        write_json(&models.join(config::FILE_NAME), &config)?;
        sync_tree(into).map_err(PackageError::at(into))
    }

    fn encoder_name(&self) -> String {
        let encoder = self.encoder;
        let extension = encoder.model.extension().and_then(|it| it.to_str());
        let (name, backend) = (self.name, encoder.backend.name());
        let (precision, extension) = (&encoder.precision, extension.unwrap_or("bin"));
        format!("{name}_encoder_{backend}_{precision}.{extension}")
    }

    /// Copies the encoder's external data files to the same paths relative to the model.
    fn copy_external(&self, models: &Path) -> Result<(), PackageError> {
        let beside = self.encoder.model.parent().unwrap_or(Path::new(""));
        for file in &self.encoder.external {
            let below = file.strip_prefix(beside).ok();
            let below = below.or_else(|| file.file_name().map(Path::new));
            if let Some(below) = below {
                copy(file, &models.join(below))?;
            }
        }
        Ok(())
    }

    /// Copies the tokenizer and the sentence-transformers settings.
    fn copy_text_files(&self, into: &Path) -> Result<(), PackageError> {
        let Some(tokenizer) = &self.encoder.tokenizer else {
            return Ok(());
        };
        copy(&tokenizer.tokenizer, &into.join("tokenizer.json"))?;
        if let Some(config) = &tokenizer.config {
            copy(config, &into.join("tokenizer_config.json"))?;
        }
        let mut names = vec![PathBuf::from("sentence_bert_config.json")];
        names.extend([PathBuf::from("modules.json"), PathBuf::from(POOLING)]);
        names.extend(self.module_settings());
        for name in names {
            let mut places = self.encoder.directories.iter().map(|it| it.join(&name));
            if let Some(found) = places.find(|it| it.is_file()) {
                copy(&found, &into.join(&name))?;
            }
        }
        Ok(())
    }

    /// Returns the settings files of the modules in `modules.json`, each in a subdirectory.
    fn module_settings(&self) -> Vec<PathBuf> {
        let mut lists = self
            .encoder
            .directories
            .iter()
            .map(|it| it.join("modules.json"));
        let list = lists.find_map(|path| fs::read(path).ok());
        let list = list.and_then(|bytes| serde_json::from_slice::<Vec<Value>>(&bytes).ok());
        let paths = list.unwrap_or_default().into_iter();
        let paths = paths.filter_map(|it| Some(PathBuf::from(it.get("path")?.as_str()?)));
        let is_plain = |path: &PathBuf| {
            let mut parts = path.components();
            let first = parts.next();
            matches!(first, Some(std::path::Component::Normal(_))) && parts.next().is_none()
        };
        paths
            .filter(is_plain)
            .map(|path| path.join("config.json"))
            .collect()
    }

    /// Writes a list of precisions if the built-in list lacks this precision or classifies it
    /// differently.
    fn write_precisions(&self, into: &Path) -> Result<(), PackageError> {
        let token = &self.encoder.precision;
        let list = &self.encoder.package.precisions;
        if PrecisionList::embedded().is_quantized(token) == list.is_quantized(token) {
            return Ok(());
        }
        let list = json!({"quantized": list.quantized, "non_quantized": list.non_quantized});
        write_json(&into.join(precision::FILE_NAME), &list)
    }

    fn config(&self, (encoder, head): (&str, &str), size: u64) -> Value {
        let base = &self.encoder.package.config;
        let mut config = json!({
            "$schema": "https://pkgtool.dev/schemas/config.schema.json",
            "model": self.name,
            "family": base.family.as_deref().or(base.model.as_deref()).unwrap_or(self.name),
            "capabilities": ["classification"],
            "backend": self.encoder.backend.name(),
            "license": base.license.as_deref().unwrap_or("unknown"),
        });
        if let Some(tokenizer) = &self.encoder.tokenizer {
            config["tokenizer"] = json!("../tokenizer.json");
            if tokenizer.config.is_some() {
                config["tokenizer_config"] = json!("../tokenizer_config.json");
            }
        }
        let mut methods = json!({ HEAD: head::methods(self.classifier) });
        if let Some(declared) = self.declared_methods() {
            methods[ENCODER] = declared;
        }
        config["variants"] = json!([{
            "precision": self.encoder.precision,
            "components": {ENCODER: encoder, HEAD: head},
            "size_bytes": size,
            "methods": methods,
        }]);
        config
    }

    /// Returns the methods that the encoder's own config declares.
    fn declared_methods(&self) -> Option<Value> {
        let encoder = self.encoder;
        let text = fs::read(&encoder.package.path).ok()?;
        let config: Value = serde_json::from_slice(&text).ok()?;
        let mut variants = config.get("variants")?.as_array()?.iter();
        let name = encoder.model.file_name()?;
        let is_file = |value: Option<&Value>| {
            let reference = value.and_then(Value::as_str);
            reference.is_some_and(|it| Path::new(it).file_name() == Some(name))
        };
        variants.find_map(|variant| match &encoder.component {
            None if is_file(variant.get("file")) => variant.get("methods").cloned(),
            Some(component) if is_file(variant.get("components")?.get(component)) => {
                variant.get("methods")?.get(component).cloned()
            }
            _ => None,
        })
    }
}

/// Copies a file and returns its size.
fn copy(from: &Path, into: &Path) -> Result<u64, PackageError> {
    if let Some(parent) = into.parent() {
        fs::create_dir_all(parent).map_err(PackageError::at(parent))?;
    }
    let copied = fs::copy(from, into).map_err(PackageError::at(from))?;
    // The encoder's file may be read-only; the copy must be deletable.
    let permissions = fs::metadata(into)
        .map_err(PackageError::at(into))?
        .permissions();
    if permissions.readonly() {
        make_writable(into).map_err(PackageError::at(into))?;
    }
    Ok(copied)
}

#[cfg(unix)]
fn make_writable(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn make_writable(path: &Path) -> io::Result<()> {
    let mut permissions = fs::metadata(path)?.permissions();
    permissions.set_readonly(false);
    fs::set_permissions(path, permissions)
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), PackageError> {
    fs::write(path, bytes).map_err(PackageError::at(path))
}

fn write_json(path: &Path, value: &Value) -> Result<(), PackageError> {
    write(path, format!("{value:#}\n").as_bytes())
}
