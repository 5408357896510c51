//! The facts about one config or precision list, collected stage by stage for the rules.

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::sync::Arc;

use super::demands::Requirements;
use super::doubtful;
use super::files::FileCache;
use super::mend::{self, ValueChange};
use super::references::{self, ReferencedFile};
use super::schema::{self, Overlay, Violation};
use super::signature::{self, Mismatch};
use pkgtool_base::diagnostic::{Applicability, Fix};
use pkgtool_base::package::card::Card;
use pkgtool_base::package::leftover::is_legacy_field;
use pkgtool_base::package::schema_id::SchemaId;
use pkgtool_base::package::{Config, LoadFault, LoadedFile, PrecisionList, Variant};
use pkgtool_base::source::json::{JsonValue, Member};
use pkgtool_base::source::pretty::Layout;
use pkgtool_base::source::{Document, Editor, JsonPath, PathSet};
use pkgtool_model::ModelInfo;

/// Maximum total size of the fixes of one file, in bytes of new text.
const MAX_FIX_BYTES: usize = 16 * 1024 * 1024;
/// Maximum number of fixes per check of a file: each costs a walk over an object. Applying them and
/// checking again gives the next ones.
const MAX_FIX_COUNT: usize = 200;

/// A precision list, with a flag for completeness.
#[derive(Debug)]
pub(super) struct Precisions {
    pub(super) list: PrecisionList,
    /// False if the list could not be read completely. Then no precision is reported as unknown.
    pub(super) complete: bool,
}

/// The inputs of [`Context::build`].
pub(super) struct ContextInputs<'a> {
    pub(super) loaded: &'a LoadedFile,
    pub(super) is_list: bool,
    pub(super) directory: &'a Path,
    /// The directory as an absolute path.
    pub(super) absolute: &'a Path,
    /// Names of the model files in the directory, if a walk listed them.
    pub(super) models: Option<&'a [String]>,
    /// Depth of `directory` below the package root, in directories.
    pub(super) depth: usize,
    pub(super) precisions: &'a Arc<Precisions>,
    pub(super) files: &'a FileCache,
    pub(super) demands: Option<&'a Requirements>,
    /// The model card of the package.
    pub(super) card: Option<&'a Card>,
}

/// The facts about one config or precision list.
pub(crate) struct Context<'a> {
    /// The directory of the file.
    pub(super) directory: &'a Path,
    /// The directory as an absolute path.
    pub(super) absolute: &'a Path,
    /// Names of the model files in the directory, if a walk listed them.
    pub(super) models_beside: Option<&'a [String]>,
    /// Depth of the directory below the package root, in directories.
    pub(super) depth: usize,
    /// The text and the parsed document.
    pub(super) loaded: &'a LoadedFile,
    /// True for a precision list, false for a config.
    pub(super) is_list: bool,
    /// Schema violations that no other rule covers.
    pub(super) violations: Vec<Violation>,
    violated: PathSet,
    /// The config, if the file is a config and its root is an object.
    pub(super) config: Option<Config>,
    /// The precision list that applies to the config.
    pub(super) precisions: &'a Precisions,
    /// The files that the config references, in the order of the config.
    pub(super) files: Vec<ReferencedFile>,
    /// Differences between declared method signatures and the models' own.
    pub(super) mismatches: Vec<Mismatch>,
    /// True if model files are opened.
    pub(super) models_opened: bool,
    layout: OnceCell<Layout>,
    fixes_left: Cell<usize>,
    /// The project's requirements beyond the format.
    pub(super) demands: Option<&'a Requirements>,
    fixes_made: Cell<usize>,
    /// Cache of [`Self::is_ambiguous`].
    ambiguous_paths: OnceCell<PathSet>,
    /// The model card of the package.
    pub(super) card: Option<&'a Card>,
}

impl Precisions {
    /// Wraps a list that is known to be complete.
    pub(super) fn trusted(list: PrecisionList) -> Self {
        Self {
            list,
            complete: true,
        }
    }

    /// Adds the precisions of `extra` to the list.
    pub(super) fn with(this: &Arc<Self>, extra: &PrecisionList) -> Arc<Self> {
        Arc::new(Self {
            list: this.list.with(extra),
            complete: this.complete,
        })
    }

    /// Reads the usable part of a precision list. The check of the list file itself reports its
    /// problems.
    pub(super) fn read(loaded: &LoadedFile) -> Self {
        match &loaded.document {
            Ok(document) => {
                let list = PrecisionList::from_document(document);
                let complete = !list.quantized.is_empty() && !list.non_quantized.is_empty();
                Self { list, complete }
            }
            Err(_) => Self {
                list: PrecisionList::embedded(),
                complete: false,
            },
        }
    }
}

impl<'a> Context<'a> {
    /// Collects the facts stage by stage.
    pub(super) fn build(inputs: &ContextInputs<'a>) -> Self {
        let ContextInputs {
            loaded, is_list, ..
        } = *inputs;
        let mut context = Self {
            directory: inputs.directory,
            absolute: inputs.absolute,
            models_beside: inputs.models,
            depth: inputs.depth,
            loaded,
            is_list,
            violations: Vec::new(),
            violated: PathSet::default(),
            config: None,
            precisions: inputs.precisions,
            files: Vec::new(),
            mismatches: Vec::new(),
            models_opened: inputs.files.opens_models(),
            layout: OnceCell::new(),
            fixes_left: Cell::new(MAX_FIX_BYTES),
            demands: inputs.demands,
            fixes_made: Cell::new(0),
            card: inputs.card,
            ambiguous_paths: OnceCell::new(),
        };
        let Ok(document) = &loaded.document else {
            return context;
        };
        if is_list {
            context.set_violations(schema::check_precisions(document));
            return context;
        }
        let config = Config::from_document(document);
        let overlays = context.overlays();
        let violations = schema::check_config(document, &config, &|| context.schema_id(), overlays);
        context.set_violations(violations);
        if document.root.is_object() {
            context.files =
                references::resolve_all(&config, inputs.directory, inputs.depth, inputs.files);
            context.mismatches = signature::compare_all(&config, &context.files);
            context.config = Some(config);
        }
        context
    }

    /// Returns whether the value at `path` is ambiguous: its key, or the key of an enclosing value,
    /// is repeated with a different value.
    pub(super) fn is_ambiguous(&self, path: &JsonPath) -> bool {
        let find = || self.document().map(doubtful::paths).unwrap_or_default();
        self.ambiguous_paths.get_or_init(find).covers(path)
    }

    /// Returns the parsed document.
    pub(super) fn document(&self) -> Option<&'a Document> {
        self.loaded.document.as_ref().ok()
    }

    /// Returns the reason why the document could not be loaded.
    pub(super) fn fault(&self) -> Option<&'a LoadFault> {
        self.loaded.document.as_ref().err()
    }

    /// Returns the variants of the config; empty without a config.
    pub(super) fn variants(&self) -> &[Variant] {
        self.config.as_ref().map_or(&[], |config| &config.variants)
    }

    /// Returns the files of the variant with this index.
    pub(super) fn files_of(&self, variant: usize) -> impl Iterator<Item = &ReferencedFile> {
        references::files_of(&self.files, variant).iter()
    }

    /// Returns the models that were read, with their references.
    pub(super) fn models(&self) -> impl Iterator<Item = (&ReferencedFile, &ModelInfo)> {
        let files = self.files.iter();
        files.filter_map(|file| Some((file, file.model_info()?)))
    }

    /// Returns the references to the model file at `path`.
    pub(super) fn models_at(&self, path: &Path) -> impl Iterator<Item = &ReferencedFile> {
        let models = self.files.iter().filter(|file| file.is_model);
        models.filter(move |file| file.facts.as_ref().is_ok_and(|facts| facts.path == path))
    }

    /// Returns whether the schema is violated at `path` or below.
    pub(super) fn is_violated(&self, path: &JsonPath) -> bool {
        self.violated.reaches_into(path)
    }

    /// Like [`Self::is_violated`], for the root's member with this key.
    pub(super) fn is_violated_at(&self, key: &str) -> bool {
        !self.violations.is_empty() && self.is_violated(&JsonPath::root().key(key))
    }

    /// Returns whether the config names all files of a variant: either `file` or `components`, with
    /// string values, under known keys that occur once. Otherwise the files do not represent the
    /// variant as a whole.
    pub(super) fn names_all_files(&self, variant: &Variant) -> bool {
        let node = self.document().and_then(|it| it.node(&variant.path));
        let Some(node) = node.filter(|_| variant.has_file != variant.has_components) else {
            return false;
        };
        let key = if variant.has_file {
            "file"
        } else {
            "components"
        };
        let overlays = self.overlays();
        let is_known = |member: &Member| {
            mend::VARIANT_KEYS.contains(&member.key.as_str())
                || is_legacy_field(&variant.path, &member.key)
                || overlays.iter().any(|one| one.adds_variant_key(&member.key))
        };
        let named = match &node.get(key).map(|value| &value.kind) {
            Some(JsonValue::Object(members)) => members
                .with_repetition()
                .all(|(_, again)| !again)
                .then_some(members.len()),
            _ => Some(1),
        };
        node.members().iter().all(is_known)
            && node.effective_members().count() == node.members().len()
            && named == Some(variant.files.len())
            && !variant.files.is_empty()
            && !self.is_violated(&variant.path.key(key))
    }

    /// Returns the variant at `path`, or the one that contains `path`.
    pub(super) fn variant_at(&self, path: &JsonPath) -> Option<&Variant> {
        let mut variants = self.variants().iter();
        variants.find(|variant| path.is_within(&variant.path))
    }

    /// Returns the text of the number at `path`. The parsed value is only the nearest representable
    /// one.
    pub(super) fn number_text(&self, path: &JsonPath) -> Option<&'a str> {
        match &self.document()?.node(path)?.kind {
            JsonValue::Number(written) => Some(written),
            _ => None,
        }
    }

    /// Returns the `$schema` identifier to insert if the config has none; `None` if the configs
    /// beside it differ.
    pub(super) fn schema_id(&self) -> Option<String> {
        let setting = self
            .demands
            .and_then(|demands| demands.schema_id.as_deref());
        let known = SchemaId::of(self.absolute, self.depth, setting);
        (!known.is_mixed).then_some(known.id)
    }

    fn overlays(&self) -> &'a [Arc<Overlay>] {
        self.demands.map_or(&[], |demands| &demands.overlays)
    }

    /// Returns an editor of the file; `None` if it did not parse.
    pub(super) fn editor(&self) -> Option<Editor<'_>> {
        let document = self.document()?;
        let text = &self.loaded.text;
        let layout = self.layout.get_or_init(|| Layout::of(text, &document.root));
        Some(Editor::new(text, document, layout))
    }

    /// Turns the change into a fix; `None` if it cannot be applied or the limits on fixes are
    /// reached.
    pub(super) fn fix(&self, applicability: Applicability, mend: &ValueChange) -> Option<Fix> {
        if !self.may_fix() {
            return None;
        }
        let fix = mend.fix(&self.editor()?, applicability);
        self.fixes_made.update(|made| made + 1);
        self.in_bounds(fix?)
    }

    /// Returns whether the limits allow another fix.
    pub(super) fn may_fix(&self) -> bool {
        self.fixes_left.get() > 0 && self.fixes_made.get() < MAX_FIX_COUNT
    }

    /// Counts a fix that was made without [`Context::fix`] against the limits.
    pub(super) fn count_fix(&self, fix: Fix) -> Option<Fix> {
        self.fixes_made.update(|made| made + 1);
        self.in_bounds(fix)
    }

    fn in_bounds(&self, fix: Fix) -> Option<Fix> {
        let length = fix.edits.iter().map(|edit| edit.replacement.len()).sum();
        let left = self.fixes_left.get().checked_sub(length);
        self.fixes_left.set(left.unwrap_or_default());
        left.map(|_| fix)
    }

    fn set_violations(&mut self, violations: Vec<Violation>) {
        let paths = violations.iter().map(|violation| violation.path.clone());
        self.violated = paths.collect();
        self.violations = violations;
    }
}
