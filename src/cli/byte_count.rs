//! Sizes in bytes, as users write them.

/// Parses a size in bytes with its unit. A bare number is rejected, since it could be meant in
/// bytes or in megabytes.
pub(super) fn byte_count(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" if digits.parse::<u64>().is_ok() => {
            return Err(format!(
                "missing unit: write `{digits}MiB` or `{digits}GiB`"
            ));
        }
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        other => {
            return Err(format!(
                "invalid unit `{other}`: expected KiB, MiB, GiB, kB, MB or GB"
            ));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "expected a whole number".to_owned())?;
    number
        .checked_mul(unit)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| "out of range".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(byte_count("4GiB"), Ok(4 << 30));
        assert_eq!(byte_count("100B"), Ok(100));
        assert_eq!(
            byte_count("10"),
            Err("missing unit: write `10MiB` or `10GiB`".to_owned())
        );
        assert_eq!(byte_count("2mb"), Ok(2_000_000));
        assert!(byte_count("0").is_err());
        assert!(byte_count("4 parsecs").is_err());
        assert!(byte_count("99999999999999GiB").is_err());
    }
}
