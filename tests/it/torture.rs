//! Runs the kill loop of the README for a moderate number of rounds.

use std::path::Path;
use std::process::Command;

/// Number of kills in this test; the command in the README uses a thousand.
const ROUNDS: &str = "100";

#[test]
fn a_hundred_kills_lose_nothing() {
    no_violation(&["--rounds", ROUNDS, "--round-ms", "250"]);
}

/// Workers are killed, frozen and cut off; the book has the command for 500 rounds.
#[test]
fn faults_of_workers_and_their_streams_lose_nothing() {
    no_violation(&[
        "--service",
        "workers",
        "--rounds",
        "40",
        "--round-ms",
        "250",
    ]);
}

fn no_violation(arguments: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture/torture.py");
    let ran = Command::new("python3")
        .arg(script)
        .args(arguments)
        .arg("--binary")
        .arg(env!("CARGO_BIN_EXE_pkgtool"))
        .output()
        .expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stdout);
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}\n{complained}");
    assert!(said.contains("no violation"), "{said}");
}

#[test]
fn the_checker_finds_what_it_has_to_find() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/torture/check_history.py");
    let ran = Command::new("python3")
        .arg(script)
        .output()
        .expect("python3 runs");
    let complained = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{complained}");
}
