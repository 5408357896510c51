//! The results of a comparison at several sizes of dynamic dimensions.

use std::cmp::Ordering;
use std::fmt::Write as _;

use serde::Serialize;

use super::figures::{self, FIGURES, format_figures};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::tensor::agreement::Agreement;

/// The results at all sizes.
#[derive(Debug, Serialize)]
pub(super) struct SizesReport {
    /// Each combination of sizes, in the order in which they ran.
    each: Vec<SizeResult>,
    /// The sizes with the worst agreement: where the sides differ, otherwise where the relative
    /// error is largest.
    worst: Option<String>,
}

/// The result at one combination of sizes.
#[derive(Debug, Serialize)]
pub(super) struct SizeResult {
    /// The sizes, such as `batch=1, length=7`.
    pub(super) sizes: String,
    /// Set if the sides were compared and every output is within the tolerances.
    pub(super) agrees: bool,
    /// Worst figures of all outputs and input sets.
    pub(super) figures: Option<Agreement>,
    /// The reason why it was not compared, or an error that occurred on one side only.
    pub(super) problem: Option<String>,
    /// Set if only one side runs, or an output exceeds the tolerances.
    #[serde(skip)]
    pub(super) differs: bool,
}

impl SizesReport {
    /// Combines the results of all input sets. Returns `None` without results.
    pub(super) fn of(found: impl Iterator<Item = SizeResult>) -> Option<Self> {
        let mut each: Vec<SizeResult> = Vec::new();
        for found in found {
            match each.last_mut().filter(|last| last.sizes == found.sizes) {
                Some(last) => last.join(found),
                None => each.push(found),
            }
        }
        let compared = each
            .iter()
            .rev()
            .filter(|it| it.differs || it.figures.is_some())
            .max_by(|one, other| one.compare_badness(other));
        let worst = compared.map(|it| it.sizes.clone());
        (!each.is_empty()).then_some(Self { each, worst })
    }

    /// Writes a row for each combination of sizes, and the worst one.
    pub(super) fn write(&self, text: &mut String) -> std::fmt::Result {
        let mut table = figures::table("sizes");
        for size in &self.each {
            let mut row = vec![defuse_line(&size.sizes)];
            match &size.figures {
                Some(found) => row.extend(format_figures(found)),
                None => row.extend(FIGURES.map(|_| "-".to_owned())),
            }
            table.row(row);
        }
        write!(text, "{table}")?;
        match &self.worst {
            Some(worst) => writeln!(text, "worst at {}", defuse_line(worst)),
            None => Ok(()),
        }
    }
}

impl SizeResult {
    /// Adds the result of another input set with these sizes.
    fn join(&mut self, other: Self) {
        self.agrees &= other.agrees;
        self.differs |= other.differs;
        self.figures = Agreement::worst(self.figures.iter().chain(&other.figures));
        self.problem = self.problem.take().or(other.problem);
    }

    /// Orders results by badness: differences are worst, then missing figures, then larger relative
    /// errors.
    fn compare_badness(&self, other: &Self) -> Ordering {
        let error = |it: &Self| it.figures.as_ref().map_or(f64::INFINITY, |it| it.max_rel);
        let differs = self.differs.cmp(&other.differs);
        differs.then(error(self).total_cmp(&error(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sizes: &str, max_rel: Option<f64>, differs: bool) -> SizeResult {
        let figures = max_rel.map(|max_rel| Agreement {
            max_rel,
            ..pkgtool_engine::tensor::agreement::Comparison::default().agreement()
        });
        SizeResult {
            sizes: sizes.to_owned(),
            agrees: !differs && figures.is_some(),
            problem: figures.is_none().then(|| "a reason".to_owned()),
            figures,
            differs,
        }
    }

    #[test]
    fn the_worst_differs_or_has_the_largest_error() {
        let worst = |found: Vec<SizeResult>| SizesReport::of(found.into_iter())?.worst;
        let good = |sizes| found(sizes, Some(0.1), false);
        assert_eq!(worst(vec![]), None);
        let skipped = found("n=1", None, false);
        assert_eq!(worst(vec![skipped]), None);
        let found_at = |rest: Vec<SizeResult>| {
            let mut all = vec![good("n=2"), found("n=3", Some(0.2), false)];
            all.extend(rest);
            worst(all)
        };
        assert_eq!(
            found_at(vec![found("n=1", None, false)]).as_deref(),
            Some("n=3")
        );
        let small = found("n=4", Some(0.0), true);
        assert_eq!(found_at(vec![small]).as_deref(), Some("n=4"));
        let failed = found("n=5", None, true);
        assert_eq!(
            found_at(vec![found("n=4", Some(0.5), true), failed]).as_deref(),
            Some("n=5")
        );
    }
}
