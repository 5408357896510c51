//! Rule `model-format`: reports model files in an unsupported format, or in another format than
//! their name indicates.

use pkgtool_base::diagnostic::{Anchor, Finding, Severity};
use pkgtool_model::{FORMATS, ModelInfo};
use crate::validate::context::Context;
use crate::validate::files::ModelFacts;
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// The model file's format is supported. It is an error if the file has another format than its
    /// name indicates.
    ///
    /// # Why
    /// The file may be right, but its methods and signatures were not checked. Runtimes are chosen
    /// by the file name: a file in another format does not load.
    ///
    /// # Example
    /// A compiled Core ML model (`.mlmodelc`), or a QNN context binary with another header than
    /// those of QNN 2.47 and 2.51; an ExecuTorch program that is named `model.onnx`.
    ///
    /// # Fix
    /// Nothing, if the format is intended. Rename a file whose name indicates another format, or
    /// replace it by the right file.
    ///
    /// # What it does not see
    /// Errors in a file of an unsupported format. Names like `.bin` indicate no format.
    PKG028 "model-format" Note "A model file's format is unsupported, or not the one its name indicates." => check
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

fn unknown(file: &ReferencedFile) -> Finding {
    let anchor = Anchor::Value(file.file.path.clone());
    let message = format!(
        "`{}` has an unsupported format; its signatures were not checked",
        file.file.reference
    );
    let known: Vec<&str> = FORMATS.iter().map(|format| format.name()).collect();
    let finding = RULE.meta.finding(anchor, message);
    finding.help(format!("supported formats: {}", known.join(", ")))
}

fn misnamed(file: &ReferencedFile, info: &ModelInfo) -> Option<Finding> {
    let named_as = info.format_by_name?;
    let anchor = Anchor::Value(file.file.path.clone());
    let message = format!(
        "`{}` is of format {}, but its name indicates {named_as}",
        file.file.reference, info.format
    );
    let finding = RULE.meta.finding(anchor, message).severity(Severity::Error);
    Some(finding.help("rename the file and correct the config, or put the right file in its place"))
}
