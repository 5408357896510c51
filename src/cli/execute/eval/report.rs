//! The result of an evaluation as a table, as Markdown and as a JSON document.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value as Json, json};

use super::super::limits::{LimitArgs, key};
use super::EvalSide;
use super::model::EvalModel;
use crate::cli::exit::Failure;
use crate::cli::report::{CommandReport, file_size};
use pkgtool_base::diagnostic::{Align, TextTable};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::statistics::Times;
use pkgtool_eval::{EvalDataset, EvalTask, Figure};

/// Number of faults that the table shows for a variant.
const SHOWN_FAULTS: usize = 5;

/// An evaluation. Version 1 of the document; later versions only add fields.
#[derive(Debug)]
pub(super) struct EvalReport {
    dataset: String,
    layout: String,
    items: usize,
    task: EvalTask,
    rows: Vec<EvalRow>,
    /// Figures beyond their limits, for people.
    broken: Vec<String>,
}

/// An item that was not answered.
#[derive(Debug, Serialize)]
pub(super) struct ItemFault {
    /// The item's name.
    pub(super) item: String,
    /// What is wrong.
    pub(super) reason: String,
}

/// A variant of an evaluation.
#[derive(Debug, Default)]
pub(super) struct EvalRow {
    label: String,
    precision: Option<String>,
    backend: Option<&'static str>,
    engine: Option<String>,
    recipe: Option<Json>,
    figures: Vec<Figure>,
    times: Option<Times>,
    bytes: Option<u64>,
    /// Number of items that were answered, and of those among them that an earlier evaluation has answered.
    answered: (usize, usize),
    faults: Vec<ItemFault>,
    /// Why the variant was not evaluated.
    pub(super) failure: Option<String>,
}

impl EvalRow {
    /// Creates the row of a variant that was evaluated.
    pub(super) fn new(
        model: &EvalModel<'_>,
        figures: Vec<Figure>,
        times: Option<Times>,
        answered: (usize, usize),
        faults: Vec<ItemFault>,
    ) -> Self {
        let variant = model.selection().variant.as_ref();
        let sizes = model.files().into_iter().map(fs::metadata);
        let sizes: Result<Vec<u64>, _> = sizes.map(|it| it.map(|it| it.len())).collect();
        let recipe = model.recipe();
        Self {
            label: model.label(),
            precision: variant.and_then(|variant| variant.precision.clone()),
            backend: variant
                .and_then(|variant| variant.backend)
                .map(pkgtool_base::package::Backend::name),
            engine: model.started().map(|started| started.candidate.to_string()),
            recipe: recipe
                .map(|it| json!({ "name": it.name, "file": it.file, "values": it.values })),
            figures,
            times,
            bytes: sizes.ok().map(|sizes| sizes.iter().sum()),
            answered,
            faults,
            failure: None,
        }
    }

    /// Creates the row of a variant that does not run.
    pub(super) fn failed(side: &EvalSide, reason: &str) -> Self {
        let precision = side.precision.as_deref().unwrap_or("(no precision)");
        let label = match side.backend {
            Some(backend) => format!("{precision} for {backend}"),
            None => precision.to_owned(),
        };
        Self {
            label,
            precision: side.precision.clone(),
            backend: side.backend.map(pkgtool_base::package::Backend::name),
            failure: Some(reason.to_owned()),
            ..Self::default()
        }
    }

    fn document(&self) -> Json {
        let figures = self.figures.iter();
        let figures = figures.map(|figure| (key(figure.name), json!(figure.value)));
        json!({
            "label": self.label,
            "precision": self.precision,
            "backend": self.backend,
            "engine": self.engine,
            "recipe": self.recipe,
            "figures": figures.collect::<Map<String, Json>>(),
            "times": self.times,
            "bytes": self.bytes,
            "items": self.answered.0,
            "continued": self.answered.1,
            "faults": self.faults,
            "failure": self.failure,
        })
    }

    fn cells(&self, names: &[&str]) -> Vec<String> {
        let figures = names.iter().map(|name| {
            let figure = self.figures.iter().find(|figure| figure.name == *name);
            figure.map_or_else(|| "-".to_owned(), Figure::shown)
        });
        let time = |of: fn(&Times) -> f64| {
            let time = self.times.as_ref().map(of);
            time.map_or_else(|| "-".to_owned(), |time| format!("{time:.1} ms"))
        };
        let size = self.bytes.map(file_size);
        let mut cells = vec![defuse_line(&self.label)];
        cells.extend(figures);
        cells.extend([
            time(|times| times.p50_ms),
            time(|times| times.p90_ms),
            size.unwrap_or_else(|| "-".to_owned()),
            self.answered.0.to_string(),
        ]);
        cells
    }

    /// Describes what the figures do not show.
    fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        if let Some(engine) = &self.engine {
            remarks.push(format!("on {engine}"));
        }
        let (_, continued) = self.answered;
        if continued > 0 {
            remarks.push(format!("{continued} items of an earlier evaluation"));
        }
        if let Some(reason) = &self.failure {
            remarks.push(format!("not evaluated: {reason}"));
        }
        if !self.faults.is_empty() {
            remarks.push(format!(
                "{} items failed and do not count",
                self.faults.len()
            ));
        }
        let shown = self.faults.iter().take(SHOWN_FAULTS);
        remarks.extend(shown.map(|fault| fault.reason.clone()));
        if self.faults.len() > SHOWN_FAULTS {
            let more = self.faults.len() - SHOWN_FAULTS;
            remarks.push(format!("{more} more: see `faults` of `--json`"));
        }
        remarks
    }
}

impl EvalReport {
    /// Creates the report, and checks the figures against their limits.
    pub(super) fn new(
        path: &Path,
        dataset: &EvalDataset,
        task: EvalTask,
        rows: Vec<EvalRow>,
        limits: &LimitArgs,
    ) -> Result<Self, Failure> {
        let figures = rows.iter().flat_map(|row| {
            let figures = row.figures.iter();
            figures.map(|figure| (row.label.as_str(), figure))
        });
        let broken = limits.broken(&figures.collect::<Vec<_>>())?;
        Ok(Self {
            dataset: path.display().to_string(),
            layout: dataset.layout.clone(),
            items: dataset.items.len(),
            task,
            rows,
            broken,
        })
    }

    /// Returns whether a variant was evaluated.
    pub(super) fn has_evaluated(&self) -> bool {
        self.rows.iter().any(|row| row.answered.0 > 0)
    }

    /// Returns whether nothing failed and every figure is within its limit.
    pub(super) fn is_clean(&self) -> bool {
        let is_clean = |row: &EvalRow| row.failure.is_none() && row.faults.is_empty();
        self.broken.is_empty() && self.rows.iter().all(is_clean)
    }

    /// Returns the Markdown table with a final newline.
    pub(super) fn to_markdown(&self) -> String {
        let mut text = format!("{}:\n\n{}", self.title(), self.table().to_markdown());
        for (places, remark) in self.remarks() {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n- {places}: {}", defuse_line(&remark));
        }
        text + "\n"
    }

    /// Returns the remarks on rows, with the numbers of the rows that they are about.
    fn remarks(&self) -> Vec<(String, String)> {
        let mut remarks: Vec<(String, String)> = Vec::new();
        for (place, row) in self.rows.iter().enumerate() {
            for remark in row.remarks() {
                match remarks.iter_mut().find(|(_, known)| *known == remark) {
                    Some((places, _)) => places.extend([", ".to_owned(), (place + 1).to_string()]),
                    None => remarks.push(((place + 1).to_string(), remark)),
                }
            }
        }
        remarks
    }

    fn title(&self) -> String {
        let (path, layout) = (defuse_line(&self.dataset), defuse_line(&self.layout));
        format!("{} items of {path} ({layout})", self.items)
    }

    fn table(&self) -> TextTable {
        let mut names: Vec<&str> = Vec::new();
        for figure in self.rows.iter().flat_map(|row| &row.figures) {
            if !names.contains(&figure.name) {
                names.push(figure.name);
            }
        }
        let numbers = names.len() + 4;
        let aligns = [Align::Right, Align::Left].into_iter();
        let aligns = aligns.chain(std::iter::repeat_n(Align::Right, numbers));
        let mut table = TextTable::new(aligns).indented();
        let head = ["", "variant"].into_iter().chain(names.iter().copied());
        table.row(head.chain(["p50", "p90", "size", "items"]));
        for (place, row) in self.rows.iter().enumerate() {
            let number = [(place + 1).to_string()].into_iter();
            table.row(number.chain(row.cells(&names)));
        }
        table
    }
}

impl CommandReport for EvalReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "{}", self.title())?;
        write!(text, "{}", self.table())?;
        for (places, remark) in self.remarks() {
            writeln!(text, "{places}: {}", defuse_line(&remark))?;
        }
        for broken in &self.broken {
            writeln!(text, "{}", defuse_line(broken))?;
        }
        Ok(())
    }

    fn document(&self) -> impl Serialize {
        json!({
            "version": 1,
            "tool_version": env!("CARGO_PKG_VERSION"),
            "dataset": { "path": self.dataset, "layout": self.layout, "items": self.items },
            "task": self.task,
            "variants": self.rows.iter().map(EvalRow::document).collect::<Vec<_>>(),
            "beyond_limits": self.broken,
        })
    }
}
