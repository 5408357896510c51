//! `pkgtool run --text`: embeds texts with the package's own tokenizer.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::super::embedding::{self, EmbeddingModel};
use super::{RunArgs, json, text};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_media::MediaKind;
use pkgtool_text::embedding::{
    CAPABILITY, EmbeddingInput, EmbeddingOptions, EmbeddingPlan, Pooling, cosine,
};

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
    pub(super) truncate: bool,

    /// Maximum number of tokens per text
    #[arg(long, value_name = "N", requires = "texts")]
    pub(super) max_length: Option<usize>,

    /// How token states are pooled into a vector: cls, max, mean, lasttoken, weightedmean,
    /// `mean_sqrt_len_tokens` [default: from the package's files, otherwise mean]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', value_parser = pooling, requires = "texts")]
    pooling: Option<Vec<Pooling>>,

    /// Scale vectors to length 1 [default: from the package's files]
    #[arg(long, value_name = "true|false", requires = "texts")]
    normalize: Option<bool>,
}

/// The embedded texts, and how they were run.
struct EmbeddedTexts<'a> {
    model: EmbeddingModel<'a>,
    texts: Vec<String>,
    plan: EmbeddingPlan,
    longest: usize,
    vectors: Vec<Vec<f32>>,
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
    let which = args.variant.which();
    let selected = embedding::select(&args.path, &args.target, which).ok()?;
    let variant = selected.variant?;
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
pub(super) fn texts(given: &[String]) -> Result<Vec<String>, Failure> {
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

fn embed(args: &RunArgs, texts: Vec<String>) -> Result<EmbeddedTexts<'_>, Failure> {
    let mut model = EmbeddingModel::new(&args.path, &args.target, args.variant.which())?;
    let options = EmbeddingOptions {
        truncate: args.texts.truncate,
        max_length: args.texts.max_length,
        pooling: args.texts.pooling.clone(),
        normalize: args.texts.normalize,
    };
    let given = EmbeddingInput::Texts(texts);
    let (plan, vectors) = model.embed(&given, &options)?;
    let EmbeddingInput::Texts(texts) = given else {
        unreachable!("texts were given")
    };
    Ok(EmbeddedTexts {
        longest: model.longest(&options)?,
        model,
        texts,
        plan,
        vectors,
    })
}

impl EmbeddedTexts<'_> {
    fn started(&self) -> &Started {
        let started = self.model.started.as_ref();
        started.expect("there is a text, so a run")
    }
}

fn render(embedded: &EmbeddedTexts<'_>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut text, embedded);
    text
}

fn write(out: &mut String, embedded: &EmbeddedTexts<'_>) -> std::fmt::Result {
    let (started, vectors) = (embedded.started(), &embedded.vectors);
    writeln!(out, "{}", text::ran(&embedded.model.selection, started))?;
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
        text::shown(embedded.model.time)
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

/// Returns the beginning of a text, in quotes.
pub(super) fn shortened(text: &str) -> String {
    let line = defuse_line(text);
    match line.char_indices().nth(SHOWN_TEXT_CHARS) {
        Some((end, _)) => format!("\"{}…\"", &line[..end]),
        None => format!("\"{line}\""),
    }
}

/// Renders the result as JSON. Later versions only add fields.
fn document(embedded: &EmbeddedTexts<'_>) -> Json {
    let (started, vectors) = (embedded.started(), &embedded.vectors);
    let mut document = json::head(&embedded.model.selection, started);
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
        "run": json::milliseconds(embedded.model.time),
    });
    document
}

fn numbers(vector: &[f32]) -> Json {
    let numbers = vector.iter();
    numbers
        .map(|value| json::float(pkgtool_engine::tensor::DType::Float32, f64::from(*value)))
        .collect()
}
