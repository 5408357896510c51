//! The result of a comparison as a JSON document and as text.

use std::fmt::Write as _;

use serde::Serialize;

use super::super::sides::{ExecutionSide, ExecutionSideEngine, GivenInput};
use super::cases::InputSet;
use super::figures::{self, format_figure, format_figures};
use super::sizes::{SizeResult, SizesReport};
use crate::cli::report::CommandReport;
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::precision::Precision;
use pkgtool_engine::runtime::target::Started;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::tensor::agreement::{Agreement, ToleranceViolation, Tolerances};

/// A comparison of two sides. Version 1 of the document; later versions only add fields.
#[derive(Debug, Serialize)]
pub(super) struct ComparisonReport {
    version: u32,
    /// Set if every output of every case is within the tolerances.
    pub(super) agrees: bool,
    /// The reference.
    pub(super) a: SideInfo,
    /// The side that is compared with the reference.
    pub(super) b: SideInfo,
    tolerances: Tolerances,
    /// The precision that the default tolerances are for; `null` if the user gave tolerances.
    pub(super) judged: Option<JudgedPrecision>,
    /// The sides that sum products of 8-bit numbers exactly: `A`, `B`, `both` or `neither`. `null`
    /// if a side has no such products or does not report it.
    exact_byte_sums: Option<&'static str>,
    /// Each output, summarized over all cases.
    outputs: Vec<PooledOutput>,
    /// Each combination of sizes, if several are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    sizes: Option<SizesReport>,
    /// Each input set.
    pub(super) cases: Vec<CaseResult>,
}

/// The precision that tolerances are for, and the reason.
#[derive(Debug, Serialize)]
pub(super) struct JudgedPrecision {
    precision: String,
    /// The side with this precision: `A`, `B` or `both`.
    side: &'static str,
    because: String,
}

/// Maximum number of lines with shapes in the text.
const MAX_SHAPE_LINES: usize = 4;

/// One side, with the engine that ran it.
#[derive(Debug, Serialize)]
pub(super) struct SideInfo {
    /// A short label that distinguishes the side from the other.
    pub(super) label: String,
    model: String,
    precision: Option<String>,
    backend: Option<&'static str>,
    #[serde(flatten)]
    pub(super) engine: ExecutionSideEngine,
}

#[derive(Debug, Serialize)]
struct PooledOutput {
    name: String,
    #[serde(flatten)]
    agreement: Agreement,
}

/// The result for one input set.
#[derive(Debug, Serialize)]
pub(super) struct CaseResult {
    /// Label of the input set.
    pub(super) label: String,
    /// The sizes of dynamic dimensions, if several are compared.
    #[serde(skip)]
    pub(super) sizes: Option<String>,
    /// The inputs of A, and those of B.
    pub(super) inputs: [Vec<GivenInput>; 2],
    /// The reason why the set was skipped.
    skipped: Option<String>,
    /// An error that occurred on one side only.
    pub(super) failure: Option<String>,
    /// The result for each output.
    pub(super) outputs: Vec<OutputResult>,
}

/// The result for one output in one case.
#[derive(Debug, Serialize)]
pub(super) struct OutputResult {
    /// Name of the output.
    pub(super) name: String,
    dtype: &'static str,
    shape: Vec<u64>,
    agreement: Option<Agreement>,
    /// The reason why the output could not be compared.
    pub(super) incomparable: Option<String>,
    /// Violated tolerances.
    pub(super) violations: Vec<ToleranceViolation>,
}

impl SideInfo {
    /// Creates the description of a running side.
    pub(super) fn of(side: &ExecutionSide, started: &Started) -> Self {
        let variant = side.selection.variant.as_ref();
        Self {
            label: side.label(started.candidate),
            model: side.selection.model.display().to_string(),
            precision: variant.and_then(|variant| variant.precision.clone()),
            backend: started.backend.map(pkgtool_base::package::Backend::name),
            engine: ExecutionSideEngine::of(side, started),
        }
    }
}

/// Returns which sides sum products of 8-bit numbers exactly.
fn exact_byte_sums(a: &SideInfo, b: &SideInfo) -> Option<&'static str> {
    Some(
        match (
            a.engine.byte_sums?.is_exact(),
            b.engine.byte_sums?.is_exact(),
        ) {
            (true, true) => "both",
            (true, false) => "A",
            (false, true) => "B",
            (false, false) => "neither",
        },
    )
}

impl CaseResult {
    /// Creates the result of a case that both sides ran.
    pub(super) fn compared(case: &InputSet, outputs: Vec<OutputResult>) -> Self {
        Self {
            label: case.label.clone(),
            sizes: case.sizes.clone(),
            inputs: [Vec::new(), Vec::new()],
            skipped: None,
            failure: None,
            outputs,
        }
    }

    /// Creates the result of a case that was skipped for this reason.
    pub(super) fn skipped(case: &InputSet, reason: String) -> Self {
        Self {
            skipped: Some(reason),
            ..Self::compared(case, Vec::new())
        }
    }

    /// Creates the result of a case that only one side ran.
    pub(super) fn failed(case: &InputSet, failure: String) -> Self {
        Self {
            failure: Some(failure),
            ..Self::compared(case, Vec::new())
        }
    }

    /// Returns the result for the sizes of this case, if several are compared.
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
    /// Creates the result of two tensors with the same shape.
    pub(super) fn compared(
        name: &str,
        a: &Tensor,
        agreement: Agreement,
        violations: Vec<ToleranceViolation>,
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

    /// Creates the result of two tensors with different shapes or types.
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

impl CommandReport for ComparisonReport {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        for (place, (name, side)) in [("A", &self.a), ("B", &self.b)].into_iter().enumerate() {
            writeln!(text, "{name}  {}", defuse_line(&side.label))?;
            side.engine.write_remarks(text)?;
            self.shapes(text, place)?;
        }
        let mut table = figures::table("output");
        for output in &self.outputs {
            let name = [defuse_line(&output.name)];
            table.row(name.into_iter().chain(format_figures(&output.agreement)));
        }
        write!(text, "{table}")?;
        if let Some(sizes) = &self.sizes {
            sizes.write(text)?;
        }
        for line in self.problem_lines() {
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
            format_tolerances(&self.tolerances)
        )
    }

    fn document(&self) -> impl Serialize {
        self
    }
}

impl ComparisonReport {
    /// Creates the report from both sides and all cases.
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
            // A comparison without a compared case does not agree.
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
}

impl ComparisonReport {
    /// Returns the worst figures of all outputs.
    pub(super) fn worst(&self) -> Option<Agreement> {
        Agreement::worst(self.outputs.iter().map(|output| &output.agreement))
    }

    /// Returns the number of input sets that were compared.
    pub(super) fn compared_cases(&self) -> usize {
        let cases = self.cases.iter();
        cases.filter(|case| !case.outputs.is_empty()).count()
    }

    /// Returns the input shapes of a side, one line each.
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

    /// Returns the problems of the comparison, one line each.
    pub(super) fn problem_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for case in &self.cases {
            let label = defuse_line(&case.label);
            if let Some(reason) = &case.skipped {
                // A case without inputs never ran.
                let told = if case.inputs[0].is_empty() {
                    "not compared"
                } else {
                    "not compared, neither side can run it"
                };
                lines.push(format!("{label}: {told}: {reason}"));
            }
            lines.extend(case.failure.iter().map(|text| format!("{label}: {text}")));
            let sentences = case.outputs.iter().flat_map(OutputResult::complaints);
            lines.extend(sentences.map(|sentence| format!("{label}: {sentence}")));
        }
        lines
    }

    /// Returns a line about exact and saturating 8-bit sums, if the sides differ.
    fn byte_sums_line(&self) -> Option<&'static str> {
        if self.agrees {
            return None;
        }
        Some(match self.exact_byte_sums? {
            "A" => "the 8-bit sums of A are exact, those of B saturate",
            "B" => "the 8-bit sums of B are exact, those of A saturate",
            "both" => "the 8-bit sums of both sides are exact, but rounded differently",
            _ => "the 8-bit sums of both sides saturate",
        })
    }

    /// Describes the tolerances and the precision that they are for.
    pub(super) fn tolerance_text(&self) -> String {
        match &self.judged {
            Some(judged) => judged.precision.clone(),
            None => format_tolerances(&self.tolerances),
        }
    }

    /// Writes the input shapes of a side.
    fn shapes(&self, text: &mut String, side: usize) -> std::fmt::Result {
        let lines = self.shape_lines(side);
        for line in lines.iter().take(MAX_SHAPE_LINES) {
            writeln!(text, "   on {line}")?;
        }
        match lines.len().saturating_sub(MAX_SHAPE_LINES) {
            0 => Ok(()),
            more => writeln!(text, "   and {more} other shapes"),
        }
    }
}

impl JudgedPrecision {
    /// Creates the judgement for the precision of `side`.
    pub(super) fn new(side: &'static str, precision: &Precision) -> Self {
        Self {
            precision: precision.token.clone(),
            side,
            because: precision.because.clone(),
        }
    }
}

/// Formats as `judged as int8, as B is: its config says so`.
impl std::fmt::Display for JudgedPrecision {
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
    /// Returns one line per problem.
    pub(super) fn complaints(&self) -> Vec<String> {
        let name = defuse_line(&self.name);
        let incomparable = self.incomparable.iter();
        let incomparable = incomparable.map(|reason| format!("output `{name}`: {reason}"));
        let violations = self.violations.iter().map(|violation| {
            format!(
                "output `{name}`: {} is {}, limit is {}",
                violation.figure.replace('-', " "),
                format_figure(Some(violation.value)),
                format_figure(Some(violation.limit))
            )
        });
        incomparable.chain(violations).collect()
    }
}

fn format_tolerances(tolerances: &Tolerances) -> String {
    let demands = [
        ("max rel", tolerances.max_rel),
        ("max abs", tolerances.max_abs),
        ("min cosine", tolerances.min_cosine),
        ("min SNR", tolerances.min_snr_db),
        ("min top-1", tolerances.min_top1),
    ];
    let texts = demands
        .iter()
        .filter_map(|(name, limit)| Some(format!("{name} {}", format_figure(Some((*limit)?)))));
    texts.collect::<Vec<_>>().join(", ")
}
