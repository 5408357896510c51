//! A package's text model: turns chat and completion requests into prompts and generation settings.
//!
//! It combines the tokenizer, the chat templates, the default sampling settings and the end tokens.
//! Invariant: requests are checked here, before a model runs. A server and a terminal get the same
//! prompt and the same settings. Sessions are managed elsewhere.

mod error;
mod generation_config;
mod picture;
mod prompt;

use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use error::TextError;
pub use picture::PictureSlots;
pub use prompt::PreparedRequest;

use super::answer::{AnswerFormat, CallFamily, OfferedTool, Reasoning};
use super::chat::{ChatRequest, CompletionRequest, FieldError, Prompt, ResponseFormat, ToolChoice};
use super::constraint::{CallChoice, Callable, Constrainer, Constraint, Grammar, VocabularyBytes};
use super::decoder::{DecoderModel, PictureRows};
use super::ends::EndTokens;
use super::sampling::{Sampling, SamplingOverrides};
use super::stop::StopStrings;
use super::template::{Renderer, Template, TemplatePlaces, Templates};
use super::tokenizer::{SpecialTokens, Tokenizer, TokenizerFiles};
use generation_config::GenerationConfig;

/// A tokenizer with its templates, and the decoder that it belongs to.
#[derive(Debug)]
pub struct TextModel {
    tokenizer: Arc<Tokenizer>,
    templates: Result<Templates, super::template::FindError>,
    decoder: DecoderModel,
    /// Sampling settings that apply where a request names none.
    default_sampling: SamplingOverrides,
    ends: EndTokens,
    constrainer: OnceLock<Result<Constrainer, super::constraint::ConstraintError>>,
}

impl TextModel {
    /// Loads the templates and settings that lie beside the model at `model` and its tokenizer.
    pub fn load(
        tokenizer: Arc<Tokenizer>,
        files: &TokenizerFiles,
        model: &Path,
        decoder: DecoderModel,
    ) -> Result<Self, TextError> {
        let templates = Templates::find(TemplatePlaces {
            tokenizer_config: files.config.as_deref(),
            tokenizer: Some(&files.tokenizer),
            // The package's config lies beside its model.
            config: Some(model),
        });
        let config = GenerationConfig::beside(&[
            Some(model),
            files.config.as_deref(),
            Some(&files.tokenizer),
        ])?;
        let mut ends = decoder
            .ends
            .iter()
            .copied()
            .collect::<EndTokens>()
            .of_generation_config(&config.fields)
            .of_tokenizer(tokenizer.eos());
        for (_, template) in templates.iter().flat_map(Templates::all) {
            ends = ends.of_template(template.text(), &|mark| tokenizer.id_of(mark));
        }
        Ok(Self {
            default_sampling: SamplingOverrides::of_generation_config(&config.fields).map_err(
                |error| TextError::Settings {
                    file: config.file.clone(),
                    error,
                },
            )?,
            tokenizer,
            templates,
            decoder,
            ends,
            constrainer: OnceLock::new(),
        })
    }

    /// Returns the description of the decoder.
    pub fn decoder(&self) -> &DecoderModel {
        &self.decoder
    }

    /// Returns the tokenizer.
    pub fn tokenizer(&self) -> &Arc<Tokenizer> {
        &self.tokenizer
    }

    /// Returns the sampling settings of a request that names none.
    pub fn sampling(&self) -> Sampling {
        Sampling::merged(SamplingOverrides::default(), self.default_sampling.clone())
    }

    /// Checks that the package has a chat template; the error says why it has none.
    pub fn require_chat_template(&self) -> Result<(), TextError> {
        self.template(false).map(|_| ())
    }

    /// Returns how the model takes these pictures; `None` for none.
    pub fn picture_slots(
        &self,
        pictures: &[PictureRows],
    ) -> Result<Option<PictureSlots>, TextError> {
        let Some(first) = pictures.first() else {
            return Ok(None);
        };
        let slots = PictureSlots::find(&self.tokenizer, &self.decoder, first.rows.len())?;
        match pictures.iter().find(|it| it.rows.len() != first.rows.len()) {
            None => Ok(Some(slots)),
            Some(other) => Err(TextError::PictureRows {
                counts: [first.rows.len(), other.rows.len()],
            }),
        }
    }

    /// Renders a chat's prompt and collects the settings for its answer. `slots` say how the model takes pictures, if it
    /// does.
    pub fn chat(
        &self,
        chat: &ChatRequest,
        renderer: &Renderer,
        slots: Option<&PictureSlots>,
    ) -> Result<PreparedRequest, TextError> {
        let shown = if chat.tool_choice == ToolChoice::None {
            &[]
        } else {
            chat.tools.as_slice()
        };
        let template = self.template(!shown.is_empty())?;
        let takes = renderer.accepted_forms(template)?;
        let (text, pictures) = match (chat.pictures().next(), slots) {
            (None, _) => (
                renderer.render(template, &chat.conversation(takes, None))?,
                None,
            ),
            (Some(_), Some(slots)) => {
                let (text, pictures) = slots.render(chat, (renderer, template, takes))?;
                (text, Some(pictures))
            }
            (Some(picture), None) => {
                return Err(TextError::Fault(FieldError {
                    path: picture.path.clone(),
                    expected: "no picture: this model does not read pictures".to_owned(),
                    found: "a picture".to_owned(),
                }));
            }
        };
        let must_call = matches!(
            chat.tool_choice,
            ToolChoice::Required | ToolChoice::Function(_)
        );
        let offered = shown.iter().map(|tool| OfferedTool {
            name: tool.name.clone(),
            parameters: Some(tool.parameters.clone().into()),
        });
        let family = CallFamily::of(template.text());
        // Harmony templates mark channels in every answer, not only in tool calls.
        let has_marks = !shown.is_empty() || family == CallFamily::Harmony;
        let reading = AnswerFormat {
            family: if must_call {
                Some(CallFamily::Required)
            } else {
                has_marks.then_some(family)
            },
            tools: offered.collect(),
            reasoning: Reasoning::of(template.text(), &text),
        };
        let grammar = if must_call {
            Self::calls(chat)?
        } else {
            response_grammar(&chat.response_format)?
        };
        Ok(PreparedRequest {
            constraint: grammar
                .map(|grammar| self.constraint(&grammar))
                .transpose()?,
            reading,
            // The template writes the special tokens itself, and tool calls are recognised by
            // special tokens.
            specials: SpecialTokens::Absent,
            skips_special: !has_marks,
            max_tokens: chat.max_tokens.map(|most| most as usize),
            choices: chat.choices as usize,
            sampling: Sampling::merged(
                SamplingOverrides::of_request(&chat.fields)?,
                self.default_sampling.clone(),
            ),
            stops: StopStrings::read(chat.fields.get("stop"))?,
            ends: self.ends.clone(),
            text: prompt::PromptInput::Text(text),
            pictures,
        })
    }

    /// Prepares a text completion.
    pub fn completion(
        &self,
        asked: &CompletionRequest,
        prompt: &Prompt,
    ) -> Result<PreparedRequest, TextError> {
        for (field, is_there) in [
            ("suffix", asked.suffix.is_some()),
            ("best_of", asked.best_of > asked.choices),
        ] {
            if is_there {
                return Err(TextError::unsupported(
                    field,
                    "is not supported by local models; leave it out",
                ));
            }
        }
        if asked.max_tokens == Some(0) {
            return Err(TextError::unsupported(
                "max_tokens",
                "must be at least 1, not 0",
            ));
        }
        let text = match prompt {
            Prompt::Text(text) => prompt::PromptInput::Text(text.clone()),
            Prompt::Tokens(tokens) => prompt::PromptInput::Tokens(tokens.clone()),
        };
        Ok(PreparedRequest {
            constraint: None,
            reading: AnswerFormat::plain(),
            specials: SpecialTokens::Added,
            skips_special: true,
            max_tokens: asked.max_tokens.map(|most| most as usize),
            choices: asked.choices as usize,
            sampling: Sampling::merged(
                SamplingOverrides::of_request(&asked.fields)?,
                self.default_sampling.clone(),
            ),
            stops: StopStrings::read(asked.fields.get("stop"))?,
            ends: self.ends.clone(),
            text,
            pictures: None,
        })
    }

    fn template(&self, with_tools: bool) -> Result<&Template, TextError> {
        let templates = self
            .templates
            .as_ref()
            .map_err(|error| TextError::NoTemplate(error.clone()))?;
        templates.choose(with_tools).map_err(TextError::NoTemplate)
    }

    fn calls(chat: &ChatRequest) -> Result<Option<Grammar>, TextError> {
        let tools: Vec<Callable> = chat
            .tools
            .iter()
            .map(|tool| Callable {
                name: tool.name.clone(),
                parameters: (!tool.parameters.is_empty()).then(|| tool.parameters.clone().into()),
            })
            .collect();
        let choice = match &chat.tool_choice {
            ToolChoice::Function(name) => CallChoice::Named(name),
            _ => CallChoice::Any,
        };
        Ok(Some(Grammar::of_calls(
            &tools,
            choice,
            chat.parallel_tool_calls,
        )?))
    }

    fn constraint(&self, grammar: &Grammar) -> Result<Constraint, TextError> {
        let constrainer = self.constrainer.get_or_init(|| {
            let vocabulary = self.tokenizer.vocabulary();
            let bytes = (0..vocabulary.len()).map(|id| {
                let id = u32::try_from(id).expect("token ids fit in 32 bits");
                let is_text = !vocabulary.is_special(id);
                vocabulary
                    .bytes(id)
                    .filter(|_| is_text)
                    .unwrap_or_default()
                    .to_vec()
            });
            Constrainer::new(VocabularyBytes {
                bytes: bytes.collect(),
                ends: self.ends.ids(),
            })
        });
        match constrainer {
            Ok(constrainer) => Ok(constrainer.constrain(grammar)?),
            Err(error) => Err(error.clone().into()),
        }
    }
}

fn response_grammar(format: &ResponseFormat) -> Result<Option<Grammar>, TextError> {
    let any = serde_json::json!({"type": "object"});
    Ok(match format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject => Some(Grammar::of_schema(&any, "response_format")?),
        ResponseFormat::JsonSchema { schema, .. } => {
            let schema = schema.clone().into();
            Some(Grammar::of_schema(
                &schema,
                "response_format.json_schema.schema",
            )?)
        }
    })
}
