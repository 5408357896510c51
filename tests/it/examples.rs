//! The example packages pass validation without findings, and together they show every feature they
//! are meant to show.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pkgtool_base::package::{Backend, Config, FileRef};
use pkgtool_base::source::Document;
use pkgtool_check::validate::{ValidationOptions, validate};

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packages-examples")
}

/// Returns every config of the examples, with its path below the examples directory.
fn configs() -> Vec<(PathBuf, Config)> {
    let mut configs = Vec::new();
    for backend in Backend::ALL {
        let mut directories = vec![examples()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(&directory).expect("a directory") {
                let path = entry.expect("an entry").path();
                if !path.is_dir() {
                    continue;
                }
                if path.ends_with(backend.name()) {
                    let config = path.join("config.json");
                    let text = fs::read_to_string(&config).expect("a config");
                    let document = Document::parse(&text).expect("JSON");
                    configs.push((config, Config::from_document(&document)));
                } else {
                    directories.push(path);
                }
            }
        }
    }
    configs
}

fn has_extension(file: &FileRef, extension: &str) -> bool {
    Path::new(&file.reference).extension() == Some(extension.as_ref())
}

#[test]
fn all_are_clean_to_the_last_note() {
    let options = ValidationOptions {
        paths: vec![examples()],
        precisions: None,
        open_models: true,
        jobs: 0,
    };
    let outcome = validate(&options, &|_, _| {}).expect("validation runs");
    assert_eq!(outcome.report.packages, configs().len());
    let findings: Vec<String> = outcome
        .report
        .diagnostics
        .iter()
        .map(|d| {
            format!(
                "{}{}: {} {}",
                d.source.path, d.pointer, d.rule.code, d.message
            )
        })
        .collect();
    assert!(findings.is_empty(), "{findings:#?}");
    assert_eq!(outcome.skipped.len(), 1, "the stub at a repository's root");
}

#[test]
fn they_show_the_whole_format() {
    let configs = configs();
    assert!(configs.len() >= 8);
    let backends: BTreeSet<&str> = configs
        .iter()
        .filter_map(|(_, config)| config.backend.map(Backend::name))
        .collect();
    assert_eq!(backends.len(), Backend::ALL.len(), "{backends:?}");

    let files: Vec<&FileRef> = configs.iter().flat_map(|(_, c)| c.files()).collect();
    let any = |what: &str, test: &dyn Fn(&FileRef) -> bool| {
        assert!(
            files.iter().any(|file| test(file)),
            "no example shows {what}"
        );
    };
    any("ONNX", &|f| has_extension(f, "onnx"));
    any("a program", &|f| has_extension(f, "pte"));
    any("a file at the repository root", &|f| {
        f.reference == "../tokenizer.json"
    });
    any("a file above a size directory", &|f| {
        f.reference == "../../tokenizer.json"
    });
    any("a component that is no model", &|f| {
        f.component.is_some() && has_extension(f, "json")
    });
    assert!(
        configs
            .iter()
            .any(|(_, config)| config.variants.len() > 1 && config.size.is_some()),
        "no example shows several precisions under a size directory"
    );
}
