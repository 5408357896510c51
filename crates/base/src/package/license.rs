//! Recognizes licence strings: SPDX identifiers and expressions, and slugs of model cards. Suggests
//! the right form of a text that only resembles one.

/// Slugs of model hubs and well-known model licences that SPDX does not list, in lower case.
const SLUGS: &[&str] = &[
    "apple-amlr",
    "apple-ascl",
    "bigcode-openrail-m",
    "bigscience-bloom-rail-1.0",
    "bigscience-openrail-m",
    "c-uda",
    "creativeml-openrail-m",
    "deepfloyd-if-license",
    "deepseek",
    "exaone",
    "falcon-llm-license",
    "fair-noncommercial-research-license",
    "flux-1-dev-non-commercial-license",
    "gemma",
    "grok2-community",
    "h-research",
    "health-ai-developer-foundations",
    "hippocratic-3.0",
    "intel-research",
    "lfm-1.0",
    "lgpl-lr",
    "llama2",
    "llama-2-community",
    "llama3",
    "llama-3-community",
    "llama3.1",
    "llama-3.1-community",
    "llama3.2",
    "llama-3.2-community",
    "llama3.3",
    "llama-3.3-community",
    "llama4",
    "llama-4-community",
    "mnpl-0.1",
    "mrl-0.1",
    "nvidia-open-model-license",
    "open-mdw",
    "openrail",
    "openrail++",
    "other",
    "pddl",
    "qwen",
    "qwen-research",
    "qualcomm-ai-hub-proprietary-license",
    "stabilityai-ai-community",
    "tongyi-qianwen",
    "unlicense",
    "yi-license",
];

/// Families of licences, in lower case, with the licences that a name without a version may mean.
const FAMILIES: &[(&str, &[&str])] = &[
    ("agpl", &["AGPL-3.0-only", "AGPL-3.0-or-later"]),
    ("apache", &["Apache-2.0"]),
    ("bsd", &["BSD-2-Clause", "BSD-3-Clause"]),
    ("cc", &["CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0"]),
    ("cc by", &["CC-BY-4.0"]),
    ("cc by nc", &["CC-BY-NC-4.0"]),
    ("cc by sa", &["CC-BY-SA-4.0"]),
    (
        "creative commons",
        &["CC-BY-4.0", "CC-BY-SA-4.0", "CC-BY-NC-4.0"],
    ),
    (
        "gpl",
        &[
            "GPL-2.0-only",
            "GPL-2.0-or-later",
            "GPL-3.0-only",
            "GPL-3.0-or-later",
        ],
    ),
    (
        "lgpl",
        &[
            "LGPL-2.1-only",
            "LGPL-2.1-or-later",
            "LGPL-3.0-only",
            "LGPL-3.0-or-later",
        ],
    ),
    ("gpl 2", &["GPL-2.0-only", "GPL-2.0-or-later"]),
    ("gpl 3", &["GPL-3.0-only", "GPL-3.0-or-later"]),
    ("lgpl 3", &["LGPL-3.0-only", "LGPL-3.0-or-later"]),
    ("agpl 3", &["AGPL-3.0-only", "AGPL-3.0-or-later"]),
    ("mpl", &["MPL-2.0"]),
    ("cc0", &["CC0-1.0"]),
    ("public domain", &["CC0-1.0", "Unlicense"]),
];

/// The classification of a licence text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum License {
    /// An SPDX identifier or expression in any case, or a known slug.
    Known,
    /// Resembles a licence; holds the licences that it may stand for, at least one.
    Meant(Vec<String>),
    /// Neither of the above.
    Unknown,
}

/// Classifies a licence text.
pub fn classify(license: &str) -> License {
    let trimmed = license.trim();
    if trimmed == license && is_known(license) {
        return License::Known;
    }
    let bounded = trimmed.len() <= MAX_NAME_BYTES;
    if bounded && is_known(trimmed) {
        return License::Meant(vec![canonical(trimmed)]);
    }
    if !bounded {
        return License::Unknown;
    }
    match possible_licenses(trimmed) {
        Some(meant) => License::Meant(meant),
        None => License::Unknown,
    }
}

/// Returns the identifiers that a config may use, with their full names if they have one: current
/// SPDX identifiers, then slugs.
pub fn names() -> impl Iterator<Item = (&'static str, Option<&'static str>)> {
    let current = spdx::identifiers::LICENSES.iter().filter(|known| {
        spdx::license_id(known.name).is_some_and(|license| !license.is_deprecated())
    });
    let current = current.map(|known| (known.name, Some(known.full_name)));
    current.chain(SLUGS.iter().map(|slug| (*slug, None)))
}

/// Returns the full name of an SPDX identifier in any case.
pub fn full_name(license: &str) -> Option<&'static str> {
    let mut known = spdx::identifiers::LICENSES.iter();
    let known = known.find(|known| known.name.eq_ignore_ascii_case(license))?;
    Some(known.full_name)
}

/// Maximum length of a text that is compared with licence names, in bytes.
const MAX_NAME_BYTES: usize = 100;

fn is_known(license: &str) -> bool {
    // Nearly all licences are written exactly as in SPDX.
    if spdx::license_id(license).is_some() {
        return true;
    }
    let is_slug = SLUGS.iter().any(|slug| license.eq_ignore_ascii_case(slug));
    is_slug || identifier(license).is_some() || is_expression(license)
}

/// Returns the SPDX identifier that equals this text in any case (SPDX specification, annex on
/// expressions).
fn identifier(text: &str) -> Option<&'static str> {
    let mut known = spdx::identifiers::LICENSES.iter().map(|known| known.name);
    known.find(|known| known.eq_ignore_ascii_case(text))
}

/// Returns whether the text is an SPDX expression, ignoring the case of identifiers.
fn is_expression(license: &str) -> bool {
    let mode = spdx::ParseMode {
        allow_deprecated: true,
        ..spdx::ParseMode::STRICT
    };
    license.len() <= MAX_EXPRESSION_BYTES
        && spdx::Expression::parse_mode(&canonical(license), mode).is_ok()
}

/// Maximum length of a text that is parsed as an expression, in bytes.
const MAX_EXPRESSION_BYTES: usize = 1000;

/// Returns the text with each identifier in SPDX's own case.
fn canonical(license: &str) -> String {
    let words = license.split_inclusive([' ', '(', ')']).map(|part| {
        let word = part.trim_end_matches([' ', '(', ')']);
        let plain = word.strip_suffix('+').unwrap_or(word);
        match identifier(plain) {
            Some(known) => format!("{known}{}", &part[plain.len()..]),
            None => part.to_owned(),
        }
    });
    words.collect()
}

/// Returns the licences that a text may stand for if it is not an identifier.
fn possible_licenses(text: &str) -> Option<Vec<String>> {
    let plain = plain(text);
    let same = |name: &&str| self::plain(name) == plain;
    let one = |name: &str| vec![name.to_owned()];
    let slug = || SLUGS.iter().copied().find(|slug| same(slug));
    let spdx = || {
        let mut licenses = spdx::identifiers::LICENSES.iter();
        let known = licenses.find(|known| same(&known.name) || same(&known.full_name));
        known.map(|known| known.name)
    };
    if let Some((_, names)) = FAMILIES.iter().find(|(family, _)| *family == plain) {
        return Some(names.iter().map(|name| (*name).to_owned()).collect());
    }
    spdx().or_else(slug).map(one)
}

/// Returns the distinguishing words of a licence name: lower case, without "the", "license" and
/// "version", and without the zero of a version.
fn plain(text: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    for c in text.to_lowercase().chars() {
        let is_break = c.is_ascii_digit() && before.is_ascii_alphabetic()
            || c.is_ascii_alphabetic() && before.is_ascii_digit();
        if is_break {
            words.push(' ');
        }
        words.push(if c.is_alphanumeric() { c } else { ' ' });
        before = c;
    }
    let left_out = [
        "the", "license", "licence", "version", "v", "gnu", "software", "0", "only",
    ];
    let kept = words
        .split_whitespace()
        .filter(|word| !left_out.contains(word));
    let plain = kept.collect::<Vec<_>>().join(" ");
    // `GPLv3` is one word.
    plain.replace("gplv ", "gpl ")
}

/// Returns whether `allowed` permits a licence, by its name in any case or as a satisfied SPDX
/// expression. A `WITH` exception only adds permissions, so it is ignored.
pub fn is_allowed(license: &str, allowed: &[String]) -> bool {
    let is_named = |text: &str| allowed.iter().any(|name| name.eq_ignore_ascii_case(text));
    if is_named(license) {
        return true;
    }
    let Ok(expression) = spdx::Expression::parse_mode(&canonical(license), spdx::ParseMode::LAX)
    else {
        return false;
    };
    expression.evaluate(|one| {
        let whole = one.to_string();
        let alone = whole.split(" WITH ").next().unwrap_or_default();
        is_named(&whole) || is_named(alone)
    })
}

#[cfg(test)]
mod tests {
    use super::{License, classify, is_allowed};

    #[test]
    fn knows_identifiers_expressions_and_slugs() {
        for known in [
            "Apache-2.0",
            "apache-2.0",
            "bsd-3-clause",
            "MIT OR Apache-2.0",
            "mit or (apache-2.0 and bsd-3-clause)",
            "Apache-2.0 WITH LLVM-exception",
            "LicenseRef-acme",
            "GPL-3.0",
            "llama-3.2-community",
            "lfm-1.0",
            "creativeml-openrail-m",
        ] {
            assert_eq!(classify(known), License::Known, "{known}");
        }
        for unknown in ["", "see README", "proprietary", "BSD 9", "MIT/Apache"] {
            assert_eq!(classify(unknown), License::Unknown, "{unknown}");
        }
    }

    #[test]
    fn what_looks_like_one_gets_the_right_one() {
        for (text, meant) in [
            ("Apache 2.0", &["Apache-2.0"][..]),
            ("Apache License 2.0", &["Apache-2.0"]),
            ("Apache License, Version 2.0", &["Apache-2.0"]),
            ("apache2", &["Apache-2.0"]),
            ("Apache", &["Apache-2.0"]),
            (" Apache-2.0 ", &["Apache-2.0"]),
            ("mit ", &["MIT"]),
            ("MIT License", &["MIT"]),
            ("The MIT License", &["MIT"]),
            ("BSD", &["BSD-2-Clause", "BSD-3-Clause"]),
            ("BSD 3-Clause", &["BSD-3-Clause"]),
            ("GPLv3", &["GPL-3.0-only", "GPL-3.0-or-later"]),
            ("CC BY-NC 4.0", &["CC-BY-NC-4.0"]),
            ("Llama 3.2 Community", &["llama-3.2-community"]),
            ("Llama 3.2 Community License", &["llama-3.2-community"]),
        ] {
            let meant = meant.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(classify(text), License::Meant(meant), "{text}");
        }
        let License::Meant(gpl) = classify("GPL") else {
            panic!("GPL names no licence");
        };
        assert!(gpl.len() > 1);
    }

    #[test]
    fn expressions_are_allowed_by_what_fulfils_them() {
        let allowed = ["MIT", "Apache-2.0", "llama-3.2-community"].map(str::to_owned);
        for license in [
            "MIT",
            "mit",
            "MIT OR GPL-3.0-only",
            "MIT AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "Llama-3.2-Community",
        ] {
            assert!(is_allowed(license, &allowed), "{license}");
        }
        for license in [
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "ISC OR Zlib",
            "",
            "MIT OR",
            "gemma",
        ] {
            assert!(!is_allowed(license, &allowed), "{license}");
        }
        assert!(!is_allowed("MIT", &[]));
    }
}
