//! Rule `file-lfs-pointer`: reports Git LFS pointers in place of the real files.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::LoadFault;
use crate::validate::context::Context;
use crate::validate::files::FileState;

rule! {
    /// # What it checks
    /// Neither the config nor a file that it references is a Git LFS pointer. A pointer is a text
    /// of about 130 bytes that replaces a large file in a clone made without Git LFS. With
    /// `--no-model`, models may be pointers; their real size is still known and compared.
    ///
    /// # Why
    /// The package on disk can be neither used nor checked. The file itself is not broken.
    ///
    /// # Example
    /// ```text
    /// version https://git-lfs.github.com/spec/v1
    /// oid sha256:4d7a…
    /// size 23518936
    /// ```
    ///
    /// # Fix
    /// Run `git lfs install` once, then `git lfs pull` in the clone. In GitHub Actions, give
    /// `actions/checkout` the input `lfs: true`.
    ///
    /// # What it does not see
    /// Pointers to objects that do not exist, and pointers of other systems (DVC, Xet).
    PKG018 "file-lfs-pointer" Error "A file is a Git LFS pointer, not the file itself." => check
}

const HELP: &str = "run `git lfs install` once, then `git lfs pull` in the clone";

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    if let Some(LoadFault::LfsPointer(pointer)) = context.fault() {
        let message = format!(
            "this file is a Git LFS pointer to {} bytes, not the file itself",
            pointer.size
        );
        findings.push(RULE.meta.finding(Anchor::File, message).help(HELP));
    }
    for file in &context.files {
        let Ok(facts) = &file.facts else { continue };
        let FileState::LfsPointer(pointer) = &facts.state else {
            continue;
        };
        if file.is_model && !context.models_opened {
            continue;
        }
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!(
            "`{}` is a Git LFS pointer to {} bytes, not the file itself",
            file.file.reference, pointer.size
        );
        let finding = RULE.meta.finding(anchor, message);
        findings.push(finding.help(HELP).about(&facts.path));
    }
}
