//! The licence, from a model card's front matter or a licence file.
//!
//! Invariant: only beginnings of files are read. A text of which two licences could be meant names none.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

/// Bytes of a file that are read: the GPL has 35,000.
const MAX_READ: u64 = 64 * 1024;
/// Most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 1000;

/// Phrases of licences, in lower case and with single spaces: all of the first, none of the second.
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

/// A licence and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct License {
    pub(super) license: String,
    pub(super) evidence: String,
}

/// The licence that stands nearest among the directories, which are in order.
pub(super) fn find<'a>(mut places: impl Iterator<Item = &'a Path>) -> Option<License> {
    places.find_map(in_directory)
}

fn in_directory(directory: &Path) -> Option<License> {
    let entries = fs::read_dir(directory).ok()?.flatten().take(MAX_ENTRIES);
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    let card = names
        .iter()
        .find(|name| name.eq_ignore_ascii_case("readme.md"));
    let of_card = card.and_then(|name| {
        let license = of_front_matter(&read(&directory.join(name))?)?;
        let evidence = format!("`license` in the front matter of {name}");
        Some(License { license, evidence })
    });
    of_card.or_else(|| {
        let files = names.iter().filter(|name| is_license_file(name));
        let mut found: Vec<License> = files
            .filter_map(|name| {
                let license = of_text(&read(&directory.join(name))?)?;
                let evidence = format!("the text of {name}");
                Some(License { license, evidence })
            })
            .collect();
        found.dedup_by(|one, other| one.license == other.license);
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
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_READ).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// `license` of a model card; of `other` the name that stands beside it (`license_name`), as hubs write it.
fn of_front_matter(text: &str) -> Option<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines();
    if lines.next()?.trim_end() != "---" {
        return None;
    }
    let (mut license, mut name) = (None, None);
    for line in lines {
        if line.trim_end() == "---" {
            let named = license == Some("other");
            let found = if named { name.or(license) } else { license };
            return found.map(str::to_owned);
        }
        if let Some(value) = line.strip_prefix("license:") {
            license = scalar(value);
        } else if let Some(value) = line.strip_prefix("license_name:") {
            name = scalar(value);
        }
    }
    // Without an end it is no front matter.
    None
}

/// A plain or quoted value on the key's line; lists and blocks are not read.
fn scalar(value: &str) -> Option<&str> {
    let value = value.split(" #").next()?.trim();
    let quoted = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    let value = quoted('"').or_else(|| quoted('\'')).unwrap_or(value);
    let is_plain = !value.is_empty() && !value.starts_with(['[', '{', '|', '>', '&', '*', '!']);
    (is_plain && value.len() <= 100).then_some(value)
}

/// The licence that a text is, or names by SPDX's tag.
fn of_text(text: &str) -> Option<String> {
    const TAG: &str = "SPDX-License-Identifier:";
    if let Some((_, rest)) = text.split_once(TAG) {
        let line = rest.lines().next()?.trim().trim_end_matches("-->").trim();
        return (!line.is_empty() && line.len() <= 100).then(|| line.to_owned());
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let plain = words.join(" ").to_lowercase();
    let is = |phrases: &[&str]| phrases.iter().all(|phrase| plain.contains(phrase));
    let mut found = TEXTS
        .iter()
        .filter(|(_, all, none)| is(all) && !none.iter().any(|phrase| plain.contains(phrase)));
    match (found.next(), found.next()) {
        (Some((license, ..)), None) => Some((*license).to_owned()),
        (None, _) => of_llama(&plain),
        _ => None,
    }
}

/// `llama 3.2 community license agreement` and its kin.
fn of_llama(plain: &str) -> Option<String> {
    let (before, _) = plain.split_once(" community license agreement")?;
    let mut words = before.rsplit(' ');
    let version = words.next()?;
    let is_version = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    (is_version && words.next()? == "llama").then(|| format!("llama-{version}-community"))
}

#[cfg(test)]
mod tests {
    use super::{of_front_matter, of_text};

    #[test]
    fn model_cards_say_their_licence() {
        let of = |text: &str| of_front_matter(text);
        let card = "---\r\ntags: [a]\r\nlicense: apache-2.0 # kept\r\n---\r\n# Model\r\n";
        assert_eq!(of(card).as_deref(), Some("apache-2.0"));
        let other = "---\nlicense_name: \"llama-3.2-community\"\nlicense: other\n---\n";
        assert_eq!(of(other).as_deref(), Some("llama-3.2-community"));
        assert_eq!(of("---\nlicense: other\n---\n").as_deref(), Some("other"));
        for none in [
            "",
            "# Model\nlicense: mit\n",
            "---\nlicense: mit\n",
            "---\nlicense:\n---\n",
            "---\nlicense: [mit, isc]\n---\n",
            "---\nlicense_link: mit\n---\n",
        ] {
            assert_eq!(of(none), None, "{none:?}");
        }
    }

    #[test]
    fn texts_are_recognised() {
        let apache = include_str!("../../../LICENSE-APACHE");
        let mit = include_str!("../../../LICENSE-MIT");
        assert_eq!(of_text(apache).as_deref(), Some("apache-2.0"));
        assert_eq!(of_text(mit).as_deref(), Some("mit"));
        assert_eq!(of_text(&format!("{apache}\n{mit}")), None, "either");
        let llama = "LLAMA 3.2 COMMUNITY LICENSE AGREEMENT\nLlama 3.2 Version";
        assert_eq!(of_text(llama).as_deref(), Some("llama-3.2-community"));
        let tag = "// SPDX-License-Identifier: MIT OR Apache-2.0\n";
        assert_eq!(of_text(tag).as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(of_text("All rights reserved."), None);
    }
}
