//! Tests of report formats against the contracts of their consumers.

use quick_xml::Reader;
use quick_xml::events::Event;
use serde_json::{Value, json};

use crate::support::fixture;
use crate::support::run::{Ran, pkgtool};
use crate::support::tree::{Tree, config};

/// Returns a package with an error, a warning and a note, in a directory whose name needs escaping.
fn tree() -> Tree {
    let mut config = config();
    config["license"] = json!("see README");
    config["unk%nown:a,b\nc"] = json!("é<&>");
    Tree::new().package("a b,c%:é/models", &config)
}

const PATH: &str = "a b,c%:é/models/config.json";

fn report(tree: &Tree, format: &str, more: &[&str]) -> Ran {
    let arguments = ["validate", "--color", "never", "--format", format];
    pkgtool(arguments.iter().chain(more))
        .within(tree.root())
        .run()
        .expect_code(1)
}

#[test]
fn people_see_the_place() {
    let arguments = [
        "validate",
        "--color",
        "never",
        "PKG004/bad/typing-error",
        "PKG025/bad/upper-case",
        "PKG013/bad/file",
        "PKG001/bad/zero",
    ];
    let ran = pkgtool(arguments)
        .within(fixture("rules"))
        .run()
        .expect_code(1);
    insta::assert_snapshot!(ran.stdout);
    let list = ["validate", "--color", "never", "PKG006/good"];
    let ran = pkgtool(list).within(fixture("rules")).run().expect_code(0);
    insta::assert_snapshot!("a_list_alone", ran.stdout);
    let always = ["validate", "--color", "always", "PKG004/bad/typing-error"];
    let ran = pkgtool(always)
        .within(fixture("rules"))
        .run()
        .expect_code(1);
    assert!(ran.stdout.contains("\u{1b}["));
}

#[test]
fn json_is_the_contract() {
    let tree = tree();
    let report = report(&tree, "json", &[]).json();
    let keys = |value: &Value| -> Vec<String> {
        let object = value.as_object().expect("an object");
        object.keys().cloned().collect()
    };
    assert_eq!(keys(&report), ["version", "summary", "diagnostics"]);
    assert_eq!(report["version"], 1);
    assert_eq!(
        report["summary"],
        json!({ "packages": 1, "errors": 1, "warnings": 1, "notes": 1 })
    );
    let diagnostics = report["diagnostics"].as_array().expect("an array");
    assert_eq!(diagnostics.len(), 3);
    for one in diagnostics {
        let names = [
            "code", "rule", "severity", "message", "path", "pointer", "span", "help", "fix",
        ];
        assert_eq!(keys(one), names);
        assert_eq!(one["path"], PATH);
        for end in ["start", "end"] {
            assert_eq!(keys(&one["span"][end]), ["line", "column", "offset"]);
            assert!(one["span"][end]["line"].as_u64() > Some(0));
            assert!(one["span"][end]["column"].as_u64() > Some(0));
        }
    }
    assert_eq!(diagnostics[0]["pointer"], "/backend");
    assert_eq!(diagnostics[0]["rule"], "backend-directory");
    assert_eq!(diagnostics[0]["severity"], "warning");
}

#[test]
fn sarif_follows_its_schema() {
    let schema = std::fs::read_to_string(fixture("sarif-2.1.0.schema.json")).expect("the schema");
    // The published schema contains an invalid regular expression, with an extra `]`.
    let schema = schema.replace("[a-zA-Z]{2}]?$", "[a-zA-Z]{2}?$");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let validator = jsonschema::validator_for(&schema).expect("a schema");
    let check = |sarif: &Value| {
        let faults: Vec<String> = validator
            .iter_errors(sarif)
            .map(|e| format!("{e} at {}", e.instance_path()))
            .collect();
        assert!(faults.is_empty(), "{faults:#?}");
    };
    // One report covers every kind of finding, the other one is empty.
    let arguments = ["validate", "--format", "sarif", "rules"];
    let all = pkgtool(arguments)
        .within(fixture(""))
        .run()
        .expect_code(1)
        .json();
    check(&all);
    let results = all["runs"][0]["results"].as_array().expect("an array");
    assert!(results.len() > 100);
    check(
        &pkgtool(["validate", "--format", "sarif"])
            .within(Tree::with_package().root())
            .run()
            .json(),
    );
    let tree = tree();
    let own = report(&tree, "sarif", &[]).json();
    check(&own);
    let rules = own["runs"][0]["tool"]["driver"]["rules"]
        .as_array()
        .expect("an array");
    assert_eq!(rules.len(), 61);
    for result in results
        .iter()
        .chain(own["runs"][0]["results"].as_array().expect("an array"))
    {
        let index =
            usize::try_from(result["ruleIndex"].as_u64().expect("an index")).expect("small");
        assert_eq!(rules[index]["id"], result["ruleId"]);
        let place = &result["locations"][0]["physicalLocation"];
        for key in ["startLine", "startColumn", "endLine", "endColumn"] {
            assert!(place["region"][key].as_u64() > Some(0), "{place}");
        }
        let uri = place["artifactLocation"]["uri"].as_str().expect("a URI");
        assert!(!uri.contains('\\') && !uri.contains(' '), "{uri}");
    }
    let uri = &own["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
        ["uri"];
    assert_eq!(uri, "a%20b%2Cc%25%3A%C3%A9/models/config.json");
}

#[test]
fn github_annotations_are_escaped() {
    let tree = tree();
    let text = report(&tree, "github", &[]).stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    let file = "file=a b%2Cc%25%3Aé/models/config.json,line=";
    for (line, level) in lines.iter().zip(["warning", "notice", "error"]) {
        assert!(line.starts_with(&format!("::{level} {file}")), "{line}");
        let (properties, message) = line[2..].split_once("::").expect("a message");
        assert!(
            properties.contains(",col=") && properties.contains(",title=PKG0"),
            "{line}"
        );
        assert!(message.contains("%0Ahelp: "), "{line}");
    }
    assert!(
        lines[2].contains("unknown key `unk%25nown:a,b%0Ac`"),
        "{}",
        lines[2]
    );
}

#[test]
fn junit_counts_failures() {
    let tree = tree();
    for (more, failures) in [(&[][..], 1), (&["--deny-warnings"], 2)] {
        let xml = report(&tree, "junit", more).stdout;
        let (mut failed, mut cases, mut declared) = (0, 0, None);
        let mut reader = Reader::from_str(&xml);
        loop {
            match reader.read_event().expect("XML") {
                Event::Start(tag) | Event::Empty(tag) => match tag.name().as_ref() {
                    b"failure" => failed += 1,
                    b"testcase" => cases += 1,
                    b"testsuites" => {
                        let count = tag.try_get_attribute("failures").expect("attributes");
                        declared =
                            count.map(|count| String::from_utf8_lossy(&count.value).into_owned());
                    }
                    _ => {}
                },
                Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(failed, failures, "{xml}");
        assert_eq!(declared, Some(failures.to_string()), "{xml}");
        assert_eq!(
            cases,
            failures + 1,
            "packages that pass get one separate case: {xml}"
        );
    }
}

/// Returns a checkout with two packages that have the same error twice.
fn checkout() -> Tree {
    let mut config = config();
    config["variants"][0]["methods"]["forward"]["inputs"][0]["dtype"] = json!("float");
    config["extra"] = json!(1);
    Tree::new()
        .file("repo/.git/HEAD", "")
        .package("repo/a/xnnpack", &config)
        .package("repo/b/xnnpack", &config)
}

fn report_within(tree: &Tree, directory: &str, arguments: &[&str]) -> Ran {
    let all = ["validate"].iter().chain(arguments);
    pkgtool(all)
        .within(tree.path(directory))
        .run()
        .expect_code(1)
}

#[test]
fn machines_get_paths_of_the_repository_wherever_the_run_began() {
    let tree = checkout();
    let uris = |ran: &Ran| -> Vec<String> {
        let report = ran.json();
        let results = report["runs"][0]["results"].as_array().expect("an array");
        let uri = |result: &Value| {
            let place = &result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
            place.as_str().expect("a URI").to_owned()
        };
        results.iter().map(uri).collect()
    };
    let absolute = tree.path("repo/a");
    let absolute = absolute.to_str().expect("UTF-8");
    for (directory, path) in [
        (".", "repo/a"),
        ("repo", "a"),
        ("repo/a/xnnpack", "."),
        ("repo/b", absolute),
    ] {
        let ran = report_within(&tree, directory, &["--format", "sarif", path]);
        assert_eq!(
            uris(&ran),
            ["a/xnnpack/config.json"; 2],
            "{path} in {directory}"
        );
        let ran = report_within(&tree, directory, &["--format", "github", path]);
        assert_eq!(
            ran.stdout.matches("file=a/xnnpack/config.json,").count(),
            2,
            "{}",
            ran.stdout
        );
    }
    let ran = report_within(
        &tree,
        ".",
        &["--format", "sarif", "--root", "repo/a", "repo/a"],
    );
    assert_eq!(uris(&ran), ["xnnpack/config.json"; 2]);
}

#[test]
fn sarif_tells_findings_apart_and_explains_rules() {
    let tree = checkout();
    let prints = |directory: &str| -> Vec<String> {
        let report = report_within(&tree, directory, &["--format", "sarif"]).json();
        let rules = report["runs"][0]["tool"]["driver"]["rules"]
            .as_array()
            .expect("rules");
        for rule in rules {
            let full = rule["fullDescription"]["text"].as_str().expect("a text");
            assert!(!full.is_empty() && !full.contains('#'), "{full}");
        }
        let results = report["runs"][0]["results"].as_array().expect("results");
        let print = |result: &Value| result["partialFingerprints"]["pkgtool/v2"].to_string();
        results.iter().map(print).collect()
    };
    let all = prints("repo");
    let different: std::collections::BTreeSet<&String> = all.iter().collect();
    assert_eq!((all.len(), different.len()), (4, 4));
    assert_eq!(all, prints("."), "the same wherever the run began");
    // An additional line above a finding does not change its fingerprint.
    let text = std::fs::read_to_string(tree.path("repo/a/xnnpack/config.json")).expect("a config");
    let tree = tree.file("repo/a/xnnpack/config.json", format!("\n\n{text}"));
    let moved = report_within(&tree, "repo", &["--format", "sarif"]).json();
    assert_eq!(
        moved["runs"][0]["results"][0]["partialFingerprints"]["pkgtool/v2"].to_string(),
        all[0]
    );
}

#[test]
fn terminals_with_links_link_codes_to_pages() {
    let tree = checkout();
    for (forced, is_linked) in [("1", true), ("0", false)] {
        let ran = pkgtool(["validate", "repo"])
            .within(tree.root())
            .variable("FORCE_HYPERLINK", forced)
            .run();
        let text = ran.stdout;
        let link = "\u{1b}]8;;https://pkgtool.dev/docs/rules/PKG";
        assert_eq!(text.contains(link), is_linked, "{text}");
        assert_eq!(text.contains("https://"), is_linked, "{text}");
    }
}

#[test]
fn sarif_links_each_rule_to_its_page() {
    let tree = checkout();
    let sarif = report_within(&tree, "repo", &["--format", "sarif"]).json();
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array();
    for rule in rules.expect("rules") {
        let code = rule["id"].as_str().expect("a code");
        let page = format!("https://pkgtool.dev/docs/rules/{code}/");
        assert_eq!(rule["helpUri"], page.as_str());
        let source = format!("{}/docs/rules/{code}.md", env!("CARGO_MANIFEST_DIR"));
        assert!(std::fs::exists(&source).expect("the book"), "{source}");
    }
}

#[test]
fn junit_cases_have_their_own_names_and_places() {
    let mut pair = config();
    pair["family"] = json!(["a"]);
    let text =
        format!("{pair:#}").replace("\"license\"", "\"license\": 1, \"license\": 2, \"license\"");
    let tree = Tree::with_package().file("xnnpack/config.json", text);
    let xml = report(&tree, "junit", &[]).stdout;
    let mut names = Vec::new();
    let mut reader = Reader::from_str(&xml);
    loop {
        match reader.read_event().expect("XML") {
            Event::Start(tag) | Event::Empty(tag) if tag.name().as_ref() == b"testcase" => {
                let value = |name: &str| {
                    let found = tag.try_get_attribute(name).expect("attributes");
                    String::from_utf8_lossy(&found.expect(name).value).into_owned()
                };
                assert_eq!(value("file"), "xnnpack/config.json", "{xml}");
                assert!(
                    value("line").parse::<usize>().is_ok_and(|line| line > 1),
                    "{xml}"
                );
                names.push(value("name"));
            }
            Event::Eof => break,
            _ => {}
        }
    }
    let different: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!((names.len(), different.len()), (3, 3), "{names:?}");
}

#[test]
fn a_report_can_take_standard_output() {
    let tree = tree();
    let direct = report(&tree, "json", &[]).stdout;
    let ran = report_within(
        &tree,
        ".",
        &["--report", "json=-", "--report", "sarif=r.sarif"],
    );
    assert_eq!(ran.stdout, direct, "nothing else is written there");
    assert!(tree.path("r.sarif").is_file());
    assert!(!tree.path("-").exists());
    let two = ["validate", "--report", "json=-", "--report", "sarif=-"];
    let ran = pkgtool(two).within(tree.root()).run().expect_code(2);
    assert!(ran.stderr.contains("only one"), "{}", ran.stderr);
}

#[test]
fn nine_hundred_broken_configs_can_be_read() {
    let mut tree = Tree::new();
    for i in 0..900 {
        let path = format!("p{i}/xnnpack/config.json");
        tree = match i % 3 {
            0 => tree.file(
                &path,
                "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 23\n",
            ),
            1 => tree.file(
                &path,
                format!("{{\"backend\": \"xnnpack\", \"variants\": [], \"x{i}\": 1}}"),
            ),
            _ => tree.file(&path, "{\"backend\": \"xnnpack\",}"),
        };
    }
    let arguments = ["validate", "--color", "never"];
    let ran = pkgtool(arguments).within(tree.root()).run().expect_code(1);
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert!(lines.len() < 100, "{} lines", lines.len());
    let more = lines
        .iter()
        .filter(|line| line.contains("299 more like this"))
        .count();
    assert_eq!(more, 5, "{}", ran.stdout);
    let first = lines
        .iter()
        .position(|line| *line == "What to do first:")
        .expect("the last lines");
    assert!(
        lines[first - 1].starts_with("900 packages checked: "),
        "{}",
        lines[first - 1]
    );
    assert!(
        lines[first + 1..]
            .iter()
            .any(|line| line.contains("PKG018") && line.contains("git lfs pull"))
    );
    assert!(lines.len() - first < 6, "{:#?}", &lines[first..]);
    let all = pkgtool(["validate", "--color", "never", "--ungrouped"])
        .within(tree.root())
        .run();
    assert_eq!(all.stdout.matches("[PKG018]").count(), 300);
    assert!(!all.stdout.contains("more like this"));
}
