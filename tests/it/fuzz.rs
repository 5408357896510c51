//! The files of the fuzz crate match its manifest. The tests do not build that crate.

use std::fs;
use std::path::Path;

#[test]
fn fuzz_targets_are_not_stale() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let value = |key: &str| {
        let lines = manifest.lines().filter_map(move |line| {
            let value = line.strip_prefix(key)?.trim().strip_prefix('=')?;
            Some(value.trim().trim_matches('"').to_owned())
        });
        lines.collect::<Vec<_>>()
    };
    let paths = value("path");
    let mut listed: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.strip_prefix("targets/")?.strip_suffix(".rs"))
        .collect();
    listed.sort_unstable();
    let mut there: Vec<String> = fs::read_dir(root.join("targets"))
        .expect("fuzz/targets")
        .map(|entry| entry.expect("an entry").path())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    there.sort();
    assert_eq!(listed, there, "[[bin]] paths and files in fuzz/targets");
    for name in there {
        let seeds = fs::read_dir(root.join("seeds").join(&name)).expect("seeds");
        assert!(seeds.count() > 0, "{name} has no seeds");
        let text = fs::read_to_string(root.join(format!("targets/{name}.rs"))).expect("a target");
        assert!(text.starts_with("//!"), "{name} must have a `//!` comment");
    }
}
