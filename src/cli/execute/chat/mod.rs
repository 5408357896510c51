//! `pkgtool chat`: a conversation with a package's text model, in a terminal.

mod terminal;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::target_args::{TargetArgs, VariantArgs};
use super::{select_method, start_with_notes};
use pkgtool_base::diagnostic::book;
use pkgtool_engine::runtime::selection::{self, Selection};
use pkgtool_engine::runtime::target::StartRequest;
use pkgtool_engine::runtime::worker::Worker;
use pkgtool_text::chat::{ChatRequest, RequestLimits};
use pkgtool_text::decoder::{DecoderModel, SessionStepRunner, TokenDecoder};
use pkgtool_text::generation::{Generated, Transcripts, generate};
use pkgtool_text::model::TextModel;
use pkgtool_text::template::Renderer;
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};
use terminal::{AnswerPrinter, MessageSource};

/// Arguments of `pkgtool chat`.
#[derive(Debug, clap::Args)]
#[command(after_help = book::help(EXAMPLES, "chat"))]
pub(in super::super) struct ChatArgs {
    /// Directory of a package, or a config
    #[arg(value_name = "PACKAGE|CONFIG")]
    path: PathBuf,

    /// Message to send; repeat it for a conversation. Without it, messages are read from standard
    /// input
    #[arg(long = "message", short = 'm', value_name = "TEXT")]
    messages: Vec<String>,

    /// System message for the model, sent before all others
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,

    #[command(flatten)]
    variant: VariantArgs,

    #[command(flatten)]
    pub(super) target: TargetArgs,

    #[command(flatten)]
    drawing: SamplingArgs,
}

/// Options for sampling tokens. They default to the package's `generation_config.json`, otherwise
/// to the model's own probabilities.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Generation")]
struct SamplingArgs {
    /// Sampling temperature; 0 always takes the most likely token
    #[arg(long, value_name = "0–2")]
    temperature: Option<f64>,

    /// Sample from the most likely tokens whose probabilities add up to this value
    #[arg(long, value_name = "0–1")]
    top_p: Option<f64>,

    /// Sample from the N most likely tokens
    #[arg(long, value_name = "N")]
    top_k: Option<u64>,

    /// Sample from tokens with at least this fraction of the most likely token's probability
    #[arg(long, value_name = "0–1")]
    min_p: Option<f64>,

    /// Random seed; the same seed reproduces the output
    #[arg(long, value_name = "N")]
    seed: Option<u64>,

    /// Maximum number of tokens in an answer [default: as many as the model's context holds]
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,

    /// Stop an answer before this text; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  pkgtool chat packages-examples/NAME
  pkgtool chat qwen/ --precision 8da4w --system 'Answer in one sentence.' --temperature 0.7 --seed 1
  pkgtool chat qwen/ --message 'What is a tensor?' --max-tokens 60 > answer.txt";

/// A model, and the part of the conversation that its session holds.
struct Chat {
    text: TextModel,
    renderer: Renderer,
    decoder: TokenDecoder<SessionStepRunner<Worker>>,
    transcripts: Transcripts,
}

/// Runs the command.
pub(in super::super) fn run(args: &ChatArgs) -> Result<Exit, Failure> {
    let mut chat = Chat::start(args)?;
    let mut messages: Vec<Value> = Vec::new();
    if let Some(system) = &args.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    let mut lines = MessageSource::new(&args.messages);
    while let Some(line) = lines.next_message()? {
        messages.push(json!({"role": "user", "content": line}));
        match chat.answer(&args.drawing.request(&messages)) {
            Ok(answer) => messages.push(json!({"role": "assistant", "content": answer})),
            // On a terminal, the user can send another message.
            Err(Failure::Other(message)) if lines.is_interactive() => {
                output::error(&message);
                messages.pop();
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(Exit::Clean)
}

impl Chat {
    fn start(args: &ChatArgs) -> Result<Self, Failure> {
        let selection = select_method(&args.target, &args.path, args.variant.which())?;
        let files = tokenizer_files(&selection)?;
        let tokenizer = Tokenizer::of(&files).map_err(other)?;
        let decoder = DecoderModel::recognise(
            &selection.model,
            &selection.info,
            &selection.signature,
            None,
        );
        let decoder = decoder
            .map_err(|error| Failure::Other(format!("{}: {error}", selection.model.display())))?;
        let text = TextModel::load(
            Arc::new(tokenizer),
            &files,
            &selection.model,
            decoder.clone(),
        )
        .map_err(other)?;
        text.require_chat_template().map_err(other)?;
        let wish = StartRequest {
            carrying: decoder.carrying.clone(),
            observe: false,
            ..args.target.start_request(&selection, args.variant.which())
        };
        let started = start_with_notes(&wish, &decoder.first_inputs(), &args.target.launcher()?)?;
        let mut decoder = TokenDecoder::new(decoder, SessionStepRunner(started.worker));
        if args.messages.len() != 1 {
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

    /// Prints the answer to a request as it is generated, and returns its content.
    fn answer(&mut self, request: &Value) -> Result<String, Failure> {
        let chat = ChatRequest::read(request, &RequestLimits::default()).map_err(other)?;
        let prompted = self.text.chat(&chat, &self.renderer).map_err(other)?;
        let tokenizer = self.text.tokenizer();
        let tokens = prompted
            .tokens(tokenizer, &mut self.transcripts)
            .map_err(other)?;
        let prompt = prompted.text().unwrap_or_default().to_owned();
        let request = prompted.request(tokens.clone(), tokenizer);
        let mut speech = AnswerPrinter::new();
        let generated = generate(&mut self.decoder, request, &|| true, &mut |event| {
            speech.print_event(event)
        });
        let said = speech.end()?;
        let generated = generated.map_err(other)?;
        self.keep_transcript(prompt, tokens, &generated);
        terminal::print_usage(&generated);
        Ok(said)
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

impl SamplingArgs {
    /// Builds the chat request for these messages.
    fn request(&self, messages: &[Value]) -> Value {
        let mut request = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                request.insert(name.to_owned(), value);
            }
        };
        put("messages", Some(messages.to_vec().into()));
        put("temperature", self.temperature.map(Value::from));
        put("top_p", self.top_p.map(Value::from));
        put("top_k", self.top_k.map(Value::from));
        put("min_p", self.min_p.map(Value::from));
        put("seed", self.seed.map(Value::from));
        put("max_tokens", self.max_tokens.map(Value::from));
        let stop = (!self.stop.is_empty()).then(|| self.stop.clone().into());
        put("stop", stop);
        request.into()
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
    let config =
        selection::config(&variant.config).map_err(|error| super::selection_failure(&error))?;
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
