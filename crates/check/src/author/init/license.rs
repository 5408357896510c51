//! Detects the licence of a package from a model card's front matter or a licence file.
//!
//! Invariant: only the beginnings of files are read. A text that could be either of two licences
//! names none.

use std::fs;
use std::io::Read;
use std::path::Path;

use pkgtool_base::package::card::Card;
use pkgtool_base::source;

/// Maximum number of bytes read from a file; the GPL has 35,000.
const MAX_READ_BYTES: u64 = 64 * 1024;
/// Maximum number of entries inspected per directory.
const MAX_ENTRIES: usize = 1000;

/// Phrases of licences, in lower case with single spaces. A text must contain all of the first list
/// and none of the second.
const TEXTS: [(&str, &[&str], &[&str]); 17] = [
    (
        "apache-2.0",
        &["apache license", "version 2.0"],
        &["permission is hereby granted, free of charge"],
    ),
    (
        "mit",
        &[
            "permission is hereby granted, free of charge",
            "the software is provided \"as is\"",
        ],
        &["apache license"],
    ),
    (
        "bsd-3-clause",
        &[
            "redistribution and use in source and binary forms",
            "neither the name",
        ],
        &["all advertising materials"],
    ),
    (
        "bsd-2-clause",
        &["redistribution and use in source and binary forms"],
        &["neither the name", "all advertising materials"],
    ),
    (
        "agpl-3.0",
        &[
            "gnu affero general public license",
            "version 3, 19 november 2007",
        ],
        &[],
    ),
    (
        "lgpl-3.0",
        &["gnu lesser general public license version 3, 29 june 2007"],
        &[],
    ),
    (
        "gpl-3.0",
        &["gnu general public license version 3, 29 june 2007"],
        &["gnu lesser general public license version 3, 29"],
    ),
    ("mpl-2.0", &["mozilla public license version 2.0"], &[]),
    (
        "cc-by-4.0",
        &["attribution 4.0 international"],
        &["noncommercial 4.0", "sharealike 4.0", "noderivatives 4.0"],
    ),
    (
        "cc-by-nc-4.0",
        &["attribution-noncommercial 4.0 international"],
        &[],
    ),
    (
        "cc-by-sa-4.0",
        &["attribution-sharealike 4.0 international"],
        &[],
    ),
    (
        "cc-by-nc-sa-4.0",
        &["attribution-noncommercial-sharealike 4.0 international"],
        &[],
    ),
    ("cc0-1.0", &["cc0 1.0 universal"], &[]),
    (
        "unlicense",
        &["this is free and unencumbered software released into the public domain"],
        &[],
    ),
    ("creativeml-openrail-m", &["creativeml open rail-m"], &[]),
    ("gemma", &["gemma terms of use"], &[]),
    (
        "isc",
        &[
            "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee",
        ],
        &[],
    ),
];

/// Phrases at the end of licences, in the same form; the last occurrence counts. Text after it is
/// not part of the licence.
const ENDS: [(&str, &[&str]); 6] = [
    (
        "apache-2.0",
        &[
            "end of terms and conditions",
            "limitations under the license.",
        ],
    ),
    ("mit", &["dealings in the software."]),
    ("bsd-3-clause", &["possibility of such damage."]),
    ("bsd-2-clause", &["possibility of such damage."]),
    ("isc", &["performance of this software."]),
    (
        "unlicense",
        &["unlicense.org>", "unlicense.org/>", "unlicense.org/"],
    ),
];
/// Maximum number of words after a licence that are not further terms: an end mark, a name.
const MAX_TRAILING_WORDS: usize = 2;
/// Phrases that introduce further terms before or after a licence.
const FURTHER_TERMS: [&str; 8] = [
    "commons clause",
    "additional terms",
    "additional conditions",
    "additional restrictions",
    "further restrictions",
    "following restrictions",
    "non-commercial",
    "noncommercial",
];

/// A licence and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FoundLicense {
    pub(super) name: String,
    pub(super) evidence: String,
    /// True if there is additional text, which may contain further terms.
    pub(super) guess: bool,
}

/// The licence that was recognized in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RecognizedLicense {
    license: String,
    has_more: bool,
}

/// Returns the licence from the first directory that has one.
pub(super) fn find<'a>(mut places: impl Iterator<Item = &'a Path>) -> Option<FoundLicense> {
    places.find_map(in_directory)
}

fn in_directory(directory: &Path) -> Option<FoundLicense> {
    let entries = fs::read_dir(directory).ok()?.flatten().take(MAX_ENTRIES);
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let card = names
        .iter()
        .find(|name| name.eq_ignore_ascii_case("readme.md"));
    let of_card = card.and_then(|name| {
        let license = Card::read(&directory.join(name))?.license?;
        let evidence = format!("`license` in the front matter of {name}");
        Some(FoundLicense {
            name: license,
            evidence,
            guess: false,
        })
    });
    of_card.or_else(|| {
        let files = names.iter().filter(|name| is_license_file(name));
        let mut found: Vec<FoundLicense> = files
            .filter_map(|name| {
                let found = of_text(&read(&directory.join(name))?)?;
                let more = if found.has_more {
                    "; it has more text than that licence, maybe further terms"
                } else {
                    ""
                };
                Some(FoundLicense {
                    name: found.license,
                    evidence: format!("the text of {name}{more}"),
                    guess: found.has_more,
                })
            })
            .collect();
        found.dedup_by(|one, other| one.name == other.name);
        match found.len() {
            1 => found.pop(),
            _ => None,
        }
    })
}

fn is_license_file(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let stem = lower.strip_suffix(".txt").or(lower.strip_suffix(".md"));
    ["license", "licence", "copying"].contains(&stem.unwrap_or(&lower))
}

fn read(path: &Path) -> Option<String> {
    let file = source::open(path).ok()?;
    file.size().ok()?;
    let mut bytes = Vec::new();
    file.take(MAX_READ_BYTES).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Recognizes a licence by its text or by the SPDX tag.
fn of_text(text: &str) -> Option<RecognizedLicense> {
    const TAG: &str = "SPDX-License-Identifier:";
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = words.join(" ").to_lowercase();
    if let Some((_, rest)) = text.split_once(TAG) {
        let line = rest.lines().next()?.trim().trim_end_matches("-->").trim();
        return (!line.is_empty() && line.len() <= 100).then(|| RecognizedLicense {
            license: line.to_owned(),
            has_more: has_terms(&plain),
        });
    }
    let is = |phrases: &[&str]| phrases.iter().all(|phrase| plain.contains(phrase));
    let mut found = TEXTS
        .iter()
        .filter(|(_, all, none)| is(all) && !none.iter().any(|phrase| plain.contains(phrase)));
    match (found.next(), found.next()) {
        (Some((license, all, _)), None) => Some(RecognizedLicense {
            license: (*license).to_owned(),
            has_more: has_more(&plain, license, all.first().copied().unwrap_or_default()),
        }),
        (None, _) => of_llama(&plain).map(|license| RecognizedLicense {
            license,
            has_more: false,
        }),
        _ => None,
    }
}

/// Returns whether a text has more than that of a licence, which has `phrase` near its beginning.
fn has_more(plain: &str, license: &str, phrase: &str) -> bool {
    let before = plain.split_once(phrase).map_or("", |(before, _)| before);
    let ends = ENDS.iter().find(|(known, _)| *known == license);
    let end = ends.and_then(|(_, ends)| {
        let ends = ends.iter();
        ends.filter_map(|end| Some(plain.rfind(end)? + end.len()))
            .max()
    });
    let behind = end.map_or("", |end| &plain[end..]);
    let words = behind.split(' ');
    let words = words.filter(|word| word.contains(char::is_alphanumeric));
    has_terms(before) || has_terms(behind) || words.count() > MAX_TRAILING_WORDS
}

fn has_terms(plain: &str) -> bool {
    FURTHER_TERMS.iter().any(|terms| plain.contains(terms))
}

/// Recognizes `llama 3.2 community license agreement` and similar titles.
fn of_llama(plain: &str) -> Option<String> {
    let (before, _) = plain.split_once(" community license agreement")?;
    let mut words = before.rsplit(' ');
    let version = words.next()?;
    let is_version = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (is_version && words.next()? == "llama").then(|| format!("llama-{version}-community"))
}

#[cfg(test)]
mod tests {
    use super::of_text;

    #[test]
    fn texts_are_recognised() {
        let apache = include_str!("../../../../../LICENSE-APACHE");
        let mit = include_str!("../../../../../LICENSE-MIT");
        let sure = |text: &str| {
            let found = of_text(text)?;
            assert!(!found.has_more, "{}", found.license);
            Some(found.license)
        };
        assert_eq!(sure(apache).as_deref(), Some("apache-2.0"));
        assert_eq!(sure(mit).as_deref(), Some("mit"));
        assert_eq!(sure(&format!("{mit}\n---\n")).as_deref(), Some("mit"));
        assert_eq!(sure(&format!("{apache}\n{mit}")), None, "either");
        let llama = "LLAMA 3.2 COMMUNITY LICENSE AGREEMENT\nLlama 3.2 Version";
        assert_eq!(sure(llama).as_deref(), Some("llama-3.2-community"));
        let tag = "// SPDX-License-Identifier: MIT OR Apache-2.0\n";
        assert_eq!(sure(tag).as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(sure("All rights reserved."), None);
    }

    #[test]
    fn a_licence_with_further_terms_is_only_likely() {
        let apache = include_str!("../../../../../LICENSE-APACHE");
        let mit = include_str!("../../../../../LICENSE-MIT");
        let clause = "\"Commons Clause\" License Condition v1.0\n\nYou may not sell it.\n\n";
        let card = "SPDX-License-Identifier: MIT\nAdditional terms: not for sale.\n";
        for (text, license) in [
            (
                format!("{mit}\nAdditional terms: no commercial use.\n"),
                "mit",
            ),
            (format!("{mit}\nNo use in weapons.\n"), "mit"),
            (format!("{mit}\n{clause}"), "mit"),
            (format!("{clause}{mit}"), "mit"),
            (format!("{apache}\n{clause}"), "apache-2.0"),
            (card.to_owned(), "MIT"),
        ] {
            let found = of_text(&text).map(|found| (found.license, found.has_more));
            assert_eq!(found, Some((license.to_owned(), true)), "{text}");
        }
    }
}
