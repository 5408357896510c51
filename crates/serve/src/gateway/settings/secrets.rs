//! Secrets, which settings only name: a variable or a file holds them.

use std::io::Read as _;
use std::path::Path;

use super::environment::PREFIX;

/// Maximum size of a key file, in bytes.
const MAX_KEY_BYTES: u64 = 16 << 10;

/// Checks that a variable with a secret is not a setting.
pub(super) fn no_setting(variable: &str) -> Result<(), String> {
    if variable.starts_with(PREFIX) {
        return Err(format!(
            "variables that begin with `{PREFIX}` are settings: choose another name"
        ));
    }
    Ok(())
}

/// Reads a secret from an environment variable. The error says what is wrong with the variable.
pub(super) fn key_from_variable(name: &str) -> Result<String, String> {
    let missing = "the environment variable is missing: set it before the server starts".to_owned();
    // `var` panics on such names on some systems.
    if name.is_empty() || name.contains(['=', '\0']) {
        return Err("expected the name of an environment variable".to_owned());
    }
    match std::env::var(name) {
        Ok(text) => Ok(text),
        Err(std::env::VarError::NotPresent) => Err(missing),
        Err(std::env::VarError::NotUnicode(_)) => Err("its value is invalid UTF-8".to_owned()),
    }
}

/// Reads a secret from a file. The error says what is wrong with the file.
pub(super) fn key_from_file(path: &Path) -> Result<String, String> {
    let unreadable = |error: std::io::Error| {
        format!("cannot read the file ({error}): make it readable for the server")
    };
    let is_file = std::fs::metadata(path).map_err(unreadable)?.is_file();
    if !is_file {
        return Err("expected a file with the key".to_owned());
    }
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let read = file.take(MAX_KEY_BYTES + 1).read_to_string(&mut text);
    if read.map_err(unreadable)? as u64 > MAX_KEY_BYTES {
        return Err(format!("expected a key of at most {MAX_KEY_BYTES} bytes"));
    }
    Ok(text)
}
