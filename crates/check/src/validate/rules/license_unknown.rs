//! Rule `license-unknown`: reports licences that are neither SPDX identifiers nor known slugs.

use pkgtool_base::diagnostic::{Anchor, Applicability, Finding};
use pkgtool_base::package::license::{self, License};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use pkgtool_base::package::leftover::is_placeholder;
use crate::validate::mend::ValueChange;

rule! {
    /// # What it checks
    /// `license` is an SPDX identifier or expression (in any case) or a known model-card slug such
    /// as `llama-3.2-community`. If a text only resembles one (`Apache 2.0`, `GPL`, an extra
    /// space), the finding suggests the right one.
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
    /// Use the SPDX identifier (`Apache-2.0`), or `LicenseRef-` and a name for your own licence.
    /// `pkgtool fix --unsafe` writes the identifier if only one can be meant.
    ///
    /// # What it does not see
    /// A licence that is not the licence of the model.
    PKG026 "license-unknown" Note fix Unsafe "The licence is neither an SPDX identifier nor a known slug." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(license) = context.config.as_ref().and_then(|c| c.license.as_deref()) else {
        return;
    };
    if license.is_empty() || is_placeholder(license) {
        return;
    }
    let path = || JsonPath::root().key("license");
    let mut fix = None;
    let (what, help) = match license::classify(license) {
        License::Known => return,
        License::Meant(meant) => {
            if let [one] = &meant[..] {
                fix = context.fix(Applicability::Unsafe, &ValueChange::replace(path(), one.as_str()));
            }
            let words: Vec<String> = meant.iter().map(|name| format!("\"{name}\"")).collect();
            let help = match &words[..] {
                [one] => format!("write \"license\": {one}"),
                several => format!("choose one: {}", several.join(", ")),
            };
            ("only looks like an SPDX identifier or a known licence slug", help)
        }
        License::Unknown => (
            "is neither an SPDX identifier nor a known licence slug",
            "SPDX: https://spdx.org/licenses; `LicenseRef-NAME` for your own".to_owned(),
        ),
    };
    let anchor = Anchor::Value(path());
    let finding = RULE.meta.finding(anchor, format!("`{license}` {what}"));
    findings.push(finding.help(help).fix(fix));
}
