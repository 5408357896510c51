//! Packages modelled on published ones, both correct and with typical mistakes.
//!
//! The tool must report exactly the findings of a careful reviewer, which are written down by hand.

mod cases;
mod oddities;
mod packages;
mod repository;

use std::fmt::Write;

use crate::support::run::Found;
use cases::{CASES, Case};

/// Compares a finding with the table's notation: `CODE path pointer`, then optionally `~` and a
/// part of the message or help.
fn agrees(expected: &str, found: &Found) -> bool {
    let (place, said) = expected.split_once(" ~ ").unwrap_or((expected, ""));
    let mut words = place.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let same = (next(), next(), next()) == (&found.code, &found.path, &found.pointer);
    same && (found.message.contains(said) || found.help.contains(said))
}

fn check(case: &Case) -> Result<(), String> {
    let mut repository = packages::named(case.package);
    (case.sloppy)(&mut repository);
    let found = repository.validate();
    let all_expected = case
        .expected
        .iter()
        .all(|expected| found.iter().filter(|found| agrees(expected, found)).count() == 1);
    if all_expected && found.len() == case.expected.len() {
        return Ok(());
    }
    let mut text = format!("{} ({})\n", case.name, case.package);
    for expected in case.expected {
        writeln!(text, "  expected {expected}").expect("a string");
    }
    for Found {
        code,
        path,
        pointer,
        message,
        help,
        ..
    } in &found
    {
        writeln!(
            text,
            "  found    {code} {path} {pointer} ~ {message} | {help}"
        )
        .expect("a string");
    }
    Err(text)
}

#[test]
fn sloppy_packages_get_what_a_careful_reader_would_say() {
    assert!(CASES.len() >= 60, "{} cases", CASES.len());
    let cases = CASES.iter().chain(oddities::ODDITIES);
    let wrong: String = cases.filter_map(|case| check(case).err()).collect();
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn packages_as_they_are_published_are_clean() {
    assert!(packages::PACKAGES.len() >= 12);
    for (name, _) in packages::PACKAGES {
        let repository = packages::named(name);
        let found = repository.validate();
        assert!(found.is_empty(), "{name}: {found:#?}");
    }
}
