//! Configs beside each other: what one says of a model, held against what the others say.
//!
//! Invariant: configs are compared only where their places say that they belong together, so two
//! packages that merely lie in one tree are never held against each other.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::Context;
use super::files::FileFacts;
use super::interfaces::{Between, Side, difference};
use super::rules;
use crate::diagnostic::{Anchor, Diagnostic, Finding, SourceText};
use crate::model::ModelInfo;
use crate::package::leftover::is_placeholder;
use crate::package::size::is_size_token;
use crate::package::{Backend, Config, Loaded, steps};
use crate::source::hashed::{Map, Set};
use crate::source::{JsonPath, Span};

/// A config with its place and what it says of the model as a whole.
pub(super) struct Placed {
    /// Its path as it was found. Its text is not kept: a run may have thousands, each of megabytes.
    path: PathBuf,
    /// The path as reports show it.
    shown: String,
    /// How long its text was.
    length: usize,
    /// Its directory, from the file system's root.
    directory: PathBuf,
    model: String,
    size: Option<String>,
    backend: Option<Backend>,
    /// Whether its directory is named after its backend.
    is_at_home: bool,
    said: Vec<Said>,
    model_span: Span,
    /// Models of the first variant; none where backends are called differently by their nature.
    models: Vec<Model>,
    /// Whether its outputs are made alike by all backends: embeddings are pooled by some and not by others.
    has_common_outputs: bool,
}

/// A model of a config's first variant.
struct Model {
    component: Option<String>,
    reference: String,
    path: JsonPath,
    span: Span,
    facts: Arc<FileFacts>,
}

impl Model {
    fn all(context: &Context<'_>, config: &Config) -> Vec<Self> {
        let generates = |capability: &String| capability == "text-generation";
        let Some(document) = context.document() else {
            return Vec::new();
        };
        if config.capabilities.iter().any(generates) {
            return Vec::new();
        }
        let files = context
            .files_of(0)
            .filter(|file| file.model_info().is_some());
        let models = files.filter_map(|file| {
            Some(Self {
                component: file.file.component.clone(),
                reference: file.file.reference.clone(),
                path: file.file.path.clone(),
                span: document.value_span(&file.file.path),
                facts: Arc::clone(file.facts.as_ref().ok()?),
            })
        });
        models.collect()
    }

    fn info(&self) -> Option<&ModelInfo> {
        self.facts.model.as_ref()?.info()
    }
}

/// A field that is the model's, not the backend's.
struct Said {
    key: &'static str,
    /// The value in a form that is equal where the meaning is.
    meaning: String,
    /// The value as it is written, where that is not its meaning.
    written: Option<String>,
    span: Span,
}

impl Said {
    fn shown(&self) -> &str {
        self.written.as_ref().unwrap_or(&self.meaning)
    }
}

impl Placed {
    /// `None` for a config that does not name its model.
    pub(super) fn new(context: &Context<'_>, path: &Path, shown: &str) -> Option<Self> {
        let config = context.config.as_ref()?;
        let document = context.document()?;
        // Of something that a config does not have nothing is said.
        let span = |key: &str| document.root.get(key).unwrap_or(&document.root).span;
        let is_settled = context
            .demands
            .is_some_and(|demands| demands.schema_id.is_some());
        let schema = config.schema.clone().filter(|_| !is_settled);
        let schema = schema.map(|id| ("$schema", id, None));
        let said =
            fields(config)
                .into_iter()
                .chain(schema)
                .filter_map(|(key, meaning, written)| {
                    let is_sound = !context.is_violated_at(key) && !is_placeholder(&meaning);
                    is_sound.then(|| Said {
                        key,
                        meaning,
                        written,
                        span: span(key),
                    })
                });
        Some(Self {
            path: path.to_owned(),
            shown: shown.to_owned(),
            length: context.loaded.text.len(),
            directory: context.absolute.to_owned(),
            model: config.model.clone()?,
            size: config.size.clone(),
            backend: config.backend,
            is_at_home: config.backend.is_some() && backend_of(context.absolute) == config.backend,
            said: said.collect(),
            model_span: span("model"),
            models: Model::all(context, config),
            has_common_outputs: !config
                .capabilities
                .iter()
                .any(|capability| capability.ends_with("-embedding")),
        })
    }

    /// Its text, read again, and `span` in it; neither if it was changed since.
    fn source(&self, span: Span) -> (Arc<SourceText>, Span) {
        let text = Loaded::read(&self.path).text;
        let is_boundary = |at| text.is_char_boundary(at);
        let is_as_before =
            text.len() == self.length && is_boundary(span.start) && is_boundary(span.end);
        let (text, span) = if is_as_before {
            (text, span)
        } else {
            (String::new(), Span::new(0, 0))
        };
        (Arc::new(SourceText::new(self.shown.clone(), text)), span)
    }

    /// The backend that its directory is named after.
    fn directory_backend(&self) -> Option<Backend> {
        backend_of(&self.directory)
    }

    /// Whether its directories name another backend or size.
    fn contradicts_its_place(&self) -> bool {
        let other_backend = self.directory_backend().is_some() && !self.is_at_home;
        let above = steps::above(&self.directory).and_then(steps::name);
        let size = self.size.as_deref();
        other_backend
            || above.is_some_and(|above| size.is_some_and(|size| rules::is_other_size(above, size)))
    }

    /// The directories in which another config of this model, size and backend is one too many.
    fn reach(&self) -> Vec<&Path> {
        let parent = steps::above(&self.directory).unwrap_or(&self.directory);
        if self.directory_backend().is_none() {
            return vec![parent, &self.directory];
        }
        // Sizes of one model stand beside each other, each in a directory of its own.
        let is_size = || steps::name(parent).is_some_and(rules::is_size_token);
        let above = steps::above(parent).filter(|_| self.size.is_some() && is_size());
        std::iter::once(parent).chain(above).collect()
    }
}

fn backend_of(directory: &Path) -> Option<Backend> {
    Backend::from_name(steps::name(directory)?)
}

/// Fields that have the same value for every backend: key, meaning, and the text where that is another.
fn fields(config: &Config) -> Vec<(&'static str, String, Option<String>)> {
    let mut fields = Vec::with_capacity(3);
    let mut add = |key, meaning: String, written: &str| {
        let written = (meaning != written).then(|| written.to_owned());
        fields.push((key, meaning, written));
    };
    if let Some(license) = &config.license {
        add("license", license.to_ascii_lowercase(), license);
    }
    if let Some(family) = &config.family {
        add("family", family.clone(), family);
    }
    match &config.capabilities[..] {
        [] => {}
        [only] => add("capabilities", only.clone(), only),
        several => {
            let mut sorted = several.to_vec();
            sorted.sort();
            add("capabilities", sorted.join(" "), &several.join(", "));
        }
    }
    fields
}

/// Findings about configs that do not go together.
#[derive(Default)]
pub(super) struct Comparison {
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Paths of configs that are there twice: where they stand is no fault of its own.
    pub(super) duplicates: Set<String>,
}

/// Holds configs against each other.
pub(super) fn compare(mut placed: Vec<Placed>) -> Comparison {
    if placed.len() < 2 {
        return Comparison::default();
    }
    // What stands where it should comes first: of two the other one is too many.
    placed.sort_by(|one, other| {
        let away = (!one.is_at_home, !other.is_at_home);
        away.0
            .cmp(&away.1)
            .then_with(|| one.shown.cmp(&other.shown))
    });
    let mut comparison = Comparison::default();
    find_duplicates(&placed, &mut comparison);
    let mut beside: Map<(&OsStr, &str, Option<&str>), Vec<&Placed>> = Map::default();
    for one in &placed {
        if let Some(parent) = steps::above(&one.directory) {
            let key = (parent.as_os_str(), one.model.as_str(), one.size.as_deref());
            let siblings = beside.entry(key).or_default();
            if siblings.iter().all(|other| other.backend != one.backend) {
                siblings.push(one);
            }
        }
    }
    for siblings in beside.values().filter(|siblings| siblings.len() > 1) {
        for key in ["license", "family", "capabilities"] {
            let found = disagreements(siblings, key, rules::backends_disagree);
            comparison.diagnostics.extend(found);
        }
        let found = interfaces_that_differ(siblings);
        comparison.diagnostics.extend(found);
    }
    comparison.diagnostics.extend(mixed_schemas(&placed));
    comparison.diagnostics.extend(sizes_in_models(&placed));
    comparison
}

/// Findings on configs in backends' directories beside each other whose `model` differs from the first's only by a size.
fn sizes_in_models(placed: &[Placed]) -> Vec<Diagnostic> {
    let mut first: Map<(&OsStr, &str), &Placed> = Map::default();
    let mut found = Vec::new();
    for one in placed.iter().filter(|one| one.is_at_home) {
        let Some(parent) = steps::above(&one.directory) else {
            continue;
        };
        let known = *first
            .entry((parent.as_os_str(), without_size(&one.model)))
            .or_insert(one);
        if known.model != one.model && known.backend != one.backend {
            let (source, span) = one.source(one.model_span);
            let anchor = Anchor::At(JsonPath::root().key("model"), span);
            let finding = rules::size_in_model(anchor, &one.model, &known.model, &known.shown);
            found.push(finding.locate(&source, None));
        }
    }
    found
}

/// A model token without the size that it ends with.
fn without_size(model: &str) -> &str {
    let mut ends = model.match_indices('_');
    let end = ends.find(|(at, _)| is_size_token(&model[at + 1..]));
    end.map_or(model, |(at, _)| &model[..at])
}

/// Findings on configs of one place whose `$schema` is another than that of most.
fn mixed_schemas(placed: &[Placed]) -> Vec<Diagnostic> {
    let of = |one: &Placed| one.said.iter().position(|said| said.key == "$schema");
    let mut ids = placed
        .iter()
        .filter_map(|one| Some(&one.said[of(one)?].meaning));
    let first = ids.next();
    if ids.all(|id| Some(id) == first) {
        return Vec::new();
    }
    let mut around: Map<&OsStr, Vec<&Placed>> = Map::default();
    for one in placed {
        if let Some(place) = one.reach().last() {
            around.entry(place.as_os_str()).or_default().push(one);
        }
    }
    let groups = around.values();
    groups
        .flat_map(|group| disagreements(group, "$schema", rules::schema_id_differs))
        .collect()
}

fn find_duplicates(placed: &[Placed], comparison: &mut Comparison) {
    let mut first: Map<(&OsStr, &str, Option<&str>, Backend), &Placed> = Map::default();
    for one in placed {
        let Some(backend) = one.backend else { continue };
        let mut earlier = None;
        for place in one.reach() {
            let key = (
                place.as_os_str(),
                one.model.as_str(),
                one.size.as_deref(),
                backend,
            );
            let known = *first.entry(key).or_insert(one);
            if !std::ptr::eq(known, one) {
                earlier = earlier.or(Some(known));
            }
        }
        // A config whose place says another backend or size has that wrong: it is told so already.
        if let Some(earlier) = earlier.filter(|_| !one.contradicts_its_place()) {
            let (source, span) = one.source(one.model_span);
            let anchor = Anchor::At(JsonPath::root().key("model"), span);
            let finding = rules::config_duplicate(anchor, &one.model, backend, &earlier.shown);
            comparison.diagnostics.push(finding.locate(&source, None));
            comparison.duplicates.insert(one.shown.clone());
        }
    }
}

/// Findings on the configs that say otherwise than most, or than the first where there is no most.
fn disagreements(
    siblings: &[&Placed],
    key: &str,
    finding: fn(Anchor, &str, (&str, &str), &str) -> Finding,
) -> Vec<Diagnostic> {
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
            let (source, span) = one.source(it.span);
            let anchor = Anchor::At(JsonPath::root().key(key), span);
            let said = (it.shown(), usual.shown());
            let finding = finding(anchor, key, said, &usual_in.shown);
            finding.locate(&source, None)
        })
        .collect()
}

/// Findings on models that are called otherwise than the first sibling's of the same component.
fn interfaces_that_differ(siblings: &[&Placed]) -> Vec<Diagnostic> {
    let mut first: Map<Option<&str>, (&Placed, &Model)> = Map::default();
    let mut found = Vec::new();
    for one in siblings {
        for model in &one.models {
            let component = model.component.as_deref();
            let (sibling, known) = *first.entry(component).or_insert((one, model));
            let (Some(info), Some(other)) = (model.info(), known.info()) else {
                continue;
            };
            if Arc::ptr_eq(&model.facts, &known.facts) {
                continue;
            }
            let here = format!("`{}`", model.reference);
            let there = format!("`{}` of {}", known.reference, sibling.shown);
            let mine = Side { name: &here, info };
            let theirs = Side {
                name: &there,
                info: other,
            };
            let outputs = one.has_common_outputs && sibling.has_common_outputs;
            if let Some(text) = difference(mine, theirs, Between::Backends { outputs }) {
                let (source, span) = one.source(model.span);
                let anchor = Anchor::At(model.path.clone(), span);
                let finding = rules::variants_disagree(anchor, text);
                found.push(finding.locate(&source, None));
            }
        }
    }
    found
}
