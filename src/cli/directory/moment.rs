//! Points in time and durations on the command line.

use std::time::Duration;

use super::super::exit::Failure;
use pkgtool_serve::database::Timestamp;

/// Parses a date, a time in UTC, or a duration from now.
pub(super) fn parse(text: &str) -> Result<Timestamp, String> {
    if let Some(at) = Timestamp::from_iso(text) {
        return Ok(at);
    }
    match span(text) {
        Ok(span) => Ok(Timestamp::now().after(span)),
        Err(_) => Err("expected 12h, 30d, 2027-01-31, or 2027-01-31T08:00:00Z".to_owned()),
    }
}

/// Parses a duration such as `30m`.
pub(in super::super) fn span(text: &str) -> Result<Duration, String> {
    let seconds = text.char_indices().next_back().and_then(|(end, unit)| {
        let unit = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            _ => return None,
        };
        text[..end].parse::<u64>().ok()?.checked_mul(unit)
    });
    let seconds = seconds.ok_or_else(|| "expected a duration such as 30m, 12h or 7d".to_owned())?;
    Ok(Duration::from_secs(seconds))
}

/// Formats a duration in its largest unit, rounded down.
pub(in super::super) fn short(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        86_400.. => format!("{} d", seconds / 86_400),
        3600.. => format!("{} h", seconds / 3600),
        60.. => format!("{} min", seconds / 60),
        _ => format!("{seconds} s"),
    }
}

/// Returns an error unless an expiry time is in the future.
pub(super) fn require_later(
    expires: Option<Timestamp>,
    now: Timestamp,
    what: &str,
) -> Result<(), Failure> {
    if expires.is_some_and(|at| at <= now) {
        let message = format!("--expires is in the past, so the {what} would never be valid");
        return Err(Failure::Other(message));
    }
    Ok(())
}

/// Returns the state of a key or a token: nothing if it is valid.
pub(super) fn validity(
    revoked: Option<Timestamp>,
    expires: Option<Timestamp>,
    now: Timestamp,
) -> &'static str {
    if revoked.is_some() {
        "revoked"
    } else if expires.is_some_and(|at| at <= now) {
        "expired"
    } else {
        ""
    }
}

/// Formats a time in UTC, to the second.
pub(in super::super) fn shown(at: Timestamp) -> String {
    let text = at.to_iso();
    format!("{}Z", text.split('.').next().unwrap_or(&text))
}
