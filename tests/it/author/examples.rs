//! Tests of `init` on every example package, in its layout but without its configs.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use walkdir::WalkDir;

use super::{init, read, without_names};
use crate::support::run::validate;
use crate::support::tree::Tree;

fn examples() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    let entries = fs::read_dir(root).expect("the examples");
    let mut repositories: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| {
            path.is_dir() && !path.ends_with("generator") && !path.ends_with("__pycache__")
        })
        .collect();
    repositories.sort();
    assert!(repositories.len() >= 14, "{repositories:?}");
    repositories
}

/// Returns a copy of a repository without its packages' configs, and the relative paths of the
/// configs.
fn bare(repository: &Path) -> (Tree, Vec<PathBuf>) {
    let mut tree = Tree::new();
    let mut configs = Vec::new();
    for entry in WalkDir::new(repository) {
        let entry = entry.expect("an entry");
        let above = repository.parent().expect("it has a parent");
        let below = entry.path().strip_prefix(above).expect("it is below");
        if !entry.file_type().is_file() {
            continue;
        }
        // The stub at a repository's root belongs to no package.
        if entry.file_name() == "config.json" && entry.depth() > 1 {
            configs.push(below.to_owned());
        } else {
            let bytes = fs::read(entry.path()).expect("a file");
            tree = tree.file(below.to_str().expect("UTF-8"), bytes);
        }
    }
    configs.sort();
    (tree, configs)
}

fn flags(config: &Value) -> Vec<String> {
    let words = config["capabilities"].as_array().expect("capabilities");
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let text = |key: &str| config[key].as_str().expect("a text").to_owned();
    let said = [
        "--family".to_owned(),
        text("family"),
        "--license".to_owned(),
        text("license"),
    ];
    let capability = ["--capability".to_owned(), words.join(",")];
    said.into_iter().chain(capability).collect()
}

#[test]
fn bare_packages_get_the_configs_that_were_written_by_hand() {
    let mut same_to_the_byte = 0;
    for repository in examples() {
        let (tree, configs) = bare(&repository);
        let above = repository.parent().expect("it has a parent");
        let by_hand = read(&above.join(&configs[0]));
        let flags = flags(&by_hand);
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let name = repository.file_name().expect("a name");
        let ran = init(&tree.root().join(name), &flags).expect_code(0);
        let told = ran.json();
        assert_eq!(told["version"], 1);
        assert_eq!(
            told["configs"].as_array().map(Vec::len),
            Some(configs.len())
        );
        for config in &configs {
            let expected = without_names(read(&above.join(config)));
            let written = read(&tree.root().join(config));
            assert_eq!(written, expected, "{}", config.display());
            let text = |root: &Path| fs::read_to_string(root.join(config)).expect("a config");
            same_to_the_byte += usize::from(text(tree.root()) == text(above));
        }
        let found = validate(tree.root(), ".").expect_code(0);
        assert_eq!(found.codes(), [""; 0], "{}", repository.display());
    }
    assert!(
        same_to_the_byte >= 14,
        "{same_to_the_byte} are printed as the examples are"
    );
}

#[test]
fn what_is_proposed_without_a_doubt_is_right() {
    let mut sure = 0;
    for repository in examples() {
        let (tree, configs) = bare(&repository);
        let above = repository.parent().expect("it has a parent");
        let by_hand = read(&above.join(&configs[0]));
        let name = repository.file_name().expect("a name");
        let flags = ["--yes", "--license", "mit", "--dry-run", "--model"];
        let model = by_hand["model"].as_str().expect("a model");
        let flags: Vec<&str> = flags.into_iter().chain([model]).collect();
        let ran = init(&tree.root().join(name), &flags);
        for config in ran.json()["configs"].as_array().expect("configs") {
            let fields = config["fields"].as_array().expect("fields");
            let Some(field) = fields
                .iter()
                .find(|field| field["pointer"] == "/capabilities")
            else {
                continue;
            };
            let right = field["value"]
                .as_array()
                .expect("an array")
                .iter()
                .all(|word| {
                    let words = by_hand["capabilities"].as_array().expect("an array");
                    words.contains(word)
                });
            assert!(right || field["guess"] == true, "{model}: {field}");
            sure += usize::from(right && field["guess"] == false);
        }
        assert!(
            !tree.root().join(&configs[0]).exists(),
            "nothing was written"
        );
    }
    assert!(sure >= 12, "{sure}");
}

#[test]
fn names_that_an_author_gave_survive_a_new_config() {
    let above = Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples");
    for name in ["watercolor", "jackdaw", "scribe-tiny-en"] {
        let (mut tree, configs) = bare(&above.join(name));
        for config in &configs {
            let text = fs::read_to_string(above.join(config)).expect("a config");
            tree = tree.file(config.to_str().expect("UTF-8"), text);
        }
        init(&tree.root().join(name), &["--force"]).expect_code(0);
        for config in &configs {
            let (new, old) = (
                tree.path(config.to_str().expect("UTF-8")),
                above.join(config),
            );
            assert_eq!(read(&new), read(&old), "{}", config.display());
        }
    }
}
