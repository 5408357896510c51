//! Rule `license-not-allowed`: reports licences that the project does not allow.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::package::license::{self, License};
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;
use crate::validate::listing::listed;

rule! {
    /// # What it checks
    /// `license` is one of `allow-licenses` in the `pkgtool.toml` that applies to the config, or of
    /// `--allow-license`. In an SPDX expression, the allowed licences must suffice: one side of
    /// `OR`, both sides of `AND`. Without such a list, every licence is allowed.
    ///
    /// # Why
    /// The project decides once which licences may be published, not in each review.
    ///
    /// # Example
    /// ```toml
    /// allow-licenses = ["MIT", "Apache-2.0"]
    /// ```
    /// and a config with `"license": "CC-BY-NC-4.0"`.
    ///
    /// # Fix
    /// Leave the package out, or allow the licence if it may be published.
    ///
    /// # What it does not see
    /// A licence that is not the licence of the model. `license-unknown` reports a text that only
    /// resembles an allowed one.
    PKG054 "license-not-allowed" Error "The project does not allow the licence." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let allowed = context.demands.and_then(|demands| demands.licenses.as_ref());
    let license = context.config.as_ref().and_then(|it| it.license.as_deref());
    let (Some(allowed), Some(license)) = (allowed, license) else {
        return;
    };
    if license.is_empty() || is_placeholder(license) || license::is_allowed(license, allowed) {
        return;
    }
    if let License::Meant(meant) = license::classify(license)
        && meant.iter().any(|name| license::is_allowed(name, allowed))
    {
        return;
    }
    let anchor = Anchor::Value(JsonPath::root().key("license"));
    let finding = RULE.meta.finding(anchor, format!("`{license}` is not allowed in this project"));
    findings.push(finding.help(match &allowed[..] {
        [] => "no licence is allowed".to_owned(),
        allowed => format!("allowed: {}", listed(allowed.iter().map(String::as_str))),
    }));
}
