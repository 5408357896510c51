//! The function `strftime_now`: formats the local time for a template.
//!
//! Invariant: an unknown pattern is an error, never a panic.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::format::{Item, StrftimeItems};
use chrono::{Local, TimeZone};
use minijinja::{Error, ErrorKind};

/// The moment of the current rendering, shared with the function that templates call.
#[derive(Debug, Clone, Default)]
pub(super) struct RenderTime(Arc<AtomicI64>);

impl RenderTime {
    /// Sets the moment, in seconds since 1970.
    pub(super) fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::Relaxed);
    }

    /// Formats the moment like Python's `datetime.now().strftime(pattern)`.
    pub(super) fn text(&self, pattern: &str) -> Result<String, Error> {
        // In Python, `%f` means microseconds.
        let pattern = pattern.replace("%f", "%6f");
        let items: Vec<Item> = StrftimeItems::new(&pattern).collect();
        let unknown = || {
            let detail = format!("`strftime_now` does not support the pattern {pattern:?}");
            Error::new(ErrorKind::InvalidOperation, detail)
        };
        if items.contains(&Item::Error) {
            return Err(unknown());
        }
        let seconds = self.0.load(Ordering::Relaxed);
        let moment = Local.timestamp_opt(seconds, 0).single();
        let moment = moment.ok_or_else(unknown)?;
        let mut text = String::new();
        write!(text, "{}", moment.format_with_items(items.iter())).map_err(|_| unknown())?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_pythons_and_unknown_ones_are_errors() {
        let moment = RenderTime::default();
        // Noon, so that it is the same day nearly everywhere.
        moment.set(1_753_531_200);
        let text = |pattern| moment.text(pattern).expect("it is known");
        assert_eq!(text("%d %b %Y"), "26 Jul 2025");
        assert_eq!(text("%Y-%m-%d %%"), "2025-07-26 %");
        assert_eq!(text("%B %-d, %Y"), "July 26, 2025");
        assert_eq!(text("%f"), "000000");
        assert!(moment.text("%Q").is_err());
        assert!(moment.text("%").is_err());
    }
}
