//! Rules for the next token of a transcript: timestamps come in pairs and in order.

use super::tokens::SpeechTokens;

/// Number of the last timestamp with which a window may begin, in steps of 20 ms.
const MAX_FIRST: u32 = 50;

/// Excludes tokens that cannot follow those made so far.
pub(super) fn apply(tokens: &SpeechTokens, made: &[u32], logits: &mut [f32]) {
    let first = tokens.first_timestamp as usize;
    let end = tokens.end as usize;
    exclude(
        logits,
        tokens
            .suppressed
            .iter()
            .chain(&tokens.no_timestamps)
            .copied(),
    );
    if made.is_empty() {
        exclude(logits, tokens.space.into_iter().chain([tokens.end]));
        range(logits, 0, first);
        range(logits, first + MAX_FIRST as usize + 1, usize::MAX);
    }
    let is_time = |back: usize| {
        let place = made.len().checked_sub(back);
        place
            .and_then(|place| made.get(place))
            .map(|it| tokens.is_timestamp(*it))
    };
    let after_time = is_time(1) == Some(true);
    let after_pair = after_time && is_time(2).unwrap_or(true);
    if after_pair {
        range(logits, first, usize::MAX);
    } else if after_time {
        range(logits, 0, end);
    }
    let times = made.iter().rev().copied();
    if let Some(last) = times.into_iter().find(|token| tokens.is_timestamp(*token)) {
        // The end of a segment may be the start of the next one; a segment is never empty.
        let least = if after_time && !after_pair {
            last
        } else {
            last + 1
        };
        range(logits, first, least as usize);
    }
    if prefers_time(logits, first) {
        range(logits, 0, first);
    }
}

/// Returns whether all timestamps together are more likely than any single text token.
fn prefers_time(logits: &[f32], first: usize) -> bool {
    let (texts, times) = logits.split_at(first.min(logits.len()));
    let text = texts.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let most = times.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    if most == f32::NEG_INFINITY {
        return false;
    }
    let sum: f64 = times.iter().map(|it| f64::from(it - most).exp()).sum();
    f64::from(most) + sum.ln() > f64::from(text)
}

fn exclude(logits: &mut [f32], tokens: impl Iterator<Item = u32>) {
    for token in tokens {
        if let Some(logit) = logits.get_mut(token as usize) {
            *logit = f32::NEG_INFINITY;
        }
    }
}

fn range(logits: &mut [f32], from: usize, to: usize) {
    let to = to.min(logits.len());
    if from < to {
        logits[from..to].fill(f32::NEG_INFINITY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts 0 to 9, the end 10, the start 11, timestamps from 12.
    fn tokens() -> SpeechTokens {
        let id_of = |token: &str| match token {
            "<|endoftext|>" => Some(10),
            "<|startoftranscript|>" => Some(11),
            "<|0.00|>" => Some(12),
            "#" => Some(3),
            _ => None,
        };
        SpeechTokens::find(100, id_of).expect("the tokens")
    }

    fn allowed(made: &[u32], likely: &[u32]) -> Vec<u32> {
        let mut logits = vec![0.0; 100];
        for token in likely {
            logits[*token as usize] = 9.0;
        }
        apply(&tokens(), made, &mut logits);
        let left = logits
            .iter()
            .zip(0..)
            .filter(|(logit, _)| logit.is_finite());
        left.map(|(_, token)| token).collect()
    }

    #[test]
    fn timestamps_come_in_pairs_and_in_order() {
        // A window begins with a timestamp of its first second.
        assert_eq!(allowed(&[], &[1]), (12..=62).collect::<Vec<_>>());
        // A text follows, or nothing; `#` is no speech.
        let texts: Vec<u32> = (0..11)
            .filter(|it| *it != 3)
            .chain([11])
            .filter(|it| *it != 11)
            .collect();
        assert_eq!(allowed(&[20], &[1]), texts);
        // Within a text, a later timestamp ends it.
        let found = allowed(&[20, 1], &[1]);
        assert!(
            found.contains(&2) && !found.contains(&20) && found.contains(&21),
            "{found:?}"
        );
        // The timestamps together are likelier than a text.
        assert_eq!(allowed(&[20, 1], &[]), (21..100).collect::<Vec<_>>());
        // After the end of a segment, the next one begins there or later, or the text ends.
        let found = allowed(&[20, 1, 30], &[10]);
        assert_eq!(found, [&[10][..], &(30..100).collect::<Vec<_>>()].concat());
        assert_eq!(allowed(&[20, 1, 30, 30], &[1]), texts);
    }
}
