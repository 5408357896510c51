//! `pkgtool run` of a trained package: the labels of texts or a picture.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Value as Json, json};

use super::super::super::embedding::EmbeddingModel;
use super::super::super::target_args::GENERATING_INPUTS;
use super::super::super::{start, start_with_notes};
use super::super::{RunArgs, json, text, texts};
use super::text::{bar, percent};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::input::{self, InputArgs};
use pkgtool_media::trained::{ENCODER, HEAD, LabelWish, LabelledAnswer, TrainedLabels, head_input};
use pkgtool_text::embedding::{EmbeddingInput, EmbeddingOptions};

/// The models of a trained package.
pub(in super::super) struct TrainedModels {
    encoder: Selection,
    head: Selection,
    labels: TrainedLabels,
}

/// What gets labels.
enum Labelled {
    Texts(Vec<String>),
    Picture,
}

/// Vectors, with the model that computed them.
struct EncodedVectors {
    of: Labelled,
    vectors: Vec<Vec<f32>>,
    started: Started,
}

/// Returns the models of the arguments' package, if it is a trained one.
pub(in super::super) fn models(args: &RunArgs) -> Result<Option<TrainedModels>, Failure> {
    if args.target.component.is_some() || args.answer.capability.is_some() || args.answer.raw {
        return Ok(None);
    }
    let link = |name| {
        args.target
            .select_link(&args.path, args.variant.which(), name)
    };
    // Few other packages have a head, so that most are told apart without an encoder's file.
    let Ok(head) = link(HEAD) else {
        return Ok(None);
    };
    let Ok(encoder) = link(ENCODER) else {
        return Ok(None);
    };
    let configs = encoder.variant.iter().map(|variant| &*variant.config);
    let labels = TrainedLabels::beside(configs).map_err(Failure::Other)?;
    Ok(labels.map(|(_, labels)| TrainedModels {
        encoder,
        head,
        labels,
    }))
}

/// Labels a text, the lines of a file (`@FILE`) or a picture.
pub(in super::super) fn run(
    args: &RunArgs,
    models: &TrainedModels,
    given: &[String],
) -> Result<Exit, Failure> {
    let wish = wish(args)?;
    let is_picture = input::picture_inputs(&models.encoder.signature).len() == 1;
    let encoded = match given {
        [file] if is_picture && args.texts.texts.is_empty() => picture(args, models, file)?,
        _ if is_picture => {
            return Err(Failure::Other(
                "the model takes a picture, not texts".to_owned(),
            ));
        }
        _ => encode_texts(args, models, given)?,
    };
    let scores = probabilities(args, models, &encoded.vectors)?;
    let rows = encoded.vectors.len();
    let answers = models.labels.answers(&scores, rows, wish).ok_or_else(|| {
        Failure::Other(format!(
            "{}: returned {} probabilities for {} labels",
            models.head.model.display(),
            scores.len() / rows.max(1),
            models.labels.names.len()
        ))
    })?;
    output::print(&if args.json {
        format!("{:#}\n", document(models, &encoded, &answers))
    } else {
        render(models, &encoded, &answers)
    })?;
    Ok(Exit::Clean)
}

/// Parses the values of `--set`.
fn wish(args: &RunArgs) -> Result<LabelWish, Failure> {
    let options = &args.answer;
    if options.save.is_some() || options.phonemes {
        let message = "--save and --phonemes: labels have neither a picture nor a sound";
        return Err(Failure::Other(message.to_owned()));
    }
    let mut wish = LabelWish::default();
    for set in &options.set {
        let fault = |expected: &str| Failure::Other(format!("--set {set}: expected {expected}"));
        match set.split_once('=') {
            Some(("top_k", value)) => {
                let most = value.parse().ok().filter(|most| *most > 0);
                wish.most = Some(most.ok_or_else(|| fault("a whole number above 0"))?);
            }
            Some(("threshold", value)) => {
                let least = value.parse().ok().filter(|it| (0.0..=1.0).contains(it));
                wish.threshold = Some(least.ok_or_else(|| fault("a number from 0 to 1"))?);
            }
            _ => {
                return Err(fault(
                    "`top_k=N` or `threshold=P`, the values of a trained package",
                ));
            }
        }
    }
    Ok(wish)
}

fn encode_texts(
    args: &RunArgs,
    models: &TrainedModels,
    given: &[String],
) -> Result<EncodedVectors, Failure> {
    let which = args.variant.which();
    let encoder = models.encoder.clone();
    let mut model = EmbeddingModel::of(encoder, &args.target, which)?;
    let options = EmbeddingOptions {
        truncate: args.texts.truncate,
        max_length: args.texts.max_length,
        ..EmbeddingOptions::default()
    };
    let given = EmbeddingInput::Texts(texts::texts(given)?);
    let (_, vectors) = model.embed(&given, &options)?;
    let EmbeddingInput::Texts(texts) = given else {
        unreachable!("texts were given")
    };
    Ok(EncodedVectors {
        of: Labelled::Texts(texts),
        vectors,
        started: model.started.expect("there is a text, so a run"),
    })
}

fn picture(args: &RunArgs, models: &TrainedModels, file: &str) -> Result<EncodedVectors, Failure> {
    if !Path::new(file).is_file() {
        return Err(Failure::Nothing(format!("{file}: no such picture")));
    }
    let given = args.target.limit_memory(InputArgs {
        inputs: vec![file.to_owned()],
        ..InputArgs::default()
    });
    let signature = &models.encoder.signature;
    let inputs = args
        .target
        .within(GENERATING_INPUTS, || input::assemble(signature, &given));
    let inputs = inputs.map_err(|error| Failure::Other(error.to_string()))?;
    let wish = args
        .target
        .start_request(&models.encoder, args.variant.which());
    let started = start_with_notes(&wish, &inputs, &args.target.launcher()?)?;
    let vector = started.first_answer.outputs.first().map(Tensor::to_f32);
    Ok(EncodedVectors {
        of: Labelled::Picture,
        vectors: vec![vector.unwrap_or_default()],
        started,
    })
}

/// Runs the head. It is small, so that its engine does not matter: it may be another one than the backend's.
fn probabilities(
    args: &RunArgs,
    models: &TrainedModels,
    vectors: &[Vec<f32>],
) -> Result<Vec<f32>, Failure> {
    let fault = |reason: String| {
        let model = models.head.model.display();
        Failure::Other(format!("{model}: {reason}"))
    };
    let inputs = [head_input(vectors).map_err(fault)?];
    input::check(&models.head.signature, &inputs).map_err(|error| fault(error.to_string()))?;
    let wish = args
        .target
        .start_request(&models.head, args.variant.which());
    let started = start(&wish, &inputs, &args.target.launcher()?)?;
    let outputs = &started.first_answer.outputs;
    Ok(outputs.first().map(Tensor::to_f32).unwrap_or_default())
}

fn render(
    models: &TrainedModels,
    encoded: &EncodedVectors,
    answers: &[LabelledAnswer<'_>],
) -> String {
    let mut out = format!("{}\n", text::ran(&models.encoder, &encoded.started));
    for (place, answer) in answers.iter().enumerate() {
        if let Labelled::Texts(texts) = &encoded.of {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{}", texts::shortened(&texts[place]));
        }
        let mut table =
            TextTable::new([Align::Left, Align::Right, Align::Left, Align::Left]).indented();
        for label in &answer.labels {
            let score = f64::from(label.score);
            let holds = if label.holds == Some(true) {
                "holds"
            } else {
                ""
            };
            table.row([
                defuse_line(label.label),
                percent(score),
                bar(score),
                holds.to_owned(),
            ]);
        }
        let _ = write!(out, "{table}");
        if answer.abstains == Some(true) {
            out.push_str("  no answer: the first probability is below the threshold\n");
        }
    }
    out
}

/// Renders the result as JSON. Later versions only add fields.
fn document(
    models: &TrainedModels,
    encoded: &EncodedVectors,
    answers: &[LabelledAnswer<'_>],
) -> Json {
    let mut document = json::head(&models.encoder, &encoded.started);
    match &encoded.of {
        Labelled::Picture => document["answer"] = json!(answers.first()),
        Labelled::Texts(texts) => {
            let all = texts.iter().zip(answers).map(|(text, answer)| {
                let mut answer = json!(answer);
                answer["text"] = json!(text);
                answer
            });
            document["classified_texts"] = all.collect();
        }
    }
    document
}
