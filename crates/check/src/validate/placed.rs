//! Compares the configs of one model across directories: duplicates, and fields or interfaces that
//! differ between backends.
//!
//! Invariant: configs are compared only if their directories belong together (see
//! `duplicate_scope`), so two unrelated packages in one tree are never compared.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::context::Context;
use super::files::FileFacts;
use super::interfaces::{InterfaceSide, Relation, difference};
use super::rules;
use pkgtool_base::diagnostic::{Anchor, Diagnostic, Finding, SourceText};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::size::is_size_token;
use pkgtool_base::package::{Backend, Config, LoadedFile, steps};
use pkgtool_base::source::hashed::{Map, Set};
use pkgtool_base::source::{JsonPath, Span};
use pkgtool_model::ModelInfo;

/// A config's location, and its facts about the model as a whole.
pub(super) struct ConfigFacts {
    /// The path as discovery found it. The text is not kept, because a run may have thousands of
    /// configs of megabytes.
    path: PathBuf,
    /// The path as reports show it.
    shown: String,
    /// Length of the config's text, in bytes.
    length: usize,
    /// The directory of the config, as an absolute path.
    directory: PathBuf,
    model: String,
    size: Option<String>,
    backend: Option<Backend>,
    /// True if the directory is named after the config's backend.
    is_in_own_directory: bool,
    model_fields: Vec<ModelField>,
    model_span: Span,
    /// Models of the first variant; empty if backends of this model have different interfaces by
    /// design.
    models: Vec<ConfigModel>,
    /// True if all backends produce the same outputs. Embedding models differ: some backends pool,
    /// others do not.
    has_common_outputs: bool,
}

/// A model of the config's first variant.
struct ConfigModel {
    component: Option<String>,
    reference: String,
    path: JsonPath,
    span: Span,
    facts: Arc<FileFacts>,
}

impl ConfigModel {
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

/// A field that describes the model rather than the backend.
struct ModelField {
    key: &'static str,
    /// The value in a canonical form, so that equal meanings compare as equal.
    meaning: String,
    /// The value as written, if it differs from the canonical form.
    written: Option<String>,
    span: Span,
}

impl ModelField {
    fn shown(&self) -> &str {
        self.written.as_ref().unwrap_or(&self.meaning)
    }
}

impl ConfigFacts {
    /// Collects the facts of a config; `None` if the config does not name its model.
    pub(super) fn new(context: &Context<'_>, path: &Path, shown: &str) -> Option<Self> {
        let config = context.config.as_ref()?;
        let document = context.document()?;
        // Findings concern only fields that exist, so the span of a missing field is irrelevant.
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
                    is_sound.then(|| ModelField {
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
            is_in_own_directory: config.backend.is_some()
                && backend_of(context.absolute) == config.backend,
            model_fields: said.collect(),
            model_span: span("model"),
            models: ConfigModel::all(context, config),
            has_common_outputs: !config
                .capabilities
                .iter()
                .any(|capability| capability.ends_with("-embedding")),
        })
    }

    /// Reads the text again and returns it with `span`. Both are empty if the file has changed
    /// since.
    fn source(&self, span: Span) -> (Arc<SourceText>, Span) {
        let text = LoadedFile::read(&self.path).text;
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

    /// Returns the backend that the directory is named after.
    fn directory_backend(&self) -> Option<Backend> {
        backend_of(&self.directory)
    }

    /// Returns whether the directories name another backend or size than the config.
    fn contradicts_directory(&self) -> bool {
        let other_backend = self.directory_backend().is_some() && !self.is_in_own_directory;
        let above = steps::above(&self.directory).and_then(steps::name);
        let size = self.size.as_deref();
        other_backend
            || above.is_some_and(|above| size.is_some_and(|size| rules::is_other_size(above, size)))
    }

    /// Returns the directories within which another config of this model, size and backend is a
    /// duplicate.
    fn duplicate_scope(&self) -> Vec<&Path> {
        let parent = steps::above(&self.directory).unwrap_or(&self.directory);
        if self.directory_backend().is_none() {
            return vec![parent, &self.directory];
        }
        // Sizes of one model are sibling directories, so their common parent counts as well.
        let is_size = || steps::name(parent).is_some_and(rules::is_size_token);
        let above = steps::above(parent).filter(|_| self.size.is_some() && is_size());
        std::iter::once(parent).chain(above).collect()
    }
}

fn backend_of(directory: &Path) -> Option<Backend> {
    Backend::from_name(steps::name(directory)?)
}

/// Returns the fields that are the same for every backend: key, canonical value, and the written
/// value if it differs.
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

/// Findings about configs that contradict each other.
#[derive(Default)]
pub(super) struct Disagreements {
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Paths of duplicate configs. Findings about their directory names are suppressed.
    pub(super) duplicates: Set<String>,
}

/// Compares configs with each other.
pub(super) fn compare(mut placed: Vec<ConfigFacts>) -> Disagreements {
    if placed.len() < 2 {
        return Disagreements::default();
    }
    // Configs in the conventional place come first, so that the other one of a pair is the
    // duplicate.
    placed.sort_by(|one, other| {
        let away = (!one.is_in_own_directory, !other.is_in_own_directory);
        away.0
            .cmp(&away.1)
            .then_with(|| one.shown.cmp(&other.shown))
    });
    let mut comparison = Disagreements::default();
    find_duplicates(&placed, &mut comparison);
    let mut beside: Map<(&OsStr, &str, Option<&str>), Vec<&ConfigFacts>> = Map::default();
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

/// Finds configs in sibling backend directories whose `model` differs from the first one's only by
/// a size.
fn sizes_in_models(placed: &[ConfigFacts]) -> Vec<Diagnostic> {
    let mut first: Map<(&OsStr, &str), &ConfigFacts> = Map::default();
    let mut found = Vec::new();
    for one in placed.iter().filter(|one| one.is_in_own_directory) {
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

/// Strips the size at the end of a model token.
fn without_size(model: &str) -> &str {
    let mut ends = model.match_indices('_');
    let end = ends.find(|(at, _)| is_size_token(&model[at + 1..]));
    end.map_or(model, |(at, _)| &model[..at])
}

/// Finds configs in one tree whose `$schema` differs from that of the majority.
fn mixed_schemas(placed: &[ConfigFacts]) -> Vec<Diagnostic> {
    let of = |one: &ConfigFacts| {
        one.model_fields
            .iter()
            .position(|said| said.key == "$schema")
    };
    let mut ids = placed
        .iter()
        .filter_map(|one| Some(&one.model_fields[of(one)?].meaning));
    let first = ids.next();
    if ids.all(|id| Some(id) == first) {
        return Vec::new();
    }
    let mut around: Map<&OsStr, Vec<&ConfigFacts>> = Map::default();
    for one in placed {
        if let Some(place) = one.duplicate_scope().last() {
            around.entry(place.as_os_str()).or_default().push(one);
        }
    }
    let groups = around.values();
    groups
        .flat_map(|group| disagreements(group, "$schema", rules::schema_id_differs))
        .collect()
}

fn find_duplicates(placed: &[ConfigFacts], comparison: &mut Disagreements) {
    let mut first: Map<(&OsStr, &str, Option<&str>, Backend), &ConfigFacts> = Map::default();
    for one in placed {
        let Some(backend) = one.backend else { continue };
        let mut earlier = None;
        for place in one.duplicate_scope() {
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
        // A config whose directory names another backend or size already has a finding about that.
        if let Some(earlier) = earlier.filter(|_| !one.contradicts_directory()) {
            let (source, span) = one.source(one.model_span);
            let anchor = Anchor::At(JsonPath::root().key("model"), span);
            let finding = rules::config_duplicate(anchor, &one.model, backend, &earlier.shown);
            comparison.diagnostics.push(finding.locate(&source, None));
            comparison.duplicates.insert(one.shown.clone());
        }
    }
}

/// Finds configs whose value differs from the most frequent one; among equally frequent ones, from
/// the first.
fn disagreements(
    siblings: &[&ConfigFacts],
    key: &str,
    finding: fn(Anchor, &str, (&str, &str), &str) -> Finding,
) -> Vec<Diagnostic> {
    let said: Vec<(&ConfigFacts, &ModelField)> = siblings
        .iter()
        .filter_map(|one| Some((*one, one.model_fields.iter().find(|said| said.key == key)?)))
        .collect();
    let count = |meaning: &str| said.iter().filter(|(_, it)| it.meaning == meaning).count();
    // `max_by_key` returns the last of equal elements, so the order is reversed.
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

/// Finds models whose interface differs from that of the first sibling's model for the same
/// component.
fn interfaces_that_differ(siblings: &[&ConfigFacts]) -> Vec<Diagnostic> {
    let mut first: Map<Option<&str>, (&ConfigFacts, &ConfigModel)> = Map::default();
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
            let mine = InterfaceSide { name: &here, info };
            let theirs = InterfaceSide {
                name: &there,
                info: other,
            };
            let outputs = one.has_common_outputs && sibling.has_common_outputs;
            if let Some(text) = difference(mine, theirs, Relation::Backends { outputs }) {
                let (source, span) = one.source(model.span);
                let anchor = Anchor::At(model.path.clone(), span);
                let finding = rules::variants_disagree(anchor, text);
                found.push(finding.locate(&source, None));
            }
        }
    }
    found
}
