//! Tokenizers of every kind found in packages, compared with the Python `tokenizers` library, and
//! invalid files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pkgtool_text::tokenizer::{
    Detokenizer, MAX_TEXT_BYTES, OverlongPolicy, SequenceSide, SpecialTokens, TokenLimit,
    Tokenizer, TokenizerConfig, TokenizerError,
};
use proptest::prelude::*;
use serde_json::Value;

use pkgtool_testing::fixture;
use pkgtool_testing::tree::Tree;

/// Kinds of tokenizers; each has a directory below `tests/fixtures/tokenizers`.
const KINDS: [&str; 4] = ["byte_level", "pieces", "unigram", "words"];

fn load(kind: &str) -> Arc<Tokenizer> {
    let directory = fixture("tokenizers").join(kind);
    let config = directory.join("tokenizer_config.json");
    let loaded = Tokenizer::load(&directory.join("tokenizer.json"), Some(&config));
    Arc::new(loaded.expect("the input is valid"))
}

fn golden() -> Value {
    let text = fs::read_to_string(fixture("tokenizers/golden.json")).expect("the file exists");
    serde_json::from_str(&text).expect("JSON")
}

fn ids(value: &Value) -> Vec<u32> {
    let ids = value.as_array().expect("a list").iter();
    ids.map(|id| u32::try_from(id.as_u64().expect("an id")).expect("an id"))
        .collect()
}

#[test]
fn ids_and_texts_are_those_of_pythons_library() {
    let golden = golden();
    let texts = golden["texts"].as_array().expect("a list");
    for kind in KINDS {
        let tokenizer = load(kind);
        let cases = golden["cases"][kind].as_array().expect("a list");
        assert_eq!(cases.len(), texts.len());
        for (text, case) in texts.iter().zip(cases) {
            let text = text.as_str().expect("a text");
            let special = tokenizer
                .encode(text, SpecialTokens::Added)
                .expect("the text is short");
            let plain = tokenizer
                .encode(text, SpecialTokens::Absent)
                .expect("the text is short");
            assert_eq!(special, ids(&case["special"]), "{kind}: {text:?}");
            assert_eq!(plain, ids(&case["plain"]), "{kind}: {text:?}");
            let count = tokenizer
                .count(text, SpecialTokens::Added)
                .expect("the text is short");
            assert_eq!(count, special.len());
            let decoded = tokenizer.decode(&plain, false).expect("the ids are valid");
            assert_eq!(decoded, case["decoded"], "{kind}: {text:?}");
            let skipped = tokenizer.decode(&special, true).expect("the ids are valid");
            assert_eq!(skipped, case["skipped"], "{kind}: {text:?}");
        }
    }
}

/// Pushes all ids and returns the joined pieces with the rest.
fn streamed(mut detokenizer: Detokenizer, ids: &[u32]) -> String {
    let mut text = String::new();
    for id in ids {
        text.push_str(&detokenizer.push(*id).expect("any id may come"));
    }
    text.push_str(&detokenizer.finish().expect("the rest is text"));
    text
}

#[test]
fn pieces_make_the_text_of_all_ids() {
    let golden = golden();
    for kind in KINDS {
        let tokenizer = load(kind);
        for case in golden["cases"][kind].as_array().expect("a list") {
            for (ids, skip, whole) in [
                (ids(&case["plain"]), false, &case["decoded"]),
                (ids(&case["special"]), true, &case["skipped"]),
            ] {
                let detokenizer = Detokenizer::new(Arc::clone(&tokenizer), skip);
                assert_eq!(streamed(detokenizer, &ids), *whole, "{kind}: {ids:?}");
            }
        }
    }
}

#[test]
fn half_a_character_waits_for_its_other_half() {
    for kind in ["byte_level", "pieces"] {
        let tokenizer = load(kind);
        let ids = tokenizer
            .encode("a👍b", SpecialTokens::Absent)
            .expect("the text is short");
        let mut detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
        let pieces = ids.iter().map(|id| detokenizer.push(*id).expect("an id"));
        let pieces: Vec<String> = pieces.collect();
        assert!(
            pieces.iter().all(|piece| !piece.contains('\u{fffd}')),
            "{kind}: {pieces:?}"
        );
        assert!(
            pieces.iter().any(|piece| piece == "👍"),
            "{kind}: {pieces:?}"
        );
        // Truncated inside the emoji: none of it appears before the end, where a replacement
        // character does.
        let thumb = pieces
            .iter()
            .position(|piece| piece == "👍")
            .expect("the emoji is a piece");
        let mut detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
        for id in &ids[..thumb] {
            assert!(!detokenizer.push(*id).expect("an id").contains('\u{fffd}'));
        }
        let rest = detokenizer.finish().expect("text");
        assert!(rest.contains('\u{fffd}'), "{kind}: {rest:?}");
        assert_eq!(detokenizer.finish(), Ok(String::new()), "once");
    }
}

#[test]
fn a_continuation_keeps_its_first_space() {
    for kind in ["pieces", "unigram"] {
        let tokenizer = load(kind);
        let prompt = tokenizer
            .encode("The model", SpecialTokens::Added)
            .expect("the text is short");
        let more = tokenizer
            .encode("holds weights", SpecialTokens::Absent)
            .expect("the text is short");
        let alone = Detokenizer::new(Arc::clone(&tokenizer), true);
        assert_eq!(streamed(alone, &more), "holds weights");
        let after = Detokenizer::new(Arc::clone(&tokenizer), true).after(&prompt);
        assert_eq!(
            streamed(after.expect("the ids are valid"), &more),
            " holds weights"
        );
    }
}

#[test]
fn what_never_becomes_a_character_is_not_held_for_ever() {
    for (kind, token) in [("byte_level", "ÿ"), ("pieces", "<0xFF>")] {
        let tokenizer = load(kind);
        let id = tokenizer.id_of(token).expect("a byte");
        let mut detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
        let told = (0..64).filter(|_| !detokenizer.push(id).expect("an id").is_empty());
        assert!(told.count() >= 7, "{kind}");
    }
}

#[test]
fn the_vocabulary_has_the_bytes_of_each_token() {
    let tokenizer = load("byte_level");
    let vocabulary = tokenizer.vocabulary();
    assert_eq!(vocabulary.len(), 570);
    assert_eq!(vocabulary.id_of_special("<|im_end|>"), Some(2));
    assert!(vocabulary.is_special(2));
    let added = tokenizer
        .id_of("<tool call>")
        .expect("the token is in the vocabulary");
    assert_eq!(vocabulary.bytes(added), Some(&b"<tool call>"[..]));
    assert!(!vocabulary.is_special(added) && vocabulary.id_of_special("<tool call>").is_none());
    let pieces = load("pieces");
    let newline = pieces.id_of("<0x0A>").expect("a byte");
    assert_eq!(pieces.vocabulary().bytes(newline), Some(&b"\n"[..]));
    // The joined bytes of all tokens are the text, except for a prefix before the first word.
    for kind in ["byte_level", "pieces", "unigram"] {
        let tokenizer = load(kind);
        for text in ["The package holds weights.", "again and again"] {
            let ids = tokenizer
                .encode(text, SpecialTokens::Absent)
                .expect("the text is short");
            let bytes = ids
                .iter()
                .filter_map(|id| tokenizer.vocabulary().bytes(*id));
            let bytes: Vec<u8> = bytes.flatten().copied().collect();
            let joined = String::from_utf8(bytes).expect("whole characters");
            assert_eq!(joined.trim_start(), text, "{kind}");
        }
    }
}

#[test]
fn settings_are_read_with_the_tokenizer() {
    let tokenizer = load("byte_level");
    assert_eq!(tokenizer.bos(), Some(0));
    assert_eq!(tokenizer.eos(), Some(1));
    assert_eq!(tokenizer.config().model_max_length, None);
    let padding = tokenizer.padding();
    assert_eq!((padding.id, padding.side), (Some(1), SequenceSide::Left));
    assert_eq!(
        load("words").padding().id,
        Some(0),
        "from tokenizer.json too"
    );
}

#[test]
fn cutting_is_asked_for_and_never_the_files() {
    // The file of this tokenizer truncates and pads to 16 tokens.
    let tokenizer = load("words");
    let long = "fox ".repeat(40);
    let all = tokenizer
        .encode(&long, SpecialTokens::Added)
        .expect("the text is short");
    assert_eq!(all.len(), 42);
    let short = tokenizer
        .encode("fox", SpecialTokens::Added)
        .expect("the text is short");
    assert_eq!(short.len(), 3);
    let bound = |tokens, overlong| Some(TokenLimit { tokens, overlong });
    let texts = ["fox", &long];
    let cut = tokenizer.encode_batch(&texts, bound(8, OverlongPolicy::Truncated));
    let cut = cut.expect("the text is truncated");
    assert_eq!(cut[0].ids, short);
    assert_eq!(cut[1].ids.len(), 8);
    assert_eq!(cut[1].ids.last(), all.last(), "the token at the end stays");
    let refused = tokenizer.encode_batch(&texts, bound(8, OverlongPolicy::Refused));
    let expected = TokenizerError::TooManyTokens {
        text: 1,
        tokens: 42,
        limit: 8,
    };
    assert_eq!(refused, Err(expected));
    let no_room = tokenizer.encode_batch(&texts, bound(1, OverlongPolicy::Truncated));
    assert_eq!(no_room, Err(TokenizerError::NoRoom { limit: 1, added: 2 }));
    let many = vec![long.as_str(); 20];
    let cut = tokenizer.encode_batch(&many, bound(2, OverlongPolicy::Truncated));
    assert!(
        cut.expect("only what is added is left")
            .iter()
            .all(|it| it.ids.len() == 2)
    );
    let huge = "x".repeat(MAX_TEXT_BYTES + 1);
    let huge = tokenizer.encode(&huge, SpecialTokens::Absent);
    assert!(matches!(huge, Err(TokenizerError::LongText { .. })));
}

fn refused(name: &str, content: impl AsRef<[u8]>) -> String {
    let tree = Tree::new().file(name, content);
    let loaded = Tokenizer::load(&tree.path(name), None);
    let error = loaded.expect_err(name).to_string();
    assert!(error.contains(name), "{error}");
    error
}

#[test]
fn what_is_no_tokenizer_says_what_to_do() {
    for (name, content, told) in [
        ("tokenizer.model", "\n\u{e}\n\u{5}<unk>", "SentencePiece"),
        (
            "tekken.json",
            r#"{"config": {}, "vocab": [{"token_bytes": "AA=="}]}"#,
            "save_pretrained",
        ),
        ("x.tiktoken", "IQ== 0\nIg== 1\n", "tiktoken"),
        ("tokenizer.bin", "\u{0}\u{0}", "tokenizer.json"),
        ("vocab.json", r#"{"a": 0, "b": 1}"#, "vocabulary"),
        (
            "tokenizer_config.json",
            r#"{"tokenizer_class": "X"}"#,
            "set `tokenizer` to the tokenizer",
        ),
        ("a.json", "", "it is empty"),
        ("b.json", "<html>", "invalid JSON"),
        ("c.json", "[]", "expected an object"),
        ("d.json", "{}", "it has no `model`"),
        (
            "e.json",
            r#"{"model": {"type": "BPE", "vocab": {}, "merges": []}}"#,
            "vocabulary is empty",
        ),
        (
            "f.json",
            r#"{"model": {"type": "Nonsense"}}"#,
            "not a valid tokenizer",
        ),
        (
            "g.json",
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "git lfs pull",
        ),
        (
            "h.json",
            r#"{"model": {"type": "WordLevel", "vocab": {"a": 4000000000}, "unk_token": "a"}}"#,
            "the id of the token `a` is too large",
        ),
        (
            "i.json",
            r#"{"added_tokens": [{"id": 7, "content": "<x>", "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false}],
                "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}}"#,
            "the id 7",
        ),
    ] {
        let error = refused(name, content);
        assert!(error.contains(told), "{name}: {error}");
    }
    let missing = Tokenizer::load(Path::new("nowhere/tokenizer.json"), None);
    assert!(matches!(missing, Err(TokenizerError::Unreadable { .. })));
}

#[test]
fn a_token_that_only_the_settings_name_is_added() {
    let model = r#"{"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 1}, "unk_token": "a"},
        "pre_tokenizer": {"type": "Whitespace"}}"#;
    let with = |id: u32| {
        let config = format!(
            r#"{{"added_tokens_decoder": {{"{id}": {{"content": "<end>", "special": true}}}}}}"#
        );
        let tree = Tree::new()
            .file("tokenizer.json", model)
            .file("tokenizer_config.json", config);
        let config: PathBuf = tree.path("tokenizer_config.json");
        Tokenizer::load(&tree.path("tokenizer.json"), Some(&config))
    };
    let tokenizer = with(2).expect("the id is the next one");
    let ids = tokenizer.encode("b <end> a", SpecialTokens::Absent);
    assert_eq!(ids.expect("the text is short"), [1, 2, 0]);
    assert_eq!(tokenizer.vocabulary().id_of_special("<end>"), Some(2));
    let error = with(9).expect_err("the id is not the next one").to_string();
    assert!(error.contains("`<end>` the id 9"), "{error}");
}

/// U+FFFD in a text is a regular character, although it also stands for invalid bytes.
#[test]
fn replacement_characters_stream_as_they_decode() {
    for kind in KINDS {
        let tokenizer = load(kind);
        for text in [
            "\u{fffd}",
            "\u{fffd}\u{fffd}🌀",
            "a\u{fffd}b 🌀\u{fffd}",
            "🌀🌀\u{fffd}🌀",
        ] {
            let ids = tokenizer
                .encode(text, SpecialTokens::Absent)
                .expect("the text is short");
            let whole = tokenizer.decode(&ids, false).expect("the ids are valid");
            let detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
            assert_eq!(streamed(detokenizer, &ids), whole, "{kind}: {text}");
        }
    }
}

/// Random ids, valid and unknown ones.
fn any_ids() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..700_u32, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_ids_of_bytes_stream_as_they_decode(ids in any_ids()) {
        let tokenizer = load("byte_level");
        let whole = tokenizer.decode(&ids, false).expect("any ids may be decoded");
        let detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
        prop_assert_eq!(streamed(detokenizer, &ids), whole);
    }

    #[test]
    fn any_ids_stream_without_a_panic(ids in any_ids(), kind in 1..KINDS.len()) {
        let tokenizer = load(KINDS[kind]);
        let detokenizer = Detokenizer::new(Arc::clone(&tokenizer), true);
        streamed(detokenizer, &ids);
    }

    #[test]
    fn any_text_streams_as_it_decodes(text in "\\PC{0,60}", kind in 0..KINDS.len()) {
        let tokenizer = load(KINDS[kind]);
        let ids = tokenizer.encode(&text, SpecialTokens::Absent).expect("the text is short");
        let whole = tokenizer.decode(&ids, false).expect("the ids are valid");
        let detokenizer = Detokenizer::new(Arc::clone(&tokenizer), false);
        prop_assert_eq!(streamed(detokenizer, &ids), whole);
    }

    #[test]
    fn changed_files_are_errors_and_no_panics(place in 0..9000_usize, byte: u8, kind in 0..KINDS.len()) {
        let file = fixture("tokenizers").join(KINDS[kind]).join("tokenizer.json");
        let mut bytes = fs::read(&file).expect("the file exists");
        let place = place % bytes.len();
        bytes[place] = byte;
        if let Ok(tokenizer) = Tokenizer::parse(&file, &bytes, TokenizerConfig::default()) {
            let ids = tokenizer.encode("naïve 日本 fox <s>", SpecialTokens::Added);
            if let Ok(ids) = ids {
                let _ = tokenizer.decode(&ids, false);
            }
            tokenizer.vocabulary();
        }
    }
}
