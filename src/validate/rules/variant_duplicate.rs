//! `variant-duplicate`: two variants of one precision.

use std::path::Path;

use crate::diagnostic::{Anchor, Applicability, Finding};
use crate::package::{Variant, naming};
use crate::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::mend::Mend;

/// Variants that are compared each with each.
const FEW: usize = 8;

rule! {
    /// # What it checks
    /// No two variants of a config have the same precision.
    ///
    /// # Why
    /// The precision is what callers choose a variant by. Of two with the same one, the second
    /// can't be asked for.
    ///
    /// # Example
    /// Two variants with `"precision": "fp32"`.
    ///
    /// # Fix
    /// Correct the precision of one, or publish it as a model or size of its own. `pkgtool fix --unsafe` writes
    /// the precision that the file's name says, if no other variant has it.
    ///
    /// # What it does not see
    /// Variants of two tokens that mean the same (`w4` and `4w` of a list of one's own).
    PKG009 "variant-duplicate" Warning fix Unsafe "Two variants have the same precision." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if !has_repetition(context.variants()) {
        return;
    }
    let mut first = Map::default();
    for variant in context.variants() {
        let Some(precision) = &variant.precision else {
            continue;
        };
        let earlier = *first.entry(precision).or_insert(variant.position);
        if earlier != variant.position {
            let anchor = Anchor::Value(variant.path.key("precision"));
            let message = format!("variant {earlier} has the precision `{precision}` already");
            let finding = RULE.meta.finding(anchor, message);
            let help = "callers choose a variant by its precision";
            let said = said_by_name(context, variant, precision);
            let is_free = |token: &&str| {
                let mut variants = context.variants().iter();
                variants.all(|other| other.precision.as_deref() != Some(*token))
            };
            let fix = said.filter(is_free).and_then(|token| {
                let mend = Mend::replace(variant.path.key("precision"), token);
                context.fix(Applicability::Unsafe, &mend)
            });
            findings.push(finding.fix(fix).help(match said {
                Some(token) => format!("{help}; the file's name says `{token}`"),
                None => help.to_owned(),
            }));
        }
    }
}

/// Whether a precision may stand twice: of few variants it is known without a table.
fn has_repetition(variants: &[Variant]) -> bool {
    let known = |variant: &Variant| variants.iter().filter(|other| other.precision == variant.precision).count();
    variants.len() > FEW || variants.iter().any(|variant| known(variant) > 1)
}

/// The one other precision that the names of a variant's files say.
fn said_by_name<'a>(context: &'a Context<'_>, variant: &Variant, precision: &str) -> Option<&'a str> {
    let stems = variant.files.iter().filter_map(|file| Path::new(&file.reference).file_stem()?.to_str());
    let says = |token: &str| stems.clone().any(|stem| naming::has_token(stem, token));
    if says(precision) {
        return None;
    }
    let tokens = context.precisions.list.tokens().filter(|token| says(token));
    tokens.max_by_key(|token| token.len())
}
