//! Rule `backend-required`: reports models without a backend that the project requires.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::{Backend, config};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// A config in a directory named after a backend has sibling configs for all of
    /// `require-backends` in the `pkgtool.toml` that applies to it, or of `--require-backend`. Each
    /// model is reported once, not once for each of its backends.
    ///
    /// # Why
    /// A backend that was never exported is usually noticed only when someone needs it, which is
    /// late.
    ///
    /// # Example
    /// ```toml
    /// require-backends = ["xnnpack", "coreml"]
    /// ```
    /// and a model with `tiny/xnnpack/config.json` alone.
    ///
    /// # Fix
    /// Export the model for that backend, or exempt the model in `per-path-ignores`.
    ///
    /// # What it does not see
    /// Models whose configs are not in directories named after backends (`backend-directory`
    /// reports those). The rule does not check that the other config is valid; that config has
    /// findings of its own.
    PKG055 "backend-required" Error "A model lacks a backend that the project requires." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let required = context.demands.map_or(&[][..], |demands| &demands.backends);
    if required.is_empty() || context.config.is_none() {
        return;
    }
    let name = context.absolute.file_name().and_then(|name| name.to_str());
    let (Some(own), Some(model)) = (name.and_then(Backend::from_name), context.absolute.parent())
    else {
        return;
    };
    let is_there = |backend: Backend| {
        let config = model.join(backend.name()).join(config::FILE_NAME);
        backend == own || config.symlink_metadata().is_ok()
    };
    let missing = required.iter().copied().filter(|backend| !is_there(*backend));
    let missing: Vec<String> = missing.map(|backend| format!("`{backend}`")).collect();
    if missing.is_empty() {
        return;
    }
    let of = model.file_name().unwrap_or_default().to_string_lossy();
    let message = format!("`{of}` has no package for {}, which this project requires", missing.join(", "));
    let anchor = Anchor::Value(JsonPath::root().key("backend"));
    let finding = RULE.meta.finding(anchor, message).about(model);
    findings.push(finding.help(format!(
        "add a directory with a {} beside this one for each, or exempt the model in pkgtool.toml",
        config::FILE_NAME
    )));
}
