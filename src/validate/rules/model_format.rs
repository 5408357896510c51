//! `model-format`: a model file that can't be looked into, or is of another format than its name says.

use crate::diagnostic::{Anchor, Finding, Severity};
use crate::model::{FORMATS, ModelInfo};
use crate::validate::context::Context;
use crate::validate::files::ModelFacts;
use crate::validate::references::Referenced;

rule! {
    /// # What it checks
    /// The model file's format is one that is read here. It is an error if the file is of another
    /// format than its name says.
    ///
    /// # Why
    /// The file may be right; its methods and signatures were just not checked. Runtimes are chosen
    /// by a file's name: one of another format does not load.
    ///
    /// # Example
    /// A compiled Core ML model (`.mlmodelc`), or a QNN context binary that does not begin as those of QNN 2.47 and 2.51
    /// do; an ExecuTorch program that is named `model.onnx`.
    ///
    /// # Fix
    /// Nothing, if the format is meant. Rename a file whose name says another format, or put the right
    /// file in its place.
    ///
    /// # What it does not see
    /// Whether a file of an unknown format is sound. Names like `.bin` say no format.
    PKG028 "model-format" Note "A model file's format is not read here, or not the one its name says." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    for file in &context.files {
        let Ok(facts) = &file.facts else { continue };
        match &facts.model {
            Some(ModelFacts::UnknownFormat) if !file.is_wrong_directory() => {
                findings.push(unknown(file).about(&facts.path));
            }
            Some(ModelFacts::Read(info)) => {
                findings.extend(misnamed(file, info).map(|finding| finding.about(&facts.path)));
            }
            _ => {}
        }
    }
}

fn unknown(file: &Referenced) -> Finding {
    let anchor = Anchor::Value(file.file.path.clone());
    let message = format!(
        "`{}` has a format that is not read here; its signatures were not checked",
        file.file.reference
    );
    let known: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
    let finding = RULE.meta.finding(anchor, message);
    finding.help(format!("formats that are read: {}", known.join(", ")))
}

fn misnamed(file: &Referenced, info: &ModelInfo) -> Option<Finding> {
    let named_as = info.named_as?;
    let anchor = Anchor::Value(file.file.path.clone());
    let message = format!(
        "`{}` is of format {}, but its name says {named_as}",
        file.file.reference, info.format
    );
    let finding = RULE.meta.finding(anchor, message).severity(Severity::Error);
    Some(finding.help("rename the file and correct the config, or put the right file in its place"))
}
