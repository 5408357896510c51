//! Masks credentials in texts before they are shown.
//!
//! Invariant: a masked text contains no user, password or query of a URL, and no value of a key
//! whose name marks a secret. In doubt, too much is masked.

/// Replaces masked text.
pub const MASK: &str = "***";

/// Words in names whose values are secrets.
const SECRET_WORDS: [&str; 12] = [
    "apikey",
    "auth",
    "authorization",
    "cookie",
    "credential",
    "credentials",
    "key",
    "passwd",
    "password",
    "secret",
    "signature",
    "token",
];

/// Last words of names whose values only refer to the place of a secret.
const REFERENCE_WORDS: [&str; 3] = ["env", "file", "header"];

/// Masks credentials in a text: those of URLs, and bearer tokens.
pub fn redact(text: &str) -> String {
    tokens(&addresses(text))
}

/// Masks credentials in a text that should be a URL, even if it is malformed.
pub fn redact_address(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", address_without_credentials(rest)),
        None => address_without_credentials(text),
    }
}

/// Masks credentials in a text that quotes lines of a settings file, each after `|`. In these
/// lines, values assigned to names of secrets are masked too.
pub fn redact_quoted(text: &str) -> String {
    let lines = redact(text);
    let lines = lines
        .split_inclusive('\n')
        .map(|line| match line.split_once('|') {
            Some((number, quoted)) => format!("{number}|{}", assignments(quoted)),
            None => line.to_owned(),
        });
    lines.collect()
}

/// Returns whether the value of this name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words: Vec<&str> = name.split(['-', '_', '.']).collect();
    let is_place = words
        .last()
        .is_some_and(|last| REFERENCE_WORDS.contains(last));
    !is_place && words.iter().any(|word| SECRET_WORDS.contains(word))
}

/// Masks the user, the password and the query of every URL in a text.
fn addresses(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        shown.push_str(before);
        // All other characters may belong to a password.
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        let (address, next) = after.split_at(end);
        shown.push_str(&address_without_credentials(address));
        rest = next;
    }
    shown + rest
}

/// Masks the part of a URL after `://`. The user part ends at the last `@` before the path, or of
/// the whole text if that is unclear.
fn address_without_credentials(address: &str) -> String {
    let (address, query) = match address.split_once('?') {
        Some((address, query)) => (address, format!("?{}", mask_unless_empty(query))),
        None => (address, String::new()),
    };
    match address.rsplit_once('@') {
        Some((_, host)) => format!("{MASK}@{host}{query}"),
        None => format!("{address}{query}"),
    }
}

fn mask_unless_empty(text: &str) -> &str {
    if text.is_empty() { "" } else { MASK }
}

/// Masks the token after `Bearer`.
fn tokens(text: &str) -> String {
    const SCHEME: &str = "bearer ";
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    // Lower-casing ASCII preserves byte positions.
    while let Some(at) = rest.to_ascii_lowercase().find(SCHEME) {
        let (before, after) = rest.split_at(at + SCHEME.len());
        shown.push_str(before);
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '`');
        let end = after.find(ends).unwrap_or(after.len());
        shown.push_str(mask_unless_empty(&after[..end]));
        rest = &after[end..];
    }
    shown + rest
}

/// Masks the value after `NAME =` if the name marks a secret.
fn assignments(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('=') {
        let (before, after) = rest.split_at(at + 1);
        shown.push_str(before);
        rest = after;
        if !is_secret_name(name_before(&before[..at])) {
            continue;
        }
        let value = after.trim_start_matches([' ', '\t']);
        shown.push_str(&after[..after.len() - value.len()]);
        let length = value_length(value);
        if length > 0 {
            shown.push_str(MASK);
        }
        rest = &value[length..];
    }
    shown + rest
}

/// Returns the name at the end of a text.
fn name_before(text: &str) -> &str {
    let text = text.trim_end_matches([' ', '\t', '"', '\'']);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let start = text.trim_end_matches(is_part).len();
    &text[start..]
}

/// Returns the length of the value at the beginning of a text: a quoted one, or up to a space.
fn value_length(text: &str) -> usize {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''));
    let end = match quote {
        Some(quote) => text[1..].find([quote, '\n']).map(|end| end + 2),
        None => text.find(|c: char| c.is_whitespace() || c == '&'),
    };
    let end = end.unwrap_or(text.len()).min(text.len());
    // An unclosed quote ends with its line.
    let quoted = &text[..end];
    quoted.strip_suffix('\n').unwrap_or(quoted).len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_masked_and_the_rest_stays() {
        for (text, shown) in [
            ("http://h:1/a/b", "http://h:1/a/b"),
            ("see http://u:p@h/x, now", "see http://***@h/x, now"),
            ("`https://u@h`", "`https://***@h`"),
            (
                "http://u:p@ss/w@h:80/x?y=z#f end",
                "http://***@h:80/x?*** end",
            ),
            ("http://h/?", "http://h/?"),
            ("`Bearer sk-1` and bearer x.", "`Bearer ***` and bearer ***"),
            ("expected KEY=VALUE", "expected KEY=VALUE"),
            ("", ""),
        ] {
            assert_eq!(redact(text), shown, "{text}");
        }
        for (text, shown) in [
            ("3 | key = \"sk-1 2\"\n  | ^", "3 | key = ***\n  | ^"),
            ("expected KEY=VALUE", "expected KEY=VALUE"),
            (
                "3 | { name = \"a\", api_key = 'x', b = 1 }",
                "3 | { name = \"a\", api_key = ***, b = 1 }",
            ),
            ("| \"X-Auth-Token\" = \"t\"", "| \"X-Auth-Token\" = ***"),
            ("| token = \"open\nnext = 1", "| token = ***\nnext = 1"),
            ("| key_env = \"NAME\"", "| key_env = \"NAME\""),
            ("| key_file=k name=n", "| key_file=k name=n"),
            ("| monkey = 1", "| monkey = 1"),
            ("| password=", "| password="),
            ("", ""),
        ] {
            assert_eq!(redact_quoted(text), shown, "{text}");
        }
    }

    #[test]
    fn addresses_are_masked_however_they_are_written() {
        for (text, shown) in [
            ("http://h/a", "http://h/a"),
            ("http://u:p w\t\"@h/a?b", "http://***@h/a?***"),
            ("http:/u:p@h/a", "***@h/a"),
            ("u:p@h", "***@h"),
            ("h?k=v", "h?***"),
        ] {
            assert_eq!(redact_address(text), shown, "{text}");
        }
    }

    #[test]
    fn names_say_what_is_secret() {
        for secret in [
            "X-Api-Key",
            "authorization",
            "Cookie",
            "x_auth_token",
            "KEY",
        ] {
            assert!(is_secret_name(secret), "{secret}");
        }
        for other in ["X-Org", "key_env", "key_file", "key_header", "keyboard", ""] {
            assert!(!is_secret_name(other), "{other}");
        }
    }
}
