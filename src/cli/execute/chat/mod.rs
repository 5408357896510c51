//! `pkgtool chat`: a conversation with a package's text model, in a terminal.

mod terminal;

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::super::exit::{Exit, Failure};
use super::super::output;
use super::answering::{self, AnsweringModel};
use super::talking::TalkingModel;
use super::target_args::{TargetArgs, VariantArgs};
use pkgtool_base::diagnostic::book;
use pkgtool_text::chat::{ChatRequest, RequestLimits, data_uri};
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

    /// Picture for the first message; repeat it for several
    #[arg(long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,

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
  pkgtool chat lookout/ --image photo.jpg --message 'What is in the picture?'
  pkgtool chat qwen/ --message 'What is a tensor?' --max-tokens 60 > answer.txt";

/// A model, and the model that reads pictures for it.
struct Chat<'a> {
    model: TalkingModel,
    pictures: Option<AnsweringModel<'a>>,
}

/// Runs the command.
pub(in super::super) fn run(args: &ChatArgs) -> Result<Exit, Failure> {
    let mut pictures = pictures(&args.images)?;
    let mut chat = Chat::start(args)?;
    let mut messages: Vec<Value> = Vec::new();
    if let Some(system) = &args.system {
        messages.push(json!({"role": "system", "content": system}));
    }
    let mut lines = MessageSource::new(&args.messages);
    while let Some(line) = lines.next_message()? {
        messages.push(json!({"role": "user", "content": content(&pictures, line)}));
        match chat.answer(&args.drawing.request(&messages)) {
            Ok(answer) => messages.push(json!({"role": "assistant", "content": answer})),
            // On a terminal, the user can send another message.
            Err(Failure::Other(message)) if lines.is_interactive() => {
                output::error(&message);
                messages.pop();
                continue;
            }
            Err(failure) => return Err(failure),
        }
        pictures.clear();
    }
    Ok(Exit::Clean)
}

/// Reads pictures as parts of a message.
fn pictures(files: &[PathBuf]) -> Result<Vec<Value>, Failure> {
    let parts = files.iter().map(|file| {
        // A fault names the file, and no model starts.
        let bytes = answering::picture_file(file)?;
        Ok(json!({"type": "image_url", "image_url": {"url": data_uri(&bytes)}}))
    });
    parts.collect()
}

/// Returns the content of a message, with the pictures before the text.
fn content(pictures: &[Value], text: String) -> Value {
    if pictures.is_empty() {
        return text.into();
    }
    let mut parts = pictures.to_vec();
    parts.push(json!({"type": "text", "text": text}));
    parts.into()
}

impl<'a> Chat<'a> {
    fn start(args: &'a ChatArgs) -> Result<Self, Failure> {
        let which = args.variant.which();
        let pictures = if args.images.is_empty() {
            None
        } else {
            Some(AnsweringModel::of_pictures(
                &args.path,
                &args.target,
                which,
            )?)
        };
        let turns = args.messages.len() != 1;
        Ok(Self {
            model: TalkingModel::start(&args.path, &args.target, which, turns)?,
            pictures,
        })
    }

    /// Prints the answer to a request as it is generated, and returns its content.
    fn answer(&mut self, request: &Value) -> Result<String, Failure> {
        let chat = ChatRequest::read(request, &RequestLimits::default());
        let chat = chat.map_err(|error| Failure::Other(error.to_string()))?;
        let pictures = &mut self.pictures;
        let turn = self.model.prepare(&chat, &mut |picture| match pictures {
            Some(model) => model.rows(&picture.bytes),
            None => Ok(Vec::new()),
        })?;
        let mut speech = AnswerPrinter::new();
        let generated = self
            .model
            .answer(turn, &mut |event| speech.print_event(event));
        let said = speech.end()?;
        terminal::print_usage(&generated?);
        Ok(said)
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
