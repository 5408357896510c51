//! The retry policy of the client: the failures that are retried, and the pauses between attempts.

use std::time::Duration;

use super::ClientError;

/// Maximum number of attempts per request.
const TRIES: u32 = 5;

/// The first pause. Each pause is twice the previous one, with a random part.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Longest automatic pause. The user decides about longer waits.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// When a request may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Safe {
    /// Always: the request is idempotent.
    Always,
    /// If no answer arrived. An error response counts as the answer.
    IfUnreachable,
    /// If the request was certainly not accepted.
    BeforeItWasSent,
}

/// The attempts of one request so far.
#[derive(Debug)]
pub(super) struct Tries {
    safe: Safe,
    made: u32,
}

impl Tries {
    pub(super) fn new(safe: Safe) -> Self {
        Self { safe, made: 0 }
    }

    /// Records a failed attempt. Returns the pause before the next one, or `None` if there must be
    /// no retry.
    pub(super) fn pause(&mut self, error: &ClientError) -> Option<Duration> {
        self.made += 1;
        if self.made >= TRIES || !self.helps(error) {
            return None;
        }
        let asked = match error {
            ClientError::Refused { retry_after, .. } => *retry_after,
            _ => None,
        };
        let own = FIRST_PAUSE * 2_u32.pow(self.made - 1);
        let pause = asked
            .unwrap_or(Duration::ZERO)
            .max(own.mul_f64(0.5 + 0.5 * chance()));
        (pause <= LONGEST_PAUSE).then_some(pause)
    }

    fn helps(&self, error: &ClientError) -> bool {
        match error {
            ClientError::Usage(_)
            | ClientError::Protocol(_)
            | ClientError::Refused { final_: true, .. } => false,
            ClientError::Unreachable { unsent, .. } => {
                *unsent || self.safe != Safe::BeforeItWasSent
            }
            ClientError::Refused { status, .. } => match self.safe {
                Safe::Always => *status == 429 || *status >= 500,
                Safe::IfUnreachable => *status == 429,
                Safe::BeforeItWasSent => matches!(*status, 429 | 503),
            },
        }
    }
}

/// Returns a random number from 0 to 1. Without randomness all clients would retry at the same
/// time.
fn chance() -> f64 {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    f64::from(byte[0]) / 255.0
}
