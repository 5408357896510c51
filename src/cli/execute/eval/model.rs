//! A variant that answers the items of a data set.

use std::path::Path;
use std::time::Duration;

use super::super::answering::{AnsweringModel, GivenMedia, RecipeWish};
use super::super::embedding::EmbeddingModel;
use super::super::sides;
use super::{EvalArgs, EvalSide};
use crate::cli::exit::Failure;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_eval::{DatasetItem, EvalTask, ItemTruth, Outcome};
use pkgtool_media::MediaKind;
use pkgtool_media::recipe::FittedRecipe;
use pkgtool_text::embedding::{self, EmbeddingInput, EmbeddingOptions, cosine};

/// A variant to evaluate.
pub(super) struct EvalModel<'a> {
    /// What is measured.
    pub(super) task: EvalTask,
    /// The engine that the user named.
    pub(super) engine: Option<&'a str>,
    kind: ModelKind<'a>,
}

enum ModelKind<'a> {
    Answers(Box<AnsweringModel<'a>>),
    Embeds(Box<EmbeddingModel<'a>>),
}

impl<'a> EvalModel<'a> {
    /// Selects the model. It starts with its first item.
    pub(super) fn new(args: &'a EvalArgs, side: &'a EvalSide) -> Result<Self, Failure> {
        let which = side.which();
        let embeds = || {
            Ok(Self {
                task: EvalTask::Similarity,
                engine: which.engine,
                kind: ModelKind::Embeds(Box::new(EmbeddingModel::new(
                    &side.path,
                    &args.target,
                    which,
                )?)),
            })
        };
        if args.capability.as_deref() == Some(embedding::CAPABILITY) {
            return embeds();
        }
        let wish = RecipeWish {
            capability: args.capability.as_deref(),
            settings: &[],
        };
        let answering = AnsweringModel::new(&side.path, &args.target, which, wish);
        let mut model = match answering {
            Ok(model) => model,
            // A package that only embeds texts has no recipe.
            Err(failure) if args.capability.is_none() => {
                return embeds().map_err(|_: Failure| failure);
            }
            Err(failure) => return Err(failure),
        };
        let answer = model.recipe().answer;
        let Some(task) = EvalTask::of(answer) else {
            if args.capability.is_none()
                && let Ok(model) = embeds()
            {
                return Ok(model);
            }
            return Err(Failure::Other(format!(
                "{}: no measure for {}: eval measures labels, boxes, masks, classes of pixels, words of sounds and \
                 pictures, and similarity of texts",
                model.choice.selection.model.display(),
                answer.summary()
            )));
        };
        for (name, value) in task.values() {
            model.prefer(name, &value, "eval");
        }
        model.set(&args.set)?;
        Ok(Self {
            task,
            engine: which.engine,
            kind: ModelKind::Answers(Box::new(model)),
        })
    }

    /// Returns the kind of files that the model reads.
    pub(super) fn takes(&self) -> MediaKind {
        self.recipe().map_or(MediaKind::Text, |recipe| recipe.takes)
    }

    /// Returns the recipe, if there is one.
    pub(super) fn recipe(&self) -> Option<&FittedRecipe> {
        match &self.kind {
            ModelKind::Answers(model) => Some(model.recipe()),
            ModelKind::Embeds(_) => None,
        }
    }

    /// Returns the method.
    pub(super) fn selection(&self) -> &Selection {
        match &self.kind {
            ModelKind::Answers(model) => &model.choice.selection,
            ModelKind::Embeds(model) => &model.selection,
        }
    }

    /// Returns the files of the models that answer.
    pub(super) fn files(&self) -> Vec<&Path> {
        let second = match &self.kind {
            ModelKind::Answers(model) => model.second_selection(),
            ModelKind::Embeds(_) => None,
        };
        let first = self.selection().model.as_path();
        let second = second.map(|it| it.model.as_path());
        let mut files = vec![first];
        files.extend(second.filter(|file| *file != first));
        files
    }

    /// Returns the model, after its first run.
    pub(super) fn started(&self) -> Option<&Started> {
        match &self.kind {
            ModelKind::Answers(model) => model.first.started.as_ref(),
            ModelKind::Embeds(model) => model.started.as_ref(),
        }
    }

    /// Names the variant.
    pub(super) fn label(&self) -> String {
        sides::what(self.selection())
    }

    /// Answers an item. Returns the time of the model's runs, too.
    pub(super) fn outcome(&mut self, item: &DatasetItem) -> Result<(Outcome, Duration), Failure> {
        let named = |reason: String| Failure::Other(format!("{}: {reason}", item.name));
        match (&mut self.kind, &item.truth) {
            (ModelKind::Embeds(model), ItemTruth::Similarity { texts, .. }) => {
                let before = model.time;
                let given = EmbeddingInput::Texts(texts.to_vec());
                let options = EmbeddingOptions {
                    truncate: true,
                    ..EmbeddingOptions::default()
                };
                let (_, vectors) = model.embed(&given, &options)?;
                let similarity = cosine(&vectors[0], &vectors[1]);
                Ok((
                    Outcome::Similarity(similarity),
                    model.time.saturating_sub(before),
                ))
            }
            (ModelKind::Answers(model), truth) => {
                let file = item.file.as_ref();
                let file = file.ok_or_else(|| named("no file".to_owned()))?;
                let before = model.time();
                let answer = model.answer(GivenMedia::File(file))?;
                let outcome = Outcome::of(&answer, truth).map_err(named)?;
                Ok((outcome, model.time().saturating_sub(before)))
            }
            (ModelKind::Embeds(_), _) => Err(named("not a pair of texts".to_owned())),
        }
    }
}
