//! The committed files about conformance: the result of every case, the known faults, and the table
//! of results.
//!
//! `results/<target>.txt` begins with a heading that names the versions used. One line per case
//! follows: its name, its opset and the outcome.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::outcome::Outcome;

/// The newest opset in the first half of the table. Later opsets added operators that few engines
/// implement.
const OLDER_OPSETS: u64 = 18;

/// The outcome of every case on one engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Results {
    /// Versions of the cases and the engine, and the kind of machine.
    pub(super) made_with: String,
    /// Opset and outcome by case.
    pub(super) cases: BTreeMap<String, (Option<u64>, Outcome)>,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance")
}

fn path(target: &str) -> PathBuf {
    directory().join("results").join(format!("{target}.txt"))
}

impl Results {
    /// Reads the committed results, if there are any.
    pub(super) fn committed(target: &str) -> Option<Self> {
        let text = fs::read_to_string(path(target)).ok()?;
        Some(Self::parse(&text).unwrap_or_else(|| panic!("{target}.txt is invalid")))
    }

    fn parse(text: &str) -> Option<Self> {
        let (heading, lines) = text.split_once('\n')?;
        let cases = lines.lines().map(|line| {
            let mut words = line.split(' ');
            let (name, opset, outcome) = (words.next()?, words.next()?, words.next()?);
            let outcome = Outcome::from_name(outcome)?;
            Some((name.to_owned(), (opset.parse().ok(), outcome)))
        });
        Some(Self {
            made_with: heading.strip_prefix("# ")?.to_owned(),
            cases: cases.collect::<Option<_>>()?,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("# {}\n", self.made_with);
        for (name, (opset, outcome)) in &self.cases {
            let opset = opset.map_or_else(|| "-".to_owned(), |opset| opset.to_string());
            writeln!(text, "{name} {opset} {outcome}").expect("writing to a string succeeds");
        }
        text
    }

    /// Writes the results to the committed file.
    pub(super) fn commit(&self, target: &str) {
        fs::write(path(target), self.text()).expect("results can be written");
    }

    /// Returns all problems, one line each: panics, faults without a known cause, and changes.
    ///
    /// Changes are reported only against results made with the same versions. A case with a known
    /// fault may change between kinds of fault: an out-of-bounds read may give a wrong answer now
    /// and crash the next time.
    pub(super) fn problems(
        &self,
        known: &BTreeSet<String>,
        committed: Option<&Self>,
    ) -> Vec<String> {
        let mut problems = Vec::new();
        for (name, (_, outcome)) in &self.cases {
            if *outcome == Outcome::Panic {
                problems.push(format!("{name}: the engine panicked"));
            } else if outcome.needs_a_cause() && !known.contains(name) {
                problems.push(format!("{name}: {outcome}, but known.json names no cause"));
            }
        }
        let Some(committed) = committed else {
            problems.push(
                "no committed results: run with CONFORMANCE_UPDATE=1 to write them".to_owned(),
            );
            return problems;
        };
        if committed.made_with != self.made_with {
            return problems;
        }
        for name in known {
            let outcome = self.cases.get(name).map(|(_, outcome)| *outcome);
            if !outcome.is_some_and(Outcome::needs_a_cause) {
                problems.push(format!("{name}: listed in known.json, but no longer wrong"));
            }
        }
        let names: BTreeSet<&String> = self.cases.keys().chain(committed.cases.keys()).collect();
        for name in names.into_iter().filter(|name| !known.contains(*name)) {
            let outcome = |results: &Self| {
                let case = results.cases.get(name);
                case.map_or("no such case", |(_, outcome)| outcome.name())
            };
            let (before, now) = (outcome(committed), outcome(self));
            if before != now {
                problems.push(format!("{name}: {now}, was {before}"));
            }
        }
        problems
    }
}

/// Returns the cases of a target with a known fault. Each group in `known.json` must name its
/// cause.
pub(super) fn known(target: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(directory().join("known.json")).expect("known.json");
    let known: Value = serde_json::from_str(&text).expect("known.json is JSON");
    let groups = known[target].as_array().cloned().unwrap_or_default();
    let cases = groups.iter().flat_map(|group| {
        let cause = group["cause"].as_str().unwrap_or_default();
        assert!(!cause.is_empty(), "a group of {target} has no cause");
        group["cases"].as_array().expect("a list of cases")
    });
    cases
        .map(|case| case.as_str().expect("a name").to_owned())
        .collect()
}

/// Returns a Markdown table of all committed results.
pub(super) fn table(targets: &[&str]) -> String {
    let mut text = String::from(
        "# ONNX conformance\n\nThe backend test cases of the `onnx` Python package, run through the \
         engines. `tests/run --test it conformance`\nchecks it, `CONFORMANCE_UPDATE=1` rewrites it; \
         the result of each case is in `results/`, the causes of\nwrong answers are in \
         `known.json`. Unsupported: the engine refuses, an operator it is known to compute\nwrongly \
         included. Not tensors: sequences, optionals, strings, numbers below 8 bits or of 8-bit \
         floats.\nRandom outputs are compared by dtype and shape.\n",
    );
    let halves = [
        ("All opsets", u64::MAX),
        ("Opset 18 and older", OLDER_OPSETS),
    ];
    for (title, newest) in halves {
        write!(text, "\n## {title}\n\n| engine | cases |").expect("writing to a string succeeds");
        for outcome in Outcome::ALL {
            write!(text, " {} |", outcome.name().replace('-', " "))
                .expect("writing to a string succeeds");
        }
        let columns = "---:|".repeat(Outcome::ALL.len() + 1);
        writeln!(text, "\n|---|{columns}").expect("writing to a string succeeds");
        for target in targets {
            let Some(results) = Results::committed(target) else {
                continue;
            };
            let outcomes: Vec<Outcome> = results
                .cases
                .values()
                .filter_map(|(opset, outcome)| {
                    let within = newest == u64::MAX || opset.is_some_and(|opset| opset <= newest);
                    within.then_some(*outcome)
                })
                .collect();
            write!(text, "| {target} | {} |", outcomes.len())
                .expect("writing to a string succeeds");
            for wanted in Outcome::ALL {
                let count = outcomes
                    .iter()
                    .filter(|outcome| **outcome == wanted)
                    .count();
                write!(text, " {count} |").expect("writing to a string succeeds");
            }
            text.push('\n');
        }
    }
    text.push_str("\n## Made with\n\n");
    for target in targets {
        if let Some(results) = Results::committed(target) {
            writeln!(text, "- {target}: {}", results.made_with)
                .expect("writing to a string succeeds");
        }
    }
    text
}

/// Returns the path of the committed table.
pub(super) fn table_path() -> PathBuf {
    directory().join("table.md")
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMITTED: &str = "# x 1\ntest_a 13 pass\ntest_b - wrong\ntest_c 7 unsupported\n";

    fn results(text: &str) -> Results {
        Results::parse(text).expect("the results are complete")
    }

    fn known(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn results_are_read_as_written() {
        assert_eq!(results(COMMITTED).text(), COMMITTED);
    }

    #[test]
    fn nothing_new_is_no_problem() {
        let results = results(COMMITTED);
        let problems = results.problems(&known(&["test_b"]), Some(&results));
        assert_eq!(problems, Vec::<String>::new());
    }

    #[test]
    fn every_change_is_a_problem() {
        let now = results("# x 1\ntest_a 13 wrong\ntest_b - pass\ntest_d 7 panic\n");
        let problems = now.problems(&known(&["test_b"]), Some(&results(COMMITTED)));
        assert_eq!(
            problems,
            [
                "test_a: wrong, but known.json names no cause",
                "test_d: the engine panicked",
                "test_b: listed in known.json, but no longer wrong",
                "test_a: wrong, was pass",
                "test_c: no such case, was unsupported",
                "test_d: panic, was no such case",
            ]
        );
    }

    #[test]
    fn another_version_may_differ_but_not_be_wrong() {
        let now = results("# x 2\ntest_a 13 failed\ntest_b - pass\ntest_c 7 hang\n");
        let problems = now.problems(&known(&["test_b"]), Some(&results(COMMITTED)));
        assert_eq!(problems, ["test_c: hang, but known.json names no cause"]);
    }
}
