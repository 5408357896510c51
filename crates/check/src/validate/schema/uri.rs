//! Recognizes URIs (RFC 3986, section 3).
//!
//! Invariant: reads the text once from start to end and allocates nothing.

use std::net::Ipv6Addr;

/// Returns whether a text is a URI: it has a scheme, and every character that needs escaping is
/// escaped.
pub fn is_uri(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else {
        return false;
    };
    if !is_scheme(scheme) {
        return false;
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = match rest.strip_prefix("//") {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    is_authority(authority)
        && is_made_of(path, ":@/")
        && is_made_of(query, ":@/?")
        && is_made_of(fragment, ":@/?")
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

/// Checks `user@host:port`. Only the host is required, and it may be empty.
fn is_authority(text: &str) -> bool {
    let (user, rest) = text.split_once('@').unwrap_or(("", text));
    let (is_host, port) = if let Some(rest) = rest.strip_prefix('[') {
        let Some((host, port)) = rest.split_once(']') else {
            return false;
        };
        (is_address(host), port)
    } else {
        let (host, port) = rest.split_at(rest.find(':').unwrap_or(rest.len()));
        (is_made_of(host, ""), port)
    };
    let is_port = match port.strip_prefix(':') {
        Some(digits) => digits.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    is_made_of(user, ":") && is_host && is_port
}

/// Checks the text in brackets: an IPv6 address, or an address of a future version.
fn is_address(text: &str) -> bool {
    let Some(future) = text.strip_prefix(['v', 'V']) else {
        return text.parse::<Ipv6Addr>().is_ok();
    };
    future.split_once('.').is_some_and(|(version, address)| {
        !version.is_empty()
            && version.bytes().all(|byte| byte.is_ascii_hexdigit())
            && !address.is_empty()
            && !address.contains('%')
            && is_made_of(address, ":")
    })
}

/// Returns whether a text has only letters, digits, `-._~`, `!$&'()*+,;=`, escapes, and the
/// characters in `more`.
fn is_made_of(text: &str, more: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let fits = match byte {
            b'%' => {
                let mut hex = || bytes.next().is_some_and(|byte| byte.is_ascii_hexdigit());
                hex() && hex()
            }
            _ => {
                byte.is_ascii_alphanumeric()
                    || b"-._~!$&'()*+,;=".contains(&byte)
                    || more.as_bytes().contains(&byte)
            }
        };
        if !fits {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::is_uri;

    #[test]
    fn uris_are_told_from_other_texts() {
        for uri in [
            "https://pkgtool.dev/schemas/config.schema.json",
            "a:",
            "a:b:c",
            "urn:isbn:0451450523",
            "mailto:someone@example.com",
            "file:///etc/hosts",
            "http://user:word@host:80/a/b;c=1?d=/?&e=%20#f?/",
            "http://host:",
            "http://",
            "http://[::1]:8080/",
            "http://[::ffff:1.2.3.4]",
            "http://[v7.a:b]",
            "x+1-2.3://h%C3%A9",
            "a:?#",
        ] {
            assert!(is_uri(uri), "{uri}");
        }
        for other in [
            "",
            "no uri",
            "config",
            ":",
            "//host/path",
            "/path",
            "#f",
            "1a:b",
            "ä:b",
            "a b:c",
            "a:b c",
            "a:ä",
            "a:%",
            "a:%2",
            "a:%2g",
            "a:#b#c",
            "a:[b]",
            "a:<b>",
            "a:b\\c",
            "a:\"",
            "a:{b}",
            "a:b^c",
            "http://a@b@c",
            "http://host:8o",
            "http://[::1",
            "http://[::1]a",
            "http://[::g]",
            "http://[]",
            "http://[v.a]",
            "http://[v1.]",
            "http://[1.2.3.4]",
            "http://a:b:c",
            "http://a[::1]",
            "a:\n",
        ] {
            assert!(!is_uri(other), "{other}");
        }
    }
}
