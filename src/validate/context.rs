//! The facts about one file that rules look at.

use std::cell::{Cell, OnceCell};
use std::path::Path;
use std::sync::Arc;

use super::demands::Demands;
use super::doubtful;
use super::files::FileCache;
use super::mend::{self, Mend};
use super::references::{self, Referenced};
use super::schema::{self, Violation};
use super::signature::{self, Mismatch};
use crate::diagnostic::{Applicability, Fix};
use crate::model::ModelInfo;
use crate::package::card::Card;
use crate::package::leftover::is_legacy_field;
use crate::package::schema_id::SchemaId;
use crate::package::{Config, LoadFault, Loaded, PrecisionList, Variant};
use crate::source::json::{Kind, Member};
use crate::source::pretty::Layout;
use crate::source::{Document, Editor, JsonPath, PathSet};

/// Most bytes that the fixes of one file may write together.
const MAX_FIXES: usize = 16 * 1024 * 1024;
/// Most fixes that one look at a file gives: each costs a walk over an object. Those that are made uncover more.
const MAX_COUNT: usize = 200;

/// A precision list and whether it may be believed to be complete.
#[derive(Debug)]
pub(super) struct Precisions {
    pub(super) list: PrecisionList,
    /// False for a list that could not be read whole: then no token is called unknown.
    pub(super) complete: bool,
}

/// What a [`Context`] is built of.
pub(super) struct Inputs<'a> {
    pub(super) loaded: &'a Loaded,
    pub(super) is_list: bool,
    pub(super) directory: &'a Path,
    /// The same from the file system's root.
    pub(super) absolute: &'a Path,
    /// Names of the model files in it, if a walk listed them.
    pub(super) models: Option<&'a [String]>,
    /// How many directories `directory` lies below the package root.
    pub(super) depth: usize,
    pub(super) precisions: &'a Arc<Precisions>,
    pub(super) files: &'a FileCache,
    pub(super) demands: Option<&'a Demands>,
    /// The model card of the package.
    pub(super) card: Option<&'a Card>,
}

/// The facts about one config or precision list.
pub(crate) struct Context<'a> {
    /// Its directory.
    pub(super) directory: &'a Path,
    /// The same from the file system's root.
    pub(super) absolute: &'a Path,
    /// Names of the model files in it, if a walk listed them.
    pub(super) models_beside: Option<&'a [String]>,
    /// How many directories it lies below the package root.
    pub(super) depth: usize,
    /// Its text and document.
    pub(super) loaded: &'a Loaded,
    /// Whether it is a precision list; otherwise it is a config.
    pub(super) is_list: bool,
    /// The schema's violations that no other rule speaks of.
    pub(super) violations: Vec<Violation>,
    violated: PathSet,
    /// The config, if the file is one and parsed to an object.
    pub(super) config: Option<Config>,
    /// The precision list that rules the config.
    pub(super) precisions: &'a Precisions,
    /// The files it refers to, in the config's order.
    pub(super) files: Vec<Referenced>,
    /// How declared method signatures differ from what model files say.
    pub(super) mismatches: Vec<Mismatch>,
    /// Whether model files are opened.
    pub(super) models_opened: bool,
    layout: OnceCell<Layout>,
    fixes_left: Cell<usize>,
    /// What the project asks beyond the format.
    pub(super) demands: Option<&'a Demands>,
    fixes_made: Cell<usize>,
    /// What [`Self::is_doubtful`] looks into.
    doubtful: OnceCell<PathSet>,
    /// The model card of the package.
    pub(super) card: Option<&'a Card>,
}

impl Precisions {
    /// A list known to be right.
    pub(super) fn trusted(list: PrecisionList) -> Self {
        Self {
            list,
            complete: true,
        }
    }

    /// A list and the tokens of another that it lacks.
    pub(super) fn with(this: &Arc<Self>, extra: &PrecisionList) -> Arc<Self> {
        Arc::new(Self {
            list: this.list.with(extra),
            complete: this.complete,
        })
    }

    /// What can be had of a list file; its own check reports what is wrong with it.
    pub(super) fn read(loaded: &Loaded) -> Self {
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
    /// Collects the facts, stage by stage.
    pub(super) fn build(inputs: &Inputs<'a>) -> Self {
        let Inputs {
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
            fixes_left: Cell::new(MAX_FIXES),
            demands: inputs.demands,
            fixes_made: Cell::new(0),
            card: inputs.card,
            doubtful: OnceCell::new(),
        };
        let Ok(document) = &loaded.document else {
            return context;
        };
        if is_list {
            context.set_violations(schema::check_precisions(document));
            return context;
        }
        let config = Config::from_document(document);
        let violations = schema::check_config(document, &config, &|| context.schema_id());
        context.set_violations(violations);
        if document.root.is_object() {
            context.files =
                references::follow(&config, inputs.directory, inputs.depth, inputs.files);
            context.mismatches = signature::compare_all(&config, &context.files);
            context.config = Some(config);
        }
        context
    }

    /// Whether nobody knows which value is meant at a path: the key of it, or of something around it, is repeated with
    /// another value.
    pub(super) fn is_doubtful(&self, path: &JsonPath) -> bool {
        let find = || self.document().map(doubtful::paths).unwrap_or_default();
        self.doubtful.get_or_init(find).covers(path)
    }

    /// The parsed document.
    pub(super) fn document(&self) -> Option<&'a Document> {
        self.loaded.document.as_ref().ok()
    }

    /// Why there is no document.
    pub(super) fn fault(&self) -> Option<&'a LoadFault> {
        self.loaded.document.as_ref().err()
    }

    /// The config's variants; none if there is no config.
    pub(super) fn variants(&self) -> &[Variant] {
        self.config.as_ref().map_or(&[], |config| &config.variants)
    }

    /// The files of the variant with this index.
    pub(super) fn files_of(&self, variant: usize) -> impl Iterator<Item = &Referenced> {
        references::files_of(&self.files, variant).iter()
    }

    /// The models that could be read, with their references.
    pub(super) fn models(&self) -> impl Iterator<Item = (&Referenced, &ModelInfo)> {
        let files = self.files.iter();
        files.filter_map(|file| Some((file, file.model_info()?)))
    }

    /// The references to the model file at `path`.
    pub(super) fn models_at(&self, path: &Path) -> impl Iterator<Item = &Referenced> {
        let models = self.files.iter().filter(|file| file.is_model);
        models.filter(move |file| file.facts.as_ref().is_ok_and(|facts| facts.path == path))
    }

    /// Whether the schema stage reports something at `path` or below.
    pub(super) fn is_violated(&self, path: &JsonPath) -> bool {
        self.violated.reaches_into(path)
    }

    /// The same for the root's member of this key.
    pub(super) fn is_violated_at(&self, key: &str) -> bool {
        !self.violations.is_empty() && self.is_violated(&JsonPath::root().key(key))
    }

    /// Whether the config names all files of a variant: by one of `file` and `components`, each with a text, under
    /// keys that are known and stand once. Only then do the files say anything of the variant as a whole.
    pub(super) fn is_whole(&self, variant: &Variant) -> bool {
        let node = self.document().and_then(|it| it.node(&variant.path));
        let Some(node) = node.filter(|_| variant.has_file != variant.has_components) else {
            return false;
        };
        let key = if variant.has_file {
            "file"
        } else {
            "components"
        };
        let is_known = |member: &Member| {
            mend::VARIANT_KEYS.contains(&member.key.as_str())
                || is_legacy_field(&variant.path, &member.key)
        };
        let named = match &node.get(key).map(|value| &value.kind) {
            Some(Kind::Object(members)) => members
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

    /// The variant that a path leads to, or into.
    pub(super) fn variant_at(&self, path: &JsonPath) -> Option<&Variant> {
        let mut variants = self.variants().iter();
        variants.find(|variant| path.is_within(&variant.path))
    }

    /// The number at `path` as it is written: a number's value is the nearest that fits.
    pub(super) fn written(&self, path: &JsonPath) -> Option<&'a str> {
        match &self.document()?.node(path)?.kind {
            Kind::Number(written) => Some(written),
            _ => None,
        }
    }

    /// The format's identifier for this config, if it has none; `None` where the configs beside it differ.
    pub(super) fn schema_id(&self) -> Option<String> {
        let setting = self
            .demands
            .and_then(|demands| demands.schema_id.as_deref());
        let known = SchemaId::of(self.absolute, self.depth, setting);
        (!known.is_mixed).then_some(known.id)
    }

    /// What makes edits of the file; `None` if it did not parse.
    pub(super) fn editor(&self) -> Option<Editor<'_>> {
        let document = self.document()?;
        let text = &self.loaded.text;
        let layout = self.layout.get_or_init(|| Layout::of(text, &document.root));
        Some(Editor::new(text, document, layout))
    }

    /// The change as a fix; `None` where it cannot be made, or fixes of this file would fill the memory.
    pub(super) fn fix(&self, applicability: Applicability, mend: &Mend) -> Option<Fix> {
        if !self.may_fix() {
            return None;
        }
        let fix = mend.fix(&self.editor()?, applicability);
        self.fixes_made.update(|made| made + 1);
        self.in_bounds(fix?)
    }

    /// Whether there is room for fixes at all.
    pub(super) fn may_fix(&self) -> bool {
        self.fixes_left.get() > 0 && self.fixes_made.get() < MAX_COUNT
    }

    /// A fix that was made without [`Context::fix`], counted.
    pub(super) fn counted(&self, fix: Fix) -> Option<Fix> {
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
