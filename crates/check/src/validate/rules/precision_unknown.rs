//! Rule `precision-unknown`: reports precision tokens that are not in the precision list.

use std::path::Path;

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::validate::mend::ValueChange;
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::{naming, precision};
use pkgtool_base::source::suggest;

/// Names of precisions in frameworks, with the corresponding tokens.
const OTHER_NAMES: [(&str, &str); 7] = [
    ("float32", "fp32"),
    ("float", "fp32"),
    ("f32", "fp32"),
    ("float16", "fp16"),
    ("half", "fp16"),
    ("f16", "fp16"),
    ("bfloat16", "bf16"),
];

rule! {
    /// # What it checks
    /// Every variant's precision is a token of the precision list. That list is the one given with
    /// `--precisions`; else the nearest `precisions.json` from the config's directory up to the
    /// package root; else the one at the root of the validated tree; else the built-in list.
    ///
    /// # Why
    /// That list alone decides whether a variant is quantized. A token outside the list is neither.
    ///
    /// # Example
    /// ```json
    /// { "precision": "8w4da", "file": "tiny_xnnpack_8da4w.pte" }
    /// ```
    ///
    /// # Fix
    /// Correct the token, or add it to your precision list. `pkgtool fix --unsafe` writes the token
    /// that was most likely meant.
    ///
    /// # What it does not see
    /// Weights that have another precision than declared. The rule is silent while the list itself is
    /// broken.
    PKG008 "precision-unknown" Error fix Unsafe "A precision token is not in the precision list." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if !context.precisions.complete {
        return;
    }
    let list = &context.precisions.list;
    for variant in context.variants() {
        let Some(token) = &variant.precision else {
            continue;
        };
        if list.contains(token) || is_placeholder(token) {
            continue;
        }
        let path = variant.path.key("precision");
        if context.is_violated(&path) {
            continue;
        }
        // A token that also occurs in the file name is probably intended.
        let stems = variant.files.iter().filter_map(|file| Path::new(&file.reference).file_stem());
        let agreed = stems.filter_map(|stem| stem.to_str()).any(|stem| naming::has_token(stem, token));
        let other_name = OTHER_NAMES.iter().find(|(name, _)| name == token).map(|(_, meant)| *meant);
        let other_name = other_name.filter(|meant| list.contains(meant));
        // The token of another variant would give two variants the same precision.
        let is_free = |meant: &&str| {
            let mut others = context.variants().iter();
            others.all(|other| other.precision.as_deref() != Some(*meant))
        };
        let meant = other_name.or_else(|| suggest::nearest(token, list.tokens())).filter(is_free);
        let fix = meant.filter(|_| !agreed).and_then(|meant| {
            context.fix(Applicability::Unsafe, &ValueChange::replace(path.clone(), meant))
        });
        let help = match meant {
            Some(meant) if agreed => format!(
                "did you mean `{meant}`, which is also in the file's name? If `{token}` is right, add it to a `{}` in the package",
                precision::FILE_NAME
            ),
            None if agreed => format!(
                "the file's name has it too: if it is right, add it to a `{}` in the package",
                precision::FILE_NAME
            ),
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the list contains: {}", listed(list.tokens())),
        };
        let message = format!("`{token}` is not in the precision list");
        findings.push(RULE.meta.finding(Anchor::Value(path), message).help(help).fix(fix));
    }
}
