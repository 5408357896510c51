//! Parses the numbers of accounts, services, keys and configs in paths, queries and commands.

/// Parses a number of ASCII digits. `+16`, `-0`, ` 16` and digits of other scripts are rejected, so
/// that each number has one spelling and all other texts can be names.
pub fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_are_a_number() {
        assert_eq!((number("16"), number("0")), (Some(16), Some(0)));
        for other in [
            "",
            "+16",
            "-0",
            "-16",
            " 16",
            "16 ",
            "１６",
            "0x10",
            "1e1",
            "9999999999999999999",
        ] {
            assert_eq!(number(other), None, "{other}");
        }
    }
}
