//! Tests of a project's policy: settings, command lines, baselines, directory walks.

mod baseline;
mod listed;
mod nested;
mod overlay;
mod precisions;
mod properties;
mod schema;
mod settings;
mod walks;

use pkgtool_check::policy::Policy;

use crate::support::run::{Found, Ran, pkgtool};
use crate::support::tree::{Tree, config};

/// Returns a config with a note (`license-unknown` at `/license`) and a warning (`file-name` at its
/// variant's file).
fn faulty() -> serde_json::Value {
    let mut config = config();
    config["license"] = serde_json::json!("see README");
    config["model"] = serde_json::json!("huge");
    config
}

/// Runs `pkgtool validate --format json` in the tree with more arguments.
fn run(tree: &Tree, arguments: &[&str]) -> Ran {
    pkgtool(["validate", "--format", "json"].iter().chain(arguments))
        .within(tree.root())
        .run()
}

/// Returns the names of rules with findings and their severities, in the order of the report.
fn told(tree: &Tree, arguments: &[&str]) -> Vec<String> {
    let found = run(tree, arguments).findings();
    let word = |one: Found| {
        let rule = pkgtool_check::validate::rule_metas()
            .into_iter()
            .find(|rule| rule.code == one.code);
        format!(
            "{} {} {}",
            one.path,
            rule.expect("a rule").name,
            one.severity
        )
    };
    found.into_iter().map(word).collect()
}

#[test]
fn without_settings_nothing_is_asked() {
    let tree = Tree::with_package();
    assert!(
        Policy::nearest()
            .settings_for(&tree.path("xnnpack"))
            .is_none()
    );
}
