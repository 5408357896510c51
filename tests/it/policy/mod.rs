//! What a project asks of its packages: settings, command lines, baselines, walks.

mod baseline;
mod listed;
mod nested;
mod precisions;
mod properties;
mod schema;
mod settings;
mod walks;

use pkgtool::policy::Policy;

use crate::support::run::{Found, Ran, pkgtool};
use crate::support::tree::{Tree, config};

/// A config with a note (`license-unknown` at `/license`) and a warning (`file-name` at its variant's file).
fn faulty() -> serde_json::Value {
    let mut config = config();
    config["license"] = serde_json::json!("see README");
    config["model"] = serde_json::json!("huge");
    config
}

/// `pkgtool validate --format json` and more arguments, in the tree.
fn run(tree: &Tree, arguments: &[&str]) -> Ran {
    pkgtool(["validate", "--format", "json"].iter().chain(arguments))
        .within(tree.root())
        .run()
}

/// Names of rules with severities, in the order of the report, of those that are not clean.
fn told(tree: &Tree, arguments: &[&str]) -> Vec<String> {
    let found = run(tree, arguments).findings();
    let word = |one: Found| {
        let rule = pkgtool::validate::rule_metas()
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
