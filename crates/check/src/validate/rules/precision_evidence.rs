//! Rule `precision-evidence`: reports precision tokens that the model files contradict.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_model::precision::{PrecisionClaim, ModelWeights};
use crate::validate::context::Context;
use crate::validate::listing::listed;
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// A variant's precision matches its model files. The evidence is the types of stored tensors,
    /// and the operators and delegates that read them:
    ///
    /// - `fp32`: at least half of the weights are float32 or float64.
    /// - `fp16`, `bf16`: some weights, inputs, outputs or computed values are such floats, and no
    ///   more than half of the
    /// weights are quantised.
    /// - `int8`, `a8w8`, `8da8w`: some weights have eight bits, or some computation uses eight
    ///   bits.
    /// - `int4`, `4w`, `8da4w`: some weights have four bits.
    /// - `spinquant`, `qat_lora`: some weights are quantised.
    ///
    /// The components of a variant are judged together. Embedding tables count only as evidence for
    /// a token, never against it, because they are often quantised differently.
    ///
    /// # Why
    /// Applications choose by the token: by memory, by speed, by accuracy. A quantisation that did
    /// not take place is the most common mistake of an export script, and nothing else shows it.
    ///
    /// # Example
    /// `"precision": "int8"` for a file whose weights are all float32.
    ///
    /// # Fix
    /// Export the variant again with the quantisation that the token promises, or write the token
    /// that matches the file.
    ///
    /// # What it does not see
    /// Models with fewer than 1,000 weights, payloads that only their backend can read (QNN), other
    /// tokens, and the quality of a quantisation.
    PKG050 "precision-evidence" Warning "The model file contradicts a precision token." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        let Some(token) = &variant.precision else {
            continue;
        };
        let Some(meaning) = PrecisionClaim::of_token(token) else {
            continue;
        };
        let files = || context.files_of(index).filter(|file| file.is_model);
        // A component that cannot be read may be the quantised one, so the variant is not judged.
        let found: Option<Vec<&ModelWeights>> = files()
            .map(|file| file.facts.as_ref().ok()?.weights())
            .collect();
        let mut weights = ModelWeights::none();
        for one in found.iter().flatten() {
            weights.add(one);
        }
        let all_read = found.is_some_and(|found| !found.is_empty());
        let Some(told) = weights.contradiction(meaning).filter(|_| all_read) else {
            continue;
        };
        let files: Vec<&ReferencedFile> = files().collect();
        let names = files.iter().map(|file| format!("`{}`", file.file.reference));
        let verb = if files.len() == 1 { "" } else { " together" };
        let told = if files.len() == 1 {
            told
        } else {
            told.replacen("holds", "hold", 1)
        };
        let message = format!("the precision is `{token}`, but {}{verb} {told}", listed(names));
        let finding = RULE.meta.finding(Anchor::Value(variant.path.key("precision")), message);
        let help = match weights.token() {
            Some(fits) if fits != token => format!(
                "export it again as `{token}`, or write the precision that it holds: `{fits}`"
            ),
            _ => format!("export it again as `{token}`"),
        };
        findings.push(finding.help(help));
    }
}
