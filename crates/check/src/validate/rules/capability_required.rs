//! Rule `capability-required`: reports models without a capability that the project requires.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// `capabilities` contains all of `require-capabilities` in the `pkgtool.toml` that applies to
    /// the config, or of `--require-capability`.
    ///
    /// # Why
    /// People search a repository by capability. A model without the entry is not found.
    ///
    /// # Example
    /// ```toml
    /// require-capabilities = ["text-generation"]
    /// ```
    /// and a config with `"capabilities": ["vision"]`.
    ///
    /// # Fix
    /// Add the capability if the model has it.
    ///
    /// # What it does not see
    /// A declared capability that the model does not have.
    PKG056 "capability-required" Error "A capability that the project requires is missing." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let required = context.demands.map_or(&[][..], |demands| &demands.capabilities);
    let Some(config) = context.config.as_ref().filter(|_| !required.is_empty()) else {
        return;
    };
    let path = JsonPath::root().key("capabilities");
    // The schema stage reports an invalid or missing list.
    if config.capabilities.is_empty() || context.is_violated(&path) {
        return;
    }
    let missing = required.iter().filter(|one| !config.capabilities.contains(one));
    let missing: Vec<String> = missing.map(|one| format!("`{one}`")).collect();
    if missing.is_empty() {
        return;
    }
    let missing = missing.join(", ");
    let message = format!("{missing} is not among the capabilities, and this project requires it");
    let finding = RULE.meta.finding(Anchor::Value(path), message);
    findings.push(finding.help(format!("add {missing} if the model has it")));
}
