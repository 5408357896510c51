//! Checks the versions of the ONNX format and of operator sets, and normalises the domains of
//! operator sets.

use std::collections::BTreeMap;

use super::operators::Operators;

/// ONNX's own domain.
pub(super) const ONNX_DOMAIN: &str = "ai.onnx";
/// ONNX Runtime's main domain.
pub(super) const ORT_DOMAIN: &str = "com.microsoft";

/// Checks the IR version of the format.
pub(in crate::onnx) fn check_ir_version(found: i64) -> Result<(), String> {
    let latest = Operators::get().ir_version;
    if found <= latest {
        return Ok(());
    }
    Err(format!(
        "unknown IR version {found}: expected at most {latest}"
    ))
}

/// Checks the version of an imported operator set.
pub(in crate::onnx) fn check_import(domain: &str, found: i64) -> Result<(), String> {
    // ONNX Runtime checks the spelling `ai.onnx` only when a node uses it.
    let known = Operators::get().domain(canonical(domain));
    match known.filter(|known| found > known.latest && domain != ONNX_DOMAIN) {
        None => Ok(()),
        Some(known) => Err(format!(
            "unknown opset {found} of {}: expected at most {}",
            canonical(domain),
            known.latest
        )),
    }
}

/// Returns the version of each domain; a later import replaces an earlier one.
pub(super) fn by_domain(imports: &[(String, i64)]) -> BTreeMap<String, i64> {
    let imports = imports.iter();
    imports
        .map(|(domain, version)| (canonical(domain).to_owned(), *version))
        .collect()
}

/// Returns the canonical name of a domain; ONNX's own has two spellings.
pub(super) fn canonical(domain: &str) -> &str {
    if domain.is_empty() {
        ONNX_DOMAIN
    } else {
        domain
    }
}

/// Returns whether ONNX Runtime knows a domain without an import.
pub(super) fn is_ort_domain(domain: &str) -> bool {
    let mut known = ["ai.onnx", "com.microsoft", "com.ms.", "org.pytorch."].iter();
    known.any(|known| domain.starts_with(known))
}
