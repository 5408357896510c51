//! Rule `file-unreadable`: reports files and directories that cannot be read.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_model::ModelError;
use pkgtool_base::package::{LoadFault, load};
use crate::validate::context::Context;
use crate::validate::files::{FileState, ModelFacts};

rule! {
    /// # What it checks
    /// Configs, the files they reference and the searched directories can be read. They are regular
    /// files (no pipes, no devices, no directory in place of a file), and a config has at most 4
    /// MiB. Models that are directories (`.mlpackage`, `.mlmodelc`) are allowed. No symbolic link
    /// leads out of the package. Links into the blobs of a hub's cache and links given on the
    /// command line are allowed.
    ///
    /// # Why
    /// Unreadable files are not checked, and silence would look like approval. A link out of the
    /// package reads the files of the person who checks it, and is missing on a device.
    ///
    /// # Example
    /// A `config.json` without read permission, or a broken symbolic link.
    ///
    /// # Fix
    /// Correct the permissions or the link. Replace a link that leads out by a copy.
    ///
    /// # What it does not see
    /// Files that are unreadable only for other users.
    PKG039 "file-unreadable" Error "A file cannot be read." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    match context.fault() {
        Some(LoadFault::Unreadable(reason)) => {
            let message = format!("the file cannot be read: {reason}");
            findings.push(RULE.meta.finding(Anchor::File, message).help(HELP));
        }
        Some(LoadFault::TooLarge(size)) => {
            let message = format!("the file has {size} bytes, the limit is {}", load::MAX_SIZE);
            let finding = RULE.meta.finding(Anchor::File, message);
            findings.push(finding.help("a config has some kilobytes; is this the right file?"));
        }
        _ => {}
    }
    for file in &context.files {
        let Ok(facts) = &file.facts else { continue };
        let (reason, help) = match (&facts.state, &facts.model) {
            (FileState::Unreadable(reason), _) => (reason.clone(), HELP),
            (_, Some(ModelFacts::Broken(ModelError::Io(error)))) => (error.to_string(), HELP),
            _ if file.is_wrong_directory() => (
                "it is a directory".to_owned(),
                "name the file in it, or put the file in its place",
            ),
            _ => continue,
        };
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!("`{}` cannot be read: {reason}", file.file.reference);
        let finding = RULE.meta.finding(anchor, message);
        findings.push(finding.help(help).about(&facts.path));
    }
}

const HELP: &str = "check its permissions; a link must lead to a file of the package";

/// Creates the finding about a directory that could not be searched.
pub(in crate::validate) fn unreadable_directory(reason: &str) -> Finding {
    let message = format!("the directory cannot be read: {reason}");
    RULE.meta.finding(Anchor::File, message).help(HELP)
}
