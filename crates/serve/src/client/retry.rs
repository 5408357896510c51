//! The retry policy of the client: the failures that are retried, and the pauses between attempts.

use std::time::Duration;

use super::ClientError;

/// Maximum number of attempts per request.
const MAX_ATTEMPTS: u32 = 5;

/// The first pause. Each pause is twice the previous one, with a random part.
const FIRST_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// Longest automatic pause. The user decides about longer waits.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(30);

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetrySafety {
    /// Always: the request is idempotent.
    Always,
    /// If no answer arrived. An error response counts as the answer.
    IfUnreachable,
    /// If the request was certainly not accepted.
    IfNotAccepted,
}

/// The attempts of one request so far.
#[derive(Debug)]
pub(super) struct RetryState {
    safe: RetrySafety,
    made: u32,
}

impl RetryState {
    pub(super) fn new(safe: RetrySafety) -> Self {
        Self { safe, made: 0 }
    }

    /// Records a failed attempt. Returns the pause before the next one, or `None` if there must be
    /// no retry.
    pub(super) fn pause(&mut self, error: &ClientError) -> Option<Duration> {
        self.made += 1;
        if self.made >= MAX_ATTEMPTS || !self.is_retryable(error) {
            return None;
        }
        let asked = match error {
            ClientError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        };
        let own = FIRST_RETRY_PAUSE * 2_u32.pow(self.made - 1);
        let pause = asked
            .unwrap_or(Duration::ZERO)
            .max(own.mul_f64(0.5 + 0.5 * random_fraction()));
        (pause <= MAX_RETRY_PAUSE).then_some(pause)
    }

    fn is_retryable(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Usage(_)
            | ClientError::Protocol(_)
            | ClientError::Refused { final_: true, .. } => false,
            ClientError::Unreachable { unsent, .. } => {
                *unsent || self.safe != RetrySafety::IfNotAccepted
            }
            ClientError::Refused { status, .. } => match self.safe {
                RetrySafety::Always => *status == 429 || *status >= 500,
                RetrySafety::IfUnreachable => *status == 429,
                RetrySafety::IfNotAccepted => matches!(*status, 429 | 503),
            },
        }
    }
}

/// Returns a random number from 0 to 1. Without randomness all clients would retry at the same
/// time.
fn random_fraction() -> f64 {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
