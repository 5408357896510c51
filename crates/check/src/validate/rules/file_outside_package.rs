//! Rule `file-outside-package`: reports references that cannot be part of the package.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::reference::{self, ReferenceError};
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// Every reference is a relative path with `/` that stays inside the package root. The root is
    /// the nearest parent directory with a `.git`; else the root of a download from a hub
    /// (`.gitattributes`, `.cache/huggingface`, a directory in `snapshots`); else two levels above
    /// the config's directory. The spelling of the config's path on the command line does not
    /// matter. Absolute paths, backslashes, URLs, directories and the config itself are rejected.
    ///
    /// # Why
    /// A package is downloaded as a tree of files. Files outside the tree are missing on the
    /// device, and a path that leaves the tree is an attack or an accident.
    ///
    /// # Example
    /// ```json
    /// { "file": "..\\..\\model.pte" }
    /// ```
    ///
    /// # Fix
    /// Move the file into the repository and name it relative to the config. `pkgtool fix` replaces
    /// a backslash by `/` if the result leads to a file.
    ///
    /// # What it does not see
    /// Targets of symbolic links: this rule judges only the text of a reference, and
    /// `file-unreadable` reports a link that leads out of the package. Without a repository's root,
    /// two levels above the config may be more than the package.
    PKG016 "file-outside-package" Error fix Safe "A reference does not stay inside the package." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        let Err(error) = &file.facts else { continue };
        let path = &file.file.path;
        if context.is_violated(path) {
            continue;
        }
        let help = match error {
            ReferenceError::Itself => "name the file that is meant",
            ReferenceError::Empty | ReferenceError::Dots => {
                "name a file, relative to the config's directory"
            }
            ReferenceError::Backslash => "write `/` between directories",
            _ => "move the file into the package and name it relative to the config's directory",
        };
        let message = match error {
            ReferenceError::Empty => "the reference is empty".to_owned(),
            _ => format!("`{}` {error}", file.file.reference),
        };
        let fix = (*error == ReferenceError::Backslash).then(|| {
            let meant = file.file.reference.replace('\\', "/");
            let target = reference::resolve(context.directory, context.depth, &meant).ok()?;
            let mend = ValueChange::replace(path.clone(), meant);
            target
                .exists()
                .then(|| context.fix(Applicability::Safe, &mend))?
        });
        let finding = RULE.meta.finding(Anchor::Value(path.clone()), message);
        findings.push(finding.help(help).fix(fix.flatten()));
    }
}
