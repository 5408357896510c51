//! Rule `backend-delegate`: reports programs that are not delegated to the config's backend.

use std::collections::BTreeSet;

use pkgtool_base::diagnostic::{Anchor, Finding, Severity};
use pkgtool_model::{Method, ModelInfo};
use pkgtool_base::package::Backend;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// At least one method of an ExecuTorch program is delegated to the config's backend. It is an
    /// error if every method is delegated, but none to this backend. It is a warning if some
    /// methods have no delegate at all.
    ///
    /// # Why
    /// A program without the backend's delegate runs on portable kernels, many times slower. If
    /// another backend's runtime is missing, it does not run at all.
    ///
    /// # Example
    /// A `coreml` package whose program has only `XnnpackBackend` delegates.
    ///
    /// # Fix
    /// Export the model with the backend's partitioner, or correct `backend`.
    ///
    /// # What it does not see
    /// The share of a method that is delegated, and whether the delegate works. Models in ONNX and
    /// other formats are lowered on the device and not checked.
    PKG038 "backend-delegate" Warning "A program is not delegated to the config's backend." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(backend) = context.config.as_ref().and_then(|config| config.backend) else {
        return;
    };
    for (file, info) in context.models() {
        let Some((severity, found)) = judge(info, backend) else {
            continue;
        };
        // If the directory and the program both contradict the field, `backend-directory` reports
        // it.
        let directory = context.absolute.file_name().and_then(|name| name.to_str());
        let other = directory.and_then(Backend::from_name);
        if other.is_some_and(|other| is_delegated_to(info, other, backend)) {
            continue;
        }
        let wanted = backend.delegate_id();
        let anchor = Anchor::Value(file.file.path.clone());
        let message = format!(
            "no method of `{}` is delegated to {wanted}: {found}",
            file.file.reference
        );
        let finding = RULE.meta.finding(anchor, message).severity(severity);
        findings.push(finding.help(format!("export it with the partitioner of {backend}")));
    }
}

/// Returns whether a program is delegated to `other` instead of `backend`.
pub(super) fn is_delegated_to(info: &ModelInfo, other: Backend, backend: Backend) -> bool {
    let mut delegates = info.methods.iter().flat_map(|method| &method.delegates);
    judge(info, backend).is_some() && delegates.any(|delegate| delegate.id == other.delegate_id())
}

fn judge(info: &ModelInfo, backend: Backend) -> Option<(Severity, String)> {
    // Only ExecuTorch programs contain delegates; other formats are lowered on the device.
    if info.format != "executorch" {
        return None;
    }
    let methods: Vec<&Method> = info.methods.iter().filter(|m| !m.constant).collect();
    let ids: BTreeSet<&str> = methods
        .iter()
        .flat_map(|method| method.delegates.iter().map(|delegate| delegate.id.as_str()))
        .collect();
    if methods.is_empty() || ids.contains(backend.delegate_id()) {
        return None;
    }
    if ids.is_empty() {
        return Some((Severity::Warning, "it has no delegates".to_owned()));
    }
    let all = methods.iter().all(|method| !method.delegates.is_empty());
    let severity = if all { Severity::Error } else { Severity::Warning };
    let names: Vec<&str> = ids.into_iter().collect();
    Some((severity, format!("it has {}", names.join(", "))))
}
