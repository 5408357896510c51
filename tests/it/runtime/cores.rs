//! Tests that a worker's threads run only on the chosen cores.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pkgtool_engine::Session;
use pkgtool_engine::runtime::cores::CoreChoice;

use crate::support::environment::EnvironmentPiece;
use crate::support::inputs::small_zeros;
use crate::support::loading::{launcher, request};
use crate::support::run::pkgtool;

const PACKAGE: &str = "packages-examples/watercolor/mlx";

/// Returns the numbers of the cores on which the test may run.
fn cores() -> Vec<u32> {
    allowed(Path::new("/proc/self"))
}

/// Returns the cores on which a thread or process may run, as the system says.
fn allowed(directory: &Path) -> Vec<u32> {
    let status = fs::read_to_string(directory.join("status")).expect("Linux describes threads");
    let listed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cores = Vec::new();
    for piece in listed.expect("Linux lists the cores").trim().split(',') {
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let number = |text: &str| text.parse::<u32>().expect("a number");
        cores.extend(number(first)..=number(last));
    }
    cores
}

#[test]
fn all_threads_of_a_worker_run_on_its_cores() {
    let test = "all_threads_of_a_worker_run_on_its_cores";
    let model = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("packages-examples/watercolor/mlx/watercolor_mlx_fp32.onnx");
    let mut engines = vec![("tract", None)];
    if let Some(library) = EnvironmentPiece::Ort.or_skip(test) {
        engines.push(("ort", Some(library)));
    }
    // ONNX Runtime by itself would pin a thread to each of the others.
    let first = cores()[0];
    for (engine, library) in engines {
        let mut request = request(&model);
        // The engine decides on the number of threads.
        request.options.threads = None;
        request.options.library = library;
        let inputs: Option<Vec<_>> = request.signature.inputs.iter().map(small_zeros).collect();
        let inputs = inputs.expect("the inputs are small");
        let choice: CoreChoice = first.to_string().parse().expect("a number");
        let started = launcher(None).start_on(Some(&choice), engine, &request);
        let mut worker = started.expect("it starts");
        worker.load(&request).expect("it loads");
        worker.run(&inputs).expect("it runs");
        let process = Path::new("/proc").join(worker.id().to_string());
        let threads = fs::read_dir(process.join("task")).expect("it lives");
        let found: BTreeSet<Vec<u32>> = threads
            .map(|thread| allowed(&thread.expect("a thread").path()))
            .collect();
        assert_eq!(found, BTreeSet::from([vec![first]]), "{engine}");
        let facts = worker.process_facts().expect("it answers");
        assert_eq!(facts.cores, Some(vec![first]), "{engine}");
    }
}

#[test]
fn commands_report_the_cores() {
    let last = cores().last().expect("a test runs somewhere").to_string();
    let bench = [
        "bench", PACKAGE, "--engine", "tract", "--runs", "2", "--rounds", "1", "--cores", &last,
    ];
    let text = pkgtool(bench).run().expect_code(0).stdout;
    let pinned = format!("pinned to 1 core: {last}");
    assert!(
        text.contains(&format!("\ncores {last}, 2 runs each")),
        "{text}"
    );
    assert!(text.contains(&pinned), "{text}");
    let directory = tempfile::tempdir().expect("a directory");
    let page = directory.path().join("bench.html");
    let page = page.to_str().expect("UTF-8");
    let more = ["--json", "--html", page, "--threads", "2"];
    let report = pkgtool(bench.iter().chain(&more))
        .run()
        .expect_code(0)
        .json();
    assert_eq!(report["cores"], last.as_str());
    assert_eq!(report["threads"], 2);
    let numbers = serde_json::json!([last.parse::<u32>().expect("a number")]);
    assert_eq!(report["series"][0]["pinned_cores"], numbers);
    assert!(fs::read_to_string(page).expect("written").contains(&pinned));
    let run = [
        "run", PACKAGE, "--engine", "tract", "--input", "zeros", "--cores", &last,
    ];
    let text = pkgtool(run).run().expect_code(0).stdout;
    assert!(text.contains(&pinned), "{text}");
}

#[test]
fn unusable_cores_are_named_with_those_that_exist() {
    let bench = |cores: &str| {
        let arguments = ["bench", PACKAGE, "--runs", "2", "--cores", cores];
        pkgtool(arguments).run().expect_code(2)
    };
    for (cores, expected) in [
        ("1000", "--cores 1000: no core 1000: expected some of 0"),
        ("", "such as `0-3,6`"),
        ("fast", "expected `big`, `little`, `all`, or numbers"),
        ("3-1", "expected the smaller number first"),
        ("0-5000", "expected numbers of cores below 1024"),
    ] {
        bench(cores).expect_error(expected);
    }
    let one_engine = ["bench", PACKAGE, "--engine", "tract", "--cores", "1000"];
    let error = pkgtool(one_engine).run().expect_code(2).stderr;
    assert!(!error.contains("other engines"), "{error}");
}

#[test]
fn a_baseline_is_for_one_choice_of_cores() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("times.json");
    let file = file.to_str().expect("UTF-8");
    let bench = |more: &[&str]| {
        let same = ["bench", PACKAGE, "--engine", "tract", "--runs", "20"];
        pkgtool(same.iter().chain(more)).run()
    };
    bench(&["--cores", "all", "--write-baseline", file]).expect_code(0);
    bench(&["--cores", "all", "--baseline", file]).expect_code(0);
    let other = bench(&["--baseline", file]).expect_code(2);
    other.expect_error("measured with --cores all, and this is with all cores, not pinned");
}
