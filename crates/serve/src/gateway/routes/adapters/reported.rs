//! Reads the token counts that answers report in `usage`, without parsing the rest.
//!
//! Invariant: an invalid `usage` counts as zero, and implausible numbers are ignored.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::service::{TokenCounts, events};

/// Maximum size of a `usage` that is read, in bytes.
const MAX_USAGE_BYTES: usize = 16 << 10;

/// Maximum plausible number of tokens.
const MAX_TOKENS: u64 = 1 << 40;

/// Text that every event with usage contains.
const USAGE_KEY: &[u8] = b"\"usage\"";

/// Token counts reported so far. Later numbers override earlier ones, one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ReportedUsage {
    prompt: Option<u64>,
    completion: Option<u64>,
    cached: Option<u64>,
}

/// The parts of an answer that are read.
#[derive(Deserialize)]
struct ReportedAnswer<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    /// Some services report the prompt's tokens in the first event, within this field.
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
}

/// Usage, under the names that services use for it.
#[derive(Deserialize)]
struct UsageMembers {
    prompt_tokens: Option<u64>,
    input_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    output_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
    input_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u64>,
}

impl ReportedUsage {
    /// Reads a whole answer.
    pub(super) fn read_answer(&mut self, answer: &[u8]) {
        let Ok(answer) = serde_json::from_slice::<ReportedAnswer<'_>>(answer) else {
            return;
        };
        let inner = answer.message.map(RawValue::get);
        let inner = inner.filter(|message| message.starts_with('{'));
        let inner =
            inner.and_then(|message| serde_json::from_str::<ReportedAnswer<'_>>(message).ok());
        let usages = [inner.and_then(|inner| inner.usage), answer.usage];
        for usage in usages.into_iter().flatten() {
            self.read(usage.get());
        }
    }

    /// Reads whole events; returns `true` if the last event of the stream is among them.
    pub(super) fn read_events(&mut self, events: &[u8]) -> bool {
        let mut is_done = false;
        for data in events::data(events) {
            is_done = data == b"[DONE]";
            if data
                .windows(USAGE_KEY.len())
                .any(|window| window == USAGE_KEY)
            {
                self.read_answer(data);
            }
        }
        is_done
    }

    /// Returns the token counts; missing ones are zero.
    pub(super) fn tokens(self) -> TokenCounts {
        TokenCounts {
            prompt: self.prompt.unwrap_or(0),
            completion: self.completion.unwrap_or(0),
            cached: self.cached.unwrap_or(0),
        }
    }

    fn read(&mut self, usage: &str) {
        if usage.len() > MAX_USAGE_BYTES {
            return;
        }
        // `null` in all events but the last.
        let Ok(Some(usage)) = serde_json::from_str::<Option<UsageMembers>>(usage) else {
            return;
        };
        let details = usage.prompt_tokens_details.or(usage.input_tokens_details);
        let cached = details.and_then(|details| details.cached_tokens);
        for (known, said) in [
            (&mut self.prompt, usage.prompt_tokens.or(usage.input_tokens)),
            (
                &mut self.completion,
                usage.completion_tokens.or(usage.output_tokens),
            ),
            (&mut self.cached, cached.or(usage.cache_read_input_tokens)),
        ] {
            *known = said.filter(|said| *said <= MAX_TOKENS).or(*known);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(prompt: u64, completion: u64, cached: u64) -> TokenCounts {
        TokenCounts {
            prompt,
            completion,
            cached,
        }
    }

    fn of(answer: &str) -> TokenCounts {
        let mut reported = ReportedUsage::default();
        reported.read_answer(answer.as_bytes());
        reported.tokens()
    }

    #[test]
    fn usage_is_found_in_whole_answers() {
        let answer = r#"{"choices":[{"text":"\"usage\":{\"prompt_tokens\":9}","usage":{"prompt_tokens":8}}],
            "usage":{"prompt_tokens":3,"completion_tokens":4,"total_tokens":7,"x":[1.5],
            "prompt_tokens_details":{"cached_tokens":2}}}"#;
        assert_eq!(of(answer), tokens(3, 4, 2));
        let other = r#"{"usage":{"input_tokens":5,"output_tokens":6,"cache_read_input_tokens":1}}"#;
        assert_eq!(of(other), tokens(5, 6, 1));
        for nothing in [
            "",
            "[]",
            "{",
            r#"{"usage":null}"#,
            r#"{"usage":7}"#,
            r#"{"usage":{"prompt_tokens":-1}}"#,
            r#"{"usage":{"prompt_tokens":"3"}}"#,
            r#"{"usage":{"prompt_tokens":99999999999999999}}"#,
            r#"{"message":"text"}"#,
        ] {
            assert_eq!(of(nothing), TokenCounts::default(), "{nothing}");
        }
        let long = format!(
            r#"{{"usage":{{"prompt_tokens":3,"x":"{}"}}}}"#,
            "x".repeat(MAX_USAGE_BYTES)
        );
        assert_eq!(of(&long), TokenCounts::default());
    }

    #[test]
    fn the_last_that_events_say_counts() {
        let mut reported = ReportedUsage::default();
        let first = b"data: {\"usage\":null}\n\ndata: {\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":1}}\n\n";
        assert!(!reported.read_events(first));
        assert_eq!(reported.tokens(), tokens(3, 1, 0));
        let last = b"data: {\"usage\":{\"completion_tokens\":5}}\r\n\r\ndata: [DONE]\n\n";
        assert!(reported.read_events(last));
        assert_eq!(reported.tokens(), tokens(3, 5, 0));
        let mut nested = ReportedUsage::default();
        let start =
            b"event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":2}}}\n\n";
        assert!(!nested.read_events(start));
        assert!(!nested.read_events(b"data: {\"usage\":{\"output_tokens\":4}}\n\n"));
        assert_eq!(nested.tokens(), tokens(2, 4, 0));
    }
}
