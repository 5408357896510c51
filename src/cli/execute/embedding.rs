//! Vectors of texts, with the package's own tokenizer. The model stays loaded from one text to the next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::target_args::{TargetArgs, VariantChoice};
use super::{selection_failure, start_with_notes};
use crate::cli::exit::Failure;
use pkgtool_engine::Session;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionError};
use pkgtool_engine::runtime::target::Started;
use pkgtool_text::embedding::{
    CAPABILITY, Embedder, EmbeddingInput, EmbeddingOptions, EmbeddingPlan, EmbeddingSettings,
};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};

/// Name of the component that embeds texts, in variants with several components.
const TEXT_COMPONENT: &str = "text_encoder";

/// A model that embeds texts.
pub(super) struct EmbeddingModel<'a> {
    args: &'a TargetArgs,
    which: VariantChoice<'a>,
    /// The method.
    pub(super) selection: Selection,
    /// The model, after its first run.
    pub(super) started: Option<Started>,
    /// Total duration of all runs.
    pub(super) time: Duration,
    embedder: Embedder,
}

impl<'a> EmbeddingModel<'a> {
    /// Selects the model of a package that embeds texts, and loads its tokenizer.
    pub(super) fn new(
        path: &Path,
        args: &'a TargetArgs,
        which: VariantChoice<'a>,
    ) -> Result<Self, Failure> {
        let selection = select(path, args, which)?;
        require_capability(&selection)?;
        Self::of(selection, args, which)
    }

    /// Loads the tokenizer of the selected model.
    pub(super) fn of(
        selection: Selection,
        args: &'a TargetArgs,
        which: VariantChoice<'a>,
    ) -> Result<Self, Failure> {
        let embedder = args.within("loading the tokenizer", || embedder(&selection))?;
        Ok(Self {
            args,
            which,
            selection,
            started: None,
            time: Duration::ZERO,
            embedder,
        })
    }

    /// Embeds texts; the first run starts the model.
    pub(super) fn embed(
        &mut self,
        given: &EmbeddingInput,
        options: &EmbeddingOptions,
    ) -> Result<(EmbeddingPlan, Vec<Vec<f32>>), Failure> {
        let plan = || self.embedder.plan(given, options);
        let plan = self.args.within("generating the inputs", plan);
        let plan = plan.map_err(other)?;
        let mut outputs = Vec::new();
        for run in &plan.runs {
            let Some(started) = &mut self.started else {
                let wish = self.args.start_request(&self.selection, self.which);
                let launcher = self.args.launcher()?;
                let started = start_with_notes(&wish, &run.inputs, &launcher)?;
                self.time += started.first_answer.time;
                outputs.push(started.first_answer.outputs.clone());
                self.started = Some(started);
                continue;
            };
            let answer = started.worker.run(&run.inputs).map_err(other)?;
            self.time += answer.time;
            outputs.push(answer.outputs);
        }
        let vectors = plan.vectors(outputs).map_err(other)?;
        Ok((plan, vectors))
    }

    /// Returns the maximum number of tokens of a text.
    pub(super) fn longest(&self, options: &EmbeddingOptions) -> Result<usize, Failure> {
        Ok(self.embedder.longest(options).map_err(other)?.value)
    }
}

/// Selects the model that embeds texts. In a variant with several components, it is the component for texts.
pub(super) fn select(
    path: &Path,
    args: &TargetArgs,
    which: VariantChoice<'_>,
) -> Result<Selection, Failure> {
    let error = match args.select(path, which) {
        Ok(selection) => return Ok(selection),
        Err(error) => error,
    };
    if matches!(error, SelectionError::Refused(_)) && args.component.is_none() {
        let mut choice = args.selection_criteria(which);
        choice.component = Some(TEXT_COMPONENT.to_owned());
        if let Ok(selection) = selection::select(path, &choice) {
            return Ok(selection);
        }
    }
    Err(selection_failure(&error))
}

/// Fails if the package of a model does not embed texts.
fn require_capability(selection: &Selection) -> Result<(), Failure> {
    let Some(variant) = &selection.variant else {
        return Ok(());
    };
    let at = variant.config.display();
    let config = selection::config(&variant.config).map_err(|error| selection_failure(&error))?;
    if !config.capabilities.iter().any(|it| it == CAPABILITY) {
        return Err(Failure::Other(format!(
            "{at}: --text needs a model with the capability `{CAPABILITY}`, this one has {}",
            config.capabilities.join(", ")
        )));
    }
    Ok(())
}

/// Loads the selected model with its package's tokenizer.
fn embedder(selection: &Selection) -> Result<Embedder, Failure> {
    let Some(variant) = &selection.variant else {
        let model = selection.model.display();
        return Err(Failure::Other(format!(
            "{model}: --text needs a package whose config names the tokenizer, got a bare model file"
        )));
    };
    let at = variant.config.display();
    let config = selection::config(&variant.config).map_err(|error| selection_failure(&error))?;
    let files = TokenizerFiles::of(&variant.config, &config).map_err(other)?;
    let Some(files) = files else {
        return Err(Failure::Other(format!(
            "{at}: missing `tokenizer`, which --text needs; pass token ids with --input"
        )));
    };
    let tokenizer = Tokenizer::of(&files).map_err(other)?;
    let directories = files.directories(&variant.config, &selection.model);
    let settings = EmbeddingSettings::read(
        &selection.model,
        &selection.info,
        tokenizer.config(),
        &directories,
    );
    let settings = settings.map_err(other)?;
    let embedder = Embedder::new(Arc::new(tokenizer), &selection.signature, settings);
    embedder.map_err(|error| Failure::Other(format!("{}: {error}", selection.model.display())))
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "`map_err` passes the error by value"
)]
fn other(error: impl ToString) -> Failure {
    Failure::Other(error.to_string())
}
