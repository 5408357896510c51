//! `schema-id`: packages of one place that name different schemas.

use crate::diagnostic::{Anchor, Finding};
use crate::package::leftover::is_placeholder;
use crate::source::JsonPath;
use crate::validate::context::Context;

rule! {
    /// # What it checks
    /// `$schema` is the project's `schema-id`, if `pkgtool.toml` has one. Otherwise configs for several backends and
    /// sizes of one place all have the same. Where they differ, those that say otherwise than most are named.
    ///
    /// # Why
    /// The identifier says whose format a package follows. Readers that look for it find only a part of the packages.
    ///
    /// # Example
    /// `xnnpack/config.json` with the publisher's identifier and `coreml/config.json` with one that a tool wrote.
    ///
    /// # Fix
    /// Write the publisher's identifier in all of them. Where one is missing, it is added as the configs beside have it,
    /// or as `schema-id` says.
    ///
    /// # What it does not see
    /// Whether something is at the address, and configs that are not validated in the same run.
    PKG059 "schema-id" Warning "A config names another schema than the project or the configs beside it." => check
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

/// The finding about an identifier that is another one elsewhere.
pub(in crate::validate) fn schema_id_differs(
    anchor: Anchor,
    _: &str,
    (here, there): (&str, &str),
    other: &str,
) -> Finding {
    let message = format!("`$schema` is {here} here, but {there} in {other}");
    let finding = RULE.meta.finding(anchor, message);
    finding.help("write the publisher's identifier in all configs; `schema-id` in pkgtool.toml says which it is")
}
