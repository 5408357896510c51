//! Rule `size-mismatch`: reports a `size_bytes` that differs from the size of the files.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::source::hashed::Map;
use crate::validate::context::Context;
use crate::validate::files::{FileState, ModelFacts};
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// `size_bytes` is the size of the variant's file, or of all its components together (a file
    /// referenced twice counts once). A Git LFS pointer counts with the size of its file. For a
    /// model with external data, the size with or without that data is accepted.
    ///
    /// # Why
    /// Applications show the size before a download and use it to check the free space. Every new
    /// export can change it.
    ///
    /// # Example
    /// `"size_bytes": 23518936` after a new export of 23519104 bytes.
    ///
    /// # Fix
    /// Write the size in the finding. `pkgtool fix` does this if every file is a model that was
    /// read, and so is known to be complete.
    ///
    /// # What it does not see
    /// Variants with a file that is missing, empty, broken or not named (a component that is null).
    /// The size of the rest says nothing.
    PKG019 "size-mismatch" Error fix Safe "`size_bytes` is not the size of the variant's files." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for (index, variant) in context.variants().iter().enumerate() {
        // The total size is unknown if the variant names only some of its files.
        let Some(declared) = variant.size_bytes.filter(|_| context.names_all_files(variant)) else {
            continue;
        };
        let Some((size, external, count)) = total(context, index) else {
            continue;
        };
        if declared == size || Some(declared) == size.checked_add(external) {
            continue;
        }
        let what = if count == 1 { "the file has" } else { "the components together have" };
        let path = variant.path.key("size_bytes");
        let written = context.number_text(&path).unwrap_or_default();
        let message = format!("`size_bytes` is {written}, but {what} {size} bytes");
        let mend = ValueChange::replace(path.clone(), size);
        let finding = RULE.meta.finding(Anchor::Value(path), message);
        // A model that was read is complete; any other file may be truncated.
        let whole = context.files_of(index).all(|file| file.model_info().is_some());
        let fix = whole.then(|| context.fix(Applicability::Safe, &mend)).flatten();
        findings.push(finding.fix(fix).help(if whole || declared < size {
            format!("write \"size_bytes\": {size}")
        } else {
            format!("if the file is complete, write \"size_bytes\": {size}; otherwise download it again")
        }));
    }
}

/// Returns the total size of the variant's files and of their external data, both in bytes, and the
/// number of files. `None` unless all sizes are known.
fn total(context: &Context<'_>, variant: usize) -> Option<(u64, u64, usize)> {
    // A file that is referenced twice counts once.
    let mut sizes = Map::default();
    let mut external: u64 = 0;
    for file in context.files_of(variant) {
        let facts = file.facts.as_ref().ok()?;
        // The size of a broken or empty file must not be written into the config.
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
