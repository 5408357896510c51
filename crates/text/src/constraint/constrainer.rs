//! Compiles grammars for a vocabulary with llguidance, and translates its error messages.

use std::sync::Arc;
use std::thread;

use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use super::{ConstraintError, Grammar};

/// Stack size of the thread that compiles a grammar, in bytes. The library recurses into nested
/// schemas.
const GRAMMAR_STACK_BYTES: usize = 64 << 20;

/// First byte of a token that is not text, such as a control token.
const CONTROL_TOKEN_MARKER: u8 = TokTrie::SPECIAL_TOKEN_MARKER;

/// Maximum length of a library's message, in characters. Longer ones are cut.
const MAX_REASON_CHARS: usize = 300;

/// A vocabulary as bytes: the text of each token id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VocabularyBytes {
    /// The bytes of each id; empty for ids without text, such as control tokens and gaps.
    pub bytes: Vec<Vec<u8>>,
    /// Ids that end an answer.
    pub ends: Vec<u32>,
}

/// Compiles grammars into constraints on one vocabulary.
pub struct Constrainer {
    factory: ParserFactory,
}

impl Constrainer {
    /// Builds the token tree of a vocabulary. A large one takes about 100 ms, so this runs once per
    /// model.
    pub fn new(words: VocabularyBytes) -> Result<Self, ConstraintError> {
        let VocabularyBytes { mut bytes, ends } = words;
        let wrong = |reason: String| Err(ConstraintError::Vocabulary(reason));
        let Some(first) = ends.first().copied() else {
            return wrong("the model has no end token".to_owned());
        };
        let size = bytes.len();
        if let Some(beyond) = ends.iter().find(|id| **id as usize >= size) {
            return wrong(format!(
                "end token {beyond} is outside the vocabulary of {size} tokens"
            ));
        }
        for end in &ends {
            bytes[*end as usize] =
                [&[CONTROL_TOKEN_MARKER], format!("<end {end}>").as_bytes()].concat();
        }
        let size = match u32::try_from(size) {
            // The library indexes tokens with 24 bits.
            Ok(size) if size < 1 << 24 => size,
            _ => return wrong(format!("a vocabulary of {size} tokens is too large")),
        };
        let trie = TokTrie::from(&TokRxInfo::new(size, first), &bytes);
        let trie = trie.with_eos_tokens(&ends);
        let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let factory = ParserFactory::new_simple(&environment);
        let mut factory =
            factory.map_err(|error| ConstraintError::Vocabulary(error.to_string()))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            max_lexer_states: 50_000,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Self { factory })
    }

    /// Returns the constraint at the beginning of an output.
    pub fn constrain(&self, grammar: &Grammar) -> Result<Constraint, ConstraintError> {
        let schema = TopLevelGrammar::from_json_schema(grammar.schema.clone());
        let build = || Matcher::new(self.factory.create_parser(schema));
        let outcome = thread::scope(|scope| {
            let thread = thread::Builder::new().name("grammar".to_owned());
            let thread = thread
                .stack_size(GRAMMAR_STACK_BYTES)
                .spawn_scoped(scope, build);
            thread.map(thread::ScopedJoinHandle::join)
        });
        let fail = |reason: String| ConstraintError::Schema {
            field: grammar.field.clone(),
            reason,
        };
        let matcher = outcome
            .map_err(|error| fail(error.to_string()))?
            .map_err(|_| fail("the grammar library crashed".to_owned()))?;
        let mut constraint = Constraint {
            matcher,
            mask: SimpleVob::new(),
        };
        // Some schemas turn out only here to allow no first token, or to exceed a limit.
        match constraint.allowed() {
            Ok(_) => Ok(constraint),
            Err(ConstraintError::Step(reason)) => Err(fail(reason)),
            Err(other) => Err(other),
        }
    }
}

impl std::fmt::Debug for Constrainer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tokens = self.factory.tok_env().tok_trie().vocab_size();
        f.debug_struct("Constrainer")
            .field("tokens", &tokens)
            .finish()
    }
}

/// The state of an output within its grammar.
pub struct Constraint {
    matcher: Matcher,
    mask: SimpleVob,
}

impl Constraint {
    /// Returns the tokens that may come next as a bit mask, lowest id first. End tokens are allowed
    /// only when the output is complete.
    pub fn allowed(&mut self) -> Result<&[u32], ConstraintError> {
        let mask = self.matcher.compute_mask_or_eos();
        self.mask =
            mask.map_err(|error| ConstraintError::Step(readable_error(&error.to_string())))?;
        Ok(self.mask.as_slice())
    }

    /// Advances by a token, which must be allowed.
    pub fn take(&mut self, token: u32) -> Result<(), ConstraintError> {
        let noted = self.matcher.consume_token(token);
        noted.map_err(|error| ConstraintError::Step(readable_error(&error.to_string())))
    }

    /// Returns whether the output is complete and nothing can follow.
    pub fn is_finished(&self) -> bool {
        self.matcher.is_stopped()
    }

    /// Returns a copy of this state, for another choice of the same request.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            matcher: self.matcher.deep_clone(),
            mask: SimpleVob::new(),
        }
    }
}

impl std::fmt::Debug for Constraint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let reason = self.matcher.stop_reason();
        f.debug_struct("Constraint")
            .field("stopped", &reason)
            .finish_non_exhaustive()
    }
}

/// Returns the library's message without stack traces and option names.
fn readable_error(error: &str) -> String {
    if error.starts_with("oneOf constraints are not supported") {
        return "branches of `oneOf` that may both fit are not supported; use `anyOf`".to_owned();
    }
    let first = error.lines().next().unwrap_or_default();
    if first.contains("NoExtension") {
        return "no token can follow, or the vocabulary lacks the required token".to_owned();
    }
    let first = match first.strip_prefix("panic: ") {
        Some(panic) => format!("the grammar library crashed ({panic})"),
        None => first.to_owned(),
    };
    match first.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first,
    }
}
