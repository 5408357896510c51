//! Answers as text for people.

use std::fmt::Write as _;

use super::super::text;
use super::Answered;
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_media::answer::{BoxAnswer, LineAnswer, SegmentAnswer, TranscriptAnswer, TypedAnswer};

/// Width of a bar of 100 percent, in characters.
const BAR_WIDTH: f64 = 20.0;

/// Number of a vector's first values that are shown.
const SHOWN_VALUES: usize = 8;

/// Returns the text with a final newline.
pub(super) fn render(answered: &Answered<'_>) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, answered);
    out
}

fn write(out: &mut String, answered: &Answered<'_>) -> std::fmt::Result {
    let (model, started) = (&answered.model, answered.started());
    let recipe = model.recipe();
    writeln!(out, "{}", text::ran(&model.choice.selection, started))?;
    writeln!(
        out,
        "recipe {}: {}",
        defuse_line(&recipe.name),
        defuse_line(&recipe.summary)
    )?;
    match &answered.answer {
        TypedAnswer::Labels(answer) => {
            let mut table = TextTable::new([Align::Left, Align::Right, Align::Left]).indented();
            for label in &answer.labels {
                let score = f64::from(label.score);
                table.row([defuse_line(&label.label), percent(score), bar(score)]);
            }
            write!(out, "{table}")?;
            source(out, &answer.label_source)?;
        }
        TypedAnswer::Vector(answer) => {
            let values = answer.vector.iter().take(SHOWN_VALUES);
            let values: Vec<String> = values.map(|value| format!("{value:.4}")).collect();
            let more = if answer.vector.len() > SHOWN_VALUES {
                ", …"
            } else {
                ""
            };
            writeln!(
                out,
                "  {} numbers: [{}{more}]",
                answer.vector.len(),
                values.join(", ")
            )?;
        }
        TypedAnswer::Boxes(answer) => boxes(out, answer)?,
        TypedAnswer::Classes(answer) => {
            let mut table = TextTable::new([Align::Left, Align::Right, Align::Left]).indented();
            for class in &answer.classes {
                table.row([
                    defuse_line(&class.label),
                    percent(class.share),
                    bar(class.share),
                ]);
            }
            write!(out, "{table}")?;
            source(out, &answer.label_source)?;
        }
        TypedAnswer::Lines(answer) => lines(out, answer)?,
        TypedAnswer::Segments(answer) => segments(out, answer)?,
        TypedAnswer::Transcript(answer) => transcript(out, answer)?,
        TypedAnswer::Speech(answer) => {
            let (seconds, rate) = (answer.seconds(), answer.rate);
            let phonemes = defuse_line(&answer.phonemes);
            let hint = save_hint(answered);
            writeln!(
                out,
                "  {phonemes}\n  speech of {seconds:.2} s, {rate} samples per second{hint}"
            )?;
        }
        TypedAnswer::Text(answer) => {
            let text = defuse_line(&answer.text);
            writeln!(out, "  {text}  {}", percent(answer.score))?;
            source(out, &answer.label_source)?;
        }
        TypedAnswer::Reply(answer) => {
            for line in answer.text.lines() {
                writeln!(out, "  {}", defuse_line(line))?;
            }
        }
        TypedAnswer::Picture(answer) => {
            let (width, height) = answer.picture.dimensions();
            let hint = save_hint(answered);
            writeln!(out, "  a picture of {width} x {height} pixels{hint}")?;
        }
    }
    if let Some(second) = answered.second() {
        writeln!(
            out,
            "read by {}{}",
            text::ran(second.selection, second.started),
            second.recipe.map_or_else(String::new, |recipe| {
                format!(", recipe {}", defuse_line(&recipe.name))
            })
        )?;
    }
    if let Some(file) = &answered.saved {
        writeln!(out, "saved {}", defuse_line(&file.display().to_string()))?;
    }
    let load = text::shown(started.load_time);
    write!(out, "load {load}, run {}", text::shown(model.first.time))?;
    if model.first.runs > 1 {
        write!(out, " in {} runs", model.first.runs)?;
    }
    if let Some(second) = answered.second() {
        let load = text::shown(second.started.load_time);
        let time = text::shown(second.model.time);
        write!(out, ", load {load}, read {time}")?;
    }
    writeln!(out)
}

fn save_hint(answered: &Answered<'_>) -> &'static str {
    if answered.saved.is_some() {
        ""
    } else {
        "; `--save FILE` writes it"
    }
}

/// Writes the objects of a picture.
fn boxes(out: &mut String, answer: &BoxAnswer) -> std::fmt::Result {
    let mut table =
        TextTable::new([Align::Left, Align::Right, Align::Left, Align::Left]).indented();
    for object in &answer.boxes {
        let [left, top, right, bottom] = object.corners;
        let mask = object.mask.as_ref().map_or_else(String::new, |mask| {
            let pixels = mask
                .mask
                .as_raw()
                .iter()
                .filter(|value| **value > 0)
                .count();
            format!("mask of {pixels} pixels")
        });
        let place = format!("{left:.0}, {top:.0} to {right:.0}, {bottom:.0}");
        table.row([
            defuse_line(&object.label),
            percent(object.score),
            place,
            mask,
        ]);
    }
    if answer.boxes.is_empty() {
        writeln!(
            out,
            "  nothing found; `--set threshold=0.1` shows weaker objects"
        )?;
    }
    write!(out, "{table}")?;
    source(out, &answer.label_source)
}

/// Writes the words of a sound with their times.
fn transcript(out: &mut String, answer: &TranscriptAnswer) -> std::fmt::Result {
    let mut table = TextTable::new([Align::Right, Align::Left, Align::Left]).indented();
    for segment in &answer.segments {
        let [start, end] = [segment.start, segment.end].map(|time| format!("{time:.2} s"));
        table.row([start, format!("to {end}"), defuse_line(segment.text.trim())]);
    }
    if answer.segments.is_empty() {
        writeln!(out, "  no words found")?;
    }
    let (language, seconds) = (defuse_line(&answer.language), answer.seconds);
    writeln!(out, "{table}  language {language}, {seconds:.2} s")
}

/// Writes the segments of a sound.
fn segments(out: &mut String, answer: &SegmentAnswer) -> std::fmt::Result {
    let mut table = TextTable::new([Align::Right, Align::Right, Align::Right]).indented();
    for segment in &answer.segments {
        table.row([
            format!("{:.2} s", segment.start),
            format!("to {:.2} s", segment.end),
            percent(segment.score),
        ]);
    }
    if answer.segments.is_empty() {
        writeln!(
            out,
            "  nothing found; `--set threshold=0.3` shows weaker segments"
        )?;
    }
    let (sum, all) = (answer.sum(), answer.seconds);
    writeln!(out, "{table}  {sum:.2} s of {all:.2} s")
}

/// Writes the lines of a picture: their texts, or else their places.
fn lines(out: &mut String, answer: &LineAnswer) -> std::fmt::Result {
    if answer.lines.is_empty() {
        writeln!(
            out,
            "  nothing found; `--set threshold=0.3` shows weaker lines"
        )?;
    }
    let mut table = TextTable::new([Align::Left, Align::Right, Align::Left]).indented();
    for line in &answer.lines {
        let [left, top, right, bottom] = line.quad.bounds();
        let place = format!("{left:.0}, {top:.0} to {right:.0}, {bottom:.0}");
        let (text, score) = match &line.read {
            Some(read) => (defuse_line(&read.text), read.score),
            None => ("line".to_owned(), line.score),
        };
        table.row([text, percent(score), place]);
    }
    write!(out, "{table}")
}

fn source(out: &mut String, source: &str) -> std::fmt::Result {
    writeln!(out, "labels: {}", defuse_line(source))
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a bar is short"
)]
pub(super) fn bar(share: f64) -> String {
    "█".repeat((share.clamp(0.0, 1.0) * BAR_WIDTH).round() as usize)
}
