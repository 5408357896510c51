//! `size-mismatch`: `size_bytes` that is not the size.

use crate::diagnostic::{Anchor, Applicability, Finding};
use crate::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::files::{FileState, ModelFacts};
use crate::validate::mend::Mend;

rule! {
    /// # What it checks
    /// `size_bytes` is the size of the variant's file, or of all its components together (a file
    /// named twice counts once). A Git LFS pointer counts with the size of its file. For a model
    /// with external data, the size with or without that data is accepted.
    ///
    /// # Why
    /// Applications show the size before a download and check free space with it. It goes stale
    /// with every new export.
    ///
    /// # Example
    /// `"size_bytes": 23518936` after a new export of 23519104 bytes.
    ///
    /// # Fix
    /// Write the size the finding gives. `pkgtool fix` does where every file is a model that was read, and so is
    /// known to be whole.
    ///
    /// # What it does not see
    /// Variants of which a file is missing, empty, broken or not named (a component that is null): the size of
    /// the rest says nothing.
    PKG019 "size-mismatch" Error fix Safe "`size_bytes` is not the size of the variant's files." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        // Of a variant that names only some of its files nobody knows the size.
        let Some(declared) = variant.size_bytes.filter(|_| context.is_whole(variant)) else {
            continue;
        };
        let Some((size, external, count)) = total(context, index) else {
            continue;
        };
        if declared == size || Some(declared) == size.checked_add(external) {
            continue;
        }
        let what = if count == 1 { "the file has" } else { "the components have together" };
        let path = variant.path.key("size_bytes");
        let written = context.written(&path).unwrap_or_default();
        let message = format!("`size_bytes` is {written}, but {what} {size} bytes");
        let mend = Mend::replace(path.clone(), size);
        let finding = RULE.meta.finding(Anchor::Value(path), message);
        // A model that was read whole is known to be whole; of anything else a part may be missing.
        let whole = context.files_of(index).all(|file| file.model_info().is_some());
        let fix = whole.then(|| context.fix(Applicability::Safe, &mend)).flatten();
        findings.push(finding.fix(fix).help(if whole || declared < size {
            format!("write \"size_bytes\": {size}")
        } else {
            format!("if nothing is missing at the end, write \"size_bytes\": {size}; otherwise fetch it again")
        }));
    }
}

/// Bytes of the variant's files, bytes of their external data, number of files; `None` unless all
/// sizes are known.
fn total(context: &Context<'_>, variant: usize) -> Option<(u64, u64, usize)> {
    // A file that is named twice counts once.
    let mut sizes = Map::default();
    let mut external: u64 = 0;
    for file in context.files_of(variant) {
        let facts = file.facts.as_ref().ok()?;
        // The size of what is broken, empty or no model is nobody's to write down.
        let broken = matches!(facts.model, Some(ModelFacts::Broken(_)));
        if broken || matches!(facts.state, FileState::Empty) || file.is_wrong_directory() {
            return None;
        }
        if sizes.insert(facts.path.as_os_str(), facts.size()?).is_none() {
            external = external.saturating_add(super::external_data::present_bytes(file));
        }
    }
    let size = sizes.values().try_fold(0_u64, |sum, size| sum.checked_add(*size))?;
    (!sizes.is_empty()).then_some((size, external, sizes.len()))
}
