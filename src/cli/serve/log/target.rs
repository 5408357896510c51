//! Names of modules in the log and in its filter: `pkgtool::gateway`, whichever crate has the module.

/// The crate with the modules of the server.
const SERVER: &str = "pkgtool_serve::";
/// The prefix of its modules for users.
const PUBLIC: &str = "pkgtool::";
/// Targets that have this prefix themselves.
const OWN: [&str; 2] = ["cli", "trace"];

/// Returns a filter in which modules of the server have the names of the crate.
pub(super) fn internal(filter: &str) -> String {
    let mut parts = filter.split(PUBLIC);
    let mut names = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let is_own = OWN.iter().any(|own| part.starts_with(own));
        names.push_str(if is_own { PUBLIC } else { SERVER });
        names.push_str(part);
    }
    names
}

/// Gives the target of a JSON line the name for users.
pub(super) fn publish(line: &mut Vec<u8>) {
    const KEY: &[u8] = br#""target":""#;
    // Quotes inside texts are escaped, so only the field itself matches.
    let key = line.windows(KEY.len()).position(|window| window == KEY);
    let Some(start) = key.map(|key| key + KEY.len()) else {
        return;
    };
    if line[start..].starts_with(SERVER.as_bytes()) {
        line.splice(start..start + SERVER.len(), PUBLIC.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_name_the_modules_of_the_server() {
        for (filter, expected) in [
            ("info", "info"),
            ("", ""),
            (
                "info,pkgtool::service=debug,pkgtool::cli=warn",
                "info,pkgtool_serve::service=debug,pkgtool::cli=warn",
            ),
            (
                "pkgtool=debug,pkgtool::trace=off",
                "pkgtool=debug,pkgtool::trace=off",
            ),
        ] {
            assert_eq!(internal(filter), expected);
        }
    }

    #[test]
    fn only_the_field_itself_is_renamed() {
        for (line, expected) in [
            (
                r#"{"message":"m","target":"pkgtool_serve::task::queue"}"#,
                r#"{"message":"m","target":"pkgtool::task::queue"}"#,
            ),
            (
                r#"{"message":"\"target\":\"pkgtool_serve::a","target":"pkgtool::cli"}"#,
                r#"{"message":"\"target\":\"pkgtool_serve::a","target":"pkgtool::cli"}"#,
            ),
            ("a line of text", "a line of text"),
        ] {
            let mut bytes = line.as_bytes().to_vec();
            publish(&mut bytes);
            assert_eq!(String::from_utf8_lossy(&bytes), expected);
        }
    }
}
