//! Size tokens in directory and file names: `1b`, `0_6b`, `tiny`.

/// Words that denote a size.
const WORDS: [&str; 16] = [
    "nano", "micro", "mini", "tiny", "small", "base", "medium", "large", "xlarge", "xs", "s", "m",
    "l", "xl", "xxl", "n",
];

/// Returns whether a directory's name denotes a size: a number with `k`, `m` or `b`, or a usual
/// word.
pub fn is_size_token(name: &str) -> bool {
    WORDS.contains(&as_token(name).as_str()) || is_count(name)
}

/// Returns whether a name is a number with `k`, `m` or `b`; such a name never belongs to a model.
pub fn is_count(name: &str) -> bool {
    let token = as_token(name);
    let Some(number) = token.strip_suffix(['k', 'm', 'b']) else {
        return false;
    };
    let mut parts = number.split('_');
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    parts.clone().count() <= 2 && parts.all(is_number)
}

/// Converts a name to the form of a config's `size`: lower case, `_` for `-` and `.`.
pub fn as_token(name: &str) -> String {
    name.to_ascii_lowercase().replace(['-', '.'], "_")
}

#[cfg(test)]
mod tests {
    use super::is_size_token;

    #[test]
    fn sizes_are_told_from_names() {
        for size in ["1b", "0_6b", "0.6B", "270m", "tiny", "XL"] {
            assert!(is_size_token(size), "{size}");
        }
        for name in [
            "llama",
            "whisper-tiny",
            "b",
            "000",
            "qwen3_0_6b",
            "v2",
            "1_2_3b",
        ] {
            assert!(!is_size_token(name), "{name}");
        }
    }
}
