//! `pkgtool compare --data`: how far two models give the same answers for pictures or sounds.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use indicatif::ProgressIterator as _;
use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::super::answering::{AnsweringModel, GivenMedia, RecipeWish};
use super::super::limits::key;
use super::super::sides;
use super::super::target_args::VariantChoice;
use super::CompareArgs;
use crate::cli::exit::{Exit, Failure};
use crate::cli::progress;
use crate::cli::report::{self as reports, CommandReport};
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_eval::{AnswerAgreement, Figure, media_below};
use pkgtool_media::MediaKind;
use pkgtool_media::answer::TypedAnswer;

/// Number of files with different answers that are shown.
const SHOWN_FILES: usize = 5;

/// How far two models give the same answers. Version 1 of the document; later versions only add fields.
struct AnswerReport {
    /// The reference and the other model.
    labels: [String; 2],
    files: usize,
    figures: Vec<Figure>,
    /// Mean time of a file's runs, in milliseconds.
    milliseconds: [f64; 2],
    different: Vec<String>,
    faults: Vec<String>,
    /// Figures beyond their limits, for people.
    broken: Vec<String>,
}

/// Runs the command.
pub(super) fn run(args: &CompareArgs, on: &Path) -> Result<Exit, Failure> {
    let variants = args.sides.variants();
    let engines: Vec<Option<&str>> = args.sides.engines().collect();
    let mut choices: Vec<(&PathBuf, VariantChoice<'_>)> = Vec::new();
    for path in &args.paths {
        for (backend, precision) in &variants {
            choices.extend(engines.iter().map(|engine| {
                let which = VariantChoice {
                    precision: precision.as_deref(),
                    backend: *backend,
                    engine: *engine,
                };
                (path, which)
            }));
        }
    }
    let count = choices.len();
    let choices = <[_; 2]>::try_from(choices).map_err(|_| {
        Failure::Other(format!(
            "compare needs two sides, got {count}: give two paths, or one path with two precisions, backends or engines"
        ))
    })?;
    let wish = RecipeWish {
        capability: None,
        settings: &args.set,
    };
    let models = choices.map(|(path, which)| AnsweringModel::new(path, &args.target, which, wish));
    let [reference, other] = models;
    let mut models = [reference?, other?];
    let report = compared(args, &mut models, on)?;
    reports::print(&report, args.json)?;
    Ok(if report.faults.is_empty() && report.broken.is_empty() {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// Compares the answers for all files.
fn compared(
    args: &CompareArgs,
    models: &mut [AnsweringModel<'_>; 2],
    on: &Path,
) -> Result<AnswerReport, Failure> {
    let files = files(models, on)?;
    let template = "{bar:30} {pos}/{len} files, {eta} left";
    let bar = progress::bar(files.len() as u64, template);
    let (mut agreement, mut first) = (AnswerAgreement::default(), None);
    let (mut different, mut faults) = (Vec::new(), Vec::new());
    for file in files.iter().progress_with(bar) {
        let name = file.strip_prefix(on).unwrap_or(file).display().to_string();
        let name = if name.is_empty() {
            file.display().to_string()
        } else {
            name
        };
        match add(models, &mut agreement, file) {
            Ok((is_equal, answer)) => {
                if !is_equal {
                    different.push(name);
                }
                first.get_or_insert(answer);
            }
            // Without any answer, the fault is probably that of a model.
            Err(failure) if first.is_none() && faults.len() + 1 == files.len().min(3) => {
                return Err(failure);
            }
            Err(failure) => faults.push(failure.to_string()),
        }
    }
    let figures = first.map(|answer| agreement.figures(&answer));
    let figures = figures.unwrap_or_default();
    let labels = models.each_ref().map(|model| {
        let label = sides::what(&model.choice.selection);
        match &model.first.started {
            Some(started) => format!("{label}, {}", started.candidate),
            None => label,
        }
    });
    let pairs = figures.iter().map(|figure| (labels[1].as_str(), figure));
    let broken = args.limits.broken(&pairs.collect::<Vec<_>>())?;
    #[expect(clippy::cast_precision_loss, reason = "there are few files")]
    let count = (files.len() - faults.len()) as f64;
    let milliseconds = models
        .each_ref()
        .map(|it| it.time().as_secs_f64() * 1000.0 / count);
    Ok(AnswerReport {
        labels,
        files: files.len(),
        figures,
        milliseconds,
        different,
        faults,
        broken,
    })
}

/// Returns the files that both models read.
fn files(models: &[AnsweringModel<'_>; 2], on: &Path) -> Result<Vec<PathBuf>, Failure> {
    let [takes, other] = models.each_ref().map(AnsweringModel::takes);
    if takes != other || takes == MediaKind::Text {
        let (takes, other) = (takes.noun(), other.noun());
        return Err(Failure::Other(format!(
            "--data compares models that both read pictures or both read sounds: the reference reads a {takes}, the \
             other model a {other}"
        )));
    }
    let files = media_below(on, takes).map_err(|error| Failure::Other(error.to_string()))?;
    if files.is_empty() {
        let (on, noun, formats) = (on.display(), takes.noun(), takes.formats());
        return Err(Failure::Other(format!(
            "--data {on}: no {noun} there: expected {formats}"
        )));
    }
    Ok(files)
}

/// Adds the answers for a file. Returns whether they are the same, and that of the reference.
fn add(
    models: &mut [AnsweringModel<'_>; 2],
    agreement: &mut AnswerAgreement,
    file: &Path,
) -> Result<(bool, TypedAnswer), Failure> {
    let [reference, other] = models;
    let mine = reference.answer(GivenMedia::File(file))?;
    let its = other.answer(GivenMedia::File(file))?;
    let is_equal = agreement.add(&mine, &its);
    let is_equal =
        is_equal.map_err(|reason| Failure::Other(format!("{}: {reason}", file.display())))?;
    Ok((is_equal, mine))
}

impl CommandReport for AnswerReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        let [reference, other] = self.labels.each_ref().map(|label| defuse_line(label));
        writeln!(text, "reference: {reference}")?;
        writeln!(text, "compared:  {other}")?;
        let mut table = TextTable::new([Align::Left, Align::Right]).indented();
        for figure in &self.figures {
            table.row([figure.name.to_owned(), figure.shown()]);
        }
        let [mine, its] = self.milliseconds;
        table.row(["time".to_owned(), format!("{mine:.1} ms, {its:.1} ms")]);
        write!(text, "{table}")?;
        let (files, equal) = (
            self.files,
            self.files - self.faults.len() - self.different.len(),
        );
        writeln!(text, "{files} files, the same answer for {equal}")?;
        for (word, names) in [("different", &self.different), ("failed", &self.faults)] {
            for name in names.iter().take(SHOWN_FILES) {
                writeln!(text, "{word}: {}", defuse_line(name))?;
            }
            if names.len() > SHOWN_FILES {
                writeln!(text, "{word}: {} more", names.len() - SHOWN_FILES)?;
            }
        }
        for broken in &self.broken {
            writeln!(text, "{}", defuse_line(broken))?;
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        let figures = self.figures.iter();
        let figures = figures.map(|figure| (key(figure.name), json!(figure.value)));
        json!({
            "version": 1,
            "tool_version": env!("CARGO_PKG_VERSION"),
            "reference": self.labels[0],
            "compared": self.labels[1],
            "files": self.files,
            "figures": figures.collect::<Map<String, Json>>(),
            "mean_ms": self.milliseconds,
            "different": self.different,
            "faults": self.faults,
            "beyond_limits": self.broken,
        })
    }
}
