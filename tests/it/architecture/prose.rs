//! Measures the English of comments and pages, and fails when it gets worse. `docs/contributing.md` has the rules.
//!
//! Three habits make prose hard to read: a sentence whose subject is a clause ("What is named is checked"), a negated
//! noun ("is no number"), and "tell" for report, print or log.

use std::fs;

use regex::Regex;

use crate::support::files;

/// Maximum share of sentences that begin with a word of [`CLAUSE_WORDS`].
const MAX_CLAUSES: f64 = 0.01;
/// Maximum number of "is no(ne)" and "are no(ne)" per 1000 words.
const MAX_NEGATED_NOUNS: f64 = 0.2;
/// Maximum number of forms of "tell" per 1000 words.
const MAX_TELLS: f64 = 0.1;

const CLAUSE_WORDS: &str = "What|Where|Whoever|Who|Which|Whether";

/// Counts of a text.
#[derive(Debug, Default)]
struct Prose {
    words: usize,
    sentences: usize,
    clauses: usize,
    negated_nouns: usize,
    tells: usize,
}

impl Prose {
    /// Counts a text in which code is already left out. Sentences of up to three words are not counted.
    fn of(text: &str) -> Self {
        let find = |pattern: &str| Regex::new(pattern).expect("a valid pattern");
        let clause = find(&format!(r"^[\s\-*>]*(?:{CLAUSE_WORDS})\b"));
        let is_sentence = |sentence: &&str| sentence.split_whitespace().count() > 3;
        let end = find(r"[.!?]\s+");
        let sentences: Vec<&str> = end.split(text).filter(is_sentence).collect();
        let words = sentences.iter().map(|it| it.split_whitespace().count());
        Self {
            words: words.sum(),
            sentences: sentences.len(),
            clauses: sentences.iter().filter(|it| clause.is_match(it)).count(),
            negated_nouns: find(r"\b(?:is|are) (?:no|none)\b").find_iter(text).count(),
            tells: find(r"(?i)\b(?:told|tells?|telling)\b")
                .find_iter(text)
                .count(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of words are small")]
    fn complaints(&self) -> Vec<String> {
        let per_thousand = |count: usize| count as f64 * 1000.0 / self.words.max(1) as f64;
        let clauses = self.clauses as f64 / self.sentences.max(1) as f64;
        [
            ("sentences that begin with a clause", clauses, MAX_CLAUSES),
            (
                "`is no` per 1000 words",
                per_thousand(self.negated_nouns),
                MAX_NEGATED_NOUNS,
            ),
            ("`tell` per 1000 words", per_thousand(self.tells), MAX_TELLS),
        ]
        .into_iter()
        .filter(|(_, found, limit)| found > limit)
        .map(|(name, found, limit)| format!("{name}: {found:.3}, at most {limit}"))
        .collect()
    }
}

/// Returns the comments of a Rust file as paragraphs, without words in backticks.
fn comments(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let comment = line.trim_start().strip_prefix("//");
        match comment.map(|it| it.trim_start_matches(['/', '!'])) {
            Some(comment) => text.extend([comment, "\n"]),
            None if !text.ends_with("\n\n") => text.push_str(". \n\n"),
            None => {}
        }
    }
    without_code(&text)
}

/// Returns the sentences of a Markdown page.
fn paragraphs(page: &str) -> String {
    let mut text = String::new();
    let mut in_code = false;
    for line in page.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else if !in_code && !line.starts_with(['|', '#']) {
            text.extend([line, "\n"]);
        }
    }
    without_code(&text)
}

fn without_code(text: &str) -> String {
    let code = Regex::new("`[^`]*`").expect("a valid pattern");
    code.replace_all(text, "x").into_owned()
}

fn assert_plain(name: &str, text: &str) {
    let complaints = Prose::of(text).complaints();
    assert_eq!(
        complaints,
        Vec::<String>::new(),
        "{name}; see docs/contributing.md"
    );
}

#[test]
fn comments_are_plain_english() {
    for folder in ["src", "crates", "xtask", "tests", "fuzz"] {
        let mut texts = String::new();
        for file in files::below(&files::root().join(folder), "rs") {
            texts += &comments(&fs::read_to_string(file).expect("a source file"));
            texts += ". \n\n";
        }
        assert_plain(folder, &texts);
    }
}

#[test]
fn pages_are_plain_english() {
    for page in files::pages() {
        let text = fs::read_to_string(&page).expect("a page");
        assert_plain(&page.display().to_string(), &paragraphs(&text));
    }
}

#[test]
fn each_habit_is_counted() {
    let text = "What is named is always checked. That is no number at all. The file tells us its size. \
                The worker returns the result.";
    let prose = Prose::of(text);
    let counts = (
        prose.sentences,
        prose.clauses,
        prose.negated_nouns,
        prose.tells,
    );
    assert_eq!(counts, (4, 1, 1, 1));
    assert_eq!(prose.complaints().len(), 3);
    assert_eq!(
        comments("/// One `is no` word.\nfn f() {}\n"),
        " One x word.\n. \n\n"
    );
    assert_eq!(
        paragraphs("# What\n| told |\n```\nis no\n```\nPlain.\n"),
        "Plain.\n"
    );
}
