//! Rule `schema-id`: reports a `$schema` that differs from the project's or from that of
//! neighbouring configs.

use pkgtool_base::diagnostic::{Anchor, Finding};
use pkgtool_base::package::leftover::is_placeholder;
use pkgtool_base::source::JsonPath;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// `$schema` is the project's `schema-id`, if `pkgtool.toml` sets one. Otherwise the configs
    /// for the backends and sizes in one tree have the same `$schema`. If they differ, the configs
    /// that deviate from the majority are reported.
    ///
    /// # Why
    /// The identifier names the format that a package follows. Readers that search for it find only
    /// some of the packages.
    ///
    /// # Example
    /// `xnnpack/config.json` with the publisher's identifier and `coreml/config.json` with one that
    /// a tool wrote.
    ///
    /// # Fix
    /// Write the publisher's identifier in all of them. A missing identifier is added from
    /// `schema-id` or from the neighbouring configs.
    ///
    /// # What it does not see
    /// An address that does not exist, and configs that are not validated in the same run.
    PKG059 "schema-id" Warning "A config's `$schema` differs from the project's or the neighbouring configs'." => check
}

fn check(context: &Context<'_>, findings: &mut Vec<Finding>) {
    let Some(wanted) = context.demands.and_then(|demands| demands.schema_id.as_deref()) else {
        return;
    };
    let Some(own) = context.config.as_ref().and_then(|config| config.schema.as_deref()) else {
        return;
    };
    let path = JsonPath::root().key("$schema");
    if own == wanted || is_placeholder(own) || context.is_violated(&path) {
        return;
    }
    let message = format!("`$schema` is {own}, but this project's `schema-id` is {wanted}");
    let finding = RULE.meta.finding(Anchor::Value(path), message);
    findings.push(finding.help("write the project's, or correct `schema-id`"));
}

/// Creates the finding about an identifier that differs from the majority.
pub(in crate::validate) fn schema_id_differs(
    anchor: Anchor,
    _: &str,
    (here, there): (&str, &str),
    other: &str,
) -> Finding {
    let message = format!("`$schema` is {here} here, but {there} in {other}");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("write the publisher's identifier in all configs; `schema-id` in pkgtool.toml defines it")
}
