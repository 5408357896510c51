//! `license-unknown`: a licence nobody knows by this name.

use crate::diagnostic::{Anchor, Finding};
use crate::package::license;
use crate::source::JsonPath;
use crate::validate::context::Context;
use crate::package::leftover::is_placeholder;

rule! {
    /// # What it checks
    /// `license` is an SPDX identifier or expression (in any case) or a known model-card slug such
    /// as `llama-3.2-community`.
    ///
    /// # Why
    /// Tools that sort packages by licence, and lawyers, look for these names.
    ///
    /// # Example
    /// ```json
    /// { "license": "see README" }
    /// ```
    ///
    /// # Fix
    /// Use the SPDX identifier (`Apache-2.0`), or `LicenseRef-` and a name for one of your own.
    PKG026 "license-unknown" Note "The licence is neither an SPDX identifier nor a known slug." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(license) = context.config.as_ref().and_then(|c| c.license.as_deref()) else {
        return;
    };
    if license.is_empty() || is_placeholder(license) || license::is_known(license) {
        return;
    }
    let anchor = Anchor::Value(JsonPath::root().key("license"));
    let message = format!("`{license}` is neither an SPDX identifier nor a known licence slug");
    let finding = RULE.meta.finding(anchor, message);
    findings.push(finding.help("SPDX: https://spdx.org/licenses; `LicenseRef-NAME` for one of your own"));
}
