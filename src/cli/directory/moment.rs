//! Moments on the command line.

use std::time::Duration;

use crate::database::Timestamp;

/// A date, a moment in UTC, or a while from now.
pub(super) fn parse(text: &str) -> Result<Timestamp, String> {
    if let Some(at) = Timestamp::from_iso(text) {
        return Ok(at);
    }
    let hours = match text.char_indices().next_back() {
        Some((end, 'h')) => text[..end].parse::<u64>().ok(),
        Some((end, 'd')) => text[..end]
            .parse::<u64>()
            .ok()
            .and_then(|days| days.checked_mul(24)),
        _ => None,
    };
    let seconds = hours.and_then(|hours| hours.checked_mul(3600));
    match seconds {
        Some(seconds) => Ok(Timestamp::now().after(Duration::from_secs(seconds))),
        None => Err("expected 12h, 30d, 2027-01-31, or 2027-01-31T08:00:00Z".to_owned()),
    }
}

/// The moment to the second.
pub(super) fn shown(at: Timestamp) -> String {
    let text = at.to_iso();
    format!("{}Z", text.split('.').next().unwrap_or(&text))
}
