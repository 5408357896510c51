//! Tests of `pkgtool train`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::run::{pkgtool, validate};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn train(dataset: &Path, out: &Path, more: &[&str]) -> crate::support::run::Ran {
    let base = root().join("packages-examples/hush-sentence");
    let plain = |path: &Path| path.to_str().expect("a plain path").to_owned();
    let arguments = [
        "train",
        &plain(&base),
        &plain(dataset),
        "--name",
        "scenes",
        "--out",
        &plain(out),
    ];
    pkgtool(arguments.iter().copied().chain(more.iter().copied())).run()
}

/// Returns all files of a directory with their content.
fn files(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files: Vec<_> = walkdir::WalkDir::new(directory)
        .into_iter()
        .map(|entry| entry.expect("it can be read"))
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let path = entry.path().strip_prefix(directory).expect("it is below");
            (
                path.to_owned(),
                fs::read(entry.path()).expect("it can be read"),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_package_is_made_and_made_again_to_the_byte() {
    let directory = tempfile::tempdir().expect("a directory");
    let dataset = root().join("tests/fixtures/train/scenes.csv");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let said = train(&dataset, &one, &["--json"]).expect_code(0);
    let metrics: Value = serde_json::from_str(&said.stdout).expect("JSON");
    assert!(
        metrics["validation"]["accuracy"]
            .as_f64()
            .expect("a number")
            > 0.8,
        "{metrics}"
    );
    assert_eq!(
        validate(&one, ".").expect_code(0).codes(),
        Vec::<String>::new()
    );
    let told = train(&dataset, &two, &[]).expect_code(0).stdout;
    assert!(
        told.contains("accuracy") && told.contains("animals"),
        "{told}"
    );
    assert_eq!(
        files(&one),
        files(&two),
        "the same rows give the same package"
    );
    // A run with another seed replaces the package.
    train(&dataset, &two, &["--config", "{\"seed\": 5, \"l2\": 3}"]).expect_code(0);
    assert_ne!(files(&one), files(&two));
    assert_eq!(
        validate(&two, ".").expect_code(0).codes(),
        Vec::<String>::new()
    );
    let left: Vec<_> = fs::read_dir(directory.path())
        .expect("it is there")
        .flatten()
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[test]
fn a_package_of_few_rows_has_a_report_and_hints() {
    let directory = tempfile::tempdir().expect("a directory");
    let rows = "text,label\na dog,animals\na cat,animals\na town,places\na river,places\n";
    let (dataset, out) = (
        directory.path().join("few.csv"),
        directory.path().join("few"),
    );
    fs::write(&dataset, rows).expect("a file");
    let told = train(&dataset, &out, &["--name", "few-scenes"]);
    // The name is given twice.
    told.expect_code(2);
    let told = train(&dataset, &out, &[]).expect_code(0).stdout;
    for part in [
        "on 4 rows, vectors of 32 numbers",
        "validation on 4 rows, each by a classifier without it: accuracy",
        "hint: labels with fewer than 8 rows: `animals` (2), `places` (2)",
        "with a report in report.html",
    ] {
        assert!(told.contains(part), "{told}");
    }
    let page = fs::read_to_string(out.join("report.html")).expect("a page");
    assert!(page.contains("<h2>What would help</h2>"), "{page}");
    assert_eq!(
        validate(&out, ".").expect_code(0).codes(),
        Vec::<String>::new()
    );
}

#[test]
fn a_trained_package_says_the_labels_of_texts() {
    let directory = tempfile::tempdir().expect("a directory");
    let ask = |out: &Path, more: &[&str]| {
        let out = out.to_str().expect("a plain path");
        pkgtool(["run", out].into_iter().chain(more.iter().copied())).run()
    };
    let one = directory.path().join("one");
    train(&root().join("tests/fixtures/train/scenes.csv"), &one, &[]).expect_code(0);
    let told = ask(&one, &["a small dog"]).expect_code(0).stdout;
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines[1], "\"a small dog\"");
    assert!(lines[2].starts_with("  animals  "), "{told}");
    let unsure = ["a small dog", "--set", "threshold=1", "--set", "top_k=1"];
    let told = ask(&one, &unsure).expect_code(0).stdout;
    assert!(
        told.contains("no answer") && !told.contains("people"),
        "{told}"
    );
    let several = directory.path().join("several");
    let dataset = root().join("tests/fixtures/train/pairs.csv");
    let told = train(&dataset, &several, &[]).expect_code(0).stdout;
    assert!(told.contains("all labels right"), "{told}");
    assert!(
        told.contains("a label holds from a probability of 0."),
        "{told}"
    );
    assert_eq!(
        validate(&several, ".").expect_code(0).codes(),
        Vec::<String>::new()
    );
    let texts = [
        "--text",
        "a small dog and the river",
        "--text",
        "a new phone",
        "--json",
    ];
    let told = ask(&several, &texts).expect_code(0).stdout;
    let told: Value = serde_json::from_str(&told).expect("JSON");
    let holding = |place: usize| {
        let labels = told["classified_texts"][place]["labels"].as_array();
        let labels = labels.expect("a list").iter();
        labels.filter(|it| it["holds"] == Value::Bool(true)).count()
    };
    assert_eq!((holding(0), holding(1)), (2, 0), "{told}");
    for (more, words) in [
        (
            &["x", "--set", "top_k=0"][..],
            "top_k=0: expected a whole number above 0",
        ),
        (
            &["x", "--set", "threshold=2"],
            "expected a number from 0 to 1",
        ),
        (&["x", "--set", "colour=1"], "`top_k=N` or `threshold=P`"),
        (&["x", "--save", "a.png"], "neither a picture nor a sound"),
    ] {
        let told = ask(&one, more).expect_code(2).stderr;
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn what_is_wrong_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let dataset = root().join("tests/fixtures/train/scenes.csv");
    let foreign = directory.path().join("foreign");
    fs::create_dir(&foreign).expect("a directory");
    fs::write(foreign.join("mine"), "x").expect("a file");
    let refused = train(&dataset, &foreign, &[]).expect_code(2).stderr;
    assert!(refused.contains("not made by training"), "{refused}");
    assert!(foreign.join("mine").is_file());
    let out = directory.path().join("out");
    let refused = train(&dataset, &out, &["--config", "{\"depth\": 1}"])
        .expect_code(2)
        .stderr;
    assert!(refused.contains("unknown key `depth`"), "{refused}");
    let bad = directory.path().join("bad.csv");
    fs::write(&bad, "text,label\na,x\nb\n").expect("a file");
    let refused = train(&bad, &out, &[]).expect_code(2).stderr;
    assert!(
        refused.contains("bad.csv: line 3: has 1 fields"),
        "{refused}"
    );
    train(&directory.path().join("nothing"), &out, &[]).expect_code(3);
    assert!(!out.exists());
}
