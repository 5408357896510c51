//! Loads a tokenizer of the tokenizers library from its files.
//!
//! Invariant: reads are limited in size. The loaded tokenizer neither truncates nor pads: the
//! file's settings for that are left over from its author's last call, and are not a property of
//! the model.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::PaddingDirection;

use super::config::{AddedToken, SequenceSide, TokenizerConfig};
use super::guard::catch_panic;
use super::kind::ForeignKind;
use super::read::broken_file;
use super::{Padding, TokenizerError};

/// Maximum size of a `tokenizer.json`, in bytes. The largest known ones have about 35 MB.
pub(super) const MAX_TOKENIZER_BYTES: u64 = 256 << 20;

/// Maximum token id: 16 times the largest known vocabulary.
pub(super) const MAX_TOKEN_ID: u32 = 1 << 22;

/// A tokenizer of the library, and the padding and truncation settings of its file.
pub(super) struct ParsedTokenizer {
    pub(super) tokenizer: tokenizers::Tokenizer,
    pub(super) padding: Padding,
    pub(super) truncation_side: SequenceSide,
}

/// Parses a tokenizer, and adds the tokens of its settings.
pub(super) fn parse(
    path: &Path,
    bytes: &[u8],
    config: &TokenizerConfig,
) -> Result<ParsedTokenizer, TokenizerError> {
    let outline = Outline::read(path, bytes)?;
    let parsed = catch_panic(|| tokenizers::Tokenizer::from_bytes(bytes));
    let mut tokenizer = parsed.map_err(|error| explain_error(path, bytes, error))?;
    check_ids(path, &tokenizer)?;
    outline.check(path, &tokenizer)?;
    add_tokens(path, &mut tokenizer, &config.added_tokens)?;
    let padding = padding(&tokenizer, config);
    let truncation_side = config.truncation_side.unwrap_or_else(|| {
        let of_file = tokenizer.get_truncation().map(|said| said.direction);
        match of_file {
            Some(tokenizers::TruncationDirection::Left) => SequenceSide::Left,
            _ => SequenceSide::Right,
        }
    });
    tokenizer.with_padding(None);
    catch_panic(|| tokenizer.with_truncation(None).map(|_| ()))?;
    Ok(ParsedTokenizer {
        tokenizer,
        padding,
        truncation_side,
    })
}

/// The parts of a tokenizer file that change and split texts.
#[derive(Deserialize)]
struct Pipeline<'f> {
    #[serde(borrow, default)]
    normalizer: Option<&'f RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'f RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'f RawValue>,
}

/// Blanks the parts of a file that change and split texts. The result can decode, but not encode.
pub(super) fn without_pipeline(path: &Path, mut bytes: Vec<u8>) -> Result<Vec<u8>, TokenizerError> {
    Outline::read(path, &bytes)?;
    let pipeline: Pipeline = serde_json::from_slice(&bytes)
        .map_err(|error| broken_file(path, format!("not a valid tokenizer: {error}")))?;
    let parts = [
        pipeline.normalizer,
        pipeline.pre_tokenizer,
        pipeline.post_processor,
    ];
    let start = bytes.as_ptr().addr();
    let ranges = parts.into_iter().flatten().map(|part| {
        let text = part.get();
        let at = text.as_ptr().addr() - start;
        at..at + text.len()
    });
    let ranges: Vec<Range<usize>> = ranges.collect();
    for range in ranges {
        let part = &mut bytes[range];
        // A part shorter than `null` is not an object, and the library rejects it.
        if let Some((null, rest)) = part.split_at_mut_checked(4) {
            null.copy_from_slice(b"null");
            rest.fill(b' ');
        }
    }
    Ok(bytes)
}

/// The part of the file that is checked before the library loads it.
#[derive(Deserialize)]
struct Outline {
    /// The library assigns ids by the order of these tokens and ignores the ids in the file.
    #[serde(default)]
    added_tokens: Value,
}

impl Outline {
    /// Checks the syntax of the whole file: the library panics on an error within a decoder.
    fn read(path: &Path, bytes: &[u8]) -> Result<Self, TokenizerError> {
        serde_json::from_slice(bytes).map_err(|error| match ForeignKind::of_bytes(path, bytes) {
            Some(kind) => foreign_format(path, kind),
            None if bytes.is_empty() => broken_file(path, "it is empty".to_owned()),
            None if error.is_data() => broken_file(path, "expected an object".to_owned()),
            None => broken_file(path, format!("invalid JSON: {error}")),
        })
    }

    fn check(&self, path: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<(), TokenizerError> {
        for token in self.added_tokens.as_array().into_iter().flatten() {
            let content = token.get("content").and_then(Value::as_str);
            let id = token.get("id").and_then(Value::as_u64);
            let (Some(content), Some(id)) = (content.filter(|text| !text.is_empty()), id) else {
                continue;
            };
            let has = tokenizer.token_to_id(content).map(u64::from);
            if has != Some(id) {
                let has = has.map_or_else(|| "none".to_owned(), |has| has.to_string());
                let reason = format!(
                    "`added_tokens` gives the token `{content}` the id {id}, but by its position it has {has}"
                );
                return Err(broken_file(path, reason));
            }
        }
        Ok(())
    }
}

fn foreign_format(path: &Path, kind: ForeignKind) -> TokenizerError {
    TokenizerError::Foreign {
        file: path.to_owned(),
        kind,
    }
}

/// Explains why JSON is not a tokenizer: by its actual format, or by the library's message.
fn explain_error(path: &Path, bytes: &[u8], error: TokenizerError) -> TokenizerError {
    let TokenizerError::Failed(reason) = error else {
        return error;
    };
    let value: Value = serde_json::from_slice(bytes).unwrap_or_default();
    match ForeignKind::of_value(&value) {
        Some(kind) => foreign_format(path, kind),
        None if !value.is_object() => broken_file(path, "expected an object".to_owned()),
        None if value.get("model").is_none() => {
            broken_file(path, "not a tokenizer: it has no `model`".to_owned())
        }
        None => broken_file(path, format!("not a valid tokenizer: {reason}")),
    }
}

/// Rejects ids that would make vocabulary-sized tables too large.
fn check_ids(path: &Path, tokenizer: &tokenizers::Tokenizer) -> Result<(), TokenizerError> {
    let vocabulary = catch_panic(|| Ok(tokenizer.get_vocab(true)))?;
    match vocabulary.iter().find(|(_, id)| **id > MAX_TOKEN_ID) {
        Some((token, id)) => {
            let reason = format!(
                "the id of the token `{token}` is too large: expected at most {MAX_TOKEN_ID}, got {id}"
            );
            Err(broken_file(path, reason))
        }
        None if vocabulary.is_empty() => {
            Err(broken_file(path, "its vocabulary is empty".to_owned()))
        }
        None => Ok(()),
    }
}

/// Adds the tokens that only the settings name, as transformers does.
fn add_tokens(
    path: &Path,
    tokenizer: &mut tokenizers::Tokenizer,
    tokens: &BTreeMap<u32, AddedToken>,
) -> Result<(), TokenizerError> {
    let missing: Vec<(&u32, &AddedToken)> = {
        let known = tokenizer.get_added_vocabulary().get_vocab();
        let is_missing =
            |token: &AddedToken| !token.content.is_empty() && !known.contains_key(&token.content);
        tokens
            .iter()
            .filter(|(_, token)| is_missing(token))
            .collect()
    };
    let added = missing.iter().map(|(_, token)| {
        tokenizers::AddedToken::from(token.content.clone(), token.special)
            .normalized(token.normalized)
            .lstrip(token.lstrip)
            .rstrip(token.rstrip)
            .single_word(token.single_word)
    });
    let added: Vec<tokenizers::AddedToken> = added.collect();
    catch_panic(|| tokenizer.add_tokens(added))?;
    for (id, token) in missing {
        let has = tokenizer.token_to_id(&token.content);
        if has != Some(*id) {
            let has = has.map_or_else(|| "none".to_owned(), |has| has.to_string());
            let reason = format!(
                "its settings give the token `{}` the id {id}, but here it gets {has}; \
                 do the two files belong to the same model?",
                token.content
            );
            return Err(broken_file(path, reason));
        }
    }
    Ok(())
}

/// Returns the padding: the token that the settings name, or else the file's own setting.
fn padding(tokenizer: &tokenizers::Tokenizer, config: &TokenizerConfig) -> Padding {
    let of_file = tokenizer.get_padding();
    let named = config.pad_token.as_deref();
    let id = named
        .and_then(|token| tokenizer.token_to_id(token))
        .or(of_file.map(|padding| padding.pad_id));
    let side = config
        .padding_side
        .or(of_file.map(|padding| match padding.direction {
            PaddingDirection::Left => SequenceSide::Left,
            PaddingDirection::Right => SequenceSide::Right,
        }));
    Padding {
        id,
        type_id: of_file.map_or(0, |padding| padding.pad_type_id),
        side: side.unwrap_or(SequenceSide::Right),
    }
}
