//! Rule `tokenizer-expected`: notes text capabilities without a tokenizer.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;

/// Capabilities whose models take or return token ids.
const TEXT: [&str; 3] = ["text-generation", "text-embedding", "speech-to-text"];

rule! {
    /// # What it checks
    /// A config with a text capability (`text-generation`, `text-embedding`, `speech-to-text`)
    /// names a tokenizer, or has a component with `tokenizer` in its name.
    ///
    /// # Why
    /// Such a model takes or returns token ids. Without the tokenizer, a caller cannot convert
    /// between text and token ids.
    ///
    /// # Example
    /// ```json
    /// { "capabilities": ["text-generation"] }
    /// ```
    /// with no `tokenizer`.
    ///
    /// # Fix
    /// Add the tokenizer and name it. If the model works on characters or contains its tokenizer,
    /// nothing is wrong.
    ///
    /// # What it does not see
    /// Models that work on text without declaring a text capability.
    PKG023 "tokenizer-expected" Note "A text capability has no tokenizer." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(config) = &context.config else { return };
    let mut capabilities = config.capabilities.iter().enumerate();
    let Some((index, capability)) = capabilities.find(|(_, c)| TEXT.contains(&c.as_str())) else {
        return;
    };
    let has_key = context
        .document()
        .is_some_and(|document| document.root.get("tokenizer").is_some());
    let has_component = config.files().any(|file| {
        let component = file.component.as_deref();
        component.is_some_and(|component| component.contains("tokenizer"))
    });
    if has_key || has_component {
        return;
    }
    let anchor = Anchor::Value(JsonPath::root().key("capabilities").index(index));
    let message = format!("`{capability}` without a tokenizer");
    let finding = RULE.meta.finding(anchor, message);
    findings.push(finding.help("name the tokenizer file in `tokenizer`"));
}
