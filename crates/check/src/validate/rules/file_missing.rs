//! Rule `file-missing`: reports references to files that do not exist.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use crate::validate::context::Context;
use crate::validate::files::FileState;
use crate::validate::mend::ValueChange;
use pkgtool_base::package::leftover::is_placeholder;
use crate::validate::nearby;

/// Maximum number of missing files per config for which a suggestion is searched.
const MAX_SUGGESTIONS: usize = 50;

rule! {
    /// # What it checks
    /// Every file that the config references exists: `file`, `components`, `tokenizer`,
    /// `tokenizer_config`. Paths are relative to the config's directory.
    ///
    /// # Why
    /// A download of the package fails, or succeeds without the missing file.
    ///
    /// # Example
    /// ```json
    /// { "tokenizer": "tokenizer.json" }
    /// ```
    /// where the file is at the repository root and `"../tokenizer.json"` was meant.
    ///
    /// # Fix
    /// Correct the path, or add the file. `pkgtool fix` corrects the path if only one file can be
    /// meant: a file with the same name in a parent directory, with another case or spelling,
    /// without its extension, or with exactly the conventional name. If the names differ in digits,
    /// it does so only with `--unsafe`.
    ///
    /// # What it does not see
    /// References inside the referenced files, such as those of a tokenizer. On a case-insensitive
    /// disk, a wrong case is detected only on another machine.
    PKG015 "file-missing" Error fix Unsafe "A file that the config names does not exist." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let mut suggestions = 0;
    for file in &context.files {
        let reference = &file.file.reference;
        let Ok(facts) = &file.facts else { continue };
        let what = match &facts.state {
            FileState::Missing if !is_placeholder(reference) => "does not exist".to_owned(),
            FileState::Dangling(target) => format!(
                "is a symbolic link to `{}`, which does not exist",
                target.display()
            ),
            _ => continue,
        };
        let anchor = Anchor::Value(file.file.path.clone());
        let path = facts.path.display();
        suggestions += 1;
        let near = (suggestions <= MAX_SUGGESTIONS).then(|| nearby::find(context, file, &facts.path));
        let near = near.flatten().filter(|_| matches!(facts.state, FileState::Missing));
        let meant = near.as_ref().and_then(|near| near.meant.as_ref());
        let fix = meant.and_then(|meant| {
            let applicability = if meant.is_certain { Applicability::Safe } else { Applicability::Unsafe };
            context.fix(applicability, &ValueChange::replace(file.file.path.clone(), meant.reference.as_str()))
        });
        let help = match (&facts.state, near) {
            (FileState::Dangling(_), _) => "commit the file itself, or correct the link".to_owned(),
            (_, Some(near)) => near.help,
            _ => format!("looked for {path}; paths are relative to the config's directory"),
        };
        let finding = RULE.meta.finding(anchor, format!("`{reference}` {what}"));
        findings.push(finding.help(help).fix(fix).about(&facts.path));
    }
}
