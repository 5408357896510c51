//! Chooses the reference variant for `pkgtool compare --all`.

use super::check_runnable;
use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_base::package::Backend;
use pkgtool_engine::runtime::every::PackageVariant;
use pkgtool_engine::runtime::precision::Precision;
use pkgtool_engine::runtime::selection::Selection;

/// The parsed value of `--reference`.
struct ReferenceChoice<'n> {
    text: &'n str,
    backend: Option<Backend>,
    precision: Option<&'n str>,
}

/// Returns the named variant. Without a name, returns the least quantized variant that runs here,
/// the first of several.
pub(super) fn choose<'v>(
    variants: &'v [PackageVariant],
    named: Option<&str>,
) -> Result<&'v PackageVariant, Failure> {
    let named = named.map(ReferenceChoice::read);
    let is_named = |variant: &&PackageVariant| named.as_ref().is_none_or(|it| it.is(variant));
    let chosen: Vec<&PackageVariant> = variants.iter().filter(is_named).collect();
    if let Some(named) = named.filter(|_| chosen.is_empty()) {
        let labels: Vec<String> = variants.iter().map(PackageVariant::label).collect();
        return Err(Failure::Other(format!(
            "--reference {}: no such variant; available: {}",
            named.text,
            labels.join(", ")
        )));
    }
    let least = |variants: Vec<&'v PackageVariant>| {
        let ranked = variants.into_iter().filter_map(|variant| {
            let selection = first_selection(variant)?;
            Some((variant, Precision::of(selection)))
        });
        ranked.reduce(|best, other| {
            if best.1.is_below(&other.1) {
                other
            } else {
                best
            }
        })
    };
    let runs = chosen.iter().copied().filter(|variant| runs(variant));
    let runs: Vec<&PackageVariant> = runs.collect();
    let Some((variant, _)) = least(runs) else {
        let reasons: Vec<String> = chosen
            .iter()
            .map(|variant| reason_not_runnable(variant))
            .collect();
        return Err(Failure::Other(format!(
            "no variant can run as the reference: {}",
            reasons.join("; ")
        )));
    };
    if let Some((best, _)) = least(chosen)
        && !std::ptr::eq(best, variant)
    {
        output::note(&format!(
            "the reference is {}, because {}",
            variant.label(),
            reason_not_runnable(best)
        ));
    }
    Ok(variant)
}

/// Formats a variant, such as `glimpse fp32 for xnnpack`.
pub(super) fn variant_label(variant: &PackageVariant) -> String {
    let label = variant.label();
    match variant.selected() {
        Some(selected) => format!("{} {label}", selected.package),
        None => label,
    }
}

impl<'n> ReferenceChoice<'n> {
    fn read(text: &'n str) -> Self {
        let (backend, precision) = match text.split_once('/') {
            Some((backend, precision)) => (Backend::from_name(backend), Some(precision)),
            None => match Backend::from_name(text) {
                Some(backend) => (Some(backend), None),
                None => (None, Some(text)),
            },
        };
        Self {
            text,
            backend,
            precision,
        }
    }

    fn is(&self, variant: &PackageVariant) -> bool {
        let of_backend = match self.text.split_once('/') {
            // An unknown backend matches no variant.
            Some(_) => self.backend.is_some() && self.backend == variant.backend,
            None => self.backend.is_none() || self.backend == variant.backend,
        };
        let of_precision = |precision| variant.precision.as_deref() == Some(precision);
        of_backend && self.precision.is_none_or(of_precision)
    }
}

/// Returns the first of a variant's parts that can be selected.
fn first_selection(variant: &PackageVariant) -> Option<&Selection> {
    let mut parts = variant.parts.iter();
    parts.find_map(|part| part.selection.as_ref().ok())
}

/// Returns whether any part of the variant can run here, as far as its files show.
fn runs(variant: &PackageVariant) -> bool {
    let parts = variant.parts.iter();
    let mut selections = parts.filter_map(|part| part.selection.as_ref().ok());
    selections.any(|selection| check_runnable(selection).is_ok())
}

/// Describes why no part of a variant can run here.
fn reason_not_runnable(variant: &PackageVariant) -> String {
    let reasons = variant.parts.iter().map(|part| match &part.selection {
        Ok(selection) => check_runnable(selection)
            .err()
            .map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    });
    let reason = reasons.flatten().next();
    let reason = reason.unwrap_or_else(|| "no such component or method".to_owned());
    format!("{} does not run here ({reason})", variant.label())
}
