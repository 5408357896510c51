//! Rule `tokenizer-exchanged`: reports a tokenizer and its configuration in each other's place.

use std::path::Path;

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding, Fix};
use pkgtool_base::source::json::Step;
use crate::validate::context::Context;
use crate::validate::mend::ValueChange;
use crate::validate::references::ReferencedFile;

rule! {
    /// # What it checks
    /// `tokenizer` does not name a tokenizer's configuration, and `tokenizer_config` does not name
    /// a tokenizer. The root keys of the files decide: `model`, `pre_tokenizer`, … for a tokenizer;
    /// `tokenizer_class`, `chat_template`, … for a configuration. If they do not decide, the file
    /// names do.
    ///
    /// # Why
    /// Both are JSON, so nothing fails until the application builds its tokenizer.
    ///
    /// # Example
    /// ```json
    /// { "tokenizer": "../tokenizer_config.json", "tokenizer_config": "../tokenizer.json" }
    /// ```
    ///
    /// # Fix
    /// Swap the two; `pkgtool fix` does this if both files exist.
    ///
    /// # What it does not see
    /// Files that are not JSON, and whether the tokenizer belongs to the model.
    PKG048 "tokenizer-exchanged" Error fix Safe "`tokenizer` and `tokenizer_config` name each other's file." => check
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TokenizerFile {
    Tokenizer,
    Config,
    Unknown,
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let at = |key: &str| {
        let mut files = context.files.iter().filter(|file| file.variant.is_none());
        files.find(|file| matches!(file.file.path.steps(), [Step::Key(one)] if &**one == key))
    };
    let (tokenizer, config) = (at("tokenizer"), at("tokenizer_config"));
    let kinds = (tokenizer.map(kind), config.map(kind));
    let (file, message, help) = match (tokenizer, config, kinds) {
        (Some(file), Some(_), (Some(TokenizerFile::Config), Some(TokenizerFile::Tokenizer))) => (
            file,
            "`tokenizer` and `tokenizer_config` are swapped".to_owned(),
            "swap the two",
        ),
        (Some(file), _, (Some(TokenizerFile::Config), _)) => (
            file,
            format!("`{}` is a tokenizer's configuration, not a tokenizer", file.file.reference),
            "name the tokenizer here, and this file in `tokenizer_config`",
        ),
        (_, Some(file), (_, Some(TokenizerFile::Tokenizer))) => (
            file,
            format!("`{}` is a tokenizer, not its configuration", file.file.reference),
            "name the configuration here, and this file in `tokenizer`",
        ),
        _ => return,
    };
    let exchanged = tokenizer.zip(config).filter(|_| kinds == (Some(TokenizerFile::Config), Some(TokenizerFile::Tokenizer)));
    let fix = exchanged.and_then(|(one, other)| {
        let pairs = [(one, other), (other, one)];
        let values = pairs.map(|(at, from)| (at.file.path.clone(), from.file.reference.as_str().into()));
        let fix = context.fix(Applicability::Safe, &ValueChange::Replace(values.to_vec()))?;
        let title = "swap `tokenizer` and `tokenizer_config`".to_owned();
        Some(Fix { title, ..fix })
    });
    let anchor = Anchor::Value(file.file.path.clone());
    findings.push(RULE.meta.finding(anchor, message).help(help).fix(fix));
}

fn kind(file: &ReferencedFile) -> TokenizerFile {
    let Ok(facts) = &file.facts else {
        return TokenizerFile::Unknown;
    };
    if facts.is_file()
        && let Ok(keys) = facts.json()
    {
        if keys.is_tokenizer() {
            return TokenizerFile::Tokenizer;
        }
        if keys.is_config() {
            return TokenizerFile::Config;
        }
    }
    let name = Path::new(&file.file.reference).file_name();
    match name.and_then(|name| name.to_str()) {
        Some("tokenizer_config.json") => TokenizerFile::Config,
        _ => TokenizerFile::Unknown,
    }
}
