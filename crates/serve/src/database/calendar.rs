//! Formats and parses times and days as ISO 8601, in UTC.

use chrono::{DateTime, Datelike as _, NaiveDate, Timelike as _, Utc};

use super::Timestamp;

/// A day, in milliseconds.
const MILLISECONDS_PER_DAY: i64 = 86_400_000;

/// A day in UTC: days since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// Formats the day as `2026-11-21`.
    pub fn to_iso(self) -> String {
        let mut text = Timestamp(self.0.saturating_mul(MILLISECONDS_PER_DAY)).to_iso();
        text.truncate(text.find('T').unwrap_or(text.len()));
        text
    }

    /// Parses `2026-11-21`; returns `None` for an invalid day.
    pub fn from_iso(text: &str) -> Option<Self> {
        if text.contains('T') {
            return None;
        }
        Timestamp::from_iso(text).map(Timestamp::day)
    }

    /// Returns the day `days` days earlier.
    #[must_use]
    pub fn before(self, days: u32) -> Self {
        Self(self.0.saturating_sub(i64::from(days)))
    }

    /// Returns the day this many days later.
    #[must_use]
    pub fn after(self, days: u32) -> Self {
        Self(self.0.saturating_add(i64::from(days)))
    }
}

impl Timestamp {
    /// Returns the day of this time.
    pub fn day(self) -> Day {
        Day(self.0.div_euclid(MILLISECONDS_PER_DAY))
    }

    /// Formats the time as `2026-11-21T04:26:17.123Z`. A time outside of the calendar's range is
    /// clamped.
    pub fn to_iso(self) -> String {
        let nearest = if self.0 < 0 {
            DateTime::<Utc>::MIN_UTC
        } else {
            DateTime::<Utc>::MAX_UTC
        };
        let at = DateTime::from_timestamp_millis(self.0).unwrap_or(nearest);
        let (year, month, day) = (at.year(), at.month(), at.day());
        let (hour, minute, second) = (at.hour(), at.minute(), at.second());
        let millis = at.timestamp_subsec_millis();
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }

    /// Parses `2027-01-31` or `2027-01-31T08:00:00Z`; returns `None` for an invalid time.
    pub fn from_iso(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, time.strip_suffix('Z')?),
            None => (text, "00:00:00"),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        let date = NaiveDate::from_ymd_opt(i32::try_from(year).ok()?, month, day)?;
        let at = date.and_hms_opt(hour, minute, second)?;
        Some(Self(at.and_utc().timestamp_millis()))
    }
}

/// Parses numbers with an exact count of digits: chrono's own parser accepts fewer.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[u32; N]> {
    let mut numbers = [0; N];
    let mut parts = text.split(between);
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next()?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_and_read() {
        for (day, text) in [
            (0, "1970-01-01"),
            (20_779, "2026-11-22"),
            (-1, "1969-12-31"),
        ] {
            assert_eq!(Day(day).to_iso(), text);
            assert_eq!(Day::from_iso(text), Some(Day(day)));
            let last = Timestamp(day * MILLISECONDS_PER_DAY + MILLISECONDS_PER_DAY - 1);
            assert_eq!(
                (Timestamp(day * MILLISECONDS_PER_DAY).day(), last.day()),
                (Day(day), Day(day))
            );
        }
        for wrong in [
            "",
            "2026-02-30",
            "2026-1-1",
            "2026-11-22T00:00:00Z",
            "today",
        ] {
            assert_eq!(Day::from_iso(wrong), None, "{wrong}");
        }
        assert_eq!(Day(3).before(5), Day(-2));
        // A day outside of the calendar's range is clamped.
        assert!(Day(i64::MAX).to_iso().ends_with("-12-31"));
    }

    #[test]
    fn moments_are_written_and_read_as_iso_8601() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_235_177_123, "2026-11-21T04:26:17.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
            (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
            (i64::MAX, "262142-12-31T23:59:59.999Z"),
            (i64::MIN, "-262143-01-01T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(millis).to_iso(), text);
        }
        for day in (-700_000..2_900_000).step_by(97) {
            let at = Timestamp(day * 86_400_000);
            let text = at.to_iso();
            let date = text.split_once('T').map(|(date, _)| date);
            assert_eq!(date.and_then(Timestamp::from_iso), Some(at), "{text}");
        }
        let read = |text: &str| Timestamp::from_iso(text).map(Timestamp::to_iso);
        assert_eq!(
            read("2027-01-31").as_deref(),
            Some("2027-01-31T00:00:00.000Z")
        );
        assert_eq!(
            read("2028-02-29T23:59:59Z").as_deref(),
            Some("2028-02-29T23:59:59.000Z")
        );
        for wrong in [
            "2027-02-29",
            "2027-13-01",
            "2027-1-1",
            "soon",
            "2027-01-31T24:00:00Z",
            "2027-01-31T08:00:60Z",
            "2027-01-31T08:00:00",
            "+2027-01-31",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
