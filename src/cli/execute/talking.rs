//! A package's text model in a session of its own, for a conversation.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use super::target_args::{TargetArgs, VariantChoice};
use super::{select_method, selection_failure, start, start_with_notes};
use crate::cli::exit::Failure;
use pkgtool_engine::Session as _;
use pkgtool_engine::runtime::selection::{self, Selection};
use pkgtool_engine::runtime::target::StartRequest;
use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::Tensor;
use pkgtool_text::chat::{ChatPicture, ChatRequest};
use pkgtool_text::decoder::{
    DecoderModel, EmbeddedParts, EmbeddedSteps, PictureRows, RunsModel, SessionStepRunner,
    StepError, StepResult, TokenDecoder, TokenEmbedding,
};
use pkgtool_text::generation::{Generated, GenerationEvent, Transcripts, generate};
use pkgtool_text::model::{PreparedRequest, TextModel};
use pkgtool_text::template::Renderer;
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};

/// Converts a picture to rows of embeddings.
type ReadsPictures<'r> = &'r mut dyn FnMut(&ChatPicture) -> Result<Vec<Vec<f32>>, Failure>;

/// A model, and the part of the conversation that its session holds.
pub(super) struct TalkingModel {
    text: TextModel,
    renderer: Renderer,
    decoder: TokenDecoder<EmbeddedSteps<SessionStepRunner<Worker>>>,
    transcripts: Transcripts,
}

/// The methods of a conversation.
struct TalkingMethods {
    decoder: Selection,
    /// The method that converts tokens for a decoder that takes embeddings.
    embedding: Option<(Selection, TokenEmbedding)>,
}

/// A worker process that converts tokens to embeddings.
#[derive(Debug)]
struct EmbeddingWorker(Worker);

impl RunsModel for EmbeddingWorker {
    fn run(&mut self, inputs: Vec<Tensor>) -> StepResult {
        let ran = self.0.run(&inputs).map_err(StepError::failed)?;
        Ok(ran.outputs)
    }
}

impl TalkingMethods {
    /// Selects the methods below `path`.
    fn select(path: &Path, target: &TargetArgs, which: VariantChoice<'_>) -> Result<Self, Failure> {
        let criteria = target.selection_criteria(which);
        let names_part = criteria.component.is_some() || criteria.method.is_some();
        if !names_part {
            let methods = selection::candidates(path, &criteria);
            let mut methods = methods.map_err(|error| selection_failure(&error))?;
            let signatures: Vec<_> = methods.iter().map(|it| Some(&it.signature)).collect();
            if let Some(parts) = EmbeddedParts::find(&signatures) {
                let embedding = methods[parts.embedding].clone();
                let recognised = TokenEmbedding::recognise(&embedding.signature);
                return Ok(Self {
                    decoder: methods.swap_remove(parts.decoder),
                    embedding: recognised.map(|it| (embedding, it)),
                });
            }
        }
        Ok(Self {
            decoder: select_method(target, path, which)?,
            embedding: None,
        })
    }
}

impl TalkingModel {
    /// Loads the model of a package. `turns` is false for a single answer.
    pub(super) fn start(
        path: &Path,
        target: &TargetArgs,
        which: VariantChoice<'_>,
        turns: bool,
    ) -> Result<Self, Failure> {
        let methods = TalkingMethods::select(path, target, which)?;
        let selection = &methods.decoder;
        let files = tokenizer_files(selection)?;
        let tokenizer = Tokenizer::of(&files).map_err(other)?;
        let file = selection.model.display();
        let decoder = DecoderModel::recognise(
            &selection.model,
            &selection.info,
            &selection.signature,
            None,
        )
        .map_err(|error| Failure::Other(format!("{file}: {error}")))?;
        if let (Some(width), None) = (decoder.embedding_width(), &methods.embedding) {
            return Err(Failure::Other(format!(
                "{file}: the decoder takes embeddings of {width} numbers, and no method or component converts \
                 tokens to them: expected int64[1, n] -> float32[1, n, {width}]"
            )));
        }
        let text = TextModel::load(
            Arc::new(tokenizer),
            &files,
            &selection.model,
            decoder.clone(),
        )
        .map_err(other)?;
        text.require_chat_template().map_err(other)?;
        let launcher = target.launcher()?;
        let wish = StartRequest {
            carrying: decoder.carrying.clone(),
            observe: false,
            ..target.start_request(selection, which)
        };
        let started = start_with_notes(&wish, &decoder.first_inputs(), &launcher)?;
        let embedding = match methods.embedding {
            None => None,
            Some((selection, embedding)) => {
                let wish = StartRequest {
                    observe: false,
                    ..target.start_request(&selection, which)
                };
                // Users need no note about the engine of a table of tokens.
                let started = start(&wish, &embedding.first_inputs(), &launcher)?;
                let worker: Box<dyn RunsModel> = Box::new(EmbeddingWorker(started.worker));
                Some((embedding, worker))
            }
        };
        let steps = EmbeddedSteps::new(SessionStepRunner(started.worker), embedding);
        let mut decoder = TokenDecoder::new(decoder, steps);
        if turns {
            // Needed only if further turns follow: a single answer never returns to an earlier
            // state.
            decoder.try_truncation().map_err(other)?;
        }
        Ok(Self {
            text,
            renderer: Renderer::new().map_err(other)?,
            decoder,
            transcripts: Transcripts::default(),
        })
    }

    /// Prepares the answer to a request. `rows_of` makes the embeddings of a picture; they are kept from one turn to the
    /// next.
    pub(super) fn prepare(
        &mut self,
        chat: &ChatRequest,
        rows_of: ReadsPictures<'_>,
    ) -> Result<PreparedRequest, Failure> {
        let steps = self.decoder.steps();
        let known = chat.each_picture(|picture| match steps.picture(picture.id) {
            Some(rows) => Ok(rows.clone()),
            None => rows_of(picture).map(|rows| PictureRows {
                picture: picture.id,
                rows,
            }),
        })?;
        let slots = self.text.picture_slots(&known).map_err(other)?;
        self.decoder.steps().set_pictures(known);
        let prepared = self.text.chat(chat, &self.renderer, slots.as_ref());
        prepared.map_err(other)
    }

    /// Generates an answer. `tell` gets it as it is generated.
    pub(super) fn answer(
        &mut self,
        prepared: PreparedRequest,
        tell: &mut dyn FnMut(GenerationEvent) -> ControlFlow<()>,
    ) -> Result<Generated, Failure> {
        let tokenizer = self.text.tokenizer();
        let tokens = prepared
            .tokens(tokenizer, &mut self.transcripts)
            .map_err(other)?;
        let prompt = prepared.text().unwrap_or_default().to_owned();
        let request = prepared.request(tokens.clone(), tokenizer);
        let generated = generate(&mut self.decoder, request, &|| true, tell).map_err(other)?;
        self.keep_transcript(prompt, tokens, &generated);
        Ok(generated)
    }

    /// Keeps the tokens of the answer for the next turn.
    fn keep_transcript(&mut self, prompt: String, mut tokens: Vec<u32>, generated: &Generated) {
        if let Some(said) = generated.choices.last()
            && let Some(whole) = said.tokens_in_text
        {
            tokens.extend(&said.tokens[..whole]);
            self.transcripts.keep(prompt + &said.text, tokens);
        }
    }
}

fn tokenizer_files(selection: &Selection) -> Result<TokenizerFiles, Failure> {
    let Some(variant) = &selection.variant else {
        let model = selection.model.display();
        let message = format!(
            "{model}: a chat needs a package whose config names the tokenizer, got a bare model file"
        );
        return Err(Failure::Other(message));
    };
    let config = selection::config(&variant.config).map_err(|error| selection_failure(&error))?;
    let files = TokenizerFiles::of(&variant.config, &config).map_err(other)?;
    files.ok_or_else(|| {
        let config = variant.config.display();
        let message = format!("{config}: missing `tokenizer`, which a chat needs");
        Failure::Other(message)
    })
}

fn other(error: impl std::fmt::Display) -> Failure {
    Failure::Other(error.to_string())
}
