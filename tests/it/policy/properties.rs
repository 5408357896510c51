//! Property tests of settings: they may hide findings or change their severity, but never add one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use pkgtool_base::diagnostic::Report;
use pkgtool_check::policy::{Origin, Overrides, Policy};
use pkgtool_check::validate::{self, ValidationOptions};
use proptest::prelude::*;
use serde_json::json;

use super::faulty;
use crate::support::tree::Tree;

/// Rules that report only if settings ask for it.
const OWN: [&str; 6] = ["PKG053", "PKG054", "PKG055", "PKG056", "PKG057", "PKG058"];

fn options(tree: &Tree) -> ValidationOptions {
    ValidationOptions {
        paths: vec![tree.root().to_owned()],
        precisions: None,
        open_models: true,
        jobs: 1,
    }
}

fn counted(report: &Report) -> BTreeMap<(String, &'static str, String, String), usize> {
    let mut counted = BTreeMap::new();
    for one in &report.diagnostics {
        let key = (
            one.source.path.clone(),
            one.rule.code,
            one.pointer.clone(),
            one.message.clone(),
        );
        *counted.entry(key).or_default() += 1;
    }
    counted
}

fn selector() -> impl Strategy<Value = String> + Clone {
    prop_oneof![
        Just("all".to_owned()),
        Just("file".to_owned()),
        Just("license-unknown".to_owned()),
        Just("methods-missing".to_owned()),
        "PKG0[0-5][0-9]?",
        "[a-z-]{0,8}",
    ]
}

fn line() -> impl Strategy<Value = String> {
    let rules = proptest::collection::vec(selector(), 0..3);
    let glob = prop_oneof![
        Just("a/**".to_owned()),
        Just("*".to_owned()),
        "[a-z/*?{}!\\[\\]]{0,6}"
    ];
    prop_oneof![
        (Just("ignore"), rules.clone()).prop_map(|(key, rules)| format!("{key} = {}\n", json!(rules))),
        (Just("select"), rules.clone()).prop_map(|(key, rules)| format!("{key} = {}\n", json!(rules))),
        Just("deny-warnings = true\n".to_owned()),
        Just("allow-licenses = [\"MIT\"]\n".to_owned()),
        Just("require-backends = [\"mlx\"]\n".to_owned()),
        (glob.clone(), rules).prop_map(|(glob, rules)| format!("per-path-ignores.{} = {}\n", json!(glob), json!(rules))),
        glob.prop_map(|glob| format!("exclude = [{}]\n", json!(glob))),
        (selector(), "(off|note|warning|error|x)").prop_map(|(rule, level)| format!("severity.{} = {}\n", json!(rule), json!(level))),
        (selector(), "(/variants/0|/license|)").prop_map(|(rule, pointer)| {
            format!("exception = [{{ file = \"a/xnnpack/config.json\", rule = {}, pointer = {}, reason = \"x\" }}]\n", json!(rule), json!(pointer))
        }),
        any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn findings_are_never_added(lines in proptest::collection::vec(line(), 0..6)) {
        let tree = Tree::new().package("a/xnnpack", &faulty()).package("b/models", &faulty());
        let options = options(&tree);
        let free = validate::validate(&options, &|_, _| {}).expect("it runs").report;
        let _tree = tree.file("pkgtool.toml", lines.concat());
        let ruled = Policy::nearest().validate(&options, &|_, _| {}).expect("it runs");
        let free = counted(&free);
        for (key, count) in counted(&ruled.outcome.report) {
            let is_own = OWN.contains(&key.1);
            prop_assert!(is_own || free.get(&key).is_some_and(|free| *free >= count), "{key:?}");
        }
        let nothing = Policy::new(Origin::Nothing, Overrides::default()).expect("no file");
        let same = nothing.validate(&options, &|_, _| {}).expect("it runs").outcome.report;
        prop_assert_eq!(counted(&same), free);
    }

    #[test]
    fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300), path in "[a-z./]{0,12}") {
        let tree = Tree::with_package().file("pkgtool.toml", &bytes);
        let policy = Policy::nearest();
        let mut options = options(&tree);
        let ruled = policy.validate(&options, &|_, _| {}).expect("it runs");
        prop_assert!(ruled.outcome.report.packages == 1);
        options.paths = vec![PathBuf::from(path)];
        let _ = policy.settings_for(&options.paths[0]);
    }
}
