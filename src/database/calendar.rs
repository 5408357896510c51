//! Moments as people and ISO 8601 write them, in UTC.

use super::Timestamp;

/// Milliseconds of a day.
const DAY: i64 = 86_400_000;

/// Days from 0000-03-01 to 1970-01-01, in the proleptic Gregorian calendar.
const EPOCH: i64 = 719_468;

/// Days of 400 years.
const ERA: i64 = 146_097;

impl Timestamp {
    /// `2026-11-21T04:26:17.123Z`.
    pub fn to_iso(self) -> String {
        let (year, month, day) = date(self.0.div_euclid(DAY));
        let rest = self.0.rem_euclid(DAY);
        let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
        let (second, millis) = (rest / 1000 % 60, rest % 1000);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
    }

    /// `2027-01-31`, `2027-01-31T08:00:00Z`; `None` if it is no moment in UTC.
    pub fn from_iso(text: &str) -> Option<Self> {
        let (date, time) = match text.split_once('T') {
            Some((date, time)) => (date, time.strip_suffix('Z')?),
            None => (text, "00:00:00"),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days(year, month, day)?;
        Some(Self(
            days * DAY + ((hour * 60 + minute) * 60 + second) * 1000,
        ))
    }
}

/// Numbers of exactly so many digits.
fn numbers<const N: usize>(text: &str, between: char, digits: [usize; N]) -> Option<[i64; N]> {
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

/// The day of a date, counted from 1970-01-01. Years are counted from March: the leap day is the last.
fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let year = year - i64::from(month <= 2);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days =
        year.div_euclid(400) * ERA + of_era * 365 + of_era / 4 - of_era / 100 + of_year - EPOCH;
    // A day that its month does not have comes back as another.
    (date(days).2 == day).then_some(days)
}

/// The date of a day counted from 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let of_era = days.rem_euclid(ERA);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = days.div_euclid(ERA) * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_and_read_as_iso_8601() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_795_235_177_123, "2026-11-21T04:26:17.123Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(Timestamp(millis).to_iso(), text);
        }
        for day in (-800_000..800_000).step_by(97) {
            let (year, month, of_month) = date(day);
            assert_eq!(days(year, month, of_month), Some(day));
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
            "2027-01-31T08:00:00",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}
