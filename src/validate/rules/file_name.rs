//! `file-name`: model files whose names depart from the convention.

use std::path::Path;

use crate::diagnostic::{Anchor, Finding};
use crate::package::naming::{Expected, NameFault};
use crate::package::{Config, Variant};
use crate::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::references::Referenced;
use crate::validate::files::FileState;
use crate::package::leftover::is_placeholder;

rule! {
    /// # What it checks
    /// A model file in the config's directory is named
    /// `<model>[_<size>][_<component>]_<backend>_<precision>.<extension>`, in lower case, and its
    /// backend and precision are the config's. Further tokens (a chip, a resolution) may stand
    /// between and after.
    ///
    /// # Why
    /// People and scripts pick files by their names. A name that says one precision in a variant
    /// of another means that one of the two is wrong.
    ///
    /// # Example
    /// `tiny_xnnpack_fp32.pte` in the variant `int8`.
    ///
    /// # Fix
    /// Rename the file, or correct the config.
    PKG025 "file-name" Warning "A model file's name departs from the convention." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(config) = &context.config else { return };
    for file in context.files.iter().filter(|file| file.is_model) {
        let variant = file.variant.and_then(|index| config.variants.get(index));
        if let Some(finding) = variant.and_then(|variant| judge(context, config, variant, file)) {
            findings.push(finding);
        }
    }
}

fn judge(
    context: &Context<'_>,
    config: &Config,
    variant: &Variant,
    file: &Referenced,
) -> Option<Finding> {
    let facts = file.facts.as_ref().ok()?;
    let precision = variant.precision.as_deref()?;
    let list = &context.precisions.list;
    // A missing file has its own finding, and so has an unknown precision.
    if matches!(facts.state, FileState::Missing) || !list.contains(precision) {
        return None;
    }
    let expected = Expected {
        model: token(context, "model", config.model.as_deref()),
        size: config.size.as_deref(),
        component: file.file.component.as_deref(),
        backend: config.backend?,
        precision,
    };
    let path = Path::new(&file.file.reference);
    let name = path.file_name()?.to_str()?;
    let fault = expected.check(name, list.tokens()).err()?;
    // A line that was copied and not changed is `file-shared`'s.
    if matches!(fault, NameFault::OtherPrecision(_)) && context.models_at(&facts.path).count() > 1 {
        return None;
    }
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("pte");
    let help = match &fault {
        NameFault::OtherBackend(other) => {
            format!("if the file is for {other}, it belongs to another config; otherwise rename it")
        }
        NameFault::OtherPrecision(other) => {
            format!("if the file is {other}, correct `precision`; otherwise rename it")
        }
        _ => format!("by the convention it is `{}`", expected.name(extension)),
    };
    let anchor = Anchor::Value(file.file.path.clone());
    let message = describe(name, &fault, &expected);
    Some(RULE.meta.finding(anchor, message).help(help))
}

/// A token of the config, unless it is itself at fault: then no name can follow it.
fn token<'t>(context: &Context<'_>, key: &str, token: Option<&'t str>) -> Option<&'t str> {
    let is_sound = !context.is_violated(&JsonPath::root().key(key));
    token.filter(|token| is_sound && !is_placeholder(token))
}

fn describe(name: &str, fault: &NameFault, expected: &Expected<'_>) -> String {
    match fault {
        NameFault::Characters => {
            format!("`{name}` has characters other than `a`–`z`, `0`–`9` and `_`")
        }
        NameFault::OtherBackend(other) => {
            format!("`{name}` says {other}, the config's backend is {}", expected.backend)
        }
        NameFault::OtherPrecision(other) => {
            format!("`{name}` says {other}, the variant's precision is {}", expected.precision)
        }
        NameFault::NoModel => format!(
            "`{name}` does not begin with the model token `{}`",
            expected.model.unwrap_or_default()
        ),
        NameFault::NoBackend => format!("`{name}` does not name the backend `{}`", expected.backend),
        NameFault::NoPrecision => {
            format!("`{name}` does not name the precision `{}`", expected.precision)
        }
    }
}
