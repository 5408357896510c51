//! `model-format`: a model file that can't be looked into.

use crate::diagnostic::{Anchor, Finding};
use crate::model::FORMATS;
use crate::validate::context::Context;
use crate::validate::files::ModelFacts;

rule! {
    /// # What it checks
    /// The model file's format is one that is read here.
    ///
    /// # Why
    /// The file may be right; its methods and signatures were just not checked.
    ///
    /// # Example
    /// A compiled Core ML model (`.mlmodelc`), or a QNN context binary that does not begin as those of QNN 2.47 and 2.51
    /// do.
    ///
    /// # Fix
    /// Nothing, if the format is meant.
    ///
    /// # What it does not see
    /// Whether the file is sound.
    PKG028 "model-format" Note "A model file's format is not one that is read here." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        if let Ok(facts) = &file.facts
            && !file.is_wrong_directory()
            && matches!(facts.model, Some(ModelFacts::UnknownFormat))
        {
            let anchor = Anchor::Value(file.file.path.clone());
            let message = format!(
                "`{}` has a format that is not read here; its signatures were not checked",
                file.file.reference
            );
            let known: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
            let finding = RULE.meta.finding(anchor, message);
            let help = format!("formats that are read: {}", known.join(", "));
            findings.push(finding.help(help).about(&facts.path));
        }
    }
}
