//! `pkgtool compare --all`: compares every variant of a package with one of them, the reference.
//!
//! Invariant: every variant has a row in the table. A row that was not compared states the reason.
//! It counts as a failure unless no engine here runs the variant, or one of the two lacks the part.

mod document;
mod reference;
mod table;

use super::super::findings::{FindingLocation, merge_reports};
use super::super::selection_failure;
use super::super::sides::ExecutionSide;
use super::CompareArgs;
use super::findings;
use super::pair::{SideStarter, compare_sides};
use crate::cli::exit::{Exit, Failure};
use document::{ComparisonDocument, ComparisonRow, RowOutcome};
use pkgtool_base::source::text::defuse_line;
use pkgtool_engine::runtime::every::{self, PackageVariant, VariantFilter, VariantMethod};
use pkgtool_engine::runtime::selection::Selection;
use pkgtool_engine::runtime::target::{self, StartError};

/// Runs the command.
pub(super) fn run(args: &CompareArgs) -> Result<Exit, Failure> {
    let [path] = &args.paths[..] else {
        let reason = "--all compares the variants of one package: expected one path";
        return Err(Failure::Other(reason.to_owned()));
    };
    let wanted = VariantFilter {
        backends: args.sides.backends().to_vec(),
        precisions: args.sides.precisions().to_vec(),
        component: args.target.component.clone(),
        method: args.target.method.clone(),
    };
    let variants = every::variants(path, &wanted).map_err(|error| selection_failure(&error))?;
    let engines: Vec<Option<&str>> = args.sides.engines().collect();
    if variants.len() * engines.len() < 2 {
        return Err(Failure::Other(format!(
            "{}: compare needs two sides, but the options select {} variant",
            path.display(),
            variants.len()
        )));
    }
    let reference = reference::choose(&variants, args.reference.as_deref())?;
    let comparison = ComparisonInputs {
        args,
        variants: &variants,
        engines: &engines,
        reference,
    };
    let rows = comparison.rows();
    let found = rows.iter().filter_map(|row| found(args, row));
    let found = merge_reports(found.collect());
    let document =
        ComparisonDocument::new(reference::variant_label(reference), rows, args.require_all);
    if let Some(path) = &args.markdown {
        super::super::write_file(path, &document.to_markdown())?;
    }
    let rules = findings::rules();
    args.findings.write(&found, &rules, &document, args.json)?;
    Ok(if !document.has_compared() {
        Exit::Failure
    } else if document.agrees {
        Exit::Clean
    } else {
        Exit::Findings
    })
}

/// The inputs of the comparison.
struct ComparisonInputs<'a> {
    args: &'a CompareArgs,
    variants: &'a [PackageVariant],
    engines: &'a [Option<&'a str>],
    reference: &'a PackageVariant,
}

impl ComparisonInputs<'_> {
    /// Compares every variant on every engine, part by part of the reference. Parts that the
    /// reference lacks come last.
    fn rows(&self) -> Vec<ComparisonRow> {
        let of_reference = &self.reference.parts;
        let mut rows = Vec::new();
        for part in of_reference {
            let name = part.name(of_reference);
            let Ok(selection) = &part.selection else {
                continue;
            };
            let a = ExecutionSide {
                backend: None,
                selection: selection.clone(),
                engine: self.engines[0].map(str::to_owned),
                device: self.args.target.device.first().clone(),
            };
            let mut starter = SideStarter::for_series();
            for variant in self.variants {
                for (place, engine) in self.engines.iter().enumerate() {
                    if place == 0 && std::ptr::eq(variant, self.reference) {
                        continue;
                    }
                    let found = variant.part(&name, of_reference.len() == 1);
                    let outcome = match found {
                        Some(part) => self.compare(&a, part, *engine, &mut starter),
                        None => RowOutcome::Skipped(format!(
                            "the variant has no `{}`",
                            defuse_line(&name)
                        )),
                    };
                    rows.push(ComparisonRow::new(variant, *engine, name.clone(), outcome));
                }
            }
        }
        for variant in self.variants {
            let alone = |part: &&VariantMethod| {
                let name = part.name(&variant.parts);
                let is_only = variant.parts.len() == 1;
                self.reference.part(&name, is_only).is_none()
            };
            for part in variant.parts.iter().filter(alone) {
                let reason = "the reference has no such part".to_owned();
                let name = part.name(&variant.parts);
                rows.push(ComparisonRow::new(
                    variant,
                    None,
                    name,
                    RowOutcome::Skipped(reason),
                ));
            }
        }
        rows
    }

    /// Compares a part of a variant with the same part of the reference.
    fn compare(
        &self,
        a: &ExecutionSide,
        part: &VariantMethod,
        engine: Option<&str>,
        starter: &mut SideStarter,
    ) -> RowOutcome {
        let selection = match &part.selection {
            Ok(selection) => selection,
            Err(error) => return RowOutcome::Failed(error.to_string()),
        };
        if let Err(error) = check_runnable(selection) {
            return RowOutcome::Skipped(error.to_string());
        }
        let b = ExecutionSide {
            backend: None,
            selection: selection.clone(),
            engine: engine.map(str::to_owned),
            device: self.args.target.device.first().clone(),
        };
        let sides = [a.clone(), b];
        match compare_sides(self.args, &sides, starter) {
            Ok(report) => RowOutcome::Compared(Box::new(report)),
            Err(failure) => match starter.refused() {
                Some((1, true)) => RowOutcome::Skipped(failure.to_string()),
                _ => RowOutcome::Failed(failure.to_string()),
            },
        }
    }
}

/// Checks whether an engine here can run a method, as far as its file shows.
fn check_runnable(selection: &Selection) -> Result<(), StartError> {
    let method = &selection.signature.method;
    target::require_method_runnable(&selection.model, &selection.info, method)
}

/// Returns the findings of a row, located at the variant in its config.
fn found(args: &CompareArgs, row: &ComparisonRow) -> Option<pkgtool_base::diagnostic::Report> {
    let place = FindingLocation::in_config(&row.config, &row.path);
    let alone = |reason: &str| {
        let message = format!("{}, {}: {reason}", row.label, row.part);
        Some(findings::does_not_run(&place, message))
    };
    match &row.outcome {
        RowOutcome::Compared(report) => Some(findings::of(report, &place)),
        RowOutcome::Failed(reason) => alone(reason),
        RowOutcome::Skipped(reason) if args.require_all => alone(reason),
        RowOutcome::Skipped(_) => None,
    }
}
