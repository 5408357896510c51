//! Tests of each setting, of precedence between settings, and of invalid settings.

use std::fs;

use super::{faulty, run, told};
use crate::support::run::pkgtool;
use crate::support::tree::{Tree, config};

const NAME: &str = "xnnpack/config.json file-name warning";
const LICENSE: &str = "xnnpack/config.json license-unknown note";

fn with(settings: &str) -> Tree {
    Tree::new()
        .package("xnnpack", &faulty())
        .file("pkgtool.toml", settings)
}

#[test]
fn rules_are_selected_and_ignored() {
    for (settings, expected) in [
        ("", &[LICENSE, NAME][..]),
        ("ignore = [\"license-unknown\"]", &[NAME]),
        ("ignore = [\"PKG026\", \"pkg025\"]", &[]),
        ("ignore = [\"PKG02\"]", &[]),
        ("ignore = [\"license\"]", &[NAME]),
        ("ignore = [\"all\"]", &[]),
        ("select = [\"file\"]", &[NAME]),
        (
            "select = [\"file\", \"PKG026\"]\nignore = [\"file-name\"]",
            &[LICENSE],
        ),
        ("select = []", &[]),
        (
            "[severity]\nall = \"off\"\nfile-name = \"note\"",
            &["xnnpack/config.json file-name note"],
        ),
        (
            "[severity]\nfile = \"off\"\nPKG025 = \"error\"",
            &[LICENSE, "xnnpack/config.json file-name error"],
        ),
        ("[per-path-ignores]\n\"xnnpack/**\" = [\"all\"]", &[]),
        ("[per-path-ignores]\n\"xnnpack\" = [\"file\"]", &[LICENSE]),
        (
            "[per-path-ignores]\n\"coreml/**\" = [\"all\"]",
            &[LICENSE, NAME],
        ),
        (
            "[per-path-ignores]\n\"config.json\" = [\"PKG025\"]",
            &[LICENSE],
        ),
        (
            "[per-path-ignores]\n\"*/[b-d]onfig.{json,toml}\" = [\"PKG025\"]",
            &[LICENSE],
        ),
        (
            "root = \"xnnpack\"\n[per-path-ignores]\n\"/config.json\" = [\"PKG025\"]",
            &[LICENSE],
        ),
    ] {
        assert_eq!(told(&with(settings), &[]), expected, "{settings}");
    }
}

#[test]
fn the_command_line_wins() {
    let tree = with("ignore = [\"PKG026\"]\n[severity]\nfile-name = \"error\"\n");
    let error = "xnnpack/config.json file-name error";
    for (arguments, expected) in [
        (&[][..], &[error][..]),
        (&["--no-config"], &[LICENSE, NAME]),
        (&["--select", "license"], &[LICENSE]),
        (&["--select", "PKG026,PKG025"], &[LICENSE, error]),
        (&["--ignore", "file-name"], &[]),
        (
            &["--severity", "PKG025=note"],
            &["xnnpack/config.json file-name note"],
        ),
        (&["--severity", "file=off"], &[]),
        (&["--select", "all", "--ignore", "file-name"], &[LICENSE]),
    ] {
        assert_eq!(told(&tree, arguments), expected, "{arguments:?}");
    }
    run(&tree, &[]).expect_code(1);
    run(&tree, &["--no-config"]).expect_code(0);
    fs::write(tree.path("other.toml"), "select = [\"license\"]").expect("a file");
    assert_eq!(told(&tree, &["--config", "other.toml"]), [LICENSE]);
    for wrong in [
        &["--config", "missing.toml"][..],
        &["--config", "."],
        &["--config", "other.toml", "--no-config"],
        &["--select", "file-nam"],
        &["--severity", "file-name"],
        &["--severity", "file-name=loud"],
        &["--exclude", "a\\b"],
        &["--require-backend", "cpu"],
        &["--require-capability", "flying"],
        &["--extra-precision", "int2"],
        &["--extra-precision", "INT2=quantized"],
        &["--baseline", "missing.json"],
        &["--baseline", "other.toml"],
        &["--baseline", "a", "--write-baseline", "b"],
    ] {
        let ran = run(&tree, wrong).expect_code(2);
        assert!(
            ran.stderr.starts_with("error: "),
            "{wrong:?}: {}",
            ran.stderr
        );
        assert_eq!(ran.stdout, "", "{wrong:?}");
    }
}

#[test]
fn nested_settings_add_to_those_above() {
    let tree = Tree::new()
        .package("a/one/xnnpack", &faulty())
        .package("a/two/xnnpack", &faulty())
        .package("b/xnnpack", &faulty())
        .file("pkgtool.toml", "ignore = [\"license\"]")
        .file("a/pkgtool.toml", "[severity]\nfile-name = \"error\"")
        .file("a/two/pkgtool.toml", "require-backends = [\"mlx\"]");
    let expected = [
        "a/one/xnnpack/config.json file-name error",
        "a/two/xnnpack/config.json backend-required error",
        "a/two/xnnpack/config.json file-name error",
        "b/xnnpack/config.json file-name warning",
    ];
    assert_eq!(told(&tree, &["."]), expected);
    assert_eq!(told(&tree, &["a/one", "a/two", "b"]), expected);
    let named = "a/two/xnnpack/config.json";
    assert_eq!(told(&tree, &[named]), expected[1..3]);
    // A checkout is a separate project, so settings above it do not apply.
    fs::create_dir(tree.path("b/.git")).expect("a directory");
    let of_b = [
        "b/xnnpack/config.json license-unknown note",
        "b/xnnpack/config.json file-name warning",
    ];
    assert_eq!(told(&tree, &["b"]), of_b);
}

#[test]
fn projects_demand_licences_backends_and_capabilities() {
    let tree = Tree::new()
        .package("tiny/xnnpack", &config())
        .file("pkgtool.toml", "allow-licenses = [\"Apache-2.0\"]\nrequire-backends = [\"coreml\", \"mlx\"]\nrequire-capabilities = [\"vision\"]");
    let all = [
        "tiny/xnnpack/config.json capability-required error",
        "tiny/xnnpack/config.json backend-required error",
        "tiny/xnnpack/config.json license-not-allowed error",
    ];
    assert_eq!(told(&tree, &[]), all);
    let messages: Vec<String> = run(&tree, &[])
        .findings()
        .into_iter()
        .map(|one| one.message)
        .collect();
    assert_eq!(
        messages[1],
        "`tiny` has no package for `coreml`, `mlx`, which this project requires"
    );
    let arguments = [
        "--allow-license",
        "MIT",
        "--require-backend",
        "xnnpack",
        "--require-capability",
        "classification",
    ];
    assert_eq!(told(&tree, &arguments), [""; 0]);
    let mut other = config();
    other["backend"] = serde_json::json!("mlx");
    let tree = tree.package("tiny/mlx", &other);
    let found = run(&tree, &["--select", "backend-required"]).findings();
    assert_eq!(found.len(), 1, "a model is reported once: {found:?}");
    assert!(
        found[0]
            .message
            .starts_with("`tiny` has no package for `coreml`,"),
        "{found:?}"
    );
}

#[test]
fn extra_precisions_add_to_the_list_in_force() {
    let mut int2 = config();
    int2["variants"][0]["precision"] = serde_json::json!("int2");
    let unknown = "xnnpack/config.json precision-unknown error";
    let tree = Tree::new().package("xnnpack", &int2);
    let select = ["--select", "precision"];
    assert_eq!(told(&tree, &select), [unknown]);
    let with_extra = |extra| {
        told(
            &tree,
            &[&select[..], &["--extra-precision", extra]].concat(),
        )
    };
    assert_eq!(with_extra("int2=quantized"), [""; 0]);
    assert_eq!(with_extra("int3=quantized"), [unknown]);
    let tree = tree.file(
        "pkgtool.toml",
        "[extra-precisions]\nnon-quantized = [\"int2\"]",
    );
    assert_eq!(told(&tree, &select), [""; 0]);
    // The repository's own list applies, and its entries stay valid.
    let list = "{\"quantized\": [\"int8\"], \"non_quantized\": [\"fp32\"]}";
    assert_eq!(told(&tree.file("precisions.json", list), &select), [""; 0]);
}

#[test]
fn warnings_are_denied() {
    let tree = Tree::new().package("models", &config());
    run(&tree, &[]).expect_code(0);
    let tree = tree.file("pkgtool.toml", "deny-warnings = true");
    run(&tree, &[]).expect_code(1);
    run(&tree, &["--exit-zero"]).expect_code(0);
    run(&tree, &["--ignore", "backend-directory"]).expect_code(0);
}

#[test]
fn exceptions_have_a_place_a_reason_and_an_end() {
    let exception = |more: &str| {
        format!(
            "[[exception]]\nfile = \"xnnpack/config.json\"\nrule = \"file-name\"\nreason = \"known\"\n{more}\n"
        )
    };
    let stale = "pkgtool.toml exception-stale note";
    for (more, expected) in [
        ("", &[LICENSE][..]),
        ("pointer = \"/variants/0/file\"", &[LICENSE]),
        ("pointer = \"/variants/fp32/file\"", &[LICENSE]),
        ("pointer = \"/variants/0\"", &[LICENSE]),
        ("pointer = \"/variants\"", &[LICENSE]),
        ("until = 2999-01-01", &[LICENSE]),
        ("pointer = \"/variants/1/file\"", &[stale, LICENSE, NAME]),
        ("pointer = \"/variants/0/fil\"", &[stale, LICENSE, NAME]),
        ("until = 2020-01-01", &[stale, LICENSE, NAME]),
    ] {
        assert_eq!(told(&with(&exception(more)), &[]), expected, "{more}");
    }
    // An exception for unchecked rules or files is not stale.
    let tree = with(&exception("pointer = \"/license\""));
    assert_eq!(told(&tree, &["--ignore", "file-name"]), [LICENSE]);
    assert_eq!(told(&tree, &["--no-model"]), [LICENSE, NAME]);
    let tree = tree.package("other/xnnpack", &config());
    assert_eq!(told(&tree, &["other"]), [""; 0]);
    let found = run(&tree, &[]).findings();
    assert_eq!(
        (found[0].pointer.as_str(), found[0].at.0),
        ("/exception/0", 1),
        "{found:?}"
    );
}

/// Invalid settings, each with the pointer, the line (0 for any), and parts of the message and the
/// help of its error.
const WRONG: &[(&str, &str, u64, &str, &str)] = &[
    (
        "recipes = 1",
        "/recipes",
        1,
        "expected an array of strings, found",
        "",
    ),
    (
        "recipes = [\"../a.toml\"]",
        "/recipes/0",
        1,
        "expected a path below this directory, found `../a.toml`",
        "put the recipe beside this file",
    ),
    (
        "recipes = [\"none.toml\"]",
        "/recipes/0",
        1,
        "no such file: `none.toml`",
        "name a recipe",
    ),
    (
        "ignor = []",
        "/ignor",
        1,
        "unknown key `ignor`",
        "did you mean `ignore`?",
    ),
    (
        "\nselect = \"all\"",
        "/select",
        2,
        "expected an array of strings, found the string \"all\"",
        "write [\"all\"]",
    ),
    (
        "ignore = [\"a\", 1]",
        "/ignore/1",
        1,
        "expected a string, found the number 1",
        "write it in quotes",
    ),
    (
        "deny-warnings = \"true\"",
        "/deny-warnings",
        1,
        "expected true or false, found the string \"true\"",
        "write true, without quotes",
    ),
    (
        "ignore = [\"file-nam\"]",
        "/ignore/0",
        1,
        "unknown rule `file-nam`",
        "did you mean `file-name`?",
    ),
    (
        "[severity]\nfile-name = \"warn\"",
        "/severity/file-name",
        2,
        "unknown level `warn`",
        "valid levels: ",
    ),
    (
        "[severity]\nfile-name = \"off\"\nPKG025 = \"note\"",
        "/severity/",
        0,
        "`file-name` and `PKG025` are the same rule",
        "set its level only once",
    ),
    (
        "exclude = ['a\\b']",
        "/exclude/0",
        1,
        "glob with a backslash",
        "write `a/b`",
    ),
    (
        "root = \"typo\"",
        "/root",
        1,
        "no such directory: `typo`",
        "relative to this file",
    ),
    (
        "root = \"/nonexistent\"",
        "/root",
        1,
        "no such directory: `/nonexistent`",
        "relative to this file",
    ),
    (
        "root = \"pkgtool.toml\"",
        "/root",
        1,
        "no such directory",
        "relative to this file",
    ),
    (
        "exclude = [\"a/[\"]",
        "/exclude/0",
        1,
        "invalid glob: ",
        "write `[*]` for the character itself",
    ),
    (
        "[per-path-ignores]\n\"p/[\" = [\"file\"]",
        "/per-path-ignores/p~1[",
        2,
        "invalid glob: ",
        "write `[*]` for the character itself",
    ),
    (
        "exclude = [\"[z-a]\"]",
        "/exclude/0",
        1,
        "invalid glob: ",
        "write `[*]` for the character itself",
    ),
    (
        "exclude = [\"!a\"]",
        "/exclude/0",
        1,
        "glob that begins with `!`",
        "write `[!]`",
    ),
    (
        "exclude = [\"../a\"]",
        "/exclude/0",
        1,
        "glob with `.` or `..`",
        "relative to `root`",
    ),
    (
        "exclude = [\"\"]",
        "/exclude/0",
        1,
        "empty glob",
        "remove it",
    ),
    (
        "[extra-precisions]\nquantized = [\"a\"]\nnon-quantized = [\"a\"]",
        "/extra-precisions/",
        0,
        "`a` is listed as quantized and as non-quantized",
        "remove it",
    ),
    (
        "require-backends = [\"core\"]",
        "/require-backends/0",
        1,
        "unknown backend `core`",
        "did you mean `coreml`?",
    ),
    (
        "allow-licenses = [\"Apache 2\"]",
        "/allow-licenses/0",
        1,
        "unknown licence `Apache 2`",
        "did you mean `Apache-2.0`?",
    ),
    (
        "[[exception]]\nfile = \"a\"\nrule = \"file-name\"",
        "/exception/0",
        1,
        "exception 1 lacks `reason`",
        "give a `reason`",
    ),
    (
        "[[exception]]\nfile = \"a\"\nrule = \"file-name\"\nreason = \" \"",
        "/exception/0/reason",
        4,
        "must not be empty",
        "write a value",
    ),
    (
        "[[exception]]\nfile = \"a\"\nrule = \"file\"\nreason = \"x\"",
        "/exception/0/rule",
        3,
        "`file` matches several rules",
        "name one",
    ),
    (
        "[[exception]]\nfile = 'a\\b'\nrule = \"file-name\"\nreason = \"x\"",
        "/exception/0/file",
        2,
        "path with a backslash",
        "write \"a/b\"",
    ),
    (
        "[[exception]]\nfile = \"a\"\npointer = \"b\"\nrule = \"file-name\"\nreason = \"x\"",
        "/exception/0/pointer",
        3,
        "invalid JSON pointer `b`",
        "start it with `/`",
    ),
    (
        "[[exception]]\nfile = \"a\"\nuntil = 2027-01-01T00:00:00Z\nrule = \"file-name\"\nreason = \"x\"",
        "/exception/0/until",
        3,
        "expected a date",
        "2027-01-31",
    ),
    (
        "[exception]\nfile = \"a\"",
        "/exception",
        1,
        "expected an array of tables, found a table",
        "[[exception]]",
    ),
    (
        "baseline = \"missing.json\"",
        "/baseline",
        1,
        "unusable baseline missing.json",
        "--write-baseline missing.json",
    ),
    ("a = ", "", 1, "invalid TOML", "toml.io"),
];

#[test]
fn what_is_wrong_is_told_with_its_place() {
    for &(settings, pointer, line, message, help) in WRONG {
        let tree = with(settings);
        let ran = run(&tree, &["."]);
        let found = ran.findings();
        let about: Vec<_> = found
            .iter()
            .filter(|one| one.code == "PKG053" && one.message.contains(message))
            .collect();
        let [one] = about[..] else {
            panic!("{settings}: {found:#?}");
        };
        assert!(one.pointer.starts_with(pointer), "{one:?}");
        assert!(line == 0 || one.at.0 == line, "{one:?}");
        assert!(one.help.contains(help), "{one:?}");
        assert!(ran.code == 1 || one.severity == "warning", "{one:?}");
    }
}

#[test]
fn it_cannot_be_silenced_and_what_is_right_holds() {
    let tree = with("ignore = [\"all\"]\nselect = [1]");
    assert_eq!(told(&tree, &[]), ["pkgtool.toml settings-invalid error"]);
    let tree = with("ignore = [\"license\"]\nbroken");
    assert_eq!(told(&tree, &[])[1..], [NAME]);
    for format in ["human", "sarif", "github", "junit"] {
        let ran = pkgtool(["validate", "--format", format])
            .within(tree.root())
            .run()
            .expect_code(1);
        assert!(
            ran.stdout.contains("pkgtool.toml"),
            "{format}: {}",
            ran.stdout
        );
    }
    let named = run(&with("ignor = []"), &["pkgtool.toml"]).expect_code(1);
    assert_eq!(named.findings().len(), 1);
    run(&with("ignore = []"), &["pkgtool.toml"]).expect_code(0);
}

#[test]
fn what_cannot_be_read_is_told() {
    let huge = format!("ignore = [\"all\"]\n#{}", "x".repeat(1024 * 1024));
    let message = |tree: &Tree| {
        let found = run(tree, &["."]).expect_code(1).findings();
        let one = found.into_iter().find(|one| one.code == "PKG053");
        one.expect("invalid settings are reported").message
    };
    assert!(message(&with(&huge)).contains("at most 1 MiB"));
    let tree = Tree::new()
        .package("xnnpack", &faulty())
        .file("pkgtool.toml", b"a = \"\xff\"");
    assert!(message(&tree).contains("is not UTF-8: invalid byte at offset 5"));
    let tree = Tree::new().package("xnnpack", &faulty());
    fs::create_dir(tree.path("pkgtool.toml")).expect("a directory");
    assert!(message(&tree).contains("is not a file"));
    #[cfg(unix)]
    {
        let tree = Tree::new().package("xnnpack", &faulty());
        std::os::unix::fs::symlink("pkgtool.toml", tree.path("pkgtool.toml")).expect("a link");
        assert!(
            message(&tree).contains("cannot be read"),
            "a link to itself"
        );
    }
    let deep = format!("ignore = {}", "[".repeat(100_000));
    assert!(message(&with(&deep)).contains("invalid TOML"));
    let many: Vec<String> = (0..3000).map(|i| format!("k{i} = 1")).collect();
    let many = many.join("\n");
    assert!(run(&with(&many), &[]).expect_code(1).findings().len() <= 1100);
}

#[test]
fn what_is_in_force_is_shown() {
    let tree = with(
        "ignore = [\"license\"]\n[severity]\nfile-name = \"error\"\n[[exception]]\nfile = \"a\"\nrule = \"file-name\"\nreason = \"why\"\n",
    );
    let arguments = [
        "validate",
        "--show-settings",
        "xnnpack",
        "--require-backend",
        "mlx",
    ];
    let shown = pkgtool(arguments)
        .within(tree.root())
        .run()
        .expect_code(0)
        .stdout;
    for line in [
        "# xnnpack: settings of pkgtool.toml",
        "ignore = [\"license\"]",
        "require-backends = [\"mlx\"]",
        "respect-gitignore = true",
        "file-name = \"error\"",
        "license-unknown = \"off\"",
        "reason = \"why\"",
    ] {
        assert!(shown.lines().any(|one| one == line), "{line} in {shown}");
    }
    let shown = pkgtool(["validate", "--show-settings", "--no-config"])
        .within(tree.root())
        .run();
    assert_eq!(shown.expect_code(0).stdout, "# .: no settings\n");
}

#[test]
fn root_is_what_reports_are_relative_to() {
    let uri = |settings: &str, arguments: &[&str]| {
        let tree = with(settings);
        let all = ["validate", "--format", "sarif", "xnnpack"]
            .iter()
            .chain(arguments);
        let report = pkgtool(all).within(tree.root()).run().json();
        report["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            .as_str()
            .expect("a path")
            .to_owned()
    };
    assert_eq!(uri("root = \"xnnpack\"", &[]), "config.json");
    assert_eq!(
        uri("root = \"xnnpack\"", &["--root", "."]),
        "xnnpack/config.json"
    );
}

#[test]
fn fix_takes_the_same_settings_as_validate() {
    let settings = "ignore = [\"license\"]\nexclude = [\"xnnpack\"]\n";
    let tree = with(settings);
    let fix = |arguments: &[&str]| {
        pkgtool(
            ["fix", "--check", "--format", "json"]
                .iter()
                .chain(arguments),
        )
        .within(tree.root())
        .run()
    };
    fix(&[]).expect_code(3);
    let all = fix(&["--no-config"]);
    assert!(all.stdout.contains("license-unknown"), "{}", all.stdout);
    fs::write(tree.path("other.toml"), "ignore = [\"license\"]").expect("a file");
    let some = fix(&["--config", "other.toml"]);
    assert!(some.stdout.contains("file-name"), "{}", some.stdout);
    assert!(!some.stdout.contains("license-unknown"), "{}", some.stdout);
    fix(&["--config", "missing.toml"]).expect_code(2);
    fix(&["--config", "other.toml", "--no-config"]).expect_code(2);
}

#[test]
fn junit_fails_what_settings_deny() {
    let failures = |settings: &str| {
        let tree = with(settings);
        let ran = pkgtool(["validate", "--format", "junit"])
            .within(tree.root())
            .run();
        ran.stdout.matches("<failure").count()
    };
    assert_eq!(failures(""), 0);
    assert_eq!(failures("deny-warnings = true"), 1);
    assert_eq!(
        failures("deny-warnings = true\nignore = [\"file-name\"]"),
        0
    );
}
