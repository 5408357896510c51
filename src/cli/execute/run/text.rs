//! The result of `run` as text for people.

use std::fmt::Write as _;
use std::time::Duration;

use super::{CompletedRun, RunView};
use crate::cli::execute::sides::{pinned_text, what};
use pkgtool_base::diagnostic::TextTable;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::Placement;
use pkgtool_engine::runtime::process::sandbox::SandboxLevel;
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::npy::BFLOAT16_NOTE;
use pkgtool_engine::tensor::{DType, Summary, Tensor, TensorSpec};

/// Returns the text with a final newline.
pub(super) fn render(stages: &[CompletedRun]) -> String {
    let mut text = String::new();
    for (place, stage) in stages.iter().enumerate() {
        if place > 0 {
            text.push('\n');
        }
        // Writing to a string cannot fail.
        let _ = write(&mut text, stage);
    }
    text
}

/// Names the model and the engine that ran it.
pub(super) fn ran(selection: &Selection, started: &Started) -> String {
    format!("{}, {}", defuse_line(&what(selection)), place(started))
}

/// Names the engine, and the device if it is not this machine.
fn place(started: &Started) -> String {
    let fallback = if started.candidate.fallback {
        " as a fallback"
    } else {
        ""
    };
    let device = started
        .worker
        .device()
        .map(|device| format!(" on {device}"));
    let device = device.unwrap_or_default();
    format!("on {}{fallback}{}", started.candidate, defuse_line(&device))
}

/// Maximum number of feeds that are listed.
const MAX_FEEDS: usize = 4;

fn head(text: &mut String, stage: &CompletedRun) -> std::fmt::Result {
    let started = &stage.started;
    let signature = &stage.selection.signature;
    writeln!(
        text,
        "{}, method {}, {}",
        defuse_line(&what(&stage.selection)),
        defuse_line(&signature.method),
        place(started)
    )?;
    if let Some(reading) = stage.reading() {
        writeln!(text, "  {reading}")?;
    }
    if let Some(sums) = started.placement.byte_sums {
        writeln!(text, "  {sums}")?;
    }
    if let Some(cores) = &started.pinned_cores {
        writeln!(text, "  {}", pinned_text(cores))?;
    }
    match &started.sandbox {
        Some(sandbox) if sandbox.level != SandboxLevel::Full => {
            writeln!(text, "  sandbox: {sandbox}")
        }
        _ => Ok(()),
    }
}

fn write(text: &mut String, stage: &CompletedRun) -> std::fmt::Result {
    let started = &stage.started;
    head(text, stage)?;
    placement(text, &started.placement)?;
    values(text, &stage.shown())?;
    let again = stage
        .second_run_time
        .map_or_else(String::new, |time| format!(", run {}", shown(time)));
    writeln!(
        text,
        "load {}, first run {}{again}",
        shown(started.load_time),
        shown(started.first_answer.time)
    )?;
    match &stage.profile {
        Some(profile) => profile.report(started).write(text),
        None => Ok(()),
    }
}

/// Renders several steps: the session, the feeds, then each step.
pub(super) fn render_steps(
    stage: &CompletedRun,
    feeds: &[(String, String)],
    steps: &[String],
) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = head(&mut text, stage);
    let _ = placement(&mut text, &stage.started.placement);
    let names = feeds
        .iter()
        .take(MAX_FEEDS)
        .map(|(output, input)| format!("{} → {}", defuse_line(output), defuse_line(input)));
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        let more = match feeds.len().saturating_sub(MAX_FEEDS) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let _ = writeln!(
            text,
            "  each step feeds the next: {}{more}",
            names.join(", ")
        );
    }
    for step in steps {
        text.push_str(step);
    }
    let _ = writeln!(text, "load {}", shown(stage.started.load_time));
    text
}

/// Renders step `number`.
pub(super) fn step(number: usize, values_of: &RunView<'_>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "step {number}, {}", shown(values_of.time));
    let _ = values(&mut text, values_of);
    text
}

fn values(text: &mut String, shown: &RunView<'_>) -> std::fmt::Result {
    tensors(text, "inputs", &shown.signature.inputs, shown.inputs)?;
    tensors(text, "outputs", &shown.signature.outputs, shown.outputs)?;
    for (file, tensor) in shown.files.iter().zip(shown.outputs) {
        let note = match tensor.dtype() {
            DType::Bfloat16 => format!(" ({BFLOAT16_NOTE})"),
            _ => String::new(),
        };
        writeln!(
            text,
            "  wrote {}{note}",
            defuse_line(&file.display().to_string())
        )?;
    }
    Ok(())
}

fn placement(text: &mut String, placement: &Placement) -> std::fmt::Result {
    for share in &placement.shares {
        writeln!(
            text,
            "  {}: {} nodes ({:.0}%), {:.0}% of the time",
            share.provider,
            share.nodes,
            share.node_share * 100.0,
            share.time_share * 100.0
        )?;
    }
    Ok(())
}

fn tensors(
    text: &mut String,
    title: &str,
    specs: &[TensorSpec],
    tensors: &[Tensor],
) -> std::fmt::Result {
    writeln!(text, "{title}")?;
    let mut table = TextTable::of_text(2).indented();
    for (spec, tensor) in specs.iter().zip(tensors) {
        table.row([defuse_line(&spec.name), Summary::of(tensor).to_string()]);
    }
    write!(text, "{table}")
}

/// Formats a time in a suitable unit.
pub(super) fn shown(time: Duration) -> String {
    let milliseconds = time.as_secs_f64() * 1000.0;
    if milliseconds >= 1000.0 {
        format!("{:.2} s", milliseconds / 1000.0)
    } else {
        format!("{milliseconds:.2} ms")
    }
}
