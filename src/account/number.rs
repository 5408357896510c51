//! Numbers of accounts, services, keys and configs, as paths, queries and commands write them.

/// Reads a number: ASCII digits and nothing else. `+16`, `-0`, ` 16` and digits of other scripts are no numbers, so
/// that each thing has one spelling, and what is no number may be a name.
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
