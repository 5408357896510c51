//! The secret of a webhook, and the signatures of its requests.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// The prefix of secrets.
const PREFIX: &str = "whsec_";

/// Allowed sizes of a secret, in bytes.
const SIZES: std::ops::RangeInclusive<usize> = 24..=64;

/// The secret of a webhook.
#[derive(Clone, PartialEq, Eq)]
pub struct WebhookSecret(Vec<u8>);

impl WebhookSecret {
    /// Parses `whsec_` and 24 to 64 bytes in base64. The error says what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = || {
            format!(
                "expected `{PREFIX}` and {} to {} random bytes in base64",
                SIZES.start(),
                SIZES.end()
            )
        };
        let coded = text.trim().strip_prefix(PREFIX).ok_or_else(expected)?;
        let bytes = STANDARD.decode(coded).map_err(|_| expected())?;
        if !SIZES.contains(&bytes.len()) {
            return Err(expected());
        }
        Ok(Self(bytes))
    }

    /// Returns the value of the header `webhook-signature`.
    pub(super) fn sign(&self, id: &str, timestamp: i64, body: &str) -> String {
        let mut mac =
            <Hmac<Sha256>>::new_from_slice(&self.0).expect("a key of HMAC may have any length");
        mac.update(format!("{id}.{timestamp}.{body}").as_bytes());
        let sum = mac.finalize().into_bytes();
        format!("v1,{}", STANDARD.encode(sum))
    }
}

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // The example of the Standard Webhooks specification.
        let secret = WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = secret.expect("it is valid").sign(
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            r#"{"test": 2432232314}"#,
        );
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_has_a_prefix_and_enough_bytes() {
        for wrong in [
            "",
            "whsec_",
            "whsec_AAAA",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_ä",
        ] {
            let error = WebhookSecret::parse(wrong).expect_err(wrong);
            assert!(error.contains("24 to 64"), "{error}");
        }
    }
}
