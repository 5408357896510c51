//! Configs beside each other: what one says of a model, held against what the others say.
//!
//! Invariant: configs are compared only where their places say that they belong together, so two
//! packages that merely lie in one tree are never held against each other.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::Context;
use super::rules;
use crate::diagnostic::{Anchor, Diagnostic, SourceText};
use crate::package::{Backend, Config};
use crate::source::{JsonPath, Span};

/// A config with its place and what it says of the model as a whole.
pub(super) struct Placed {
    pub(super) source: Arc<SourceText>,
    /// Its directory, from the file system's root.
    directory: PathBuf,
    model: String,
    size: Option<String>,
    backend: Option<Backend>,
    said: Vec<Said>,
    model_span: Span,
}

/// A field that is the model's, not the backend's.
struct Said {
    key: &'static str,
    /// The value in a form that is equal where the meaning is.
    meaning: String,
    shown: String,
    span: Span,
}

impl Placed {
    /// `None` for a config that does not name its model.
    pub(super) fn new(context: &Context<'_>, source: &Arc<SourceText>) -> Option<Self> {
        let config = context.config.as_ref()?;
        let document = context.document()?;
        let span = |key: &str| document.value_span(&JsonPath::root().key(key));
        let said = fields(config)
            .into_iter()
            .filter_map(|(key, meaning, shown)| {
                let is_sound = !context.is_violated(&JsonPath::root().key(key));
                is_sound.then(|| Said {
                    key,
                    meaning,
                    shown,
                    span: span(key),
                })
            });
        Some(Self {
            source: Arc::clone(source),
            directory: context.absolute.to_owned(),
            model: config.model.clone()?,
            size: config.size.clone(),
            backend: config.backend,
            said: said.collect(),
            model_span: span("model"),
        })
    }

    /// The directories in which another config of this model, size and backend is one too many.
    fn reach(&self) -> Vec<&Path> {
        let parent = self.directory.parent().unwrap_or(&self.directory);
        let name =
            |path: &'_ Path| -> Option<String> { Some(path.file_name()?.to_str()?.to_owned()) };
        let in_backend =
            name(&self.directory).is_some_and(|name| Backend::from_name(&name).is_some());
        let mut reach = vec![parent];
        if !in_backend {
            reach.push(&self.directory);
        }
        // Sizes of one model stand beside each other, each in a directory of its own.
        let is_size = name(parent).is_some_and(|name| rules::is_size_token(&name));
        if let (true, true, Some(above)) =
            (in_backend, is_size && self.size.is_some(), parent.parent())
        {
            reach.push(above);
        }
        reach
    }
}

/// Fields that have the same value for every backend: key, meaning, text.
fn fields(config: &Config) -> Vec<(&'static str, String, String)> {
    let mut fields = Vec::new();
    if let Some(license) = &config.license {
        fields.push(("license", license.to_ascii_lowercase(), license.clone()));
    }
    if let Some(family) = &config.family {
        fields.push(("family", family.clone(), family.clone()));
    }
    if !config.capabilities.is_empty() {
        let mut sorted = config.capabilities.clone();
        sorted.sort();
        fields.push((
            "capabilities",
            sorted.join(" "),
            config.capabilities.join(", "),
        ));
    }
    fields
}

/// The findings about configs that do not go together; `placed` are in the order of their paths.
pub(super) fn compare(placed: &[Placed]) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    let mut first: HashMap<(&Path, &str, Option<&str>, Option<Backend>), &Placed> = HashMap::new();
    for one in placed {
        let Some(backend) = one.backend else { continue };
        let mut earlier = None;
        for place in one.reach() {
            let key = (
                place,
                one.model.as_str(),
                one.size.as_deref(),
                Some(backend),
            );
            let known = *first.entry(key).or_insert(one);
            if !std::ptr::eq(known, one) {
                earlier = earlier.or(Some(known));
            }
        }
        if let Some(earlier) = earlier {
            let anchor = Anchor::At(JsonPath::root().key("model"), one.model_span);
            let finding =
                rules::config_duplicate(anchor, &one.model, backend, &earlier.source.path);
            diagnostics.push(finding.locate(&one.source, None));
        }
    }
    let mut beside: BTreeMap<(&Path, &str, Option<&str>), Vec<&Placed>> = BTreeMap::new();
    for one in placed {
        if let Some(parent) = one.directory.parent() {
            let key = (parent, one.model.as_str(), one.size.as_deref());
            beside.entry(key).or_default().push(one);
        }
    }
    for siblings in beside.values().filter(|siblings| siblings.len() > 1) {
        for key in ["license", "family", "capabilities"] {
            diagnostics.extend(disagreements(siblings, key));
        }
    }
    diagnostics
}

/// Findings on the configs that say otherwise than most, or than the first where there is no most.
fn disagreements(siblings: &[&Placed], key: &str) -> Vec<Diagnostic> {
    let said: Vec<(&Placed, &Said)> = siblings
        .iter()
        .filter_map(|one| Some((*one, one.said.iter().find(|said| said.key == key)?)))
        .collect();
    let count = |meaning: &str| said.iter().filter(|(_, it)| it.meaning == meaning).count();
    // Of equals the first: `max_by_key` would take the last.
    let Some((usual_in, usual)) = said.iter().rev().max_by_key(|(_, it)| count(&it.meaning)) else {
        return Vec::new();
    };
    let others = said.iter().filter(|(_, it)| it.meaning != usual.meaning);
    others
        .map(|(one, it)| {
            let anchor = Anchor::At(JsonPath::root().key(key), it.span);
            let finding = rules::backends_disagree(
                anchor,
                key,
                (&it.shown, &usual.shown),
                &usual_in.source.path,
            );
            finding.locate(&one.source, None)
        })
        .collect()
}
