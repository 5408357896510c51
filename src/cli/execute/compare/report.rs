//! What a comparison found, as a document and as a text.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::sides::{GivenInput, Side};
use super::cases::Case;
use super::figures::{FIGURES, figure, figures, write_table};
use super::sizes::{SizeResult, SizesReport};
use crate::engine::ByteSums;
use crate::runtime::precision::Precision;
use crate::runtime::process::sandbox::Sandbox;
use crate::runtime::target::Started;
use crate::source::text::defuse_line;
use crate::tensor::Tensor;
use crate::tensor::agreement::{Agreement, Tolerances, Violation};

/// A comparison of two sides. Version 1 of a contract that only grows.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonReport {
    version: u32,
    /// Whether every output of every case keeps the tolerances.
    pub(super) agrees: bool,
    /// The reference.
    pub(super) a: SideInfo,
    /// What is judged.
    pub(super) b: SideInfo,
    tolerances: Tolerances,
    /// The precision that the tolerances suit; `null` where they were given.
    pub(super) judged: Option<Judged>,
    /// Which sides add up products of 8-bit numbers exactly: `A`, `B`, `both` or `neither`; `null` where a
    /// side has none, or does not say.
    exact_byte_sums: Option<&'static str>,
    /// Each output over all cases.
    outputs: Vec<PooledOutput>,
    /// Each combination of sizes, where sides are compared at several.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<SizesReport>,
    /// Each set of inputs.
    pub(super) cases: Vec<CaseResult>,
}

/// The precision that tolerances suit, and why it is that.
#[derive(Debug, Serialize)]
pub(super) struct Judged {
    precision: String,
    /// `A`, `B` or `both`.
    side: &'static str,
    because: String,
}

/// Most lines of shapes in a text.
const MAX_SHAPES: usize = 4;

/// One side, as it ran.
#[derive(Debug, Serialize)]
pub(super) struct SideInfo {
    /// A few words that tell it from the other.
    pub(super) label: String,
    model: String,
    precision: Option<String>,
    backend: Option<&'static str>,
    engine: &'static str,
    provider: &'static str,
    fallback: bool,
    /// What is to be told of the answers of an engine's own reading of a program.
    pub(super) reading: Option<String>,
    /// How products of 8-bit numbers are added up, if there are any.
    byte_sums: Option<ByteSums>,
    /// The sandbox of its process.
    sandbox: Option<Sandbox>,
}

#[derive(Debug, Serialize)]
struct PooledOutput {
    name: String,
    #[serde(flatten)]
    agreement: Agreement,
}

/// One set of inputs.
#[derive(Debug, Serialize)]
pub(super) struct CaseResult {
    /// What the inputs are.
    pub(super) label: String,
    /// The sizes of open dimensions, where sides are compared at several.
    #[serde(skip)]
    pub(super) sizes: Option<String>,
    /// What A was given, and B.
    pub(super) inputs: [Vec<GivenInput>; 2],
    /// Why it was not compared, if it was not.
    skipped: Option<String>,
    /// What went wrong on one side only.
    pub(super) failure: Option<String>,
    /// Each output.
    pub(super) outputs: Vec<OutputResult>,
}

/// One output in one case.
#[derive(Debug, Serialize)]
pub(super) struct OutputResult {
    /// Its name.
    pub(super) name: String,
    dtype: &'static str,
    shape: Vec<u64>,
    agreement: Option<Agreement>,
    /// Why it could not be compared.
    pub(super) incomparable: Option<String>,
    /// Tolerances that are not kept.
    pub(super) violations: Vec<Violation>,
}

impl SideInfo {
    /// Of a side that runs.
    pub(super) fn of(side: &Side, started: &Started) -> Self {
        let variant = side.selection.variant.as_ref();
        Self {
            label: side.label(started.candidate),
            model: side.selection.model.display().to_string(),
            precision: variant.and_then(|variant| variant.precision.clone()),
            backend: started.backend.map(crate::package::Backend::name),
            engine: started.candidate.engine,
            provider: started.candidate.provider.name(),
            fallback: started.candidate.fallback,
            reading: started
                .candidate
                .reading(&side.selection.info, &side.selection.signature.method)
                .map(|reading| reading.to_string()),
            byte_sums: started.placement.byte_sums,
            sandbox: started.sandbox.clone(),
        }
    }
}

impl SideInfo {
    /// `tract (cpu)`: where it ran.
    pub(super) fn on(&self) -> String {
        format!("{} ({})", self.engine, self.provider)
    }
}

/// Which sides add up products of 8-bit numbers exactly.
fn exact_byte_sums(a: &SideInfo, b: &SideInfo) -> Option<&'static str> {
    Some(match (a.byte_sums?.is_exact(), b.byte_sums?.is_exact()) {
        (true, true) => "both",
        (true, false) => "A",
        (false, true) => "B",
        (false, false) => "neither",
    })
}

impl CaseResult {
    /// Both sides ran.
    pub(super) fn compared(case: &Case, outputs: Vec<OutputResult>) -> Self {
        Self {
            label: case.label.clone(),
            sizes: case.sizes.clone(),
            inputs: [Vec::new(), Vec::new()],
            skipped: None,
            failure: None,
            outputs,
        }
    }

    /// These inputs are not compared, for this reason.
    pub(super) fn skipped(case: &Case, reason: String) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::compared(case, Vec::new())
        }
    }

    /// Only one side runs these inputs.
    pub(super) fn failed(case: &Case, failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::compared(case, Vec::new())
        }
    }

    /// What it says of the sides at its sizes, where they are compared at several.
    fn at_sizes(&self) -> Option<SizeResult> {
        let figures = self.outputs.iter().filter_map(|it| it.agreement.as_ref());
        Some(SizeResult {
            sizes: self.sizes.clone()?,
            agrees: self.agrees() && self.skipped.is_none(),
            figures: Agreement::worst(figures),
            problem: self.failure.clone().or(self.skipped.clone()),
            differs: !self.agrees(),
        })
    }

    fn agrees(&self) -> bool {
        self.failure.is_none() && self.outputs.iter().all(OutputResult::agrees)
    }
}

impl OutputResult {
    /// Both are tensors of one shape.
    pub(super) fn compared(
        name: &str,
        a: &Tensor,
        agreement: Agreement,
        violations: Vec<Violation>,
    ) -> Self {
        Self {
            name: name.to_owned(),
            dtype: a.dtype().name(),
            shape: a.shape().to_vec(),
            agreement: Some(agreement),
            incomparable: None,
            violations,
        }
    }

    /// They differ in shape or kind.
    pub(super) fn incomparable(name: &str, a: &Tensor, reason: String) -> Self {
        Self {
            name: name.to_owned(),
            dtype: a.dtype().name(),
            shape: a.shape().to_vec(),
            agreement: None,
            incomparable: Some(reason),
            violations: Vec::new(),
        }
    }

    fn agrees(&self) -> bool {
        self.violations.is_empty() && self.incomparable.is_none()
    }
}

impl ComparisonReport {
    /// Of both sides, each output over all cases, and all cases.
    pub(super) fn new(
        a: SideInfo,
        b: SideInfo,
        tolerances: Tolerances,
        outputs: Vec<(String, Agreement)>,
        cases: Vec<CaseResult>,
    ) -> Self {
        let compared = cases.iter().any(|case| !case.outputs.is_empty());
        Self {
            version: 1,
            // Where nothing could be compared, nothing was shown to agree.
            agrees: compared && cases.iter().all(CaseResult::agrees),
            exact_byte_sums: exact_byte_sums(&a, &b),
            a,
            b,
            tolerances,
            judged: None,
            outputs: outputs
                .into_iter()
                .map(|(name, agreement)| PooledOutput { name, agreement })
                .collect(),
            sizes: SizesReport::of(cases.iter().filter_map(CaseResult::at_sizes)),
            cases,
        }
    }

    /// The document, with a line end.
    pub(super) fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        // Infinite errors become null, as everywhere in JSON.
        text.expect("strings, numbers and lists can be written") + "\n"
    }

    /// The text, with a line end.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        for (place, (name, side)) in [("A", &self.a), ("B", &self.b)].into_iter().enumerate() {
            writeln!(text, "{name}  {}", defuse_line(&side.label))?;
            if let Some(reading) = &side.reading {
                writeln!(text, "   {reading}")?;
            }
            if let Some(sums) = side.byte_sums {
                writeln!(text, "   {sums}")?;
            }
            self.shapes(text, place)?;
        }
        let rows = self.outputs.iter().map(|output| {
            let mut row = vec![defuse_line(&output.name)];
            row.extend(figures(&output.agreement));
            row
        });
        let head = ["output"].into_iter().chain(FIGURES);
        let head = head.map(str::to_owned).collect();
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        write_table(text, &rows, |column| column > 0)?;
        if let Some(sizes) = &self.sizes {
            sizes.write(text)?;
        }
        for line in self.complaints() {
            writeln!(text, "{line}")?;
        }
        if let Some(line) = self.byte_sums_line() {
            writeln!(text, "{line}")?;
        }
        if let Some(judged) = &self.judged {
            writeln!(text, "{judged}")?;
        }
        let cases = self.compared_cases();
        let s = if cases == 1 { "" } else { "s" };
        let verdict = if self.agrees { "agree" } else { "differ" };
        writeln!(
            text,
            "A and B {verdict} on {cases} set{s} of inputs ({})",
            demands(&self.tolerances)
        )
    }
}

impl ComparisonReport {
    /// The worst figures of all outputs.
    pub(super) fn worst(&self) -> Option<Agreement> {
        Agreement::worst(self.outputs.iter().map(|output| &output.agreement))
    }

    /// How many sets of inputs were compared.
    pub(super) fn compared_cases(&self) -> usize {
        let cases = self.cases.iter();
        cases.filter(|case| !case.outputs.is_empty()).count()
    }

    /// The shapes that a side was run on, a line each.
    pub(super) fn shape_lines(&self, side: usize) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for case in &self.cases {
            let line = GivenInput::line(&case.inputs[side]);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        lines
    }

    /// What is wrong with it, a line each.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for case in &self.cases {
            let label = defuse_line(&case.label);
            if let Some(reason) = &case.skipped {
                // Without inputs nothing ran.
                let told = if case.inputs[0].is_empty() {
                    "not compared"
                } else {
                    "not compared, neither side runs it"
                };
                lines.push(format!("{label}: {told}: {reason}"));
            }
            lines.extend(case.failure.iter().map(|text| format!("{label}: {text}")));
            let sentences = case.outputs.iter().flat_map(OutputResult::complaints);
            lines.extend(sentences.map(|sentence| format!("{label}: {sentence}")));
        }
        lines
    }

    /// Which side is exact, where the sides differ.
    fn byte_sums_line(&self) -> Option<&'static str> {
        if self.agrees {
            return None;
        }
        Some(match self.exact_byte_sums? {
            "A" => "the 8-bit sums of A are exact, those of B saturate",
            "B" => "the 8-bit sums of B are exact, those of A saturate",
            "both" => "the 8-bit sums of both sides are exact: they differ in how they round",
            _ => "the 8-bit sums of both sides saturate",
        })
    }

    /// What is demanded, and of which precision that is.
    pub(super) fn demands(&self) -> String {
        match &self.judged {
            Some(judged) => judged.precision.clone(),
            None => demands(&self.tolerances),
        }
    }

    /// The shapes that a side was run on.
    fn shapes(&self, text: &mut String, side: usize) -> std::fmt::Result {
        let lines = self.shape_lines(side);
        for line in lines.iter().take(MAX_SHAPES) {
            writeln!(text, "   on {line}")?;
        }
        match lines.len().saturating_sub(MAX_SHAPES) {
            0 => Ok(()),
            more => writeln!(text, "   and {more} other shapes"),
        }
    }
}

impl Judged {
    /// As `side`, which has this precision.
    pub(super) fn new(side: &'static str, precision: &Precision) -> Self {
        Self {
            precision: precision.token.clone(),
            side,
            because: precision.because.clone(),
        }
    }
}

/// `judged as int8, as B is: its config says so`.
impl std::fmt::Display for Judged {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (precision, because) = (defuse_line(&self.precision), defuse_line(&self.because));
        let who = match self.side {
            "both" => "both are",
            "A" => "A is",
            _ => "B is",
        };
        write!(f, "judged as {precision}, as {who}: {because}")
    }
}

impl OutputResult {
    /// One sentence a fault.
    pub(super) fn complaints(&self) -> Vec<String> {
        let name = defuse_line(&self.name);
        let incomparable = self.incomparable.iter();
        let incomparable = incomparable.map(|reason| format!("output `{name}`: {reason}"));
        let violations = self.violations.iter().map(|violation| {
            format!(
                "output `{name}`: {} is {}, the limit is {}",
                violation.figure.replace('-', " "),
                figure(Some(violation.value)),
                figure(Some(violation.limit))
            )
        });
        incomparable.chain(violations).collect()
    }
}

fn demands(tolerances: &Tolerances) -> String {
    let demands = [
        ("max rel", tolerances.max_rel),
        ("max abs", tolerances.max_abs),
        ("min cosine", tolerances.min_cosine),
        ("min SNR", tolerances.min_snr_db),
        ("min top-1", tolerances.min_top1),
    ];
    let texts = demands
        .iter()
        .filter_map(|(name, limit)| Some(format!("{name} {}", figure(Some((*limit)?)))));
    texts.collect::<Vec<_>>().join(", ")
}
