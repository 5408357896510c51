//! Names of a model's classes: from a request, a file beside the model, the model's metadata, or a built-in set
//! of this size.

use std::path::Path;

use pkgtool_base::source::FileSource;
use pkgtool_model::{Method, ModelInfo, ValueKind, coreml, onnx};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::files;

/// Names of files with labels beside a model, in order of preference.
const FILE_NAMES: [&str; 5] = [
    "labels.json",
    "labels.txt",
    "id2label.json",
    "alphabet.json",
    "dict.txt",
];

/// Metadata properties of ONNX models with labels, and how they are written.
const PROPERTIES: [(&str, PropertyForm); 2] = [
    ("names", PropertyForm::Dictionary),
    ("character", PropertyForm::Lines),
];

/// Maximum size of a file with labels, in bytes.
const MAX_FILE_BYTES: u64 = 4 << 20;

/// Built-in sets: name, number of classes, names. An empty name is a number without a class.
const SETS: [(&str, &str); 4] = [
    ("imagenet", include_str!("../labels/imagenet-1k.txt")),
    ("voc", include_str!("../labels/voc-21.txt")),
    ("coco", include_str!("../labels/coco-80.txt")),
    ("coco-91", include_str!("../labels/coco-91.txt")),
];

/// Built-in alphabets, a letter on each line.
const ALPHABETS: [(&str, &str); 1] = [(
    "easyocr-english",
    include_str!("../labels/easyocr-english.txt"),
)];

/// The name of the set that follows the number of classes.
pub(crate) const AUTO: &str = "auto";

/// The form of a property with labels.
#[derive(Debug, Clone, Copy)]
enum PropertyForm {
    /// A dictionary of Python.
    Dictionary,
    /// A line for each label.
    Lines,
}

/// The names of classes, with their origin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Labels {
    names: Vec<String>,
    /// The origin of the names, for people.
    pub source: String,
}

impl Labels {
    /// Creates labels of a list.
    pub fn listed(names: Vec<String>, source: impl Into<String>) -> Self {
        let source = source.into();
        Self { names, source }
    }

    /// Returns the name of a class; a class without a name is `class_N`.
    pub fn name(&self, class: usize) -> String {
        let name = self.names.get(class).filter(|name| !name.is_empty());
        name.cloned().unwrap_or_else(|| format!("class_{class}"))
    }

    /// Returns the letter of a class; behind the last one is the space.
    pub(crate) fn letter(&self, class: usize) -> String {
        self.names.get(class).map_or(" ", String::as_str).to_owned()
    }

    /// Returns the number of names.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Returns the labels of a file beside a model or in the directory above, or of the model's metadata.
    pub fn of_package(model: &Path, info: &ModelInfo) -> Result<Option<Self>, String> {
        match files::beside(model, &FILE_NAMES) {
            Some(path) => Self::of_file(&path).map(Some),
            None => Self::of_metadata(model, info),
        }
    }

    /// Reads a file: a JSON list, a JSON object from numbers to names (also below `id2label` or `characters`), or a
    /// line for each class.
    pub fn of_file(path: &Path) -> Result<Self, String> {
        let names = if path.extension().is_some_and(|it| it == "json") {
            let json = files::json(path, MAX_FILE_BYTES)?;
            let below = ["id2label", "characters"];
            let below = below.into_iter().find_map(|key| json.get(key));
            let json = below.unwrap_or(&json);
            let wrong = "expected a list of labels, or an object from numbers to labels";
            of_json(json).ok_or_else(|| format!("{}: {wrong}", path.display()))?
        } else {
            // A line may be a space, which is a letter.
            let trimmed = |line: &str| match line.trim() {
                "" => line.to_owned(),
                name => name.to_owned(),
            };
            let text = files::text(path, MAX_FILE_BYTES)?;
            text.lines().map(trimmed).collect()
        };
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self::listed(names, format!("{file} of the package")))
    }

    /// Returns the labels in an ONNX model's metadata, `names` (Ultralytics) or `character` (Paddle), or those of a
    /// Core ML classifier.
    fn of_metadata(model: &Path, info: &ModelInfo) -> Result<Option<Self>, String> {
        let has = |key: &str| {
            let name = format!("property {key}");
            info.metadata.iter().any(|(known, _)| *known == name)
        };
        for (key, form) in PROPERTIES {
            if !has(key) {
                continue;
            }
            let fault = |reason: String| format!("{}: {reason}", model.display());
            let source = FileSource::open(model).map_err(|error| fault(error.to_string()))?;
            let text = onnx::property(&source, key).map_err(|error| fault(error.to_string()))?;
            let names = text.and_then(|text| match form {
                PropertyForm::Dictionary => of_python(&text),
                PropertyForm::Lines => Some(text.lines().map(str::to_owned).collect()),
            });
            if let Some(names) = names {
                let source = format!("metadata `{key}` of the model");
                return Ok(Some(Self::listed(names, source)));
            }
        }
        for method in info.methods.iter().filter(|it| classifies(it)) {
            let names = coreml::class_labels(model, &method.name);
            let names = names.map_err(|error| format!("{}: {error}", model.display()))?;
            if let Some(names) = names {
                return Ok(Some(Self::listed(names, "the model's labels")));
            }
        }
        Ok(None)
    }

    /// Returns a built-in set by its name.
    pub(crate) fn of_set(name: &str) -> Option<Self> {
        let mut sets = SETS.iter().chain(&ALPHABETS);
        let (_, text) = sets.find(|(known, _)| *known == name)?;
        let names = text.lines().map(str::to_owned).collect();
        Some(Self::listed(names, format!("built-in set `{name}`")))
    }

    /// Returns the names of the built-in sets.
    pub(crate) fn sets() -> String {
        let sets = SETS.iter().chain(&ALPHABETS).map(|(name, _)| *name);
        sets.collect::<Vec<_>>().join(", ")
    }

    /// Returns the built-in alphabet with this number of letters.
    pub(crate) fn alphabet_of(count: usize) -> Option<Self> {
        Self::guessed(&ALPHABETS, count, "letters")
    }

    /// Returns the built-in set with this number of classes.
    pub(crate) fn of_count(count: usize) -> Option<Self> {
        Self::guessed(&SETS, count, "classes")
    }

    fn guessed(sets: &[(&str, &str)], count: usize, what: &str) -> Option<Self> {
        let mut sets = sets.iter();
        let (name, _) = sets.find(|(_, text)| text.lines().count() == count)?;
        let mut set = Self::of_set(name)?;
        set.source = format!("built-in set `{name}`, guessed from {count} {what}");
        Some(set)
    }
}

/// Returns whether a method gives the probabilities of labels that its model names.
fn classifies(method: &Method) -> bool {
    let mut outputs = method.outputs.iter();
    outputs.any(|it| matches!(it.kind, ValueKind::ClassScores { .. }))
}

fn of_json(json: &Json) -> Option<Vec<String>> {
    if let Some(list) = json.as_array() {
        return list
            .iter()
            .map(|name| Some(name.as_str()?.to_owned()))
            .collect();
    }
    let entries = json
        .as_object()?
        .iter()
        .map(|(class, name)| Some((class.parse::<usize>().ok()?, name.as_str()?.to_owned())));
    numbered(entries.collect::<Option<Vec<_>>>()?)
}

/// Parses a dictionary of Python with numbers and texts, such as `{0: 'person', 1: "it's"}`.
fn of_python(text: &str) -> Option<Vec<String>> {
    let mut rest = text.trim().strip_prefix('{')?.trim_start();
    let mut entries = Vec::new();
    while !rest.starts_with('}') {
        let (class, after) = rest.split_once(':')?;
        let after = after.trim_start();
        let quote = after.chars().next().filter(|c| ['\'', '"'].contains(c))?;
        let mut name = String::new();
        let mut chars = after.char_indices().skip(1);
        let end = loop {
            match chars.next()? {
                (_, '\\') => name.push(chars.next()?.1),
                (at, c) if c == quote => break at + 1,
                (_, c) => name.push(c),
            }
        };
        entries.push((class.trim().parse().ok()?, name));
        rest = after[end..].trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    numbered(entries)
}

/// Arranges names by their number; numbers without a name are empty.
fn numbered(entries: Vec<(usize, String)>) -> Option<Vec<String>> {
    // A number far beyond the others is no class.
    let most = entries.len().saturating_mul(4).saturating_add(1000);
    let count = entries.iter().map(|(class, _)| class + 1).max()?;
    let mut names = vec![String::new(); (count <= most).then_some(count)?];
    for (class, name) in entries {
        names[class] = name;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_sets_have_their_sizes() {
        for (name, count, class, label) in [
            ("imagenet", 1000, 207, "golden retriever"),
            ("voc", 21, 12, "dog"),
            ("coco", 80, 16, "dog"),
            ("coco-91", 91, 18, "dog"),
        ] {
            let set = Labels::of_set(name).expect("a set");
            assert_eq!((set.count(), set.name(class).as_str()), (count, label));
            assert_eq!(Labels::of_count(count).expect("a set").count(), count);
        }
        let holes = Labels::of_set("coco-91").expect("a set");
        assert_eq!(
            (holes.name(12), holes.name(500)),
            ("class_12".to_owned(), "class_500".to_owned())
        );
    }

    #[test]
    fn dictionaries_of_python_are_read() {
        let names = of_python(r#"{0: 'person', 2: "it's", 1: 'a\'b'}"#);
        assert_eq!(names.expect("names"), ["person", "a'b", "it's"]);
        for text in [
            "",
            "{",
            "{0: person}",
            "{x: 'a'}",
            "{0: 'a",
            "{99999999: 'a'}",
            "{}",
        ] {
            assert_eq!(of_python(text), None, "{text}");
        }
    }

    #[test]
    fn files_beside_a_model_name_classes() {
        let directory = tempfile::tempdir().expect("a directory");
        let model = directory.path().join("xnnpack/model.pte");
        std::fs::create_dir(directory.path().join("xnnpack")).expect("a directory");
        let info = ModelInfo::default();
        assert_eq!(Labels::of_package(&model, &info), Ok(None));
        for (file, text) in [
            ("labels.txt", "cat\ndog\n"),
            ("labels.json", r#"["cat", "dog"]"#),
            (
                "xnnpack/id2label.json",
                r#"{"id2label": {"1": "dog", "0": "cat"}}"#,
            ),
        ] {
            std::fs::write(directory.path().join(file), text).expect("written");
            let labels = Labels::of_package(&model, &info)
                .expect("valid")
                .expect("labels");
            assert_eq!(
                (labels.count(), labels.name(1)),
                (2, "dog".to_owned()),
                "{file}"
            );
        }
        std::fs::write(directory.path().join("xnnpack/labels.json"), "{\"a\": 1}")
            .expect("written");
        let error = Labels::of_package(&model, &info).expect_err("no labels");
        assert!(
            error.contains("labels.json: expected a list of labels"),
            "{error}"
        );
    }
}
