//! Finds the chat templates of a package.
//!
//! `tokenizer_config.json` may hold one template or a list of named ones. Files beside it, beside
//! the tokenizer or beside the package's config are `chat_template.jinja`, `chat_template.json` and
//! `additional_chat_templates/*.jinja`. Files override the field, as in `transformers`, which
//! writes files nowadays. Invariant: a package has at most [`MAX_TEMPLATES`], each of at most
//! [`MAX_TEMPLATE_BYTES`] bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value};

use super::error::FindError;
use super::files::{kind, malformed, object, read};
use super::special_tokens;
use super::takes::TemplateTakes;
use pkgtool_engine::runtime::parsers::ContentId;

/// Maximum size of a template, in bytes. The largest known ones have 30 kB.
const MAX_TEMPLATE_BYTES: usize = 1 << 20;

/// Maximum number of templates in a package.
const MAX_TEMPLATES: usize = 64;

const DEFAULT: &str = "default";
const WITH_TOOLS: &str = "tool_use";

/// The files of a package that the search starts from.
#[derive(Debug, Clone, Copy, Default)]
pub struct TemplatePlaces<'a> {
    /// The tokenizer config, if the package names one; otherwise the one beside the tokenizer is
    /// used.
    pub tokenizer_config: Option<&'a Path>,
    /// The tokenizer.
    pub tokenizer: Option<&'a Path>,
    /// The package's config.
    pub config: Option<&'a Path>,
}

/// The templates of a package: at least one.
#[derive(Debug, Clone)]
pub struct Templates {
    file: PathBuf,
    named: BTreeMap<String, Template>,
}

/// A template with the special tokens that it may write. Clones share the data.
#[derive(Debug, Clone)]
pub struct Template(Arc<TemplateData>);

#[derive(Debug)]
struct TemplateData {
    /// Unique id within this process.
    id: u64,
    file: PathBuf,
    name: String,
    text: String,
    tokens: Map<String, Value>,
    takes: OnceLock<TemplateTakes>,
}

impl Templates {
    /// Finds the templates of a package.
    pub fn find(places: TemplatePlaces) -> Result<Self, FindError> {
        let config_file = places.tokenizer_config.map(Path::to_owned).or_else(|| {
            let beside = places.tokenizer?.with_file_name("tokenizer_config.json");
            beside.is_file().then_some(beside)
        });
        let config = match &config_file {
            Some(file) => object(file)?,
            None => Map::new(),
        };
        let files = [config_file.as_deref(), places.tokenizer, places.config];
        let folders: Vec<&Path> = files
            .into_iter()
            .flatten()
            .filter_map(Path::parent)
            .collect();
        let tokens = special_tokens::of(&config, &folders)?;
        let mut texts = BTreeMap::new();
        for folder in &folders {
            of_folder(folder, &mut texts)?;
            if !texts.is_empty() {
                break;
            }
        }
        if !texts.contains_key(DEFAULT)
            && let Some(file) = &config_file
        {
            of_config(file, &config, &mut texts)?;
        }
        if !texts.contains_key(DEFAULT) {
            of_legacy(&folders, &mut texts)?;
        }
        let Some((_, (file, _))) = texts.first_key_value() else {
            let name = config_file.as_deref().and_then(Path::file_name);
            let name = name.map_or("tokenizer_config.json".into(), |name| {
                name.to_string_lossy()
            });
            return Err(FindError::Absent {
                config: name.into_owned(),
            });
        };
        let file = file.clone();
        let named = texts.into_iter().map(|(name, (file, text))| {
            let template = Template::new(file, &name, &text, tokens.clone());
            (name, template)
        });
        Ok(Self {
            named: named.collect(),
            file,
        })
    }

    /// Returns the template for conversations with or without tools.
    pub fn choose(&self, with_tools: bool) -> Result<&Template, FindError> {
        let special = with_tools.then(|| self.named.get(WITH_TOOLS)).flatten();
        let only = || (self.named.len() == 1).then(|| self.named.values().next());
        special
            .or_else(|| self.named.get(DEFAULT))
            .or_else(|| only().flatten())
            .ok_or_else(|| FindError::NoDefault {
                file: self.file.clone(),
                names: self.named.keys().cloned().collect(),
            })
    }

    /// Iterates over all templates by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Template)> {
        self.named.iter().map(|(name, one)| (name.as_str(), one))
    }
}

impl Template {
    /// Creates a template from a text and its file. `tokens` are template variables such as
    /// `bos_token`.
    pub fn new(
        file: impl Into<PathBuf>,
        name: &str,
        text: &str,
        tokens: Map<String, Value>,
    ) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(Arc::new(TemplateData {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            file: file.into(),
            name: name.to_owned(),
            // Jinja treats every line ending as one newline.
            text: text.replace("\r\n", "\n").replace('\r', "\n"),
            tokens,
            takes: OnceLock::new(),
        }))
    }

    /// Returns the file that it came from.
    pub fn file(&self) -> &Path {
        &self.0.file
    }

    /// Returns its text.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// Returns the special tokens that it may write, by variable name.
    pub fn tokens(&self) -> &Map<String, Value> {
        &self.0.tokens
    }

    pub(super) fn id(&self) -> ContentId {
        ContentId::numbered(self.0.id)
    }

    pub(super) fn takes(&self) -> &OnceLock<TemplateTakes> {
        &self.0.takes
    }

    /// Returns its label for messages: the file's name, and the template's own name unless it is
    /// the default one.
    pub(super) fn label(&self) -> String {
        let file = self
            .0
            .file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        if self.0.name == DEFAULT {
            file.into_owned()
        } else {
            format!("{file}, `{}`", self.0.name)
        }
    }
}

type TemplateTexts = BTreeMap<String, (PathBuf, String)>;

/// Reads `chat_template.jinja` and `additional_chat_templates/*.jinja`.
fn of_folder(folder: &Path, texts: &mut TemplateTexts) -> Result<(), FindError> {
    let file = folder.join("chat_template.jinja");
    if file.is_file() {
        let text = template(&file, "", read(&file)?)?;
        texts.insert(DEFAULT.to_owned(), (file, text));
    }
    let Ok(entries) = std::fs::read_dir(folder.join("additional_chat_templates")) else {
        return Ok(());
    };
    let files = entries.flatten().map(|entry| entry.path());
    let is_template = |file: &PathBuf| file.extension().is_some_and(|it| it == "jinja");
    let mut files: Vec<PathBuf> = files.filter(is_template).collect();
    files.sort();
    for file in files.into_iter().take(MAX_TEMPLATES) {
        let text = template(&file, "", read(&file)?)?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        texts.insert(name.into_owned(), (file.clone(), text));
    }
    Ok(())
}

/// Reads the field `chat_template`: a text, or a list of `{"name", "template"}`.
fn of_config(
    file: &Path,
    config: &Map<String, Value>,
    texts: &mut TemplateTexts,
) -> Result<(), FindError> {
    let mut add = |name: &str, field: &str, text: &str| {
        let text = template(file, field, text.to_owned())?;
        let entry = texts.entry(name.to_owned());
        entry.or_insert_with(|| (file.to_owned(), text));
        Ok(())
    };
    match config.get("chat_template") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::String(text)) => add(DEFAULT, "chat_template", text),
        Some(Value::Array(list)) if list.len() <= MAX_TEMPLATES => {
            for (place, item) in list.iter().enumerate() {
                let part = |key: &str| {
                    let field = format!("chat_template[{place}].{key}");
                    let found = item.get(key).unwrap_or(&Value::Null);
                    let text = found.as_str();
                    text.ok_or_else(|| malformed(file, &field, "a text", kind(found)))
                };
                add(
                    part("name")?,
                    &format!("chat_template[{place}].template"),
                    part("template")?,
                )?;
            }
            Ok(())
        }
        Some(Value::Array(list)) => Err(malformed(
            file,
            "chat_template",
            &format!("at most {MAX_TEMPLATES} templates"),
            &list.len().to_string(),
        )),
        Some(other) => {
            let expected = "a text or a list of named templates";
            Err(malformed(file, "chat_template", expected, kind(other)))
        }
    }
}

/// Reads `chat_template.json`, which older image and audio processors have.
fn of_legacy(folders: &[&Path], texts: &mut TemplateTexts) -> Result<(), FindError> {
    for folder in folders {
        let file = folder.join("chat_template.json");
        if file.is_file() {
            return of_config(&file, &object(&file)?, texts);
        }
    }
    Ok(())
}

fn template(file: &Path, field: &str, text: String) -> Result<String, FindError> {
    if text.len() <= MAX_TEMPLATE_BYTES {
        return Ok(text);
    }
    let expected = format!("a template of at most {MAX_TEMPLATE_BYTES} bytes");
    Err(malformed(
        file,
        field,
        &expected,
        &format!("{} bytes", text.len()),
    ))
}
