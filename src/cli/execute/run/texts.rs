//! `pkgtool run --text`: embeds texts with the package's own tokenizer.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::super::{selection_failure, start_with_notes};
use super::{RunArgs, json, text};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::Session;
use pkgtool_engine::runtime::selection::{self, Selection, SelectionError};
use pkgtool_engine::runtime::target::Started;
use pkgtool_media::MediaKind;
use pkgtool_text::embedding::{
    CAPABILITY, Embedder, EmbeddingInput, EmbeddingOptions, EmbeddingPlan, EmbeddingSettings,
    Pooling, cosine,
};
use pkgtool_text::tokenizer::{Tokenizer, TokenizerFiles};

/// Name of the component that embeds texts, in variants with several components.
const TEXT_COMPONENT: &str = "text_encoder";

/// Number of a vector's first values that are shown.
const SHOWN_VALUES: usize = 4;

/// Maximum number of texts in the table of similarities.
const SHOWN_TEXTS: usize = 10;

/// Maximum length of a text that is shown, in characters.
const SHOWN_TEXT_CHARS: usize = 48;

/// Options for embedding texts.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Texts")]
pub(super) struct TextArgs {
    /// Embed this text and show its vector; repeat it to show similarities. `@FILE` embeds each
    /// line of a file
    #[arg(long = "text", value_name = "TEXT|@FILE", conflicts_with_all = ["inputs", "dims", "chain",
        "steps", "step_inputs", "feeds", "bundled", "output_dir", "check_finite"])]
    pub(super) texts: Vec<String>,

    /// Truncate texts with more tokens than the model accepts. By default, they are rejected
    #[arg(long, requires = "texts")]
    truncate: bool,

    /// Maximum number of tokens per text
    #[arg(long, value_name = "N", requires = "texts")]
    max_length: Option<usize>,

    /// How token states are pooled into a vector: cls, max, mean, lasttoken, weightedmean,
    /// `mean_sqrt_len_tokens` [default: from the package's files, otherwise mean]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = pooling, requires = "texts")]
    pooling: Option<Vec<Pooling>>,

    /// Scale vectors to length 1 [default: from the package's files]
    #[arg(long, value_name = "true|false", requires = "texts")]
    normalize: Option<bool>,
}

/// The embedded texts, and how they were run.
struct EmbeddedTexts {
    selection: Selection,
    started: Started,
    texts: Vec<String>,
    plan: EmbeddingPlan,
    longest: usize,
    vectors: Vec<Vec<f32>>,
    /// Total duration of all runs of the model.
    time: Duration,
}

fn pooling(name: &str) -> Result<Pooling, String> {
    Pooling::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Pooling::ALL.iter().map(|(_, name)| *name).collect();
        format!("expected one of {}", names.join(", "))
    })
}

/// Returns the text that an argument is: it names no file, and the package embeds texts only.
pub(super) fn meant(args: &RunArgs, given: &Path) -> Option<String> {
    if given.exists() || args.answer.has_options() {
        return None;
    }
    let variant = selected(args).ok()?.variant?;
    let config = selection::config(&variant.config).ok()?;
    let takes_files = |it: &String| MediaKind::of_capability(it).is_some();
    let embeds = config.capabilities.iter().any(|it| it == CAPABILITY)
        && !config.capabilities.iter().any(takes_files);
    given.to_str().filter(|_| embeds).map(str::to_owned)
}

/// Embeds texts, or the lines of files.
pub(super) fn run(args: &RunArgs, given: &[String]) -> Result<Exit, Failure> {
    let texts = texts(given)?;
    let embedded = embed(args, texts)?;
    let text = args.target.within("formatting the vectors", || {
        if args.json {
            format!("{:#}\n", document(&embedded))
        } else {
            render(&embedded)
        }
    });
    output::print(&text)?;
    Ok(Exit::Clean)
}

/// Returns the texts, one per line for files.
fn texts(given: &[String]) -> Result<Vec<String>, Failure> {
    let mut texts = Vec::new();
    for text in given {
        match text.strip_prefix('@') {
            Some(file) => {
                let read = fs::read_to_string(file);
                let read = read.map_err(|error| Failure::Other(format!("{file}: {error}")))?;
                texts.extend(read.lines().map(str::to_owned));
            }
            None => texts.push(text.clone()),
        }
    }
    if texts.is_empty() {
        return Err(Failure::Other("no text to embed".to_owned()));
    }
    Ok(texts)
}

fn embed(args: &RunArgs, texts: Vec<String>) -> Result<EmbeddedTexts, Failure> {
    let selection = selected(args)?;
    let embedder = args
        .target
        .within("loading the tokenizer", || embedder(&selection))?;
    let options = EmbeddingOptions {
        truncate: args.texts.truncate,
        max_length: args.texts.max_length,
        pooling: args.texts.pooling.clone(),
        normalize: args.texts.normalize,
    };
    let given = EmbeddingInput::Texts(texts);
    let plan = args
        .target
        .within("generating the inputs", || embedder.plan(&given, &options));
    let plan = plan.map_err(other)?;
    let wish = args.target.start_request(&selection, args.variant.which());
    let launcher = args.target.launcher()?;
    let (first, others) = plan.runs.split_first().expect("there is a text, so a run");
    let mut started = start_with_notes(&wish, &first.inputs, &launcher)?;
    let mut time = started.first_answer.time;
    let mut outputs = vec![started.first_answer.outputs.clone()];
    for run in others {
        let answer = started.worker.run(&run.inputs).map_err(other)?;
        time += answer.time;
        outputs.push(answer.outputs);
    }
    let vectors = plan.vectors(outputs).map_err(other)?;
    let EmbeddingInput::Texts(texts) = given else {
        unreachable!("texts were given")
    };
    Ok(EmbeddedTexts {
        longest: embedder.longest(&options).map_err(other)?.value,
        selection,
        started,
        texts,
        plan,
        vectors,
        time,
    })
}

/// Selects the model of the arguments. In a variant with several components, selects the one that
/// embeds texts.
fn selected(args: &RunArgs) -> Result<Selection, Failure> {
    let which = args.variant.which();
    let target = &args.target;
    let error = match target.select(&args.path, which) {
        Ok(selection) => return Ok(selection),
        Err(error) => error,
    };
    if matches!(error, SelectionError::Refused(_)) && target.component.is_none() {
        let mut choice = target.selection_criteria(which);
        choice.component = Some(TEXT_COMPONENT.to_owned());
        if let Ok(selection) = selection::select(&args.path, &choice) {
            return Ok(selection);
        }
    }
    Err(selection_failure(&error))
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
    if !config.capabilities.iter().any(|it| it == CAPABILITY) {
        return Err(Failure::Other(format!(
            "{at}: --text needs a model with the capability `{CAPABILITY}`, this one has {}",
            config.capabilities.join(", ")
        )));
    }
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

fn render(embedded: &EmbeddedTexts) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, embedded);
    text
}

fn write(out: &mut String, embedded: &EmbeddedTexts) -> std::fmt::Result {
    let (started, vectors) = (&embedded.started, &embedded.vectors);
    writeln!(out, "{}", text::ran(&embedded.selection, started))?;
    let dimensions = vectors.first().map_or(0, Vec::len);
    let longest = embedded.longest;
    writeln!(
        out,
        "vectors of {dimensions} dimensions, at most {longest} tokens per text"
    )?;
    let tokens = embedded.plan.tokens_by_text();
    for (place, (vector, tokens)) in vectors.iter().zip(tokens).enumerate() {
        let values = vector
            .iter()
            .take(SHOWN_VALUES)
            .map(|value| format!("{value:.4}"));
        let values: Vec<String> = values.collect();
        let more = if vector.len() > SHOWN_VALUES {
            ", …"
        } else {
            ""
        };
        writeln!(
            out,
            "  {place}  [{}{more}]  {tokens} tokens  {}",
            values.join(", "),
            shortened(&embedded.texts[place])
        )?;
    }
    if vectors.len() > 1 {
        similarities(out, vectors)?;
    }
    writeln!(
        out,
        "load {}, {} {}",
        text::shown(started.load_time),
        match embedded.plan.runs.len() {
            1 => "run".to_owned(),
            runs => format!("{runs} runs"),
        },
        text::shown(embedded.time)
    )
}

/// Writes the table of cosine similarities.
fn similarities(out: &mut String, vectors: &[Vec<f32>]) -> std::fmt::Result {
    let shown = vectors.len().min(SHOWN_TEXTS);
    let more = match vectors.len() - shown {
        0 => String::new(),
        more => format!(" (first {shown} texts; `--json` includes {more} more)"),
    };
    writeln!(out, "cosine similarity{more}")?;
    write!(out, "   ")?;
    for place in 0..shown {
        write!(out, "{place:>9}")?;
    }
    writeln!(out)?;
    for (place, vector) in vectors.iter().take(shown).enumerate() {
        write!(out, "  {place}")?;
        for other in vectors.iter().take(shown) {
            write!(out, "{:>9.4}", cosine(vector, other))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn shortened(text: &str) -> String {
    let line = defuse_line(text);
    match line.char_indices().nth(SHOWN_TEXT_CHARS) {
        Some((end, _)) => format!("\"{}…\"", &line[..end]),
        None => format!("\"{line}\""),
    }
}

/// Renders the result as JSON. Later versions only add fields.
fn document(embedded: &EmbeddedTexts) -> Json {
    let EmbeddedTexts {
        selection,
        started,
        vectors,
        ..
    } = embedded;
    let mut document = json::head(selection, started);
    let tokens = embedded.plan.tokens_by_text();
    let texts = embedded.texts.iter().zip(tokens).zip(vectors);
    let texts = texts.map(|((text, tokens), vector)| {
        json!({ "text": text, "tokens": tokens, "vector": numbers(vector) })
    });
    document["embedded_texts"] = texts.collect();
    document["dimensions"] = json!(vectors.first().map_or(0, Vec::len));
    document["max_tokens"] = json!(embedded.longest);
    document["tokens"] = json!(embedded.plan.tokens);
    let similarity = vectors.iter().map(|vector| {
        let row = vectors.iter().map(|other| json!(cosine(vector, other)));
        Json::Array(row.collect())
    });
    document["similarity"] = similarity.collect();
    document["timings_ms"] = json!({
        "load": json::milliseconds(started.load_time),
        "run": json::milliseconds(embedded.time),
    });
    document
}

fn numbers(vector: &[f32]) -> Json {
    let numbers = vector.iter();
    numbers
        .map(|value| json::float(pkgtool_engine::tensor::DType::Float32, f64::from(*value)))
        .collect()
}
