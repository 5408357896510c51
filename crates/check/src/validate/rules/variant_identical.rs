//! Rule `variant-identical`: reports two variants whose model files have the same bytes.

use std::path::Path;
use std::sync::Arc;

use pkgtool_base::diagnostic::{Anchor, Finding};
use crate::validate::context::Context;
use crate::validate::files::FileFacts;

/// Maximum number of different files of one size that are kept for comparison.
const MAX_COMPARED_PER_SIZE: usize = 8;

rule! {
    /// # What it checks
    /// No two variants have model files with different names and the same bytes. Bytes are compared
    /// only if the sizes are equal. Git LFS pointers are compared by the object they name.
    ///
    /// # Why
    /// Variants differ in precision, and so in their bytes. Equal files mean that an export went
    /// wrong or that a file was copied under another name.
    ///
    /// # Example
    /// `tiny_xnnpack_int8.pte`, a copy of `tiny_xnnpack_fp32.pte`.
    ///
    /// # Fix
    /// Export the variant again. If one file serves both, name it twice.
    ///
    /// # What it does not see
    /// Files of other configs, models that are directories, and files that differ only in a
    /// timestamp. With `--no-model` only Git LFS pointers are compared.
    PKG046 "variant-identical" Warning "Two variants have the same model under two names." => check
}

struct ComparedModel<'a> {
    facts: &'a Arc<FileFacts>,
    variant: usize,
    reference: &'a str,
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut kept: Vec<ComparedModel<'_>> = Vec::new();
    for file in context.files.iter().filter(|file| file.is_model) {
        let (Ok(facts), Some(variant)) = (&file.facts, file.variant) else {
            continue;
        };
        let is_kept = |path: &Path| kept.iter().any(|other| other.facts.path == path);
        if !facts.is_file() || is_kept(&facts.path) {
            continue;
        }
        let of_size = kept.iter().filter(|other| other.facts.size() == facts.size());
        if of_size.clone().count() >= MAX_COMPARED_PER_SIZE {
            continue;
        }
        let comparable = |other: &&ComparedModel<'_>| other.variant != variant;
        let may_read = context.models_opened || facts.is_pointer();
        let same = of_size.filter(comparable).find(|other| may_read && other.facts.is_same(facts));
        if let Some(same) = same {
            let anchor = Anchor::Value(file.file.path.clone());
            let position = context.variants()[same.variant].position;
            let message = format!(
                "`{}` has the same bytes as `{}` of variant {position}",
                file.file.reference, same.reference
            );
            let finding = RULE.meta.finding(anchor, message);
            findings.push(finding.help("export this variant again; if one file serves both, name it twice"));
        } else {
            kept.push(ComparedModel { facts, variant, reference: &file.file.reference });
        }
    }
}
